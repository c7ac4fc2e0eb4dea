# SPDX-License-Identifier: Apache-2.0
"""shoal.torch.DistributedDataParallel against torch's own, over the same process group.

Functions named rank_* run on the ranks. Two ranks have only one order of summation, so both
classes give the same bits.
"""

from __future__ import annotations

import copy
import io
import itertools
from datetime import timedelta

import pytest
import ranks

torch = pytest.importorskip("torch")
import shoal.torch  # noqa: E402 (needs torch)
from torch_ranks import lies_in_a_region, new_method, rank_start  # noqa: E402 (needs torch)

dist = pytest.importorskip("torch.distributed")
from torch.nn.parallel import DistributedDataParallel as TorchDDP  # noqa: E402
from torch.nn.parallel.distributed import _MixedPrecision  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

DDP = shoal.torch.DistributedDataParallel
WIDTH, STEPS = 64, 4
SMALL_BUFFERS = {"bucket_cap_mb": 4 / 1024}  # several in each model here


@pytest.fixture(scope="module")
def pair():
    with ranks.Ranks(2, rank_start, new_method()) as started:
        yield started


def mlp(types=(torch.float32,) * 3):
    class Layer(torch.nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs.to(self.weight.dtype)).relu()

    return torch.nn.Sequential(*(Layer(WIDTH, WIDTH, dtype=dtype) for dtype in types))


def conv():
    """With buffers, and parameters in channels-last order."""
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(8 * 36, 4))
    return network.to(memory_format=torch.channels_last)


