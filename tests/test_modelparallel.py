# SPDX-License-Identifier: Apache-2.0
"""smdistributed.modelparallel.torch: what a model learns over several stages is what it learns in
one process.

Functions named job_* run on the ranks.
"""

from __future__ import annotations

import time

import forked_jobs
import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402 (needs torch)

WIDTH, CLASSES, BATCH, MICROBATCHES = 16, 5, 16, 4
STEPS, STEPS_LONG = 8, 50
TOLERANCE = 1e-5
SAME_BITS = {"partitions": 2, "deterministic_server": True}

# Optimizers import torch's compiler.
MODULES = ["torch", "torch._dynamo", "smdistributed.modelparallel.torch"]


@pytest.fixture(scope="module")
def two():
    with forked_jobs.Jobs(2, *MODULES) as started:
        yield started


@pytest.fixture(scope="module")
def four(two):
    return two.of(4)


class Block(torch.nn.Module):
    """A residual around two layers, which the root calls in a loop."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.wide = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden, scale=None):
        out = hidden + self.narrow(F.gelu(self.wide(self.norm(hidden))))
        return {"hidden": out * scale if scale is not None else out, "skipped": (hidden, None)}


class Adds(torch.nn.Module):
    """Changes in its place what comes from elsewhere, and what another module has given it."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.second = torch.nn.Sequential(torch.nn.ReLU(inplace=True), torch.nn.Linear(WIDTH, 1))

    def forward(self, inputs):
        hidden = self.first(inputs)
        hidden += 1
        hidden[:, 0] = 2
        return self.second(F.relu(hidden, inplace=True) + 1).sum()


class Net(torch.nn.Module):
    """Embedding and head share their weight; what a block returns is nested; the first block's
    input goes around all of them."""

    def __init__(self, blocks=6):
        super().__init__()
        self.embed = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(blocks))
        self.head = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.head.weight = self.embed.weight
        self.classes = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs):
        first = hidden = self.embed(inputs)
        for block in self.blocks:
            hidden = block(hidden, scale=torch.tensor(0.9))["hidden"]
        return self.classes(self.head(hidden) + first)


def batches(count):
    generator = torch.Generator().manual_seed(3)
    for _ in range(count):
        yield (
            torch.randn(BATCH, WIDTH, generator=generator),
            torch.randint(0, CLASSES, (BATCH,), generator=generator),
        )


def alone(steps, make=Net):
    """Losses of one process, and its parameters at the end."""
    torch.manual_seed(1)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for inputs, classes in batches(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), classes)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


