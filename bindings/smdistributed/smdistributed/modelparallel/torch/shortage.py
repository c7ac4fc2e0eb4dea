# SPDX-License-Identifier: Apache-2.0
"""A stage that runs out of memory: what it wanted, what the plan had foreseen, and what helps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from shoal import Error, Status

from .exceptions import OutOfMemoryError
from .state_mod import state

MIB = 2**20
REMEDIES = (
    "More partitions need less; and so do more, smaller microbatches, fewer 'active_microbatches', "
    "and smp.set_activation_checkpointing()"
)


def is_one(error: BaseException) -> bool:
    """Whether it says that there is no memory."""
    if isinstance(error, Error):
        return error.status == Status.MEMORY
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


@contextmanager
def explained(where: str) -> Iterator[None]:
    """What is done within it and runs out of memory raises an error that says more.

    Args:
        where: What this rank does.

    Raises:
        OutOfMemoryError
    """
    try:
        yield
    except OutOfMemoryError:
        raise
    except Exception as error:
        if not is_one(error):
            raise
        raise OutOfMemoryError(text(error, where)) from error


def text(error: BaseException, where: str) -> str:
    """All that can be said of it on the rank where it happened."""
    first_line = (str(error) or type(error).__name__).splitlines()[0]
    found = re.search(r"(\d+) bytes", first_line)
    wanted = f"{int(found[1]) / MIB:.1f} MiB more" if found else "more"
    topology = state.topology
    return (
        f"out of memory on rank {topology.rank} (pp_rank {topology.rank_in('pp')}) in {where}: it "
        f"wanted {wanted}, and has {_resident_bytes() / MIB:.1f} MiB. {_foreseen()}. {REMEDIES}. "
        f"({type(error).__name__}: {first_line})"
    )


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def _foreseen() -> str:
    """Of this rank's stage."""
    model = state.model
    if model is None or not model.loads:
        return "Nothing was foreseen for its stage: there was no trace"
    load = model.loads[state.topology.rank_in("pp")]
    at_a_time = min(state.cfg.active_microbatches, state.cfg.microbatches)
    if state.cfg.pipeline == "simple":
        at_a_time = state.cfg.microbatches
    return (
        f"Foreseen for its stage were {load.parameter_bytes / MIB:.1f} MiB of parameters, as much "
        "for gradients, what the optimizer keeps, and "
        f"{load.activation_bytes / MIB:.1f} MiB of activations in each of {at_a_time} microbatches"
    )


def innermost(
    error: BaseException, modules: Sequence[torch.nn.Module], names: Sequence[str]
) -> str:
    """Name of the module in whose forward it was raised; "" if in none."""
    number_of = {id(module): number for number, module in enumerate(modules)}
    name, trace = "", error.__traceback__
    while trace is not None:
        number = number_of.get(id(trace.tb_frame.f_locals.get("self")))
        if number is not None:
            name = names[number]
        trace = trace.tb_next
    return name
