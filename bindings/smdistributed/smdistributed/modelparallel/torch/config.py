# SPDX-License-Identifier: Apache-2.0
"""The configuration of model parallel training: which keys there are, what they may be, and what
they are if nobody says.

It is the "parameters" of the SDK's distribution={"smdistributed": {"modelparallel": ...}}, which
reach the ranks as JSON in SM_HP_MP_PARAMETERS; the names, types, ranges and defaults are those of
the SDK's documentation (docs/modelparallel.md has the table).
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

from .exceptions import ConfigurationError

VARIABLE = "SM_HP_MP_PARAMETERS"
PLACEMENTS = ("cluster", "spread", *("".join(order) for order in permutations("DPT")))


@dataclass(frozen=True)
class Range:
    """Numbers of a type from low to high, both included; None: without end."""

    type: type
    low: float
    high: float | None = None

    def __str__(self) -> str:
        kind = "an integer" if self.type is int else "a number"
        if self.high is None:
            return f"{kind} of at least {self.low}"
        return f"{kind} from {self.low} to {self.high}"

    def __contains__(self, value: Any) -> bool:
        types = (int,) if self.type is int else (int, float)
        if isinstance(value, bool) or not isinstance(value, types):
            return False
        return value >= self.low and (self.high is None or value <= self.high)


@dataclass(frozen=True)
class Choice:
    """One of some texts."""

    texts: tuple[str, ...]

    def __str__(self) -> str:
        return "one of " + ", ".join(repr(text) for text in self.texts)

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.texts


class _Bool:
    def __str__(self) -> str:
        return "true or false"

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, int) and value in (0, 1)  # as the SDK takes them


class _Text:
    def __str__(self) -> str:
        return "a text"

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, str)


BOOL = _Bool()
TEXT = _Text()
COUNT = Range(int, 1)


@dataclass(frozen=True)
class Key:
    """A key of the configuration.

    domain: What its value may be.
    default: The value, or a function of the keys before it in the table.
    needs: A key that must be given wherever this one is.
    also: Older names of it.
    """

    domain: Any
    default: Any | Callable[[Mapping[str, Any]], Any] = None
    needs: str | None = None
    also: tuple[str, ...] = ()
    required: bool = False


KEYS: dict[str, Key] = {
    "pipeline_parallel_degree": Key(COUNT, also=("partitions",), required=True),
    "microbatches": Key(COUNT, 1),
    "pipeline": Key(Choice(("interleaved", "simple", "_only_forward")), "interleaved"),
    "optimize": Key(Choice(("memory", "speed")), "memory"),
    "placement_strategy": Key(Choice(PLACEMENTS), "cluster"),
    "auto_partition": Key(BOOL, True),
    "default_partition": Key(Range(int, 0), 0),
    "contiguous": Key(BOOL, True),
    "ddp": Key(BOOL, False),
    "horovod": Key(BOOL, False),
    "ddp_port": Key(Range(int, 0, 65535), None, needs="ddp"),
    "ddp_dist_backend": Key(
        Choice(("auto", "nccl", "shoal", "smddp", "gloo")), "auto", needs="ddp"
    ),
    "memory_weight": Key(Range(float, 0, 1), lambda c: 0.2 if c["optimize"] == "speed" else 0.8),
    "active_microbatches": Key(COUNT, lambda c: c["pipeline_parallel_degree"] + 2),
    "deterministic_server": Key(BOOL, False),
    "offload_activations": Key(BOOL, False),
    "activation_loading_horizon": Key(Range(int, 1), 4),
    "tensor_parallel_degree": Key(COUNT, 1),
    "fp16": Key(BOOL, False),
    "fp16_params": Key(BOOL, False),
    "bf16": Key(BOOL, False),
    "shard_optimizer_state": Key(BOOL, False),
    "prescaled_batch": Key(BOOL, False),
    "skip_tracing": Key(BOOL, False),
    "delayed_parameter_initialization": Key(BOOL, False),
    "load_partition": Key(BOOL, False),
    "partition_file": Key(TEXT),
    "checkpoint_attentions": Key(BOOL, False),
    "static_mode": Key(BOOL, False),
    "fast_mode": Key(BOOL, False),
    "sharded_data_parallel_degree": Key(COUNT, 1),
    "sdp_reduce_bucket_size": Key(COUNT, 500_000_000),
    "sdp_param_persistence_threshold": Key(Range(int, 0), 1_000_000),
    "sdp_max_live_parameters": Key(COUNT, 1_000_000_000),
    "sdp_hierarchical_allgather": Key(BOOL, True),
    "sdp_gradient_clipping": Key(Range(float, 0), 1.0),
}

# Keys that are known and checked, and of which one value only can be had here so far.
NOT_THERE = {
    "tensor_parallel_degree": 1,
    "sharded_data_parallel_degree": 1,
    "shard_optimizer_state": False,
    "offload_activations": False,
    "prescaled_batch": False,
    "horovod": False,
    "load_partition": False,
    "partition_file": None,
}


def _own_name(name: str) -> str:
    """Of a key that may be given by an older name."""
    if not isinstance(name, str):
        raise ConfigurationError(f"the keys of the configuration are texts, not {name!r}")
    for own, key in KEYS.items():
        if name == own or name in key.also:
            return own
    known = [*KEYS, *(old for key in KEYS.values() for old in key.also)]
    close = difflib.get_close_matches(name, known, 1)
    meant = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(sorted(known))}"
    raise ConfigurationError(f"{name!r} is not a key of the model parallel configuration{meant}")


def _given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """By own names, each checked by itself."""
    given: dict[str, Any] = {}
    for name, value in parameters.items():
        own = _own_name(name)
        if own in given:
            raise ConfigurationError(f"{own!r} is given twice, by different names")
        if value not in KEYS[own].domain:
            raise ConfigurationError(f"{name!r} must be {KEYS[own].domain}, not {value!r}")
        given[own] = bool(value) if KEYS[own].domain is BOOL else value
    return given


def _check_together(given: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    for name in given:
        needed = KEYS[name].needs
        if needed and needed not in given:
            raise ConfigurationError(f"{name!r} needs {needed!r}")
    stages = values["pipeline_parallel_degree"]
    if not values["auto_partition"]:
        if "default_partition" not in given:
            raise ConfigurationError(
                "'auto_partition': false needs 'default_partition', where modules go that no "
                "smp.partition() names"
            )
    if values["default_partition"] >= stages:
        raise ConfigurationError(
            f"'default_partition' must be less than 'pipeline_parallel_degree' ({stages}), not "
            f"{values['default_partition']}"
        )
    if values["ddp"] and values["horovod"]:
        raise ConfigurationError("'ddp' and 'horovod' exclude each other")
    if values["tensor_parallel_degree"] > 1 and not values["ddp"]:
        raise ConfigurationError("'tensor_parallel_degree' of more than 1 needs 'ddp': true")
    if values["bf16"] and (values["fp16"] or values["fp16_params"]):
        raise ConfigurationError("'bf16' and 'fp16' exclude each other")


MPI_FLAG = "btl_vader_single_copy_mechanism"


def _strategy(distribution: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the SDK's distribution dictionary has of model parallel.

    Raises:
        ConfigurationError: as the SDK and its launcher would refuse it.
    """
    strategies = distribution["smdistributed"]
    if not isinstance(strategies, Mapping):
        raise ConfigurationError("'smdistributed' must be a dictionary")
    if {"modelparallel", "dataparallel"} <= strategies.keys():
        raise ConfigurationError("'modelparallel' and 'dataparallel' exclude each other")
    if list(strategies) != ["modelparallel"]:
        raise ConfigurationError(
            f"'smdistributed' has {', '.join(map(repr, strategies)) or 'nothing'}, and must have "
            "'modelparallel' alone"
        )
    found = strategies["modelparallel"]
    if not isinstance(found, Mapping) or found.get("enabled") is not True:
        raise ConfigurationError("'modelparallel' must be a dictionary with 'enabled': true")
    return found


