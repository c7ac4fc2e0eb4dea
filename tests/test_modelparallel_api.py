# SPDX-License-Identifier: Apache-2.0
"""smdistributed.modelparallel.torch: delayed parameters, gradients of several passes, loss scales,
messages, and what there is of the rest of the interface.

Functions named job_* run on the ranks.
"""

from __future__ import annotations

import os
from datetime import timedelta

import forked_jobs
import pytest

torch = pytest.importorskip("torch")

WIDTH, BATCH, MICROBATCHES = 8, 16, 4

# Optimizers import torch's compiler.
MODULES = ["torch", "torch._dynamo", "smdistributed.modelparallel.torch"]


@pytest.fixture(scope="module")
def two():
    with forked_jobs.Jobs(2, *MODULES) as started:
        yield started


def train_step(smp):
    @smp.step
    def train(model, inputs):
        loss = model(inputs).square().mean()
        model.backward(loss)
        return loss

    return train


def outcome(function, *arguments, **named):
    """Type and text of what it raises."""
    try:
        function(*arguments, **named)
    except Exception as error:
        return type(error).__name__, str(error)
    return None


# ---- delayed parameters


class Odd(torch.nn.Module):
    """Values from everything that modules do when they are made."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(7, WIDTH, padding_idx=0)
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.norm = torch.nn.BatchNorm1d(WIDTH)
        self.scale = torch.nn.Parameter(torch.randn(WIDTH) * 0.5)
        self.register_buffer("mask", torch.tril(torch.ones(WIDTH, WIDTH)), persistent=False)
        self.register_buffer("rates", torch.linspace(0, 0.3, 4))
        drops = [rate.item() for rate in torch.linspace(0, 0.3, 4)]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in drops)
        self.drop_sum = sum(drops)
        self.last = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        torch.nn.init.orthogonal_(self.last.weight)
        torch.nn.init.trunc_normal_(self.first.weight, std=0.02)
        for layer in self.layers[1:]:
            layer.weight.data.normal_(0, 0.1)
            layer.weight.data = layer.weight.data * 2
        own = torch.Generator().manual_seed(9)
        torch.nn.init.uniform_(self.layers[3].bias, generator=own)
        torch.nn.init.trunc_normal_(self.layers[2].weight, generator=own)
        torch.manual_seed(77)
        torch.nn.init.xavier_uniform_(self.layers[3].weight)
        self.layers[2].bias = self.layers[1].bias
        self.layers[0].weight.data.copy_(torch.arange(64.0).view(8, 8) / 64)

    def forward(self, inputs):
        hidden = self.norm(self.first(inputs) + self.table(torch.tensor(1)) * self.scale)
        for layer in self.layers:
            hidden = layer(hidden @ self.mask)
        return self.last(hidden)


def initialise_again(module):
    """As programs do after the model is made."""
    if isinstance(module, torch.nn.Linear) and module.bias is not None:
        torch.nn.init.normal_(module.bias, std=0.1)
        module.weight.data.mul_(0.5)


def made_odd():
    torch.manual_seed(5)
    return Odd().apply(initialise_again)


def job_values(rank, size, partitions):
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": partitions, "ddp": True})
    torch.manual_seed(5)
    with smp.delay_param_initialization():
        model = Odd()
        assert "after smp.delay_param_initialization()" in outcome(smp.DistributedModel, model)[1]
    model = smp.DistributedModel(model.apply(initialise_again))
    assert abs(model.get_module().drop_sum - 0.6) < 1e-6
    early = outcome(model.state_dict) if partitions > 1 else None
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0))
    train_step(smp)(model.eval(), torch.randn(BATCH, WIDTH))
    optimizer.step()
    kinds = {type(one) for one in model.local_parameters()}
    local = dict(model.local_named_buffers())
    return model.state_dict(), local, kinds, early


@pytest.mark.parametrize("partitions", [1, 2])
def test_delayed_parameters_have_the_values_of_the_program(two, partitions):
    wanted = made_odd()
    for values, buffers, kinds, early in two.run(job_values, partitions):
        assert list(values) == list(wanted.state_dict())
        for name, one in wanted.state_dict().items():
            assert torch.equal(values[name], one), name
        for name, one in wanted.named_buffers():
            assert name not in buffers or torch.equal(buffers[name], one)
        assert kinds == {torch.nn.Parameter}
        assert early is None or "get their values in the first step" in early[1]


def job_half(rank, size):
    """The configuration says it, and the type is one of 16 bits."""
    import smdistributed.modelparallel.torch as smp
    from smdistributed.modelparallel.torch import delayed

    smp.init({"partitions": 2, "fp16": True, "delayed_parameter_initialization": True})
    torch.manual_seed(5)
    with smp.model_creation(dtype=torch.float64, fused_softmax=True):
        network = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)])
    assert network[0].weight.dtype == torch.float64
    assert all(delayed.lacks_values(one) for one in network.parameters())
    model = smp.DistributedModel(network)
    train_step(smp)(model, torch.randn(BATCH, WIDTH))
    return model.state_dict()


def test_delayed_parameters_change_their_type(two):
    torch.manual_seed(5)
    layers = [torch.nn.Linear(WIDTH, WIDTH, dtype=torch.float64) for _ in range(4)]
    wanted = torch.nn.Sequential(*layers).half().state_dict()
    for values in two.run(job_half):
        for name, one in wanted.items():
            assert torch.equal(values[name], one), name


class Bare(torch.nn.Module):
    """Has a parameter, and no reset_parameters()."""

    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.empty(WIDTH))

    def forward(self, inputs):
        return inputs * self.factor


def job_meta(rank, size, is_bare):
    """Made on the meta device by the program itself, so that nothing is recorded."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2})
    torch.manual_seed(5)
    with torch.device("meta"):
        network = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, WIDTH), Bare() if is_bare else torch.nn.Linear(WIDTH, WIDTH)
        )
    smp.set_partition(network[1], 1)
    model = smp.DistributedModel(network)
    train_step(smp)(model, torch.randn(BATCH, WIDTH))
    return model.state_dict()