def job_train(rank, size, config, steps, make=Net):
    """Losses, parameters of the whole model, and how many of them this rank has."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"microbatches": MICROBATCHES} | config)
    torch.manual_seed(1)
    model = smp.DistributedModel(make())
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2))

    @smp.step
    def train(model, inputs, classes):
        loss = F.cross_entropy(model(inputs), classes)
        model.backward(loss)
        return loss

    losses = []
    for inputs, classes in batches(steps):
        optimizer.zero_grad()
        own = slice(smp.dp_rank(), None, smp.dp_size())
        loss = train(model, inputs[own], classes[own]).reduce_mean()
        optimizer.step()
        losses.append(sum(smp.allgather(loss.item(), smp.DP_GROUP)) / smp.dp_size())
    count = sum(one.numel() for one in model.local_parameters())
    return losses, model.state_dict(), count


def assert_same(results, wanted):
    losses, parameters = wanted
    for got_losses, got_parameters, _ in results:
        torch.testing.assert_close(got_losses, losses, rtol=TOLERANCE, atol=0)
        assert list(got_parameters) == list(parameters)
        for name, one in parameters.items():
            torch.testing.assert_close(got_parameters[name], one, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "config",
    [
        {"partitions": 2, "pipeline": "simple"},
        {"partitions": 2, "active_microbatches": 1, "skip_tracing": True},
    ],
    ids=["simple", "one-at-a-time"],
)
def test_two_stages_learn_what_one_process_does(two, config):
    assert_same(two.run(job_train, config, STEPS), alone(STEPS))


def test_many_steps_stay_the_same_and_parameters_are_divided(two):
    results = two.run(job_train, {"partitions": 2}, STEPS_LONG)
    assert_same(results, alone(STEPS_LONG))
    whole = sum(one.numel() for one in Net().parameters())
    assert sum(count for _, _, count in results) == whole
    assert all(0.4 * whole < count < 0.6 * whole for _, _, count in results)


@pytest.mark.parametrize(
    "config",
    [
        {"partitions": 4},
        {"partitions": 2, "ddp": True},
        {"partitions": 2, "ddp": True, "placement_strategy": "spread"},
        {"partitions": 1, "ddp": True},
    ],
    ids=["4", "2x2", "2x2-spread", "1x4"],
)
def test_four_ranks_learn_what_one_process_does(four, config):
    assert_same(four.run(job_train, config, STEPS), alone(STEPS))


def test_eight_ranks_learn_what_one_process_does(two):
    config = {"partitions": 4, "ddp": True, "microbatches": 2}
    assert_same(two.of(8).run(job_train, config, STEPS), alone(STEPS))


def test_two_runs_have_the_same_bits(two):
    runs = [two.run(job_train, SAME_BITS, STEPS) for _ in range(2)]
    assert runs[0][0][0] == runs[1][0][0]
    for name, one in runs[0][0][1].items():
        assert torch.equal(one, runs[1][1][1][name])


class Slow(torch.autograd.Function):
    """The identity; its backward pass takes a while."""

    @staticmethod
    def forward(ctx, tensor, seconds):
        ctx.seconds = seconds
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient * 1  # waits for a promise
        time.sleep(ctx.seconds)
        return gradient, None


class SlowLinear(torch.nn.Linear):
    def __init__(self, seconds):
        super().__init__(WIDTH, WIDTH)
        self.seconds = seconds

    def forward(self, hidden):
        return Slow.apply(super().forward(hidden), self.seconds)


class CallsTwice(torch.nn.Module):
    """One module twice: of its two gradients one waits for the leader, one for another stage."""

    def __init__(self, here, there):
        import smdistributed.modelparallel.torch as smp

        super().__init__()
        self.near = torch.nn.Linear(WIDTH, WIDTH)
        with smp.partition(1):
            self.twice = torch.nn.Linear(WIDTH, WIDTH)
        with smp.partition(2):
            self.far = SlowLinear(there)
        self.here = here

    def forward(self, inputs):
        hidden = self.near(inputs)
        other = torch.tanh(hidden)
        first = Slow.apply(self.twice(hidden), self.here)
        return self.far(self.twice(other)) + first


def job_gradients(rank, size, here, there):
    import smdistributed.modelparallel.torch as smp

    by_hand = {"auto_partition": False, "default_partition": 0}
    smp.init({"partitions": 3, "microbatches": 2, "deterministic_server": True} | by_hand)
    torch.manual_seed(1)
    model = smp.DistributedModel(CallsTwice(here, there))

    @smp.step
    def train(model, inputs):
        model.backward(model(inputs).square().sum())

    train(model, torch.randn(4 * WIDTH, WIDTH))
    return {name: one.grad for name, one in model.local_named_parameters()}


def test_a_module_called_twice_adds_gradients_in_one_order(two):
    slow_here, slow_there = (
        two.of(3).run(job_gradients, *delays) for delays in [(0.1, 0), (0, 0.1)]
    )
    assert slow_here[1].keys() == {"twice.weight", "twice.bias"}
    for here, there in zip(slow_here, slow_there, strict=True):
        for name, gradient in here.items():
            assert torch.equal(gradient, there[name]), name


class Halves(torch.nn.Module):
    """The loss belongs to the second half. A parameter has no axes."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, CLASSES)
        self.loss = torch.nn.CrossEntropyLoss()
        self.scale = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, inputs, classes):
        return self.loss(self.second(self.first(inputs * self.scale)), classes)


def job_tasks(rank, size, config):
    """How many losses were there when their backward pass had been asked for, in the second step;
    and the kinds of the tasks that ran here, in their order."""
    import smdistributed.modelparallel.torch as smp

    by_hand = {"auto_partition": False, "default_partition": 0}
    smp.init({"partitions": 2, "microbatches": MICROBATCHES} | by_hand | config)
    torch.manual_seed(1)
    model = Halves()
    for part in (model.second, model.loss):
        smp.set_partition(part, 1)
    model = smp.DistributedModel(model)
    is_there = []

    @smp.step
    def train(model, inputs, classes):
        loss = model(inputs, classes)
        model.backward(loss)
        is_there.append(getattr(loss, "_data", loss) is not None)
        return loss

    for inputs, classes in batches(2):
        is_there.clear()
        train(model, inputs, classes)
    return sum(is_there), [one["kind"] for one in model.stage.pipe.timeline()]


