# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in model parallel training: a clear error on every rank, which names the module,
the argument or the key.

Functions named job_* run on the ranks.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

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


def job_written(rank, size):
    from shoal.torch import group_handle
    from shoal.torch.pipe import TensorPipe

    torch.distributed.init_process_group("shoal")
    pipe = TensorPipe(group_handle(), "stages", ["far"], [True])
    result = torch.zeros(1 << 24)
    pipe.put_later(pipe.promise(0), result)
    result[0] = 1
    pipe.flush()
    pipe.health()


def test_a_result_that_is_changed_while_it_is_sent_is_told(two):
    ((_, text),) = two.of(1).errors(job_written)
    assert "changed in its place while it was sent" in text and "ABORTED" in text


class Box:
    """Not a container that torch knows."""

    def __init__(self, tensor):
        self.tensor = tensor


class Fails(torch.nn.Module):
    def forward(self, hidden):
        raise ValueError("no such word")


def job_trace(rank, size, is_inside):
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2, "microbatches": MICROBATCHES})
    torch.manual_seed(1)
    last = Fails() if is_inside else torch.nn.Identity()
    layers = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), last)
    model = smp.DistributedModel(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), layers))

    @smp.step
    def train(model, inputs):
        return model(inputs).no_such_member

    train(model, torch.randn(BATCH, WIDTH))


@pytest.mark.parametrize(
    "is_inside, where",
    [(True, "in 1.1: ValueError: no such word"), (False, "outside of the model: AttributeError: ")],
)
def test_a_trace_that_fails_names_the_module_on_every_rank(two, is_inside, where):
    for kind, text in two.errors(job_trace, is_inside):
        assert kind == "PartitionError"
        assert "tracing the first microbatch failed " + where in text


def a_function(hidden):
    return lambda tensor: tensor * 2


def job_argument(rank, size, wrap):
    import smdistributed.modelparallel.torch as smp

    class Far(torch.nn.Linear):
        def forward(self, inputs, other):
            return super().forward(other(inputs) if callable(other) else inputs + other.tensor)

    class Near(torch.nn.Module):
        def __init__(self):
            super().__init__()
            with smp.partition(1):
                self.far = Far(WIDTH, WIDTH)

        def forward(self, inputs):
            return self.far(inputs, wrap(inputs.clone().requires_grad_()))

    smp.init({"partitions": 2, "microbatches": MICROBATCHES})
    torch.manual_seed(1)
    step(smp)(smp.DistributedModel(Near()), torch.randn(BATCH, WIDTH))


@pytest.mark.parametrize(
    "wrap, text",
    [(a_function, "function: "), (Box, "Box: it has a tensor in it that needs a grad")],
)
def test_arguments_that_cannot_travel_are_named(two, wrap, text):
    for _, said in two.errors(job_argument, wrap):
        assert "arguments of far can't go to another rank" in said and text in said


def test_a_stage_that_dies_is_named(two):
    (_, text), (kind, status) = two.errors(job_steps, dies)
    assert "rank 1" in text and "ended" in text
    assert (kind, status) == ("ended", "3")


# ---- ranks that do not go on


def until_the_pipe_breaks(module=None, hidden=None):
    from smdistributed.modelparallel.torch.state_mod import state

    while True:
        state.model.stage.pipe.health()
        time.sleep(0.05)


def has_passed(module, hidden):
    return module.inner(hidden)


def job_stands_still(rank, size, where):
    """The second stage in a module, or the first one in the step's function or between steps."""
    import smdistributed.modelparallel.torch as smp

    os.environ["SHOAL_TIMEOUT_MS"] = "2000"
    smp.init({"partitions": 2, "microbatches": MICROBATCHES})
    torch.manual_seed(1)
    model = smp.DistributedModel(Net(until_the_pipe_breaks if where == "module" else has_passed))
    inputs = torch.randn(BATCH, WIDTH)
    step(smp)(model, inputs)
    if rank == 0 and where == "loop":
        until_the_pipe_breaks()
    smp.step(lambda model, inputs: until_the_pipe_breaks())(model, inputs)