def test_modules_on_the_meta_device_initialise_themselves(two):
    first, second = two.run(job_meta, False)
    for name, one in first.items():
        assert torch.equal(one, second[name])
        assert 0 < one.abs().max() <= WIDTH**-0.5
    assert not torch.equal(first["0.weight"], first["1.weight"])


def test_a_module_that_nobody_can_initialise_is_named(two):
    for kind, text in two.errors(job_meta, True):
        assert kind == "PartitionError"
        assert "factor of module 1 (Bare) has no values" in text
        assert "smp.delay_param_initialization()" in text


def job_memory(rank, size, is_delayed):
    """Peak of what a rank has of its own, in MiB, above that before the model is made."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2})
    torch.manual_seed(1)
    before = peak_mib()
    with smp.delay_param_initialization(is_delayed):
        network = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(32)])
    model = smp.DistributedModel(network)
    with torch.no_grad():
        smp.step(lambda model, inputs: model(inputs).sum())(model, torch.randn(4, 1024))
    return peak_mib() - before


def peak_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def test_delayed_parameters_take_memory_on_their_rank_alone(two):
    """128 MiB in all, 64 MiB on a rank."""
    at_once, delayed = two.run(job_memory, False), two.run(job_memory, True)
    assert min(at_once) > 120
    assert max(delayed) < 0.8 * min(at_once)


# ---- gradients of several passes


class Either(torch.nn.Module):
    """Uses one of two layers, as it is told."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, inputs, which):
        return self.layers[which](inputs)


def job_passes(rank, size):
    """Layer 1 is used by rank 0 alone, in the first of two passes; then an evaluation between."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 1, "ddp": True})
    torch.manual_seed(1)
    model = smp.DistributedModel(Either(), backward_passes_per_step=2)

    @smp.step
    def train(model, inputs, which):
        loss = model(inputs, which).sum()
        model.backward(loss)
        return loss

    @smp.step
    def evaluate(model, inputs):
        return model(inputs, 0).sum()

    ones = torch.ones(BATCH, WIDTH)
    train(model, ones, 1 if rank == 0 else 0)
    with torch.no_grad():
        evaluate(model, ones)
    first = [one.grad is not None for one in model.get_module().layers[1].parameters()]
    train(model, ones, 0)
    return first, [layer.bias.grad for layer in model.get_module().layers]


def test_gradients_of_earlier_passes_reach_the_other_ranks(two):
    results = two.run(job_passes)
    assert [first for first, _ in results] == [[True] * 2, [False] * 2]
    for _, (zero, one) in results:
        assert torch.equal(zero, torch.full((WIDTH,), 1.5 * BATCH))
        assert one is not None and torch.equal(one, torch.full((WIDTH,), 0.5 * BATCH))


def job_first_pass(rank, size):
    """With stages the first step begins before there is anything to be summed."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 1, "ddp": True})
    torch.manual_seed(1)
    model = smp.DistributedModel(torch.nn.Linear(WIDTH, 1), backward_passes_per_step=2)
    bias = model.get_module().bias
    found = []
    for _ in range(2):  # without smp.step
        model.backward(model(torch.ones(BATCH, WIDTH)).sum() * (rank + 1))
        found.append(bias.grad.item())
    return found


def test_a_model_of_one_stage_needs_no_step(two):
    assert two.run(job_first_pass) == [[BATCH, 3 * BATCH], [2 * BATCH, 3 * BATCH]]


# ---- loss scales