@pytest.mark.parametrize("pipeline", ["simple", "interleaved"])
def test_backward_passes_are_asked_for_before_the_loss_is_there(two, pipeline):
    from shoal.pipe import Kind

    (losses, _), (_, kinds) = two.run(job_tasks, {"pipeline": pipeline})
    forwards = [i for i, kind in enumerate(kinds) if kind == Kind.FORWARD]
    backwards = [i for i, kind in enumerate(kinds) if kind == Kind.BACKWARD]
    assert len(forwards) == len(backwards) == 2 * MICROBATCHES
    assert losses == 0
    assert max(forwards) < min(backwards) or pipeline == "interleaved"


def job_checkpoint(rank, size, folder, partial):
    """Trains, saves, and trains on; gives the losses after the checkpoint."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"microbatches": MICROBATCHES} | SAME_BITS)
    torch.manual_seed(1)
    model = smp.DistributedModel(Net())
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2))
    steps = list(batches(4))
    losses = train_on(smp, model, optimizer, steps[:2])
    content = {"epoch": 3}
    smp.save_checkpoint(
        folder, "two", partial=partial, model=model, optimizer=optimizer, user_content=content
    )
    losses += train_on(smp, model, optimizer, steps[2:])
    return losses[2:]


def job_resume(rank, size, folder, partial, is_delayed):
    """Loads what job_checkpoint saved, with another seed, and trains on."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"microbatches": MICROBATCHES} | SAME_BITS)
    torch.manual_seed(9)
    with smp.delay_param_initialization(is_delayed):
        network = Net()
    model = smp.DistributedModel(network)
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2))
    content = smp.resume_from_checkpoint(folder, partial=partial)
    return content, train_on(smp, model, optimizer, list(batches(4))[2:])


def train_on(smp, model, optimizer, steps):
    @smp.step
    def train(model, inputs, classes):
        loss = F.cross_entropy(model(inputs), classes)
        model.backward(loss)
        return loss

    losses = []
    for inputs, classes in steps:
        optimizer.zero_grad()
        losses.append(train(model, inputs, classes).reduce_mean().item())
        optimizer.step()
    return losses


@pytest.mark.parametrize("partial", [True, False], ids=["parts", "whole"])
def test_training_goes_on_from_a_checkpoint(two, tmp_path, partial):
    (wanted, _) = two.run(job_checkpoint, str(tmp_path), partial)
    for is_delayed in (False, True):
        resumed = two.run(job_resume, str(tmp_path), partial, is_delayed)
        for content, losses in resumed:
            assert content == {"epoch": 3}
            assert losses == wanted


def job_forward(rank, size):
    """Without gradients: what a step returns, whole, on every rank; and hooks."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2, "microbatches": MICROBATCHES, "pipeline": "_only_forward"})
    torch.manual_seed(1)
    network = Net()
    model = smp.DistributedModel(network.eval())
    called = []
    model.register_post_partition_hook(lambda *given: called.append("divided"))
    model.register_post_step_hook(lambda *given: called.append("stepped"))

    @smp.step(non_split_inputs=["factor"], input_split_axes={"inputs": 1})
    def predict(model, inputs, factor, name="x"):
        return {"classes": model(inputs.T) * factor, "name": name}

    (inputs, _), *_ = batches(1)
    with torch.no_grad():
        outputs = predict(model, inputs.T.contiguous(), torch.full((3, 1), 2.0)[0], name="y")
    return outputs["classes"].concat(), outputs["name"].outputs, called


def test_a_forward_pass_gives_the_same_on_every_rank(two):
    torch.manual_seed(1)
    (inputs, _), *_ = batches(1)
    with torch.no_grad():
        wanted = Net().eval()(inputs) * 2
    for classes, names, called in two.run(job_forward):
        torch.testing.assert_close(classes, wanted)
        assert names == ["y"] * MICROBATCHES
        assert called == ["divided", "stepped"]


def job_checkpointed(rank, size):
    """Each block's activations are computed again: the block is kept whole."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2, "microbatches": MICROBATCHES})
    torch.manual_seed(1)
    network = Net()
    for block in network.blocks:
        smp.set_activation_checkpointing(block)
    model = smp.DistributedModel(network)
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2))
    losses = train_on(smp, model, optimizer, list(batches(STEPS)))
    here = {name.split(".")[1] for name, _ in model.local_named_parameters() if "blocks" in name}
    return losses, sorted(here)


