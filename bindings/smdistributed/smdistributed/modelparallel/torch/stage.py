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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from shoal.pipe import NEEDS_MAX, Kind, Task
from shoal.torch.pipe import TensorPipe

from . import shortage
from .calls import Backward, Call, Forward, Mode, Shape, Site
from .exceptions import OutOfMemoryError, StepError
from .executor import Executor
from .promise import Meta, Promise
from .structure import NotPlain, fill_in, packed, signature, take_out, unpacked

SITES_MAX = 4096  # so many kinds of calls are known by their number


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
        metas = call.site.shape.metas
        without = [one for one, meta in zip(results, metas, strict=True) if not meta.requires_grad]
        ctx.mark_non_differentiable(*without)
        return results

    @staticmethod
    def backward(ctx, *gradients: torch.Tensor | None):
        return None, None, None, *ctx.stage.backward(ctx.call, gradients)


@dataclass
class Progress:
    """Of the task that a thread carries out.

    calls: That it made.
    backwards: Values that say that backward passes which it asked for are done.
    unasked: So many calls may have a backward pass, and it was not asked for.
    """

    microbatch: int
    calls: list[Call] = field(default_factory=list)
    backwards: list[int] = field(default_factory=list)
    unasked: int = 0


class _Local(threading.local):
    now: Progress


