# SPDX-License-Identifier: Apache-2.0
"""Parts of smdistributed.modelparallel.torch that need one process: the configuration, who is who,
microbatches, loss scales, promises."""

from __future__ import annotations

import collections
import json
import os
import random
import sys

import pytest
import ranks

torch = pytest.importorskip("torch")
sys.path.insert(0, str(ranks.ROOT / "bindings" / "smdistributed"))
from shoal import plan  # noqa: E402 (needs the path)
from smdistributed.modelparallel.torch import StepOutput, init, microbatch  # noqa: E402
from smdistributed.modelparallel.torch.config import Config  # noqa: E402
from smdistributed.modelparallel.torch.exceptions import (  # noqa: E402
    ConfigurationError,
    SplitError,
    StepUsageError,
)
from smdistributed.modelparallel.torch.optimizer import LossScaler  # noqa: E402
from smdistributed.modelparallel.torch.promise import Meta, Promise  # noqa: E402

MPI = {"enabled": True, "processes_per_host": 8}


# ---- the configuration


def test_defaults_follow_what_is_given():
    small, fast = (
        Config({"partitions": 2}),
        Config({"pipeline_parallel_degree": 4, "optimize": "speed"}),
    )
    assert (small.pipeline_parallel_degree, small.partitions) == (2, 2)
    assert (small.microbatches, small.pipeline, small.placement_strategy) == (
        1,
        "interleaved",
        "cluster",
    )
    assert (small.memory_weight, fast.memory_weight) == (0.8, 0.2)
    assert (small.active_microbatches, fast.active_microbatches) == (4, 6)
    assert (small.precision, Config({"partitions": 1, "bf16": True}).precision) == ("fp32", "bf16")


def test_the_environment_has_it(monkeypatch):
    monkeypatch.setenv("SM_HP_MP_PARAMETERS", json.dumps({"partitions": 3, "microbatches": 5}))
    assert (Config().partitions, Config().microbatches) == (3, 5)
    monkeypatch.setenv("SM_HP_MP_PARAMETERS", "{partitions: 3}")
    with pytest.raises(ConfigurationError, match="SM_HP_MP_PARAMETERS is not JSON: .*column"):
        Config()
    monkeypatch.delenv("SM_HP_MP_PARAMETERS")
    with pytest.raises(ConfigurationError, match="SM_HP_MP_PARAMETERS is not set"):
        Config()


@pytest.mark.parametrize(
    "parameters, text",
    [
        ({}, "needs 'pipeline_parallel_degree' or 'partitions'"),
        ({"partition": 2}, "'partition' is not a key .* did you mean 'partitions'"),
        ({"partitions": 0}, "'partitions' must be an integer of at least 1, not 0"),
        ({"partitions": True}, "'partitions' must be an integer"),
        ({"partitions": 2, "pipeline_parallel_degree": 2}, "given twice"),
        ({"partitions": 2, "pipeline": "gpipe"}, "one of 'interleaved', 'simple'"),
        ({"partitions": 2, "placement_strategy": "DPP"}, "'cluster', 'spread', 'DPT'"),
        ({"partitions": 2, "memory_weight": 1.5}, "a number from 0 to 1, not 1.5"),
        ({"partitions": 2, "ddp": "yes"}, "'ddp' must be true or false, not 'yes'"),
        ({"partitions": 2, "ddp_port": 1234}, "'ddp_port' needs 'ddp'"),
        ({"partitions": 2, "auto_partition": False}, "needs 'default_partition'"),
        ({"partitions": 2, "default_partition": 2}, "less than 'pipeline_parallel_degree'"),
        ({"partitions": 2, "ddp": True, "horovod": True}, "exclude each other"),
        ({"partitions": 2, "fp16": True, "bf16": True}, "exclude each other"),
        ({"partitions": 2, "tensor_parallel_degree": 2}, "needs 'ddp': true"),
        ({"partitions": 2, "offload_activations": True}, "not supported by Shoal yet"),
        ({"partitions": 2, "load_partition": True}, "not supported by Shoal yet"),
        ({"partitions": 2, "partition_file": 3}, "'partition_file' must be a text, not 3"),
        ({"partitions": 2, "contiguous": 2}, "'contiguous' must be true or false, not 2"),
        ({"partitions": 2.0}, "'partitions' must be an integer of at least 1, not 2.0"),
        ({"partitions": 2, "active_microbatches": 0}, "an integer of at least 1, not 0"),
        ({"partitions": 2, "optimize": "size"}, "one of 'memory', 'speed', not 'size'"),
        ({"partitions": 2, "default_partition": -1}, "an integer of at least 0, not -1"),
        ({"partitions": 2, "ddp": True, "ddp_port": -1}, "an integer from 0 to 65535, not -1"),
        ({"partitions": 2, "sdp_gradient_clipping": "1"}, "a number of at least 0, not '1'"),
        ([("partitions", 2)], "must be a dictionary, not list"),
        ({"partitions": 2, 3: 4}, "are texts, not 3"),
    ],
)
def test_a_wrong_configuration_names_the_key(parameters, text):
    with pytest.raises(ConfigurationError, match=text):
        Config(parameters)