class Branches(torch.nn.Module):
    """Passes use some of the branches."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.branches = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, inputs, which):
        inputs = self.first(inputs)
        return {"sum": sum(self.branches[i](inputs) for i in which), "spare": inputs.square()}


class Again(torch.nn.Module):
    """A checkpointed layer that is used twice, one that is not used, and one at the end."""

    def __init__(self):
        super().__init__()
        self.layer, self.idle = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 2)
        self.last = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs):
        inputs = inputs.clone().requires_grad_()
        for _ in range(2):
            inputs = checkpoint(lambda x: self.layer(x).tanh(), inputs, use_reentrant=True)
        return self.last(inputs)


def made(kind, network, rank, **options):
    """The network, another one on each rank, in a class of either kind."""
    torch.manual_seed(10 + rank)
    return kind(network(), **options)


def samples(rank, *shape):
    """Batches without end, other ones on each rank."""
    generator = torch.Generator().manual_seed(rank)
    while True:
        yield torch.randn(*(shape or (8, WIDTH)), generator=generator)


def state(trained):
    """All that training changes: copies."""
    gradients = [None if p.grad is None else p.grad.clone() for p in trained.parameters()]
    tensors = [each.detach().clone() for each in (*trained.parameters(), *trained.buffers())]
    return gradients, tensors


def same(one, other) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def train(trained, batches, steps=STEPS, to_none=True, run=lambda model, x, _: model(x)):
    """What each step leaves behind."""
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01, momentum=0.9)
    found = []
    for step, inputs in zip(range(steps), batches, strict=False):
        optimizer.zero_grad(set_to_none=to_none)
        run(trained, inputs, step).float().square().mean().backward()
        optimizer.step()
        found.append(state(trained))
    return found


def check_same_training(network, rank, options, torch_options=None, **how):
    shape = how.pop("shape", ())
    ours = made(DDP, network, rank, **options)
    theirs = made(TorchDDP, network, rank, **(options if torch_options is None else torch_options))
    found, wanted = (train(one, samples(rank, *shape), **how) for one in (ours, theirs))
    for step, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert same(one, other), step
    return ours


BOTH = pytest.mark.parametrize("view", [False, True])


def rank_mlp(rank, size, view):
    for to_none in (True, False):
        options = {"gradient_as_bucket_view": view, **SMALL_BUFFERS}
        ours = check_same_training(mlp, rank, options, to_none=to_none)
        (counted,) = ours.fuse_counters()
        parameters = sum(p.numel() * p.element_size() for p in ours.parameters())
        assert counted["steps"] == STEPS and counted["buffers"] == STEPS * 13
        assert counted["bytes"] == STEPS * parameters <= ours.fuse_traffic()[0]["bytes"]
        # Results are copied back unless gradients live in the buffers; these are copied in unless
        # they are accumulated there.
        copies = 2 * STEPS if not view else STEPS if to_none else 1
        assert counted["copied"] == copies * parameters


@BOTH
def test_training_has_the_bits_of_torch(pair, view):
    pair.call(rank_mlp, view)


def rank_odd_buffers(rank, size):
    for bucket_cap_mb in (-1, 0, 1e-6, 1e6):
        ours = check_same_training(mlp, rank, {"bucket_cap_mb": bucket_cap_mb}, {}, steps=2)
        (counted,) = ours.fuse_counters()
        assert counted["buffers"] == (2 * 13 if bucket_cap_mb < 1 else 2)


def test_sizes_that_no_fusion_buffer_has(pair):
    pair.call(rank_odd_buffers)


def rank_conv(rank, size, view):
    options = {"gradient_as_bucket_view": view}
    ours = check_same_training(conv, rank, options, shape=(4, 3, 8, 8))
    assert ours.fused and len(list(ours.buffers())) == 3
    made(DDP, conv, rank, forward_sync_buffers=False)


@BOTH
def test_buffers_and_channels_last(pair, view):
    pair.call(rank_conv, view)


def rank_types(rank, size, view):
    types = [torch.float64, torch.bfloat16, torch.float32]
    options = {"gradient_as_bucket_view": view}
    ours = check_same_training(lambda: mlp(types), rank, options)
    assert len(ours.fuse_counters()) == len(types)


@BOTH
def test_parameters_of_several_types(pair, view):
    pair.call(rank_types, view)


class Cast(torch.nn.Module):
    """By hand what mixed_precision does."""

    def __init__(self, network, dtype):
        super().__init__()
        self.network, self.dtype = network, dtype

    def forward(self, inputs):
        cast = {name: p.to(self.dtype) for name, p in self.network.named_parameters()}
        return torch.func.functional_call(self.network, cast, (inputs.to(self.dtype),))


def bfloat_hook(group, bucket):
    """The sum of bfloat16 numbers, the mean in the end."""
    sent = bucket.buffer().to(torch.bfloat16)
    future = dist.all_reduce(sent, op=dist.ReduceOp.AVG, async_op=True).get_future()
    return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))


def rank_precision(rank, size, view):
    low = torch.bfloat16
    by_hand = made(TorchDDP, lambda: Cast(mlp(), low), rank)
    by_hand.register_comm_hook(None, bfloat_hook)
    wanted = train(by_hand, samples(rank))
    precision = _MixedPrecision(param_dtype=low)
    options = {"gradient_as_bucket_view": view, "mixed_precision": precision}
    assert same(train(made(DDP, mlp, rank, **options), samples(rank)), wanted)

    exact = made(TorchDDP, lambda: Cast(mlp(), low), rank)
    options["mixed_precision"] = _MixedPrecision(param_dtype=low, reduce_dtype=torch.float32)
    ours = made(DDP, mlp, rank, **options)
    assert same(train(ours, samples(rank)), train(exact, samples(rank)))

    only_sums = made(TorchDDP, mlp, rank)
    only_sums.register_comm_hook(None, bfloat_hook)
    options["mixed_precision"] = _MixedPrecision(reduce_dtype=low, buffer_dtype=low)
    ours = copy.deepcopy(made(DDP, mlp, rank, **options))
    assert same(train(ours, samples(rank)), train(only_sums, samples(rank)))
    with_buffers = made(DDP, conv, rank, **options)
    assert [buffer.dtype for buffer in with_buffers.buffers()] == [low, low, torch.int64]


@BOTH
def test_mixed_precision(pair, view):
    pair.call(rank_precision, view)


def rank_unused(rank, size, view):
    """Which branches are used depends on rank and step; some nobody uses, then all do."""
    uses = [[[0], [0, 1]], [[1], [0]], [[3, 2], [3, 1, 0]], [[], [2]], [[0, 1, 2, 3]] * 2]

    def run(model, inputs, step):
        return model(inputs, uses[step][rank])["sum" if uses[step][rank] else "spare"]

    for to_none in (True, False):
        options = {"gradient_as_bucket_view": view, "find_unused_parameters": True}
        check_same_training(Branches, rank, options, run=run, steps=len(uses), to_none=to_none)


@BOTH
def test_unused_parameters(pair, view):
    pair.call(rank_unused, view)


def rank_no_sync(rank, size, view):
    """Two passes are accumulated, the third one is summed; then two that are both summed."""
    found = []
    for kind in (DDP, TorchDDP):
        model = made(kind, mlp, rank, gradient_as_bucket_view=view)
        batches = samples(rank)
        for _ in range(2):
            model.zero_grad()
            with model.no_sync():
                for _ in range(2):
                    model(next(batches)).mean().backward()
            accumulated = state(model)
            for _ in range(2):
                model(next(batches)).mean().backward()
            found.append((accumulated, state(model)))
    assert same(found[0], found[2]) and same(found[1], found[3])


@BOTH
def test_no_sync(pair, view):
    pair.call(rank_no_sync, view)


def rank_static(rank, size, view):
    options = {"gradient_as_bucket_view": view, "static_graph": True}
    ours = check_same_training(Again, rank, options)
    assert ours.module.idle.weight.grad is None


@BOTH
def test_static_graph_with_reentrant_checkpoints(pair, view):
    pair.call(rank_static, view)


def rank_static_no_sync(rank, size):
    """The first pass of all is not summed."""
    found = []
    for static in (True, False):
        model = made(DDP, mlp, rank, static_graph=static)
        batches = samples(rank)
        with model.no_sync():
            model(next(batches)).mean().backward()
        for _ in range(2):
            model(next(batches)).mean().backward()
        found.append(state(model))
    assert same(*found)


def test_static_graph_begins_with_no_sync(pair):
    pair.call(rank_static_no_sync)


class Checkpointed(Again):
    def forward(self, inputs):
        inputs = inputs.clone().requires_grad_()
        return self.last(checkpoint(lambda x: self.layer(x), inputs, use_reentrant=self.reenters))


def rank_checkpoint(rank, size):
    for Checkpointed.reenters in (True, False):
        ours = made(DDP, Checkpointed, rank, find_unused_parameters=True)
        plain = copy.deepcopy(ours.module)
        inputs = next(samples(0))  # the same on both ranks: so is the mean
        for model in (ours, plain):
            model(inputs).square().mean().backward()
        assert same(state(ours), state(plain))


def test_checkpoints_beside_unused_parameters(pair):
    pair.call(rank_checkpoint)


def rank_join(rank, size, view, divide_by_all):
    found = []
    for kind in (DDP, TorchDDP):
        model = made(kind, conv, rank, gradient_as_bucket_view=view)
        with model.join(divide_by_initial_world_size=divide_by_all):
            left = train(model, samples(rank, 4, 3, 8, 8), steps=3 * rank)
        found.append((left, state(model)[1]))
    assert same(*found)


@pytest.mark.parametrize("divide_by_all", [False, True])
@BOTH
def test_join(pair, view, divide_by_all):
    pair.call(rank_join, view, divide_by_all)


def growing(model, inputs, step):
    return model(inputs, range(step + 1))["sum"]


def rank_join_unused(rank, size):
    found = []
    for kind in (DDP, TorchDDP):
        model = made(kind, Branches, rank, find_unused_parameters=True)
        with model.join():
            left = train(model, samples(rank), steps=3 - rank, run=growing)
        found.append((left, state(model)[1]))
    assert same(*found)


def test_join_with_unused_parameters(pair):
    pair.call(rank_join_unused)


def halve_and_send(group, bucket):
    """Compression in bfloat16, as torch's hook of that kind, which asks for a GPU."""
    sent = bucket.buffer().to(torch.bfloat16).div_(2)
    future = dist.all_reduce(sent, group=group, async_op=True).get_future()
    return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))


