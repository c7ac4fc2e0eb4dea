# SPDX-License-Identifier: Apache-2.0
"""Activation checkpoints: what a module's forward computes is computed again in the backward pass,
instead of being kept.

A module with a checkpoint stays on one rank with all that is in it, so that nothing is called twice
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from .exceptions import StepUsageError

KEPT_WHOLE = "_smp_kept_whole"


def is_kept_whole(module: torch.nn.Module) -> bool:
    """Whether all in the module must be where it is."""
    return KEPT_WHOLE in module.__dict__


def _again(
    function: Callable, args: Sequence[Any], kwargs: dict[str, Any], preserves_rng_state: bool
) -> Any:
    return torch_checkpoint(
        function, *args, use_reentrant=False, preserve_rng_state=preserves_rng_state, **kwargs
    )


def _segments(count: int, strategy: str) -> list[range]:
    """How many modules in a row share a checkpoint: "each", all in a row ("contiguous"), or groups
    of n ("group_n")."""
    if strategy == "each":
        size = 1
    elif strategy == "contiguous":
        size = max(count, 1)
    elif strategy.startswith("group_") and strategy[6:].isdigit() and int(strategy[6:]) > 0:
        size = int(strategy[6:])
    else:
        raise StepUsageError(
            f"there is no strategy {strategy!r} of activation checkpoints; there are 'each', "
            "'contiguous' and 'group_2', 'group_3' ..."
        )
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


def set_activation_checkpointing(
    module: torch.nn.Module,
    preserve_rng_state: bool = True,
    pack_args_as_tuple: bool = False,
    strategy: str = "each",
) -> None:
    """The module's forward is computed again in the backward pass. Before the first step.

    Args:
        module: A module; of a Sequential, the modules in it.
        preserve_rng_state: The second time random numbers are the same.
        pack_args_as_tuple: Of a Sequential: what a module returns as a tuple is one argument of
            the next one, which is how it is here anyway.
        strategy: Of a Sequential: "each" module has a checkpoint of its own, all have one
            ("contiguous"), or n in a row ("group_n").
    """
    if not isinstance(module, torch.nn.Sequential):
        _cover(module, preserve_rng_state)
        return
    segments = _segments(len(module), strategy)
    if strategy == "each":
        for child in module:
            _cover(child, preserve_rng_state)
        return
    module.__dict__[KEPT_WHOLE] = True
    module.forward = lambda input: _run_segments(module, input, segments, preserve_rng_state)


def _cover(module: torch.nn.Module, preserves_rng_state: bool) -> None:
    module.__dict__[KEPT_WHOLE] = True
    forward = module.forward
    module.forward = lambda *args, **kwargs: _again(forward, args, kwargs, preserves_rng_state)


def _run_segments(
    modules: Sequence[torch.nn.Module],
    input: Any,
    segments: Sequence[range],
    preserves_rng_state: bool,
) -> Any:
    for segment in segments:

        def run(value: Any, segment: range = segment) -> Any:
            for index in segment:
                value = modules[index](value)
            return value

        input = _again(run, (input,), {}, preserves_rng_state)
    return input


def checkpoint(module: torch.nn.Module, *args: Any, preserve_rng_state: bool = True) -> Any:
    """Calls a module, whose forward is computed again in the backward pass."""
    return _again(module, args, {}, preserve_rng_state)


def checkpoint_sequential(
    sequential_module: torch.nn.Sequential,
    input: Any,
    strategy: str = "each",
    preserve_rng_state: bool = True,
    pack_args_as_tuple: bool = False,
) -> Any:
    """Calls the modules in a row, with checkpoints as in set_activation_checkpointing."""
    segments = _segments(len(sequential_module), strategy)
    return _run_segments(sequential_module, input, segments, preserve_rng_state)