def distribution(**changes):
    strategy = {"enabled": True, "parameters": {"partitions": 2, "microbatches": 4}}
    return {"smdistributed": {"modelparallel": strategy}, "mpi": MPI} | changes


def test_what_the_sdk_takes_is_taken(tmp_path, monkeypatch):
    """Numbers for truth values, the name of a file for the keys, a port without use."""
    given = Config({"partitions": 2, "ddp": 0, "ddp_port": 1234, "auto_partition": 1})
    assert given.ddp is False and given.auto_partition is True
    file = tmp_path / "config.json"
    file.write_text('{"partitions": 4, "ddp": true}')
    strategy = {"enabled": True, "parameters": str(file)}
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert Config(distribution(smdistributed={"modelparallel": strategy})).partitions == 4
    assert plan.group("cluster", 8, 4, 1, "dp", 6) == [2, 6]
    file.write_text("partitions: 4")
    with pytest.raises(ConfigurationError, match="config.json is not JSON"):
        Config(distribution(smdistributed={"modelparallel": strategy}))
    strategy["parameters"] = "nowhere.json"
    with pytest.raises(ConfigurationError, match="no file: .*nowhere.json"):
        Config(distribution(smdistributed={"modelparallel": strategy}))


def test_the_distribution_dictionary_is_taken():
    assert Config(distribution()).microbatches == 4
    assert Config(distribution(mpi=MPI | {"custom_mpi_options": "--mca x 1"})).partitions == 2


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"smdistributed": {"modelparallel": {}, "dataparallel": {}}}, "exclude each other"),
        ({"smdistributed": {"dataparallel": {"enabled": True}}}, "must have 'modelparallel' alone"),
        ({"smdistributed": {"modelparallel": {"parameters": {}}}}, "with 'enabled': true"),
        ({"mpi": {"enabled": False}}, "needs 'mpi'"),
        ({"mpi": {"enabled": True}}, "'processes_per_host' must be an integer of at least 1"),
        ({"mpi": MPI | {"hosts": 2}}, "'hosts' is not a key of 'mpi'"),
        (
            {"mpi": MPI | {"custom_mpi_options": "--mca btl_vader_single_copy_mechanism none"}},
            "which is given anyway",
        ),
        ({"torch_distributed": {"enabled": True}}, "'torch_distributed' does not go with"),
        (
            {"smdistributed": {"modelparallel": {"enabled": True, "parameters": [2]}}},
            "must be a dictionary, not list",
        ),
        (
            {"smdistributed": {"modelparallel": {"enabled": True, "parameters": "a\0"}}},
            "no file: ",
        ),
    ],
)
def test_a_wrong_distribution_dictionary_is_refused(changes, text):
    with pytest.raises(ConfigurationError, match=text):
        Config(distribution(**changes))


WORDS = [
    "partitions", "ddp", "memory_weight", "smdistributed", "modelparallel", "enabled", "null",
    "true", "NaN", "Infinity", "1e999", "9" * 5000, "[" * 3000, "{", "}", "]", ":", ",", '"', "\\u",
    "-0", "\ud83d",
]


def test_any_text_is_a_configuration_or_refused(monkeypatch):
    """Two texts that are right, changed at random: never another error."""
    texts = [
        json.dumps({"partitions": 2, "microbatches": 4, "ddp": True, "memory_weight": 0.5}),
        json.dumps(distribution()),
    ]
    random_ = random.Random(7)
    taken = 0
    for turn in range(2000):
        text = texts[turn % 2]
        for _ in range(random_.randrange(4)):
            at = random_.randrange(len(text) + 1)
            text = text[:at] + random_.choice(WORDS) + text[at + random_.randrange(8) :]
        monkeypatch.setattr(os, "environ", {"SM_HP_MP_PARAMETERS": text})
        try:
            taken += Config().partitions > 0
        except ConfigurationError as error:
            assert str(error)
    assert 0 < taken < 2000