def rank_hook(rank, size):
    found = []
    for kind in (DDP, TorchDDP):
        model = made(kind, mlp, rank)
        assert getattr(model, "fused", True)
        with pytest.raises(TypeError, match="callable"):
            model.register_comm_hook(None, "no hook")
        assert getattr(model, "fused", True)
        model.register_comm_hook(None, halve_and_send)
        assert not getattr(model, "fused", False)
        found.append(train(model, samples(rank)))
    assert same(*found)


def test_a_communication_hook(pair):
    pair.call(rank_hook)


def rank_other_backend(rank, size):
    group = dist.new_group([0, 1], backend="gloo")
    ours = check_same_training(mlp, rank, {"process_group": group})
    assert not ours.fused and ours.fuse_counters() == []


def test_a_group_of_another_backend(pair):
    pair.call(rank_other_backend)


def rank_checkpoints(rank, size):
    """Checkpoints go both ways, and a copy and a pickle of a model train on."""
    ours, theirs = (made(kind, conv, rank) for kind in (DDP, TorchDDP))
    assert isinstance(ours, TorchDDP)
    train(ours, samples(rank, 4, 3, 8, 8))
    theirs.load_state_dict(ours.state_dict())
    assert same(state(ours)[1], state(theirs)[1])
    ours.load_state_dict(made(TorchDDP, conv, rank).state_dict())
    pickled = io.BytesIO()
    torch.save(ours, pickled)
    pickled.seek(0)
    others = [copy.deepcopy(ours), torch.load(pickled, weights_only=False)]
    wanted = train(ours, samples(rank, 4, 3, 8, 8))
    for other in others:
        assert other.fused and same(train(other, samples(rank, 4, 3, 8, 8)), wanted)
    data = ours._get_ddp_logging_data()
    assert data["iteration"] == 2 * STEPS and data["avg_backward_comm_time"] > 0