def test_modules_with_activation_checkpoints_stay_whole(two):
    results = two.run(job_checkpointed)
    wanted, _ = alone(STEPS)
    for losses, _ in results:
        torch.testing.assert_close(losses, wanted, rtol=TOLERANCE, atol=0)
    first, second = (set(here) for _, here in results)
    assert first and second and not first & second


def job_half(rank, size, config, scale):
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2, "microbatches": MICROBATCHES} | config)
    torch.manual_seed(1)
    model = smp.DistributedModel(Net())
    optimizer = smp.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), dynamic_loss_scale=True, init_scale=scale
    )
    steps, losses, overflows = list(batches(4)), [], []
    for one in steps:
        losses += train_on(smp, model, optimizer, [one])
        overflows.append(optimizer.overflow)
    kinds = {one.dtype for one in model.local_parameters()}
    return losses, overflows, optimizer.loss_scale, kinds


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_parameters_of_16_bits_have_masters(two, precision):
    torch.manual_seed(1)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wanted = []
    for inputs, classes in batches(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), classes)
        loss.backward()
        optimizer.step()
        wanted.append(loss.item())
    for losses, overflows, _, kinds in two.run(job_half, {precision: True}, 1024.0):
        assert kinds == {getattr(torch, {"fp16": "float16", "bf16": "bfloat16"}[precision])}
        assert overflows == [False] * 4
        torch.testing.assert_close(losses, wanted, rtol=0.05, atol=0.02)


def test_a_step_that_overflows_is_left_out_on_all_ranks(two):
    for _, overflows, scale, _ in two.run(job_half, {"fp16": True}, 2.0**30):
        assert overflows == [True] * 4
        assert scale == 2.0**26


def uneven(rank, size, count):
    """Batches of one copy of the model: each has one more than the copy before."""
    every = list(batches(count + size - 1))
    return [(inputs[rank::size], classes[rank::size]) for inputs, classes in every[: count + rank]]


def alone_uneven(size, count, divides_by_all):
    """As data parallel copies do, the last steps without some of them; then one step of all."""
    torch.manual_seed(1)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = [uneven(rank, size, count) for rank in range(size)]
    steps = [[own[i] for own in data if i < len(own)] for i in range(count + size - 1)]
    for present in [*steps, [uneven(rank, size, 1)[0] for rank in range(size)]]:
        optimizer.zero_grad()
        for inputs, classes in present:
            loss = F.cross_entropy(model(inputs), classes)
            (loss / (size if divides_by_all else len(present))).backward()
        optimizer.step()
    return model.state_dict()


def job_join(rank, size, config, count, divides_by_all):
    """The first copy has the most steps, for it decides how the model is divided."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"microbatches": 2, "ddp": True} | config)
    torch.manual_seed(1)
    model = smp.DistributedModel(Net())
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2))
    copy = smp.dp_size() - 1 - smp.dp_rank()
    with model.join(divide_by_initial_world_size=divides_by_all):
        train_on(smp, model, optimizer, uneven(copy, smp.dp_size(), count))
    train_on(smp, model, optimizer, uneven(copy, smp.dp_size(), 1)[:1])
    return model.state_dict()


@pytest.mark.parametrize(
    "partitions, count, divides_by_all",
    [(2, 0, True), (2, 2, True), (1, 2, False)],
    ids=["2x2-one-without", "2x2", "1x4-those-there"],
)
def test_copies_with_fewer_steps_join(four, partitions, count, divides_by_all):
    wanted = alone_uneven(4 // partitions, count, divides_by_all)
    for got in four.run(job_join, {"partitions": partitions}, count, divides_by_all):
        for name, one in wanted.items():
            torch.testing.assert_close(got[name], one, rtol=1e-3, atol=1e-5)


def job_early_end(rank, size, throws):
    """The first copy has no batch at all."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2, "microbatches": 2, "ddp": True})
    torch.manual_seed(1)
    model = smp.DistributedModel(Net())
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2))
    own = uneven(smp.dp_rank(), smp.dp_size(), 0)
    with model.join(throw_on_early_termination=throws):
        train_on(smp, model, optimizer, own)


def test_all_copies_stop_where_one_has_no_data(four):
    for kind, text in four.errors(job_early_end, True):
        assert kind == "RuntimeError" and "exhausted" in text