@pytest.mark.parametrize(
    "where, texts",
    [
        ("module", ["which rank 1 (", "it has run forward of module 2 'far', microbatch 2 for "]),
        ("function", ["rank 1 (", "nothing to run in step 2 ", "it has run start, microbatch 0"]),
        ("loop", ["rank 1 (", "nothing to run in step 2 ", "rank 0 (", "it is in no step, since"]),
    ],
)
def test_a_rank_that_stands_still_is_named_on_every_rank(two, where, texts):
    for _, said in two.errors(job_stands_still, where):
        for text in texts:
            assert text in said


# ---- memory


def limit_memory():
    """This process gets no more than a few MiB from now on, as in a small container."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + 4 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def wants_much(module, hidden):
    limit_memory()
    return module.inner(hidden) + torch.ones(2**26).sum()


def wants_much_in_backward(module, hidden):
    class Wants(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor):
            return tensor.clone()

        @staticmethod
        def backward(ctx, gradient):
            limit_memory()
            return gradient * torch.ones(2**26).sum()

    return Wants.apply(module.inner(hidden))


@pytest.mark.parametrize(
    "wrong, task", [(wants_much, "forward"), (wants_much_in_backward, "backward")]
)
def test_a_stage_without_memory_says_what_it_wanted(two, wrong, task):
    (there_kind, there), (here_kind, here) = two.errors(job_steps, wrong)
    assert (there_kind, here_kind) == ("StepError", "OutOfMemoryError")
    assert "aborted by rank 1" in there
    for text in (here, there):
        assert f"out of memory on rank 1 (pp_rank 1) in far ({task} of microbatch 2)" in text
        assert "it wanted 256.0 MiB more, and has" in text
        assert "MiB of activations in each of 4 microbatches" in text
        assert "More partitions need less" in text
    assert "can't allocate memory" in here


class Wide(torch.nn.Module):
    """Its parameter, and what it gives, are 36 MiB: too large for the C library to have it lie
    around."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(9 * 2**20))

    def forward(self, hidden):
        return hidden.sum() + self.weight


def job_wide(rank, size, limited):
    """One rank gets no more memory before its optimizer's first step, or before the value comes."""
    import smdistributed.modelparallel.torch as smp

    os.environ["SHOAL_SHARED_BYTES"] = "16M"  # values are in each rank's own memory
    smp.init({"partitions": 2})
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(1, 1), Wide())
    smp.set_partition(network[1], 1)
    model = smp.DistributedModel(network)
    optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters()))
    step(smp)(model, torch.ones(1, 1))
    if rank == limited:
        limit_memory()
    if limited == 1:
        optimizer.step()
    step(smp)(model, torch.ones(1, 1))


def test_an_optimizer_without_memory_says_so_on_every_rank(two):
    (_, there), (kind, here) = two.errors(job_wide, 1)
    assert kind == "OutOfMemoryError"
    for text in (there, here):
        assert "out of memory on rank 1 (pp_rank 1) in the optimizer's step: it wanted 36." in text
        assert "Foreseen for its stage were 36.0 MiB of parameters" in text