def job_scaler(rank, size):
    """In the second of three steps the second stage alone finds a gradient that is not finite."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2, "microbatches": MICROBATCHES})
    torch.manual_seed(1)
    network = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(2)])
    for stage, layer in enumerate(network):
        smp.set_partition(layer, stage)
    model = smp.DistributedModel(network)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    scaler = smp.amp.GradScaler(init_scale=256.0, growth_interval=1000)

    @smp.step
    def train(model, inputs):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(inputs).float().square().mean()
        model.backward(scaler.scale(loss))
        return loss

    seen = []
    for number in range(3):
        optimizer.zero_grad()
        train(model, torch.ones(BATCH, WIDTH))
        if number == 1 and rank == 1:
            next(model.local_parameters()).grad[0, 0] = torch.inf
        before = [one.detach().clone() for one in model.local_parameters()]
        scaler.unscale_(optimizer)
        largest = max(one.grad.abs().max().item() for one in model.local_parameters())
        scaler.step(optimizer)
        scaler.update()
        same = [
            torch.equal(one, was) for one, was in zip(model.local_parameters(), before, strict=True)
        ]
        seen.append((all(same), scaler.get_scale(), largest < 10))
    return seen


def test_a_scaled_step_is_left_out_on_all_ranks(two):
    first, second = two.run(job_scaler)
    assert first == [(False, 256.0, True), (True, 128.0, True), (False, 128.0, True)]
    assert second == [(False, 256.0, True), (True, 128.0, False), (False, 128.0, True)]


# ---- messages


def job_messages(rank, size):
    import smdistributed.modelparallel.torch as smp

    os.environ["SHOAL_TIMEOUT_MS"] = "77000"
    smp.init({"partitions": 2})
    assert smp.state.topology.deadline == timedelta(seconds=77)
    found = []
    if rank == 0:
        smp.send({"a": [1, torch.ones(2)]}, 1, smp.PP_RANK)
        smp.broadcast("to all", smp.WORLD)
        found.append(smp.recv_from(1, smp.RankType.WORLD_RANK))
    else:
        found.append(smp.recv_from(0, smp.MP_RANK)["a"][1].tolist())
        found.append(smp.recv_from(0, smp.WORLD_RANK))
        smp.send(None, 0, smp.PP_RANK)
    smp.broadcast("to nobody", smp.DP_GROUP)
    smp.mp_barrier()
    smp.dp_barrier()
    smp.barrier(smp.CommGroup.PP_GROUP)
    found.append(smp.allgather(rank, smp.MP_GROUP))
    found.append(smp.allgather(str(rank), smp.DP_GROUP))
    return found


def test_objects_go_between_ranks(two):
    assert two.run(job_messages) == [
        [None, [0, 1], ["0"]],
        [[1.0, 1.0], "to all", [0, 1], ["1"]],
    ]


def job_wrong_messages(rank, size):
    """What is refused before anything is sent."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2})
    return {
        "group": outcome(smp.broadcast, 1, "dp"),
        "gathered": outcome(smp.allgather, 1, smp.PP_RANK),
        "barrier": outcome(smp.barrier, None),
        "type": outcome(smp.send, 1, 0, smp.PP_GROUP),
        "number": outcome(smp.recv_from, 2, smp.PP_RANK),
        "in a group of one": outcome(smp.send, 1, 1, smp.DP_RANK),
        "itself": outcome(smp.send, 1, rank, smp.WORLD_RANK),
    }


def test_wrong_messages_are_refused(two):
    wanted = {
        "group": "smp.broadcast(): 'dp' is none of smp.WORLD, smp.MP_GROUP",
        "gathered": "smp.allgather(): <RankType.PP_RANK: 'pp'> is none of smp.WORLD",
        "barrier": "smp.barrier(): None is none of smp.WORLD",
        "type": "is none of smp.WORLD_RANK, smp.MP_RANK",
        "number": "smp.recv_from(): there is no pp_rank 2; rank {rank}'s group has 2 ranks",
        "in a group of one": "there is no dp_rank 1; rank {rank}'s group has 1 ranks",
        "itself": "world_rank {rank} is this rank itself",
    }
    for rank, found in enumerate(two.run(job_wrong_messages)):
        assert found.keys() == wanted.keys()
        for name, text in wanted.items():
            kind, got = found[name]
            assert kind == "CommunicationError" and text.format(rank=rank) in got, (name, got)


