# SPDX-License-Identifier: Apache-2.0
"""What a model does in a step, seen by running one microbatch of it here, as a whole.

For each module: the time of its own code, without its children's; the bytes that autograd keeps of
it until the backward pass; what goes in and comes out. Random numbers and buffers are put back, so
training begins as if nothing had happened.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from . import delayed
from .calls import Mode, Shape
from .exceptions import PartitionError, SplitError, StepError
from .promise import Meta
from .state_mod import state
from .structure import packed, take_out


@dataclass
class Seen:
    """Of a module, in one microbatch."""

    calls: int = 0
    entered: float = math.inf  # as which of all modules' calls, first
    forward_ns: int = 0
    activation_bytes: int = 0
    output_bytes: int = 0


OUTSIDE = -1  # in place of a module's number: the step's function itself


@dataclass
class Save:
    """Autograd keeps a tensor for the backward pass of a module's own code.

    storage: The same number: the same memory.
    calls: That are under way, by their number, the innermost last.
    """

    module: int
    storage: int
    bytes: int
    calls: tuple[int, ...]


@dataclass
class CallSeen:
    """Of a module, by another one or by the step's function.

    inputs, outputs: Memory of the tensors in it, with their bytes.
    saved: What is kept of what was made in it.
    """

    module: int
    caller: int
    inputs: list[tuple[int, int]]
    outputs: list[tuple[int, int]] = field(default_factory=list)
    saved: set[int] = field(default_factory=set)


@dataclass
class Trace:
    """Of a model: modules by their number.

    shapes: What calls gave, as a stage looks it up.
    saves, calls: One after the other.
    """

    modules: list[Seen]
    shapes: dict[tuple, Shape] = field(default_factory=dict)
    saves: list[Save] = field(default_factory=list)
    calls: list[CallSeen] = field(default_factory=list)


class _Tracer:
    """Stands in for every module's forward."""

    def __init__(self, modules: Sequence[torch.nn.Module], names: Sequence[str]):
        self.modules, self.names = modules, names
        self.failed_in: str | None = None
        self.parameters = {
            tensor.untyped_storage().data_ptr()
            for module in modules
            for tensor in (*module.parameters(False), *module.buffers(False))
        }
        self.begin()

    def begin(self) -> None:
        """Of a pass: what earlier ones have seen is forgotten."""
        self.trace = Trace([Seen() for _ in self.modules])
        self.under_way: list[int] = []
        self.calls_under_way: list[int] = []
        self.since = self.call_count = 0
        self.counted: set[int] = set()

    def _account(self) -> None:
        """The time since the last change goes to the innermost module."""
        now = time.perf_counter_ns()
        if self.under_way:
            self.trace.modules[self.under_way[-1]].forward_ns += now - self.since
        self.since = now

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """Autograd keeps a tensor. It gets it without its graph: a node's own result would keep the
        node, and that the whole pass, for ever."""
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address in self.parameters:
            return tensor.detach()
        module = self.under_way[-1] if self.under_way else OUTSIDE
        calls = tuple(self.calls_under_way)
        self.trace.saves.append(Save(module, address, storage.nbytes(), calls))
        for call in calls:
            self.trace.calls[call].saved.add(address)
        if self.under_way and address not in self.counted:
            self.counted.add(address)
            self.trace.modules[module].activation_bytes += storage.nbytes()
        return tensor.detach()

    def call(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._account()
        seen = self.trace.modules[number]
        seen.calls += 1
        seen.entered = min(seen.entered, self.call_count)
        self.call_count += 1
        key = self._key(number, args, kwargs)
        caller = self.under_way[-1] if self.under_way else OUTSIDE
        call = CallSeen(number, caller, _memory_of((args, kwargs)))
        self.trace.calls.append(call)
        self.under_way.append(number)
        self.calls_under_way.append(len(self.trace.calls) - 1)
        self.since = time.perf_counter_ns()
        try:
            result = self.modules[number]._call_impl(*args, **kwargs)
        except BaseException:
            self.failed_in = self.failed_in or self.names[number]
            raise
        self._account()
        self.under_way.pop()
        self.calls_under_way.pop()
        call.outputs = _memory_of(result)
        seen.output_bytes = max(seen.output_bytes, self._note(key, result))
        self.since = time.perf_counter_ns()
        return result

    def _note(self, key: tuple | None, result: Any) -> int:
        """Keeps the shape of a result, unless it can't travel, which matters only if it has to;
        gives its bytes."""
        structure, tensors = take_out(result)
        shape = Shape(structure, tuple(Meta.of(tensor) for tensor in tensors))
        if key is not None:
            with suppress(StepError):
                packed(shape, "the result")
                self.trace.shapes[key] = shape
        return sum(meta.bytes for meta in shape.metas)

    def _key(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple | None:
        """As a stage looks the call's shape up; None if its arguments can't travel."""
        structure, tensors = take_out((args, kwargs))
        with suppress(StepError):
            arguments = packed((Mode.current(), structure), "the arguments")
            return number, arguments, tuple(Meta.of(tensor) for tensor in tensors)
        return None


def _memory_of(structure: Any) -> list[tuple[int, int]]:
    """Of the tensors in it: where they lie, and their own bytes."""
    _, tensors = take_out(structure)
    return [(tensor.untyped_storage().data_ptr(), tensor.nbytes) for tensor in tensors]


def trace(
    modules: Sequence[torch.nn.Module],
    names: Sequence[str],
    run: Callable[[], Any],
    passes: int = 1,
) -> Trace:
    """Runs a step's function for one microbatch, with all modules here.

    Args:
        passes: So often; the last time counts.

    Raises:
        PartitionError: it failed; the text names the module.
    """
    with delayed.stand_ins(modules):
        return _trace(_Tracer(modules, names), run, passes)


def _trace(tracer: _Tracer, run: Callable[[], Any], passes: int) -> Trace:
    modules = tracer.modules
    generator = torch.get_rng_state()
    buffers = [
        (buffer, buffer.detach().clone()) for module in modules for buffer in module.buffers(False)
    ]
    for number, module in enumerate(modules):
        module._compiled_call_impl = _stand_in(tracer, number)
    state.is_tracing = True
    try:
        for _ in range(passes):
            tracer.begin()
            with torch.autograd.graph.saved_tensors_hooks(tracer.keep, lambda kept: kept):
                run()
    except SplitError:
        raise
    except Exception as error:
        where = f"in {tracer.failed_in}" if tracer.failed_in else "outside of the model"
        raise PartitionError(
            f"tracing the first microbatch failed {where}: {type(error).__name__}: {error}"
        ) from error
    finally:
        state.is_tracing = False
        for module in modules:
            module._compiled_call_impl = None
        torch.set_rng_state(generator)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
    return tracer.trace


def _stand_in(tracer: _Tracer, number: int) -> Callable[..., Any]:
    return lambda *args, **kwargs: tracer.call(number, args, kwargs)