class Stage:
    """One rank of a pipeline.

    Args:
        pipe: To the others.
        modules: All of the model's, in the same order on all ranks.
        names: Of them.
        owners: Rank of each.
        keeps_order: Backward passes that this rank asks another one for begin in the order in which
            it does, whatever their gradients wait for.
    """

    def __init__(
        self,
        pipe: TensorPipe,
        modules: Sequence[torch.nn.Module],
        names: Sequence[str],
        owners: Sequence[int],
        keeps_order: bool = False,
    ):
        self.keeps_order = keeps_order
        self.last_asked: dict[int, int] = {}  # of each rank, if it may not be done
        self.pipe, self.modules, self.names, self.owners = pipe, modules, names, owners
        self.carry_out_other: Callable[[Task], None] | None = None  # START and CONTROL
        self.executor = Executor(pipe, self._carry_out)
        self.shapes: dict[tuple, Shape] = {}
        self.sites: dict[tuple, Site] = {}  # of calls from here
        self.last_sites: dict[int, Site] = {}  # the last plain one of each module
        self.known: dict[tuple[int, int], Site] = {}  # of calls to here, by caller and number
        self.made: dict[int, Made] = {}
        self.progress = _Local()
        self.turns: dict[int, int] = {}  # values that say that it is a microbatch's turn
        self.without_turn: set[int] = set()
        self.has_turn: int | None = None
        self.all_together = False
        self.anchor = torch.empty(0, requires_grad=True)
        self.failed_where = ""  # of the task that has failed

    # ---- values

    def _promise(self, meta: Meta, home: int) -> Promise:
        """Its value is dropped with it."""
        promised = self.pipe.promised(home)
        return Promise(meta, promised.value, self._fetch, promised)

    def _fetch(self, promise: Promise) -> torch.Tensor:
        self.executor.wait([promise.value], self.progress.now.microbatch)
        return self._view_of(promise)

    def _view_of(self, promise: Promise) -> torch.Tensor:
        return self.pipe.view(promise.value, promise.meta.shape, promise.meta.dtype, False)

    def take(self, value: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A copy of a value of one tensor that a task needed."""
        return self.pipe.view(value, shape, dtype, False).clone()

    def send(self, task: Task, tensors: Sequence[torch.Tensor]) -> None:
        """Submits the task, with these tensors' values as what it needs."""
        made = []
        for tensor in tensors:
            if isinstance(tensor, Promise):
                task.needs.append(tensor.value)
                continue
            value = self.pipe.promise(self.pipe.rank)
            self.pipe.put(value, [tensor])
            task.needs.append(value)
            made.append(value)
        self.pipe.submit(task)
        for value in made:
            self.pipe.drop(value)

    # ---- calls of modules elsewhere

    def call(self, module: int, *args: Any, **kwargs: Any) -> Any:
        """A module that lives elsewhere: its result, with promises for tensors."""
        site, tensors = self.last_sites.get(module), args
        if site is None or kwargs or not site.is_of(args):
            with torch._C.DisableTorchFunctionSubclass():  # promises are looked at, not read
                site, tensors = self._site_of(module, args, kwargs)
        call = Call(site, self.owners[module], self.progress.now.microbatch)
        results = _Remote.apply(self, call, self.anchor, *tensors)
        return results[0] if site.shape.is_one else fill_in(site.shape.structure, results)

    def _site_of(
        self, module: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Site, list[torch.Tensor]]:
        tensors: list[torch.Tensor] = []
        mode = Mode.current()
        try:
            what = signature((args, kwargs), tensors)
        except NotPlain:
            what = None
            _, tensors = take_out((args, kwargs))
        tensors = [_unless_written(tensor) for tensor in tensors]
        inputs = tuple(Meta.of(tensor) for tensor in tensors)
        key = module, mode, what, inputs
        site = None if what is None else self.sites.get(key)
        if site is None:
            site = self._new_site(module, mode, take_out((args, kwargs))[0], inputs)
            if what is not None and len(self.sites) < SITES_MAX:
                self.sites[key] = site
                site.number = len(self.sites)
        if site.number and site.is_plain:
            self.last_sites[module] = site
        return site, tensors

    def _new_site(self, module: int, mode: Mode, structure: Any, inputs: tuple[Meta, ...]) -> Site:
        arguments = packed((mode, structure), f"arguments of {self.names[module]}")
        key = module, arguments, inputs
        return Site(module, 0, mode, structure, inputs, self.shapes.get(key), key)

    def forward(self, call: Call, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        call.number = self.pipe.promise(call.owner)
        progress = self.progress.now
        progress.calls.append(call)
        shape = call.site.shape
        progress.unasked += shape is None or shape.has_gradients
        if shape is None:
            return self._first_forward(call, tensors)
        results = tuple(self._promise(meta, call.owner) for meta in call.site.shape.metas)
        self._send_forward(call, tensors, [promise.value for promise in results])
        return results

    def _send_forward(
        self, call: Call, tensors: Sequence[torch.Tensor], results: Sequence[int]
    ) -> None:
        site = call.site
        forward = Forward(site, call.number, site.shape, results)
        blob = forward.blob(f"arguments of {self.names[site.module]}")
        keeps = site.mode.grad and (site.shape is None or site.shape.has_gradients)
        task = Task(Kind.FORWARD, call.owner, call.microbatch, site.module, blob, [], keeps)
        self.send(task, tensors)

    def _first_forward(
        self, call: Call, tensors: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """All results come as one value, with their shape."""
        whole = self.pipe.promise(call.owner)
        self._send_forward(call, tensors, [whole])
        self.executor.wait([whole], call.microbatch)
        value = self.pipe.value(whole)
        shape = unpacked(value.descriptor)
        results = tuple(
            _copied(address, size, meta)
            for (address, size), meta in zip(value.buffers, shape.metas, strict=True)
        )
        self.pipe.release(whole)
        self.pipe.drop(whole)
        self.shapes[call.site.key] = call.site.shape = shape
        return results

    def backward(
        self, call: Call, gradients: Sequence[torch.Tensor | None]
    ) -> list[Promise | None]:
        """Promises of the gradients of those arguments that want one."""
        given = [i for i, gradient in enumerate(gradients) if gradient is not None]
        results = [
            self._promise(meta, call.owner) if meta.requires_grad else None
            for meta in call.site.inputs
        ]
        done = self.pipe.promise(call.owner)
        self.progress.now.backwards.append(done)
        numbers = [promise.value if promise is not None else 0 for promise in results]
        blob = Backward(call.number, done, given, numbers).blob()
        needs = [] if call.is_done else [call.number]
        if self.keeps_order:
            needs += filter(None, [self.last_asked.get(call.owner)])
            self.last_asked[call.owner] = done
        task = Task(Kind.BACKWARD, call.owner, call.microbatch, call.site.module, blob, needs)
        self.send(task, [gradients[i] for i in given])
        self._note_asked(call)
        return results

    def _note_asked(self, call: Call) -> None:
        progress = self.progress.now
        progress.unasked -= not call.is_asked
        call.is_asked = True
        if progress.unasked == 0:
            self.pass_turn()

    def end_calls(self, results: Sequence[torch.Tensor] = ()) -> None:
        """Until all calls that the present task has made, and all backward passes that it has asked
        for, are done, and the data of these tensors is here."""
        progress = self.progress.now
        if not (progress.calls or progress.backwards or results):
            return
        without_backward = [call.number for call in progress.calls if not call.is_asked]
        needed = without_backward + progress.backwards
        promises = [one for one in results if isinstance(one, Promise) and not one.has_data()]
        if len(needed) + len(promises) > NEEDS_MAX:
            promises = []  # they are fetched one by one
        for first in range(0, max(len(needed), len(promises)), NEEDS_MAX):
            some = needed[first : first + NEEDS_MAX]
            self._wait_for_last_time(some, progress.microbatch, promises)
        for call in progress.calls:
            call.is_done = call.site.is_known = True
            if call.is_asked:
                self.pipe.drop(call.number)

    def _wait_for_last_time(
        self, values: Sequence[int], microbatch: int, promises: Sequence[Promise] = ()
    ) -> None:
        """Nothing else needs these values; promises that come with them get their data."""
        seat = self.executor.present_seat()
        needed = [*values, *[promise.value for promise in promises]]
        self.executor.when_come(needed, microbatch, partial(self.executor.resume, seat))
        self.executor.suspend(seat)
        for promise in promises:
            promise.arrive(self._view_of(promise))
        self.last_asked = {
            rank: done for rank, done in self.last_asked.items() if done not in values
        }
        for value in values:
            self.pipe.release(value)
            self.pipe.drop(value)

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
            what = f"{Kind(task.kind).name.lower()} of microbatch {task.microbatch}"
            return f"{name or self.names[task.module]} ({what})"
        what = f"the step's function, microbatch {task.microbatch}"
        return f"{name} ({what})" if name else what

    def _forward(self, task: Task) -> None:
        site, number, expected, results = Forward.read(task.blob, self.known, task.rank)
        inputs = self.pipe.views(task.needs, site.takes, site.mode.grad)
        if site.copies is None:
            site.copies = self._works_in_place(task.module)
        with site.mode.entered():
            # What the module may change in its place is not what others see, nor a leaf.
            given = [one.clone() for one in inputs] if site.copies else inputs
            result = self._run(task.module, site, given)
        outputs = expected.tensors_in(result) if expected else None
        shape = expected
        if outputs is None:
            shape, outputs = self._look_at(task, result, expected)
        if shape.has_gradients:
            self.made[number] = Made(inputs, outputs)
        if expected is None:
            what = packed(shape, f"results of {self.names[task.module]}")
            self.pipe.put(results[0], outputs, what)
            site.shape = shape
        else:
            self.pipe.put_all(results, outputs)
        self.end_calls()
        self.pipe.put(number)

    def _look_at(
        self, task: Task, result: Any, expected: Shape | None
    ) -> tuple[Shape, list[torch.Tensor]]:
        """What a result is, which is to be as expected, and its tensors, with their data."""
        structure, outputs = take_out(result)
        outputs = [_ordinary(tensor) for tensor in outputs]
        shape = Shape(structure, tuple(Meta.of(tensor) for tensor in outputs))
        if expected is not None:
            self._check_shape(task, shape, expected)
        return shape, outputs

    def _run(self, number: int, site: Site, tensors: Sequence[torch.Tensor]) -> Any:
        if site.is_plain:
            return self.modules[number](*tensors)
        args, kwargs = fill_in(site.structure, tensors)
        return self.modules[number](*args, **kwargs)

    def _works_in_place(self, number: int) -> bool:
        """Whether it, or a module in it, does, as ReLU(inplace=True)."""
        within = self.modules[number].modules()
        return any(getattr(one, "inplace", False) for one in within)

    def _check_shape(self, task: Task, shape: Shape, expected: Shape) -> None:
        if expected != shape:
            raise StepError(
                f"{self.names[task.module]} gave {_text(shape)} where it gave {_text(expected)} "
                "before for arguments of the same shapes: data must not decide what the result of "
                "a module on another rank looks like"
            )

    def _backward(self, task: Task) -> None:
        number, done, given, results = Backward.read(task.blob)
        made = self.made.pop(number)
        self.pipe.backward(task.needs, given, made.outputs)
        first = self.pipe.put_gradients(results, made.inputs)
        for i in range(first, len(results)):
            if results[i]:
                self.pipe.put_later(results[i], self._gradient(task, i, made.inputs[i]))
        self.end_calls()
        self.pipe.put(done)

    def _gradient(self, task: Task, index: int, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.grad is None:
            raise StepError(
                f"{self.names[task.module]}: its tensor argument {index} needs a gradient, and "
                "nothing in the result comes from it; detach it, or don't pass it"
            )
        return _ordinary(tensor.grad)

    # ---- turns

    def begin_turns(self, count: int, all_together: bool) -> None:
        """On the leader: backward passes of this step's microbatches begin when all of these have
        come to theirs, if all_together; and if this stage keeps their order, each one when the one
        before has asked for all of its calls' passes."""
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
            for i in range(1 if self.keeps_order else len(self.turns)):
                self.pipe.put(self.turns[i])
        self._wait_for_last_time([self.turns[own]], own)
        self.has_turn = own
        if self.progress.now.unasked == 0:
            self.pass_turn()

    def pass_turn(self) -> None:
        """In a microbatch that asks for no more backward passes."""
        own = self.progress.now.microbatch
        if own != self.has_turn:
            return
        self.has_turn = None
        if self.keeps_order and own + 1 in self.turns:
            self.pipe.put(self.turns[own + 1])

    def forget_step(self) -> None:
        """At the end of a step: what no backward pass has asked for."""
        self.made.clear()


def _copied(address: int, size: int, meta: Meta) -> torch.Tensor:
    """Of memory of the pipe's."""
    if size == 0:
        return torch.empty(meta.shape, dtype=meta.dtype)
    memory = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(memory, dtype=meta.dtype).view(meta.shape).clone()


def _unless_written(tensor: torch.Tensor) -> torch.Tensor:
    """A promise, or the tensor that it has become."""
    return tensor.tensor_now() if isinstance(tensor, Promise) and tensor.is_written else tensor


def _ordinary(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.tensor_now() if isinstance(tensor, Promise) else tensor


def _text(shape: Shape) -> str:
    tensors = ", ".join(f"{list(meta.shape)} {meta.dtype}" for meta in shape.metas)
    return f"tensors of {tensors}" if tensors else "no tensors"
