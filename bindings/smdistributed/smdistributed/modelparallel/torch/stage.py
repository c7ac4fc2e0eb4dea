# SPDX-License-Identifier: Apache-2.0
"""What a rank of a pipeline does: calls modules of other ranks, and carries out their calls.

A call is a FORWARD task for the module's owner. The caller knows the shapes of its result from
earlier calls with arguments of the same shapes, and goes on with promises; the first such call is
waited for. The call's BACKWARD task comes when autograd asks for it, maybe long before the forward
pass has run: the task needs the value that says so.

A task is done when all calls that it made are done; so the end of a step's functions on the leader
means that nothing is under way anywhere.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from shoal.pipe import NEEDS_MAX, Kind, Pipe, Task

from . import shortage
from .exceptions import OutOfMemoryError, StepError
from .executor import Executor
from .promise import Meta, Promise
from .structure import fill_in, packed, take_out, unpacked


@dataclass(frozen=True)
class Mode:
    """What of the caller's thread holds in the owner's too."""

    grad: bool
    autocast: torch.dtype | None

    @classmethod
    def current(cls) -> Mode:
        autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        return cls(torch.is_grad_enabled(), autocast)

    @contextmanager
    def entered(self) -> Iterator[None]:
        on = self.autocast is not None
        with torch.set_grad_enabled(self.grad):
            if not on and not torch.is_autocast_enabled("cpu"):
                yield
                return
            with torch.autocast("cpu", self.autocast, enabled=on):
                yield


@dataclass(frozen=True)
class Shape:
    """Of a result: its structure with slots, and what is known of each tensor."""

    structure: Any
    metas: tuple[Meta, ...]


@dataclass
class Call:
    """Of a module elsewhere, as the caller sees it.

    number: The value that says that its forward task is done.
    is_asked: Its backward task was submitted.
    is_done: The task that made it has ended, so its forward task has too.
    """

    module: int
    owner: int
    microbatch: int
    arguments: bytes
    inputs: tuple[Meta, ...]
    number: int = 0
    is_asked: bool = False
    is_done: bool = False
    shape: Shape | None = None


@dataclass
class Made:
    """Of a call that was carried out here, until its backward pass."""

    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]


class _Remote(torch.autograd.Function):
    """The place of a call in the caller's graph. The anchor, which needs a gradient, is there for
    calls whose own arguments need none: the module's parameters do."""

    @staticmethod
    def forward(ctx, stage: Stage, call: Call, anchor: torch.Tensor, *tensors: torch.Tensor):
        ctx.stage, ctx.call = stage, call
        ctx.set_materialize_grads(False)
        results = stage.forward(call, tensors)
        metas = call.shape.metas
        without = [one for one, meta in zip(results, metas, strict=True) if not meta.requires_grad]
        ctx.mark_non_differentiable(*without)
        return results

    @staticmethod
    def backward(ctx, *gradients: torch.Tensor | None):
        return None, None, None, *ctx.stage.backward(ctx.call, gradients)


@dataclass
class Progress:
    """Of the task that a thread carries out: the calls that it made, and the values that say that
    backward passes which it asked for are done."""

    microbatch: int
    calls: list[Call] = field(default_factory=list)
    backwards: list[int] = field(default_factory=list)


class _Local(threading.local):
    now: Progress