@pytest.mark.parametrize(
    "environment",
    [
        {"LOCAL_WORLD_SIZE": "4"},
        {"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "4"},
    ],
    ids=["torchrun", "mpirun"],
)
def test_processes_per_host_are_compared_with_those_here(monkeypatch, environment):
    monkeypatch.setattr(os, "environ", environment)
    with pytest.raises(ConfigurationError, match="'processes_per_host' is 8, and this host has 4"):
        init(distribution())


# ---- who is who


def test_placements_are_the_published_ones():
    spread = [plan.group("spread", 8, 2, 1, "mp", rank) for rank in range(4)]
    assert spread == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert plan.group("spread", 8, 2, 1, "dp", 5) == [4, 5, 6, 7]
    assert plan.group("cluster", 8, 2, 1, "mp", 5) == [4, 5]
    assert plan.group("cluster", 8, 2, 1, "dp", 5) == [1, 3, 5, 7]
    assert plan.group("PTD", 8, 2, 2, "rdp", 6) == [6, 7]
    assert plan.group("DPT", 8, 2, 2, "pp", 0) == [0, 2]


# ---- microbatches

Pair = collections.namedtuple("Pair", ["first", "second"])


class Sliced:
    def smp_slice(self, count, index, axis):
        return (count, index, axis)


def parts_of(function, count, *args, whole=(), axes=None, **kwargs):
    split = microbatch.Splitter(function, whole, axes or {}).split(args, kwargs, count)
    return [function(*part.args, **part.kwargs) for part in split]


def test_tensors_are_cut_wherever_they_are():
    numbers = torch.arange(8.0)

    def function(inputs, table, *more, scale=1, **named):
        return inputs, table, more, scale, named

    parts = parts_of(
        function,
        4,
        {"a": [numbers, Pair(numbers, "text")]},
        torch.arange(6.0).view(3, 2),
        Sliced(),
        torch.tensor(5.0),
        whole=["table"],
        scale=3,
        mask=numbers.view(1, 8),
        axes={"mask": 1},
    )
    for index, (inputs, table, more, scale, named) in enumerate(parts):
        own = numbers[2 * index : 2 * index + 2]
        assert torch.equal(inputs["a"][0], own)
        assert isinstance(inputs["a"][1], Pair) and torch.equal(inputs["a"][1].first, own)
        assert inputs["a"][1].second == "text"
        assert table.shape == (3, 2) and scale == 3
        assert more == ((4, index, 0), torch.tensor(5.0))
        assert torch.equal(named["mask"], own.view(1, 2))


def test_what_cannot_be_cut_is_named():
    def function(inputs, mask=None):
        return inputs

    with pytest.raises(SplitError, match=r"'inputs': axis 0 of a tensor of shape \[6\] has 6"):
        parts_of(function, 4, torch.zeros(6))
    with pytest.raises(SplitError, match=r"'mask': a tensor of shape \[4\] has no axis 2"):
        parts_of(function, 4, torch.zeros(4), mask=torch.zeros(4), axes={"mask": 2})
    with pytest.raises(SplitError, match="has no argument 'input'; it has inputs, mask"):
        microbatch.Splitter(function, ["input"], {})


def test_results_of_microbatches_become_one():
    results = [{"loss": torch.tensor(float(i)), "out": torch.full((2, 1), i)} for i in range(3)]
    gathered = microbatch.gather(results, detach=True)
    assert gathered["loss"].reduce_mean() == 1 and gathered["loss"].reduce_sum() == 3
    assert gathered["out"].concat().tolist() == [[0], [0], [1], [1], [2], [2]]
    assert gathered["out"].stack().shape == (3, 2, 1)
    with pytest.raises(StepUsageError, match="for microbatch 1, and"):
        microbatch.gather([torch.zeros(1), (torch.zeros(1),)], detach=True)
    with pytest.raises(StepUsageError, match="concat.. is for tensors, .* returned str"):
        StepOutput(["a"]).concat()


# ---- loss scales


def test_a_dynamic_loss_scale_falls_and_rises():
    scaler = LossScaler(1024.0, factor=2.0, window=3, min_scale=256, delayed_shift=2)
    scales = []
    for overflowed in [True, True, False, False, False, True, True, True, True, True, True]:
        scaler.update(overflowed)
        scales.append(scaler.scale)
    assert scales[:5] == [1024, 512, 512, 512, 1024]
    assert scales[5:] == [1024, 512, 512, 256, 256, 256]


# ---- promises


def promise(fetched, shape=(2, 3)):
    def fetch(_promise):
        fetched.append(True)
        return torch.ones(shape)

    return Promise(Meta(shape, torch.float32, False), 1, fetch)


def test_a_promise_waits_only_for_who_reads_it():
    fetched = []
    one = promise(fetched)
    assert (one.shape, one.dtype, one.dim(), len(one), one.numel()) == (
        (2, 3),
        torch.float32,
        2,
        2,
        6,
    )
    assert not one.requires_grad and one.is_leaf and "Promise" in repr(one)
    assert not fetched
    assert type(one + 1) is torch.Tensor and (one * 2).sum() == 12
    assert one[0].tolist() == [1, 1, 1] and torch.cat([one, one]).shape == (4, 3)
    assert fetched == [True]


def test_gradients_add_up_over_a_promise():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor):
            return promise([])

        @staticmethod
        def backward(ctx, gradient):
            return Promise(Meta((2, 3), torch.float32, False), 2, lambda _one: 2 * gradient)

    leaf = torch.zeros(2, 3, requires_grad=True)
    made = Double.apply(leaf)
    assert type(made) is Promise and made.requires_grad
    (made.square() + made + Double.apply(leaf)).sum().backward()
    assert torch.equal(leaf.grad, torch.full((2, 3), 8.0))