def _check_mpi(mpi: Any) -> None:
    if not isinstance(mpi, Mapping) or mpi.get("enabled") is not True:
        raise ConfigurationError("'modelparallel' needs 'mpi', a dictionary with 'enabled': true")
    for name in mpi:
        if name not in ("enabled", "processes_per_host", "custom_mpi_options"):
            raise ConfigurationError(f"{name!r} is not a key of 'mpi'")
    processes = mpi.get("processes_per_host")
    if processes not in COUNT:
        raise ConfigurationError(f"'processes_per_host' must be {COUNT}, not {processes!r}")
    here = int(os.environ.get("LOCAL_WORLD_SIZE", processes))
    if here != processes:
        raise ConfigurationError(f"'processes_per_host' is {processes}, and this host has {here}")
    options = mpi.get("custom_mpi_options", "")
    if not isinstance(options, str):
        raise ConfigurationError("'custom_mpi_options' must be a text")
    if MPI_FLAG in options:
        raise ConfigurationError(
            f"'custom_mpi_options' has --mca {MPI_FLAG}, which is given anyway: leave it out"
        )


def _from_distribution(distribution: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _strategy(distribution)
    _check_mpi(distribution.get("mpi"))
    for name in distribution:
        if name not in ("smdistributed", "mpi"):
            raise ConfigurationError(f"{name!r} does not go with 'modelparallel'")
    parameters = found.get("parameters", {})
    return _read_file(parameters) if isinstance(parameters, str) else parameters


def _read_file(path: str) -> Any:
    """The SDK takes the name of a JSON file in place of the keys."""
    try:
        text = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"'parameters' is no dictionary, and no file: {error}") from None
    return _parse(text, f"'parameters': {path}")