class Stage:
    """One rank of a pipeline.

    Args:
        pipe: To the others.
        modules: All of the model's, in the same order on all ranks.
        names: Of them.
        owners: Rank of each.
    """

    def __init__(
        self,
        pipe: Pipe,
        modules: Sequence[torch.nn.Module],
        names: Sequence[str],
        owners: Sequence[int],
    ):
        self.pipe, self.modules, self.names, self.owners = pipe, modules, names, owners
        self.carry_out_other: Callable[[Task], None] | None = None  # START and CONTROL
        self.executor = Executor(pipe, self._carry_out)
        self.shapes: dict[tuple, Shape] = {}
        self.made: dict[int, Made] = {}
        self.progress = _Local()
        self.turns: dict[int, int] = {}  # values that say that it is a microbatch's turn
        self.without_turn: set[int] = set()
        self.all_together = False
        self.anchor = torch.empty(0, requires_grad=True)
        self.failed_where = ""  # of the task that has failed

    # ---- values

    def _promise(self, meta: Meta, home: int) -> Promise:
        value = self.pipe.promise(home)
        promise = Promise(meta, value, self._fetch)
        weakref.finalize(promise, self._drop, value)
        return promise

    def _drop(self, value: int) -> None:
        """Of something that may live longer than the pipe."""
        if self.pipe.handle:
            self.pipe.drop(value)

    def _fetch(self, promise: Promise) -> torch.Tensor:
        self.executor.wait([promise.value], self.progress.now.microbatch)
        meta = Meta(tuple(promise.shape), promise.dtype, False)
        return self._view(promise.value, meta)

    def _view(self, value: int, meta: Meta) -> torch.Tensor:
        """A value of one tensor that a task needed; it is released with the tensor."""
        ((address, size),) = self.pipe.value(value).buffers
        return view(address, size, meta, partial(self.pipe.release, value))

    def take(self, value: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A copy of a value of one tensor that a task needed."""
        return self._view(value, Meta(shape, dtype, False)).clone()

    def send(self, task: Task, tensors: Sequence[torch.Tensor]) -> None:
        """Submits the task, with these tensors' values as what it needs."""
        made = []
        for tensor in tensors:
            if isinstance(tensor, Promise):
                task.needs.append(tensor.value)
                continue
            value = self.pipe.promise(self.pipe.rank)
            self._put(value, [tensor])
            task.needs.append(value)
            made.append(value)
        self.pipe.submit(task)
        for value in made:
            self.pipe.drop(value)

    def _put(self, value: int, tensors: Sequence[torch.Tensor], descriptor: bytes = b"") -> None:
        plain = [tensor.detach().contiguous() for tensor in tensors]
        self.pipe.put(value, descriptor, [(tensor.data_ptr(), tensor.nbytes) for tensor in plain])

    # ---- calls of modules elsewhere

    def call(self, module: int, *args: Any, **kwargs: Any) -> Any:
        """A module that lives elsewhere: its result, with promises for tensors."""
        structure, tensors = take_out((args, kwargs))
        tensors = [_unless_written(tensor) for tensor in tensors]
        arguments = packed((Mode.current(), structure), f"arguments of {self.names[module]}")
        inputs = tuple(Meta.of(tensor) for tensor in tensors)
        microbatch = self.progress.now.microbatch
        call = Call(module, self.owners[module], microbatch, arguments, inputs)
        results = _Remote.apply(self, call, self.anchor, *tensors)
        return fill_in(call.shape.structure, results)

    def forward(self, call: Call, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        key = call.module, call.arguments, call.inputs
        call.number = self.pipe.promise(call.owner)
        self.progress.now.calls.append(call)
        call.shape = self.shapes.get(key)
        if call.shape is None:
            call.shape, results = self._first_forward(call, tensors)
            self.shapes[key] = call.shape
        else:
            results = tuple(self._promise(meta, call.owner) for meta in call.shape.metas)
            self._send_forward(call, tensors, [promise.value for promise in results])
        return results

    def _send_forward(
        self, call: Call, tensors: Sequence[torch.Tensor], results: Sequence[int]
    ) -> None:
        request = call.number, call.arguments, call.inputs, call.shape, results
        blob = packed(request, f"arguments of {self.names[call.module]}")
        self.send(Task(Kind.FORWARD, call.owner, call.microbatch, call.module, blob, []), tensors)

    def _first_forward(
        self, call: Call, tensors: Sequence[torch.Tensor]
    ) -> tuple[Shape, tuple[torch.Tensor, ...]]:
        """All results come as one value, with their shape."""
        whole = self.pipe.promise(call.owner)
        self._send_forward(call, tensors, [whole])
        self.executor.wait([whole], call.microbatch)
        value = self.pipe.value(whole)
        shape = unpacked(value.descriptor)
        results = tuple(
            view(address, size, meta, lambda: None).clone()
            for (address, size), meta in zip(value.buffers, shape.metas, strict=True)
        )
        self.pipe.release(whole)
        self.pipe.drop(whole)
        return shape, results

    def backward(
        self, call: Call, gradients: Sequence[torch.Tensor | None]
    ) -> list[Promise | None]:
        """Promises of the gradients of those arguments that want one."""
        given = [i for i, gradient in enumerate(gradients) if gradient is not None]
        results = [
            self._promise(meta, call.owner) if meta.requires_grad else None for meta in call.inputs
        ]
        done = self.pipe.promise(call.owner)
        self.progress.now.backwards.append(done)
        numbers = [promise.value if promise is not None else 0 for promise in results]
        blob = packed((call.number, done, given, numbers), "a backward pass")
        needs = [] if call.is_done else [call.number]
        task = Task(Kind.BACKWARD, call.owner, call.microbatch, call.module, blob, needs)
        self.send(task, [gradients[i] for i in given])
        call.is_asked = True
        return results

    def end_calls(self) -> None:
        """Until all calls that the present task has made, and all backward passes that it has asked
        for, are done."""
        progress = self.progress.now
        without_backward = [call.number for call in progress.calls if not call.is_asked]
        needed = without_backward + progress.backwards
        for first in range(0, len(needed), NEEDS_MAX):
            self._wait_for_last_time(needed[first : first + NEEDS_MAX], progress.microbatch)
        for call in progress.calls:
            call.is_done = True
            if call.is_asked:
                self.pipe.drop(call.number)

    def _wait_for_last_time(self, values: Sequence[int], microbatch: int) -> None:
        """Nothing else needs these values."""
        seat = self.executor.present_seat()
        self.executor.when_come(values, microbatch, partial(self.executor.resume, seat))
        for value in values:
            self.pipe.drop(value)
        self.executor.suspend(seat)
        for value in values:
            self.pipe.release(value)

    # ---- tasks for this rank

    def _carry_out(self, task: Task) -> None:
        self.progress.now = Progress(task.microbatch)
        try:
            if task.kind == Kind.FORWARD:
                self._forward(task)
            elif task.kind == Kind.BACKWARD:
                self._backward(task)
            else:
                self.carry_out_other(task)
        except Exception as error:
            where = self._where(task, error)
            self.failed_where = self.failed_where or where
            if shortage.is_one(error):
                raise OutOfMemoryError(shortage.text(error, where)) from error
            raise

    def _where(self, task: Task, error: Exception) -> str:
        """The innermost module that an error comes from, and the task."""
        name = shortage.innermost(error, self.modules, self.names)
        if task.kind in (Kind.FORWARD, Kind.BACKWARD):
            what = f"{task.kind.name.lower()} of microbatch {task.microbatch}"
            return f"{name or self.names[task.module]} ({what})"
        what = f"the step's function, microbatch {task.microbatch}"
        return f"{name} ({what})" if name else what

    def _forward(self, task: Task) -> None:
        number, arguments, metas, expected, results = unpacked(task.blob)
        mode, structure = unpacked(arguments)
        inputs = [
            self._view(value, meta).requires_grad_(meta.requires_grad and mode.grad)
            for value, meta in zip(task.needs, metas, strict=True)
        ]
        module = self.modules[task.module]
        with mode.entered():
            # What the module may change in its place is not what others see, nor a leaf.
            given = [one.clone() for one in inputs] if _changes_arguments(module) else inputs
            args, kwargs = fill_in(structure, given)
            result = module(*args, **kwargs)
        structure, outputs = take_out(result)
        outputs = [_ordinary(tensor) for tensor in outputs]
        shape = Shape(structure, tuple(Meta.of(tensor) for tensor in outputs))
        if any(meta.requires_grad for meta in shape.metas):
            self.made[number] = Made(inputs, outputs)
        if expected is None:
            self._put(results[0], outputs, packed(shape, f"results of {self.names[task.module]}"))
        else:
            self._check_shape(task, shape, expected)
            for value, output in zip(results, outputs, strict=True):
                self._put(value, [output])
        self.end_calls()
        self.pipe.put(number)

    def _check_shape(self, task: Task, shape: Shape, expected: Shape) -> None:
        if expected != shape:
            raise StepError(
                f"{self.names[task.module]} gave {_text(shape)} where it gave {_text(expected)} "
                "before for arguments of the same shapes: data must not decide what the result of "
                "a module on another rank looks like"
            )

    def _backward(self, task: Task) -> None:
        number, done, given, results = unpacked(task.blob)
        others = len(task.needs) - len(given)
        for value in task.needs[:others]:
            self.pipe.release(value)
        made = self.made.pop(number)
        outputs = [made.outputs[i] for i in given]
        gradients = [
            self._view(value, Meta.of(output))
            for value, output in zip(task.needs[others:], outputs, strict=True)
        ]
        torch.autograd.backward(outputs, gradients)
        for i, (tensor, value) in enumerate(zip(made.inputs, results, strict=True)):
            if value:
                self._put(value, [self._gradient(task, i, tensor)])
        self.end_calls()
        self.pipe.put(done)

    def _gradient(self, task: Task, index: int, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.grad is None:
            raise StepError(
                f"{self.names[task.module]}: its tensor argument {index} needs a gradient, and "
                "nothing in the result comes from it; detach it, or don't pass it"
            )
        return tensor.grad

    # ---- turns

    def begin_turns(self, count: int, all_together: bool) -> None:
        """On the leader: backward passes of this step's microbatches begin in their order; if
        all_together, when all of these have come to theirs."""
        self.all_together = all_together
        self.turns = {i: self.pipe.promise(self.pipe.rank) for i in range(count)}
        self.without_turn = set(range(count))
        if not all_together:
            self.pipe.put(self.turns[0])

    def take_turn(self) -> None:
        """In a microbatch, at the begin of its backward pass, and at its end in case it has none:
        until it may begin."""
        own = self.progress.now.microbatch
        if own not in self.without_turn:
            return
        self.without_turn.remove(own)
        if self.all_together and not self.without_turn:
            for turn in self.turns.values():
                self.pipe.put(turn)
        self._wait_for_last_time([self.turns[own]], own)
        if not self.all_together and own + 1 in self.turns:
            self.pipe.put(self.turns[own + 1])

    def forget_step(self) -> None:
        """At the end of a step: what no backward pass has asked for."""
        self.made.clear()


def view(address: int, size: int, meta: Meta, release: Callable[[], None]) -> torch.Tensor:
    """A tensor over memory of the pipe's; release is called when nothing uses it any more."""
    if size == 0:
        release()
        return torch.empty(meta.shape, dtype=meta.dtype)
    memory = (ctypes.c_char * size).from_address(address)
    weakref.finalize(memory, release)
    return torch.frombuffer(memory, dtype=meta.dtype).view(meta.shape)


def _changes_arguments(module: torch.nn.Module) -> bool:
    """Whether it, or a module in it, works in place, as ReLU(inplace=True) does."""
    return any(getattr(one, "inplace", False) for one in module.modules())


def _unless_written(tensor: torch.Tensor) -> torch.Tensor:
    """A promise, or the tensor that it has become."""
    return tensor.tensor_now() if isinstance(tensor, Promise) and tensor.is_written else tensor


def _ordinary(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.tensor_now() if isinstance(tensor, Promise) else tensor


def _text(shape: Shape) -> str:
    tensors = ", ".join(f"{list(meta.shape)} {meta.dtype}" for meta in shape.metas)
    return f"tensors of {tensors}" if tensors else "no tensors"
