# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in model parallel training: a clear error on every rank, which names the module,
the argument or the key.

Functions named job_* run on the ranks.
"""

from __future__ import annotations

import os

import forked_jobs
import pytest

torch = pytest.importorskip("torch")

WIDTH, BATCH, MICROBATCHES = 8, 16, 4


@pytest.fixture(scope="module")
def two():
    with forked_jobs.Jobs(2, "torch", "smdistributed.modelparallel.torch") as started:
        yield started


class Remote(torch.nn.Module):
    """Lives on the second stage, where its third call goes wrong."""

    def __init__(self, wrong):
        super().__init__()
        self.inner, self.wrong, self.calls = torch.nn.Linear(WIDTH, WIDTH), wrong, 0

    def forward(self, hidden):
        if not torch.distributed.get_rank():
            return self.inner(hidden)  # in the trace
        self.calls += 1
        if self.calls == 3:
            return self.wrong(self, hidden)
        return self.inner(hidden)


class Net(torch.nn.Module):
    def __init__(self, wrong):
        import smdistributed.modelparallel.torch as smp

        super().__init__()
        self.near = torch.nn.Linear(WIDTH, WIDTH)
        with smp.partition(1):
            self.far = Remote(wrong)

    def forward(self, inputs):
        return self.far(self.near(inputs))


def raises(module, hidden):
    raise ValueError("no such word")


def dies(module, hidden):
    os._exit(3)


def has_another_shape(module, hidden):
    return module.inner(hidden)[:1]


def leaves_its_argument_out(module, hidden):
    return module.inner(hidden.detach())


def returns_a_function(module, hidden):
    return lambda: hidden


def job_steps(rank, size, wrong):
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2, "microbatches": MICROBATCHES})
    torch.manual_seed(1)
    model = smp.DistributedModel(Net(wrong))
    step(smp)(model, torch.randn(BATCH, WIDTH))


def step(smp):
    @smp.step
    def train(model, inputs):
        loss = model(inputs).sum()
        model.backward(loss)
        return loss

    return train


@pytest.mark.parametrize(
    "wrong, texts",
    [
        (raises, ["'far', microbatch 2", "ValueError: no such word"]),
        (has_another_shape, ["'far'", "[1, 8]", "[4, 8]", "must not decide"]),
        (leaves_its_argument_out, ["'far'", "argument 0 needs a gradient", "detach it"]),
        (returns_a_function, ["'far'", "gave no tensors", "must not decide"]),
    ],
)
def test_a_module_that_fails_is_named_on_every_rank(two, wrong, texts):
    errors = two.errors(job_steps, wrong)
    there, here = errors[0][1], errors[1][1]
    for text in texts:
        assert text in there
    assert "aborted by rank 1" in there
    assert here.split(":")[-1].strip() in there


def job_function_as_argument(rank, size):
    import smdistributed.modelparallel.torch as smp

    class Far(torch.nn.Linear):
        def forward(self, inputs, function):
            return super().forward(function(inputs))

    class Near(torch.nn.Module):
        def __init__(self):
            super().__init__()
            with smp.partition(1):
                self.far = Far(WIDTH, WIDTH)

        def forward(self, inputs):
            return self.far(inputs, lambda tensor: tensor * 2)

    smp.init({"partitions": 2, "microbatches": MICROBATCHES})
    torch.manual_seed(1)
    step(smp)(smp.DistributedModel(Near()), torch.randn(BATCH, WIDTH))


def test_arguments_that_cannot_travel_are_named(two):
    for _, text in two.errors(job_function_as_argument):
        assert "arguments of far can't go to another rank" in text


def test_a_stage_that_dies_is_named(two):
    (_, text), (kind, status) = two.errors(job_steps, dies)
    assert "rank 1" in text and "ended" in text
    assert (kind, status) == ("ended", "3")


def outcome(function, *arguments):
    """Type and text of what it raises."""
    try:
        function(*arguments)
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def job_misuse(rank, size):
    """What is refused, one after the other, in one process."""
    import smdistributed.modelparallel.torch as smp

    found = {"before init": outcome(smp.rank)}
    found["degrees"] = outcome(smp.init, {"partitions": 3})
    found["key"] = outcome(smp.init, {"partition": 2})
    smp.init({"partitions": 2, "microbatches": MICROBATCHES})
    found["twice"] = outcome(smp.init, {"partitions": 2})
    found["placed"] = outcome(smp.set_partition, torch.nn.Linear(1, 1), 2)
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH))
    model = smp.DistributedModel(network)
    train = step(smp)
    found["batch"] = outcome(train, model, torch.randn(BATCH + 2, WIDTH))
    found["outside"] = outcome(model, torch.randn(BATCH, WIDTH))
    found["backward outside"] = outcome(model.backward, torch.ones(1, requires_grad=True))
    train(model, torch.randn(BATCH, WIDTH))
    found["batch later"] = outcome(train, model, torch.randn(BATCH + 2, WIDTH))
    found["still works"] = train(model, torch.randn(BATCH, WIDTH)).outputs[0].shape
    found["of numbers"] = outcome(smp.StepOutput([1, 2]).reduce_mean)
    network.more = torch.nn.Linear(2, 2)
    found["changed"] = outcome(train, model, torch.randn(BATCH, WIDTH))
    return found


def test_misuse_is_refused_on_every_rank(two):
    wanted = {
        "before init": "call smp.init() first",
        "degrees": "2 ranks can't be divided by pipeline_parallel_degree 3",
        "key": "did you mean 'partitions'?",
        "twice": "smp.init() was called before",
        "placed": "there is no partition 2 of 2",
        "batch": "argument 'inputs': axis 0 of a tensor of shape [18, 8] has 18 elements",
        "outside": "only within a function decorated with smp.step",
        "backward outside": "model.backward() is called within a function decorated",
        "batch later": "argument 'inputs': axis 0 of a tensor of shape [18, 8] has 18 elements",
        "of numbers": "the step's function returned int",
        "changed": "parameter more.weight was added after the model was wrapped",
    }
    for found in two.run(job_misuse):
        assert found.pop("still works") == torch.Size([])
        assert found.keys() == wanted.keys()
        for name, text in wanted.items():
            assert found[name] is not None and text in found[name][1], (name, found[name])


def job_other_seed(rank, size):
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2, "microbatches": MICROBATCHES})
    torch.manual_seed(rank)
    model = smp.DistributedModel(torch.nn.Sequential(torch.nn.Linear(WIDTH, 1)))
    step(smp)(model, torch.randn(BATCH, WIDTH))


def test_a_seed_that_differs_is_said(two):
    for _, text in two.errors(job_other_seed):
        assert "parameter 0.weight is not the same on pp_rank 0 and pp_rank 1" in text
        assert "same seed" in text


def job_state_alone(rank, size):
    import smdistributed.modelparallel.torch as smp

    os.environ["SHOAL_TIMEOUT_MS"] = "3000"
    smp.init({"partitions": 2, "microbatches": MICROBATCHES})
    torch.manual_seed(1)
    model = smp.DistributedModel(torch.nn.Sequential(torch.nn.Linear(WIDTH, 1)))
    step(smp)(model, torch.randn(BATCH, WIDTH))
    if rank == 0:
        model.state_dict()
    smp.barrier()


def test_state_dict_of_one_rank_alone_is_said(two):
    (kind, text), (_, other) = two.errors(job_state_alone)
    assert kind == "CheckpointError"
    assert "DistributedModel.state_dict() is collective" in text and "rank 1" in text
    assert "rank 0" in other or "barrier" in other