def test_checkpoints_of_either_class(pair):
    pair.call(rank_checkpoints)


def rank_homes(rank, size):
    """Gradients are in shared memory from the end of the first step on, and stay."""
    model = made(DDP, mlp, rank, gradient_as_bucket_view=True)
    places = []
    for inputs in itertools.islice(samples(rank), 3):
        model.zero_grad()
        model(inputs).mean().backward()
        assert all(lies_in_a_region(p.grad) for p in model.parameters())
        places.append([p.grad.data_ptr() for p in model.parameters()])
    assert places[0] == places[1] == places[2]
    kept = [p.grad for p in model.parameters()]
    values = [grad.clone() for grad in kept]
    del model
    assert same(kept, values)


def test_gradients_live_in_the_buffers(pair):
    pair.call(rank_homes)


def rank_create_graph(rank, size, view):
    model = made(DDP, mlp, rank, gradient_as_bucket_view=view)
    for inputs in itertools.islice(samples(0), 2):
        plain = copy.deepcopy(model.module)
        for one in (model, plain):
            one.zero_grad()
            one(inputs).square().mean().backward(create_graph=True)
        assert same(state(model), state(plain))


@BOTH
def test_a_graph_of_the_gradients(pair, view):
    pair.call(rank_create_graph, view)


def rank_compiled(rank, size):
    """The compiler goes through the class, and leaves the reducer as it is."""
    plain, compiled = (made(DDP, mlp, rank) for _ in range(2))
    compiled = torch.compile(compiled, backend="eager")
    assert same(train(compiled, samples(rank)), train(plain, samples(rank)))


def test_a_compiled_model(pair):
    pair.call(rank_compiled)