def test_nothing_can_be_traced_without_a_batch(four):
    for kind, text in four.errors(job_early_end, False):
        assert kind == "PartitionError" and "joined without a single batch" in text


def hook_in_halves(seen, group):
    """Sums twice the gradients, and gives half of that."""

    def hook(factor, bucket):
        seen.append((bucket.index(), bucket.is_last()))
        shapes = [one.shape for one in bucket.gradients()]
        assert shapes == [one.shape for one in bucket.parameters()]
        bucket.set_buffer(bucket.buffer() * factor)
        work = torch.distributed.all_reduce(bucket.buffer(), group=group, async_op=True)
        scale = 1 / factor / group.size()
        return work.get_future().then(lambda future: future.value()[0] * scale)

    return hook


def job_hook(rank, size, config, is_of_torch):
    """Buckets of two blocks' layers at most."""
    import smdistributed.modelparallel.torch as smp
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    smp.init({"microbatches": 2, "ddp": True} | config)
    torch.manual_seed(1)
    model = smp.DistributedModel(Net(), bucket_cap_mb=0.005)
    group, seen = smp.get_dp_process_group(), []
    if is_of_torch:
        model.register_comm_hook(group, allreduce_hook)
    else:
        model.register_comm_hook(2.0, hook_in_halves(seen, group))
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2))
    own = slice(smp.dp_rank(), None, smp.dp_size())
    train_on(smp, model, optimizer, [(x[own], y[own]) for x, y in batches(STEPS)])
    return model.state_dict(), seen


@pytest.mark.parametrize(
    "partitions, is_of_torch", [(2, False), (1, True)], ids=["2x2", "1x4-of-torch"]
)
def test_a_communication_hook_sums_gradients(four, partitions, is_of_torch):
    _, wanted = alone(STEPS)
    for got, seen in four.run(job_hook, {"partitions": partitions}, is_of_torch):
        for name, one in wanted.items():
            torch.testing.assert_close(got[name], one, rtol=1e-3, atol=1e-5)
        if not is_of_torch:
            indices = [index for index, _ in seen]
            assert len(set(indices)) > 1
            assert indices == sorted(set(indices)) * STEPS
            assert [is_last for _, is_last in seen] == [i == max(indices) for i in indices]


def job_delayed(rank, size, config):
    """As job_train, with a model that has no memory at first."""
    import smdistributed.modelparallel.torch as smp
    from smdistributed.modelparallel.torch import delayed

    def make():
        with smp.delay_param_initialization():
            made = Net()
        assert all(delayed.lacks_values(one) for one in made.parameters())
        return made

    return job_train(rank, size, config, STEPS, make)


@pytest.mark.parametrize(
    "config",
    [{"partitions": 4}, {"partitions": 2, "ddp": True}, {"partitions": 1, "ddp": True}],
    ids=["4", "2x2", "1x4"],
)
def test_delayed_parameters_learn_the_same(four, config):
    assert_same(four.run(job_delayed, config), alone(STEPS))


def job_accumulate(rank, size):
    """Steps of two batches, and at the end one of a single batch; between them what the model says
    to a batch, which is no part of it. All copies are first given the same batch."""
    import logging

    import smdistributed.modelparallel.torch as smp

    said = []
    logging.getLogger("smdistributed.modelparallel").addFilter(said.append)
    smp.init({"partitions": 2, "ddp": True, "microbatches": MICROBATCHES})
    torch.manual_seed(1)
    model = smp.DistributedModel(Net(), backward_passes_per_step=2)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    called = []
    model.register_post_step_hook(lambda model, optimizer: called.append(optimizer))

    @smp.step
    def predict(model, inputs):
        return model(inputs)

    @smp.step
    def train(model, inputs, classes):
        model.backward(F.cross_entropy(model(inputs), classes))
        return None

    own = slice(smp.dp_rank(), None, smp.dp_size())
    with torch.no_grad():
        predict(model, next(batches(1))[0])
    for number, (inputs, classes) in enumerate(batches(3)):
        train(model, inputs[own], classes[own])
        with torch.no_grad():
            predict(model, inputs[own])
        if number > 0:
            optimizer.step()
            optimizer.zero_grad()
    texts = [record.getMessage() for record in said if record.levelno == logging.WARNING]
    return model.state_dict(), called == [optimizer], texts