def job_no_message(rank, size, waits):
    """Rank 0 waits for what rank 1 does not do."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2})
    smp.barrier()
    smp.get_world_process_group().set_timeout(timedelta(seconds=1))
    if rank == 0:
        waits(smp)
    smp.recv_from(0, smp.WORLD_RANK)


def waits_for_a_message(smp):
    smp.recv_from(1, smp.PP_RANK)


def waits_in_a_barrier(smp):
    smp.barrier(smp.PP_GROUP)


@pytest.mark.parametrize(
    "waits, texts",
    [
        (waits_for_a_message, ["smp.recv_from(): rank 1 has sent nothing to rank 0"]),
        (waits_in_a_barrier, ["smp.barrier(): ranks [0, 1] must call it", "rank 1"]),
    ],
)
def test_a_message_that_nobody_sends_is_said(two, waits, texts):
    (kind, text), (other_kind, other) = two.errors(job_no_message, waits)
    assert kind == other_kind == "CommunicationError"
    assert all(one in text for one in texts), text
    assert "smp.recv_from(): rank 0 has sent nothing to rank 1" in other


# ---- the rest


def job_members(rank, size):
    import smdistributed.modelparallel.torch as smp
    from smdistributed.modelparallel.backend.exceptions import SMPError
    from smdistributed.modelparallel.torch.exceptions import CheckpointError
    from smdistributed.modelparallel.torch.utils import get_distribution_axis, rmsg

    assert issubclass(CheckpointError, SMPError)
    smp.init({"partitions": 2})
    torch.manual_seed(1)
    network = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.BatchNorm1d(WIDTH), torch.nn.Linear(WIDTH, WIDTH)
    )
    network[0].bias.requires_grad_(False)
    for index, stage in enumerate([0, 0, 1]):
        smp.set_partition(network[index], stage)
    model = smp.DistributedModel(network)
    optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters()))
    train_step(smp)(model, torch.randn(BATCH, WIDTH))
    optimizer.step()
    one = next(model.local_parameters())
    assert not model.is_distributed_parameter(one) and not model.is_scaled_batch_parameter(one)
    assert not model.is_distributed_buffer(one) and not model.is_scaled_batch_buffer(one)
    assert list(model.distributed_modules()) == []
    assert list(model.scaled_batch_reducer_named_parameters()) == []
    assert get_distribution_axis(one) is None and rmsg("text") == f"[{rank}] text"
    names = [name for name, _ in model.default_reducer_named_parameters()]
    virtual = [name for name, _ in model.virtual_named_parameters()]
    state = optimizer.save_optimizer_backcompat(gather_if_shard=False)
    optimizer.load_optimizer_backcompat(state, gather_if_shard=False)
    model.load_state_dict(model.local_state_dict(), same_partition_load=True)
    found = {
        "join": outcome(model.join),
        "hook": outcome(model.register_comm_hook, None, print),
        "partial": outcome(model.load_state_dict, model.state_dict(), same_partition_load=True),
        "parallel": outcome(smp.model_creation(tensor_parallelism=True).__enter__),
        "option": outcome(smp.model_creation(fused=True).__enter__),
    }
    whole = model.state_dict()
    first = model.state_dict(gather_to_rank0=True)
    assert list(first) == (list(whole) if rank == 0 else [])
    model.eval().cpu()
    here = {name: torch.equal(one, whole[name]) for name, one in network.state_dict().items()}
    assert here == dict.fromkeys(whole, True)
    with torch.no_grad():
        result = model(torch.ones(BATCH, WIDTH))
    found["gathered"] = outcome(train_step(smp), model, torch.randn(BATCH, WIDTH))
    return names, virtual, result, found


def test_members_say_what_is_there(two):
    (names, virtual, result, _), (other_names, other_virtual, other, _) = results = two.run(
        job_members
    )
    assert names == ["0.weight", "1.weight", "1.bias"] and "0.bias" in virtual
    assert other_names == other_virtual == ["2.weight", "2.bias"]
    assert torch.equal(result, other)
    wanted = {
        "join": "join() is for data parallel copies of the model, and 'ddp' is not true",
        "hook": "register_comm_hook() is for data parallel copies",
        "partial": "same_partition_load is for what local_state_dict() gave",
        "parallel": "tensor_parallelism=True) is not supported by Shoal yet",
        "option": "has no argument 'fused'",
        "gathered": "cpu() has gathered the model",
    }
    for *_, found in results:
        for name, text in wanted.items():
            assert found[name] is not None and text in found[name][1], (name, found[name])


def job_wrong_hook(rank, size):
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 1, "ddp": True})
    torch.manual_seed(1)
    model = smp.DistributedModel(torch.nn.Linear(WIDTH, WIDTH))
    found = [outcome(model.register_comm_hook, None, 3)]
    model.register_comm_hook(None, lambda state, bucket: bucket.buffer())
    found.append(outcome(model.register_comm_hook, None, print))
    found.append(outcome(train_step(smp), model, torch.ones(BATCH, WIDTH)))
    return found


def test_a_wrong_communication_hook_is_refused(two):
    for kinds in two.run(job_wrong_hook):
        assert "must be callable, not int" in kinds[0][1]
        assert "was called before" in kinds[1][1]
        assert (
            "must return a torch.futures.Future of the bucket's result, not Tensor" in kinds[2][1]
        )
