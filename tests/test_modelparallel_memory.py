# SPDX-License-Identifier: Apache-2.0
"""What smdistributed.modelparallel.torch foresees of each rank's memory is what is there, counted
in bytes of tensors.

Functions named job_* run on the ranks.
"""

from __future__ import annotations

import forked_jobs
import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402 (needs torch)

WIDTH, CLASSES, ROWS, MICROBATCHES = 16, 5, 4, 3


@pytest.fixture(scope="module")
def two():
    with forked_jobs.Jobs(2, "torch", "smdistributed.modelparallel.torch") as started:
        yield started


class Block(torch.nn.Module):
    """Keeps its input, what comes of the norm, and results of operations themselves."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.wide = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden):
        return hidden + self.narrow(torch.sigmoid(self.wide(self.norm(hidden))))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(CLASSES, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(4))
        self.classes = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, words):
        hidden = self.embed(words)
        for block in self.blocks:
            hidden = block(hidden)
        return self.classes(hidden)


class Counter:
    """Of a rank: bytes that are kept of each microbatch. Two tensors in the same memory count
    once."""

    def __init__(self, model):
        self.stage = model.stage
        self.parameters = {one.data_ptr() for one in model.local_parameters()}
        self.found = {}

    def add(self, tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.parameters:
            own = self.found.setdefault(self.stage.progress.now.microbatch, {})
            own[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    def around(self, function):
        """What autograd keeps in it, and what a call from elsewhere keeps besides."""

        def counted(*args):
            before = set(self.stage.made)
            with torch.autograd.graph.saved_tensors_hooks(self.add, lambda kept: kept):
                result = function(*args)
            for number in set(self.stage.made) - before:
                made = self.stage.made[number]
                for tensor in (*made.inputs, *made.outputs):
                    self.add(tensor)
            return result

        return counted

    def sent(self, function):
        """Copies of this rank's own tensors for calls of others' modules."""

        def counted(call, tensors, results):
            for tensor in tensors:
                if type(tensor) is torch.Tensor:
                    self.found.setdefault(call.microbatch, {})[object()] = tensor.nbytes
            return function(call, tensors, results)

        return counted

    def microbatches(self):
        return [sum(own.values()) for _, own in sorted(self.found.items())]


def start(pipeline):
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2, "microbatches": MICROBATCHES, "pipeline": pipeline})
    torch.manual_seed(1)
    model = smp.DistributedModel(Net())
    optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters()))
    counters = []

    @smp.step
    def train(model, words, wanted):
        def run():
            return F.cross_entropy(model(words).flatten(0, 1), wanted.flatten())

        loss = counters[0].around(run)() if counters else run()
        model.backward(loss)
        return loss

    def step():
        words = torch.randint(CLASSES, (ROWS * MICROBATCHES, 7))
        optimizer.zero_grad()
        train(model, words, words)
        optimizer.step()

    return model, optimizer, step, counters


def job_counts(rank, size, pipeline):
    model, optimizer, step, counters = start(pipeline)
    assert model.predicted_memory is None
    step()
    counters.append(Counter(model))
    model.stage._forward = counters[0].around(model.stage._forward)
    model.stage._send_forward = counters[0].sent(model.stage._send_forward)
    step()
    own = list(model.local_parameters())
    state = [one for parameter in own for one in optimizer.state[parameter].values()]
    return {
        "predicted": model.predicted_memory,
        "microbatches": counters[0].microbatches(),
        "parameters": sum(one.nbytes for one in own),
        "gradients": sum(one.grad.nbytes for one in own),
        "optimizer": sum(one.nbytes for one in state if one.dim()),
    }


@pytest.mark.parametrize("pipeline", ["simple", "interleaved"])
def test_what_is_foreseen_is_there(two, pipeline):
    for rank in two.run(job_counts, pipeline):
        predicted = rank["predicted"]
        for name in ("parameters", "gradients", "optimizer"):
            assert predicted[name] == rank[name]
        assert rank["microbatches"] == [predicted["microbatch"]] * MICROBATCHES
        assert predicted["microbatch"] <= predicted["kept"] <= 3 * predicted["microbatch"]
        if pipeline == "simple":
            assert predicted["kept"] == 3 * predicted["microbatch"]
        assert predicted["peak"] > predicted["kept"] + predicted["optimizer"]


@pytest.mark.parametrize(
    ("pipeline", "kept"),
    [("simple", [(330, 210), (3000, 2000)]), ("interleaved", [(210, 110), (2000, 1000)])],
)
def test_gradients_come_when_less_is_kept(pipeline, kept):
    """The leader's second chunk, its loss, goes back before other microbatches have come to
    theirs; its parameters get gradients only when the first chunk does."""
    from shoal.pipeline import Chunk, simulate

    chunks = [Chunk(0, 10, 20, 100), Chunk(1, 10, 20, 1000), Chunk(0, 10, 20, 10)]
    found = simulate(pipeline, 2, chunks, 3)
    assert [(one.peak_bytes, one.later_peak_bytes) for one in found] == kept


def job_tracing(rank, size):
    """Whether a tensor of the traced pass is still there after the first step."""
    import gc
    import weakref

    model, _, step, _ = start("simple")
    seen = []

    def note(module, args, output):
        if not seen:  # in the trace, on the rank that traces
            seen.append(weakref.ref(output))

    model.module.blocks[0].wide.register_forward_hook(note)
    step()
    gc.collect()
    return [one() is None for one in seen]


def test_the_trace_leaves_nothing_behind(two):
    traced, other = two.run(job_tracing)
    assert traced == [True]
    assert all(other)