def test_batches_that_are_left_over_are_summed_too(four):
    torch.manual_seed(1)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, (inputs, classes) in enumerate(batches(3)):
        F.cross_entropy(model(inputs), classes).backward()
        if number > 0:
            optimizer.step()
            optimizer.zero_grad()
    warned = []
    for parameters, called_once, texts in four.run(job_accumulate):
        torch.testing.assert_close(parameters, dict(model.state_dict()), rtol=1e-4, atol=1e-6)
        assert called_once
        warned += texts
    assert len(warned) == 1 and "the same on 2 of 2 data parallel ranks" in warned[0]


def job_in_place(rank, size):
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2, "microbatches": MICROBATCHES})
    torch.manual_seed(1)
    network = Adds()
    smp.set_partition(network.first, 1)
    smp.set_partition(network.second, 1)
    model = smp.DistributedModel(network)

    @smp.step
    def train(model, inputs):
        loss = model(inputs)
        model.backward(loss)
        return loss

    (inputs, _), *_ = batches(1)
    losses = [train(model, inputs).reduce_sum() for _ in range(2)]
    return losses, {name: one.grad / 2 for name, one in model.local_named_parameters()}


def test_what_comes_from_elsewhere_can_be_changed_in_its_place(two):
    torch.manual_seed(1)
    model = Adds()
    (inputs, _), *_ = batches(1)
    wanted = model(inputs)
    (wanted / MICROBATCHES).backward()
    (first, none), (second, gradients) = two.run(job_in_place)
    assert not none and len(gradients) == 4
    for loss in (*first, *second):
        torch.testing.assert_close(loss, wanted.detach(), rtol=TOLERANCE, atol=0)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, model.get_parameter(name).grad)


class Sees(torch.nn.Module):
    """Gives something else where its arguments are one tensor."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, first, second):
        return self.linear(first) + second + (1000 if first is second else 0)


class Calls(torch.nn.Module):
    """Calls that differ in little, twice."""

    def __init__(self):
        super().__init__()
        self.sees = Sees()

    def forward(self, inputs):
        return self.calls(inputs) + self.calls(inputs)[::-1]

    def calls(self, inputs):
        other = inputs * 2
        made = self.sees(inputs, other)
        with torch.no_grad():
            quiet = self.sees(inputs, other)
        with torch.autocast("cpu", torch.bfloat16):
            half = self.sees(inputs, other)
        results = [quiet, half, self.sees(inputs, inputs), self.sees(inputs[:1], other[:1])]
        results += [self.sees(made, other), self.sees(second=inputs, first=other)]
        made.mul_(2)
        results += [self.sees(made, other), made, self.sees(inputs, other)]
        return results + [one.requires_grad for one in results]


def job_kinds_of_calls(rank, size):
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2, "microbatches": 2, "skip_tracing": True})
    torch.manual_seed(1)
    network = Calls()
    smp.set_partition(network.sees, 1)
    model = smp.DistributedModel(network)
    call = smp.step(lambda model, inputs: model(inputs))
    (inputs, _), *_ = batches(1)
    return [[one.outputs for one in call(model, inputs)] for _ in range(2)]


def test_calls_are_alike_only_in_all_that_a_module_sees(two):
    torch.manual_seed(1)
    model = Calls()
    (inputs, _), *_ = batches(1)
    wanted = [list(each) for each in zip(*map(model, inputs.chunk(2)), strict=True)]
    for steps in two.run(job_kinds_of_calls):
        for results in steps:
            torch.testing.assert_close(results, wanted, check_dtype=True)


def job_shared_name(rank, size, folder):
    """Loads a file that has one name of a weight with two."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2, "microbatches": MICROBATCHES})
    torch.manual_seed(1)
    model = smp.DistributedModel(Net(2))
    smp.resume_from_checkpoint(folder, tag="pytorch_model.bin", partial=False)

    @smp.step
    def predict(model, inputs):
        return model(inputs)

    (inputs, _), *_ = batches(1)
    outputs = predict(model, inputs).concat()
    values = model.state_dict()
    return outputs, values["head.weight"].data_ptr() == values["embed.weight"].data_ptr()


def test_a_file_has_shared_weights_once(two, tmp_path):
    torch.manual_seed(2)
    model = Net(2)
    values = {name: one for name, one in model.state_dict().items() if name != "head.weight"}
    torch.save(values, tmp_path / "pytorch_model.bin")
    (inputs, _), *_ = batches(1)
    for outputs, shared in two.run(job_shared_name, str(tmp_path)):
        torch.testing.assert_close(outputs, model(inputs).detach())
        assert shared