def test_a_rank_without_memory_for_values_says_so_on_every_rank(two):
    """The value that comes, its gradient, or the copy that goes: which one has no place depends on
    what others have given back."""
    (kind, here), (_, there) = two.errors(job_wide, 0)
    assert kind == "OutOfMemoryError"
    for text in (here, there):
        assert "37748736 bytes" in text and "rank 0" in text and "More partitions need" in text


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
    found["placed between"] = outcome(smp.set_partition, torch.nn.Linear(1, 1), 0.5)
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH))
    found["no module"] = outcome(smp.DistributedModel, [network])
    inner = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.DataParallel(network))
    found["wrapped"] = outcome(smp.DistributedModel, inner)
    found["scripted"] = outcome(smp.DistributedModel, torch.jit.script(torch.nn.Linear(1, 1)))
    model = smp.DistributedModel(network)
    train = step(smp)
    found["batch"] = outcome(train, model, torch.randn(BATCH + 2, WIDTH))
    found["outside"] = outcome(model, torch.randn(BATCH, WIDTH))
    found["backward outside"] = outcome(model.backward, torch.ones(1, requires_grad=True))
    train(model, torch.randn(BATCH, WIDTH))
    found["batch later"] = outcome(train, model, torch.randn(BATCH + 2, WIDTH))
    found["still works"] = train(model, torch.randn(BATCH, WIDTH)).outputs[0].shape
    found["of numbers"] = outcome(smp.StepOutput([1, 2]).reduce_mean)
    weight, bias = network[0].weight, network[1].bias
    network[0].weight = torch.nn.Parameter(torch.ones(WIDTH, WIDTH))
    found["replaced"] = outcome(train, model, torch.randn(BATCH, WIDTH))
    network[0].weight = weight
    del network[1].bias
    found["removed"] = outcome(train, model, torch.randn(BATCH, WIDTH))
    network[1].bias = bias
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
        "placed between": "there is no partition 0.5 of 2",
        "no module": "of a torch.nn.Module, not of list",
        "wrapped": "module 1 is a DataParallel: wrap what is in it, and set 'ddp': true",
        "scripted": "the model is a ScriptModule",
        "batch": "argument 'inputs': axis 0 of a tensor of shape [18, 8] has 18 elements",
        "outside": "only within a function decorated with smp.step",
        "backward outside": "model.backward() is called within a function decorated",
        "batch later": "argument 'inputs': axis 0 of a tensor of shape [18, 8] has 18 elements",
        "of numbers": "the step's function returned int",
        "replaced": "parameter 0.weight was replaced after the model was wrapped",
        "removed": "parameter 1.bias was removed after the model was wrapped",
        "changed": "parameter more.weight was added after the model was wrapped",
    }
    for found in two.run(job_misuse):
        assert found.pop("still works") == torch.Size([])
        assert found.keys() == wanted.keys()
        for name, text in wanted.items():
            assert found[name] is not None and text in found[name][1], (name, found[name])


def job_owners(rank, size, owners):
    """A partial checkpoint of another model, or of more stages, is loaded before the first step."""
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 2, "microbatches": MICROBATCHES})
    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH))
    model = smp.DistributedModel(layers)
    model.load_state_dict({"_smp_is_partial": True, "_smp_owners": owners})
    step(smp)(model, torch.randn(BATCH, WIDTH))


@pytest.mark.parametrize(
    "owners, said",
    [
        ({"Sequential": 0, "0": 0}, "has no module 1"),
        ({"Sequential": 0, "0": 0, "1": 3}, "has module 1 on pp_rank 3, and there are 2 here"),
    ],
)
def test_a_module_without_an_owner_is_named(two, owners, said):
    for kind, text in two.errors(job_owners, owners):
        assert kind == "PartitionError" and said in text


def job_copies(rank, size):
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 1})
    smp.DistributedModel(torch.nn.Linear(WIDTH, WIDTH))


def test_copies_of_the_model_must_be_wanted(two):
    for kind, text in two.errors(job_copies):
        assert kind == "PartitionError"
        assert "2 ranks hold 2 copies of the model, so 'ddp' must be true" in text


def job_thawed(rank, size):
    import smdistributed.modelparallel.torch as smp

    smp.init({"partitions": 1, "ddp": True})
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH))
    network[1].requires_grad_(False)
    model = smp.DistributedModel(network)
    step(smp)(model, torch.randn(BATCH, WIDTH))
    network[1].bias.requires_grad_(True)
    step(smp)(model, torch.randn(BATCH, WIDTH))


def test_a_parameter_that_needs_gradients_later_is_named(two):
    for kind, text in two.errors(job_thawed):
        assert kind == "StepUsageError"
        assert "parameter 1.bias needs gradients now, and did not" in text


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