def rank_two_forwards(rank, size):
    """One loss of two passes; and two backward passes through one, with a part each."""
    model = made(DDP, Branches, rank)
    plain = copy.deepcopy(model.module)
    first, second = itertools.islice(samples(0), 2)
    for one in (model, plain):
        (one(first, [0, 1])["sum"] + one(second, [2, 3])["sum"]).mean().backward()
    assert same(state(model), state(plain))
    model = made(DDP, lambda: torch.nn.ModuleList(mlp() for _ in range(2)), rank)
    model.module.forward = lambda x: [each(x) for each in model.module]
    for part in model(first):
        part.square().mean().backward()
    wanted = copy.deepcopy(model.module)
    wanted.zero_grad()
    sum(each(first).square().mean() for each in wanted).backward()
    assert same(state(model.module), state(wanted))


def test_several_passes(pair):
    pair.call(rank_two_forwards)


def rank_sparse(rank, size):
    with pytest.raises(ValueError, match=r"gradient of weight is sparse.*sparse=False"):
        DDP(torch.nn.Embedding(4, 2, sparse=True))


def test_sparse_gradients_are_refused(pair):
    pair.call(rank_sparse)


def rank_models_differ(rank, size):
    """torch compares with rank 0's model, and rank 0 hears of it when it needs the others."""
    group = dist.new_group([0, 1], timeout=timedelta(seconds=2))
    if rank == 1:
        with pytest.raises(RuntimeError, match=r"sizes \[2, 5\]"):
            DDP(torch.nn.Linear(5, 2), process_group=group)
    else:
        with pytest.raises(RuntimeError, match=r"rank 1 "):
            DDP(torch.nn.Linear(4, 2), process_group=group)(torch.ones(1, 4))
    dist.barrier()


def test_models_that_differ(pair):
    pair.call(rank_models_differ)


def rank_left_out(rank, size):
    model = made(DDP, Branches, rank)
    model(next(samples(rank)), [1])["sum"].mean().backward()
    with pytest.raises(RuntimeError, match=r"branches\.0\.weight, .*find_unused_parameters=True"):
        model(next(samples(rank)), [1])
    dist.barrier()


def test_a_parameter_that_is_left_out(pair):
    pair.call(rank_left_out)


def rank_second(rank, size):
    model = made(DDP, Again, rank, find_unused_parameters=True)
    with pytest.raises(RuntimeError, match=r"layer\.\w+ got a second gradient.*static_graph=True"):
        model(next(samples(rank))).mean().backward()
    model = made(DDP, Branches, rank, find_unused_parameters=True)
    outputs = model(next(samples(rank)), [0])
    outputs["spare"].mean().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"gradient of branches\.0\.\w+ came after the end"):
        outputs["sum"].mean().backward()
    dist.barrier()


def test_a_gradient_too_many(pair):
    pair.call(rank_second)


def rank_static_changes(rank, size):
    model = made(DDP, Branches, rank, static_graph=True)
    model(next(samples(rank)), [0])["sum"].mean().backward()
    with pytest.raises(RuntimeError, match=r"branches\.1\.\w+ got more gradients.*static_graph"):
        model(next(samples(rank)), [0, 1])["sum"].mean().backward()
    dist.barrier()


def test_a_static_graph_that_changes(pair):
    pair.call(rank_static_changes)


def rank_missing(rank, size):
    """Rank 1 leaves a branch out; rank 0's backward pass says so, and so does the next one."""
    group = dist.new_group([0, 1], timeout=timedelta(seconds=2))
    model = made(DDP, Branches, rank, process_group=group)
    outputs = model(next(samples(rank)), range(4 - rank))
    if rank == 1:
        outputs["sum"].mean().backward()
    for _ in range(2 - 2 * rank):
        late = r"fuse .gradients of Branches.*branches\.3\.bias.*rank 1 .*is late"
        with pytest.raises(dist.DistError, match=late):
            outputs["sum"].mean().backward(retain_graph=True)
            model(next(samples(rank)), range(4))["sum"].mean().backward()
    dist.barrier()


def test_a_gradient_that_one_rank_lacks(pair):
    pair.call(rank_missing)