def _parse(text: str | bytes, where: str) -> Any:
    """JSON, or the error that says where it is none: also bytes that are no text, numbers of
    thousands of digits, thousands of levels."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{where} is not JSON: {error}") from None


def _must_be_dictionary(parameters: Any) -> None:
    if not isinstance(parameters, Mapping):
        raise ConfigurationError(
            f"the configuration must be a dictionary, not {type(parameters).__name__}"
        )


class Config:
    """The configuration, checked, with every key an attribute.

    Args:
        parameters: What the user says: the keys, or the SDK's distribution dictionary around
            them; None: the JSON in SM_HP_MP_PARAMETERS.

    Raises:
        ConfigurationError: an unknown key, a value out of its range, keys that don't go together,
            or one that is missing; the text names the key and what it may be.
    """

    def __init__(self, parameters: Mapping[str, Any] | None = None):
        if parameters is None:
            parameters = _from_environment()
        _must_be_dictionary(parameters)
        if "smdistributed" in parameters:
            parameters = _from_distribution(parameters)
            _must_be_dictionary(parameters)
        given = _given(parameters)
        values: dict[str, Any] = {}
        for name, key in KEYS.items():
            if name in given:
                values[name] = given[name]
            elif key.required:
                names = " or ".join(repr(one) for one in (name, *key.also))
                raise ConfigurationError(f"the configuration needs {names}")
            else:
                values[name] = key.default(values) if callable(key.default) else key.default
        _check_together(given, values)
        for name, only in NOT_THERE.items():
            if values[name] != only:
                raise ConfigurationError(
                    f"{name!r}: {values[name]!r} is not supported by Shoal yet"
                )
        self.__dict__.update(values)

    @property
    def precision(self) -> str:
        """Of parameters: fp32, fp16 or bf16."""
        if self.bf16:
            return "bf16"
        return "fp16" if self.fp16 or self.fp16_params else "fp32"

    @property
    def partitions(self) -> int:
        """The older name of pipeline_parallel_degree."""
        return self.pipeline_parallel_degree

    def __repr__(self) -> str:
        return f"Config({self.__dict__})"


def _from_environment() -> Mapping[str, Any]:
    text = os.environ.get(VARIABLE)
    if text is None:
        raise ConfigurationError(
            f"smp.init() was given no configuration, and {VARIABLE} is not set: pass a dictionary, "
            "or start with shoal run --model-parallel '{\"partitions\": 2}' ..."
        )
    return _parse(text, VARIABLE)
