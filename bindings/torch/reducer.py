# SPDX-License-Identifier: Apache-2.0
"""What torch's DistributedDataParallel asks of its reducer, over fusion buffers (docs/ddp.md).

torch's class is Python but for the reducer, which knows when gradients are ready and sums them. The
one here has the methods that the class calls, and gradients go to a fuse (docs/fuse.md) for each
type of gradient. Nothing of it is for users.

A step begins when forward ends with a pass that will be summed ("armed"), and ends at the end of
the backward pass in which the last gradient came. All of it runs in the thread of that pass.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.autograd import Variable

from . import arena
from .native import binding

NAMES_SHOWN = 8
FLAGS = "which parameters are used"

# torch.compile goes through all that forward calls, and is to run this as it is.
_untraced = torch._disable_dynamo


@dataclass(frozen=True)
class Wishes:
    """What the caller of DistributedDataParallel wants.

    name: Of the model, for messages.
    finds_unused: Passes may leave parameters out.
    keeps_at_home: Gradients are views of the fusion buffers.
    buffer_bytes: Of a fusion buffer; 0 for the option's.
    sum_type: Gradients of floating point are summed in this type; None: in their own.
    compression: A name in binding.compressions: gradients travel rounded; None: as they are.
    error_feedback: What that loses is added in the next step.
    """

    name: str
    finds_unused: bool
    keeps_at_home: bool
    buffer_bytes: int
    sum_type: torch.dtype | None = None
    compression: str | None = None
    error_feedback: bool = True


class Step:
    """Which gradients of a step have come, and how often those that are left have to."""

    def __init__(self, expected: Iterable[int], count: int):
        self.left = [0] * count
        for parameter in expected:
            self.left[parameter] += 1
        self.missing = count - self.left.count(0)
        self.added = [False] * count
        self.begun = False
        self.end_is_queued = False

    def lacking(self) -> list[int]:
        return [i for i, added in enumerate(self.added) if not added]


def _call_if_alive(reducer: weakref.ref[Reducer], index: int, parameter: torch.Tensor) -> None:
    """A parameter must not keep the model that it was part of."""
    alive = reducer()
    if alive is not None:
        alive.gradient_came(index, parameter)


def _remove(handles: list[torch.utils.hooks.RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()


def _at_end_of_backward(function: Callable[[], None]) -> None:
    Variable._execution_engine.queue_callback(function)


class Reducer:
    """Sums gradients over a group while the backward pass makes them.

    Args:
        parameters: Those that need gradients, in registration order; the same on all ranks.
        names: Of each.
        group: The process group, whose backend for CPU tensors is shoal.
        wishes: What the caller wants.
    """

    def __init__(
        self,
        parameters: list[torch.nn.Parameter],
        names: list[str],
        group: dist.ProcessGroup,
        wishes: Wishes,
    ):
        self.parameters, self.names, self.wishes = parameters, names, wishes
        self.is_static = False
        self.take_results: Callable[[], None] | None = None  # where results are taken later
        self.hook_handles = [
            parameter.register_post_accumulate_grad_hook(
                partial(_call_if_alive, weakref.ref(self), index)
            )
            for index, parameter in enumerate(parameters)
        ]
        weakref.finalize(self, _remove, self.hook_handles)
        self._update_process_group(group)

    # ---- fuses

    def _update_process_group(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self._reset_state()

    def _reset_state(self) -> None:
        """As before the first forward pass."""
        self.fuses: list[binding.Fuse] = []
        self.places: list[tuple[binding.Fuse, int]] = []
        self.homes: list[torch.Tensor] = []  # views, from the end of the first step on
        self.step: Step | None = None  # that is armed or under way
        self.seen: dict[int, int] = {}  # static graph: how often each gradient comes in a pass
        self.is_learning = self.is_static
        self.used = [False] * len(self.parameters)  # since the last step
        self.left_out: set[int] = set()  # of the last step
        self.futures: list[torch.futures.Future] = []
        self.join_work: dist.Work | None = None
        self.divides_by_all = True
        self.has_results = False  # of a step, which nobody has asked for yet
        self.is_deferred = False  # a step whose results may still be on their way

    @_untraced
    def _rebuild_buckets(self) -> bool:
        """Before each forward pass with gradients, on all ranks: makes the fuses once. Collective
        then. False: nothing else has changed."""
        self.left_out = set()
        if not self.fuses:
            self._make_fuses()
        return False

    @property
    def has_flags(self) -> bool:
        """Whether passes may leave parameters out, so that ranks tell which they used."""
        return self.wishes.finds_unused or self.is_static

    def _sum_type(self, parameter: torch.nn.Parameter) -> torch.dtype:
        wanted = self.wishes.sum_type
        return wanted if wanted and parameter.is_floating_point() else parameter.dtype

    def _make_fuses(self) -> None:
        type_of = [self._sum_type(parameter) for parameter in self.parameters]
        types = list(dict.fromkeys(type_of))
        places: dict[int, tuple[binding.Fuse, int]] = {}
        for dtype in types:
            of_type = [i for i, one in enumerate(type_of) if one == dtype]
            like = [self.parameters[i].detach() for i in of_type]
            names = [self.names[i] for i in of_type]
            shares_flags = self.has_flags and not self.fuses and self.wishes.compression is None
            if shares_flags:
                self.flags = torch.zeros(len(self.parameters), dtype=dtype)
                like, names = [*like, self.flags], [*names, FLAGS]
            name = self.wishes.name if len(types) == 1 else f"{self.wishes.name} ({dtype})"
            fuse = self._make_fuse(like, names, name, self.wishes.compression)
            if shares_flags:
                self.flags_place = fuse, len(of_type)
            places |= {i: (fuse, number) for number, i in enumerate(of_type)}
        self.places = [places[i] for i in range(len(self.parameters))]
        if self.has_flags and self.wishes.compression is not None:  # flags are never rounded
            self.flags = torch.zeros(len(self.parameters))
            self.flags_place = self._make_fuse([self.flags], [FLAGS], FLAGS, None), 0

    def _make_fuse(
        self, like: list[torch.Tensor], names: list[str], name: str, compression: str | None
    ) -> binding.Fuse:
        backend = self.group._get_backend(arena.CPU)
        number = binding.compressions[compression] if compression else 0
        wishes = self.wishes.buffer_bytes, number, self.wishes.error_feedback
        fuse = binding.make_fuse(backend, like, names, name, self._sum_type(like[0]), *wishes)
        if fuse is None:
            raise ValueError("shoal: the process group's backend for CPU tensors is not shoal")
        self.fuses.append(fuse)
        return fuse

    # ---- the backward pass

    @_untraced
    def prepare_for_forward(self) -> None:
        pass

    @_untraced
    def prepare_for_backward(self, outputs: list[torch.Tensor]) -> None:
        """Forward has ended; the backward pass through it is summed.

        Args:
            outputs: Tensors of the forward pass, where passes may leave parameters out.
        """
        self._check_reducer_finalized()
        self.finish_deferred()
        count = len(self.parameters)
        expected = range(count)
        if self.is_static and not self.is_learning:
            expected = [i for i, times in self.seen.items() for _ in range(times)]
        self.step = Step(expected, count)
        for output in outputs:
            if output.grad_fn is not None:
                output.register_hook(self._backward_begins)

    def _check_reducer_finalized(self) -> None:
        step = self.step
        if step and step.begun:
            lacking = self._named(step.lacking())
            raise RuntimeError(
                "shoal: the last backward pass has not ended with the gradients of all ranks: no "
                f"gradient came for {lacking}. If passes leave parameters out, say "
                "find_unused_parameters=True; else let all that forward returns take part in the "
                "loss"
            )

    def _named(self, indices: list[int]) -> str:
        shown = ", ".join(self.names[i] for i in indices[:NAMES_SHOWN])
        more = len(indices) - NAMES_SHOWN
        return f"{shown} and {more} more" if more > 0 else shown

    def _backward_begins(self, _gradient: torch.Tensor | None) -> None:
        """A gradient has come to an output: in the outermost pass, whatever passes it has within
        (checkpoints)."""
        if self.step:
            self._queue_end(self.step)

    def _queue_end(self, step: Step) -> None:
        if not step.end_is_queued:
            step.end_is_queued = True
            _at_end_of_backward(self._end_step)

    def gradient_came(self, index: int, parameter: torch.Tensor) -> None:
        """Of this parameter, in any backward pass. An undefined one where an output is not part of
        the loss."""
        step, is_left_out = self.step, parameter.grad is None and self.has_flags
        self.used[index] |= not is_left_out
        if is_left_out:
            return
        if step is None:
            self._check_was_in_time(index)
            return
        step.begun = True
        if self.is_learning:
            self.seen[index] = self.seen.pop(index, 0) + 1  # in the order of the last ones
            return
        if self.wishes.finds_unused and not self.is_static:
            self._queue_end(step)
        step.left[index] -= 1
        if step.left[index] == 0:
            self._add(step, index, parameter)
        elif step.left[index] < 0:
            self._refuse_second(index)

    def _check_was_in_time(self, index: int) -> None:
        if index in self.left_out:
            raise RuntimeError(
                f"shoal: a gradient of {self.names[index]} came after the end of the backward pass "
                "that summed it as unused: with find_unused_parameters=True one backward pass "
                "brings all gradients of a forward pass"
            )

    def _refuse_second(self, index: int) -> None:
        if self.is_static:
            raise RuntimeError(
                f"shoal: {self.names[index]} got more gradients in this backward pass than in the "
                "first one: with static_graph=True all passes use the parameters equally often"
            )
        raise RuntimeError(
            f"shoal: {self.names[index]} got a second gradient in one backward pass, after the "
            "first one was on its way to the other ranks (reentrant checkpoints that share a "
            "parameter do that): say static_graph=True, or use_reentrant=False"
        )

    def _add(self, step: Step, index: int, parameter: torch.Tensor) -> None:
        fuse, number = self.places[index]
        gradient = parameter.grad
        if gradient is None:
            gradient = parameter.grad = torch.zeros_like(parameter)
        step.added[index] = True
        if not self.wishes.keeps_at_home or gradient.requires_grad:
            fuse.add(number, gradient, True)
        else:
            fuse.add(number, gradient, False)
            if self.take_results:
                parameter.grad = None
            elif self.homes and gradient is not self.homes[index]:
                parameter.grad = self.homes[index]
        step.missing -= 1
        if step.missing == 0:
            self._queue_end(step)

    def _delay_all_reduce(self) -> None:
        """The first backward pass of a static graph has ended."""
        step = self.step
        if step is None:
            return
        step.end_is_queued = True
        for index in self.seen:
            self._add(step, index, self.parameters[index])
        self.is_learning = False
        self._end_step()

    # ---- its end

    def _end_step(self) -> None:
        step, self.step = self.step, None
        lacking = step.lacking()
        if self.has_flags:
            self._add_the_rest(lacking)
        for future in self.futures:
            future.wait()
        if self.take_results:
            self._defer_results()
        else:
            self._finish_fuses()
            self._settle(lacking)
        self.left_out = set(lacking)
        self._step_is_over()

    def _finish_fuses(self) -> None:
        for fuse in self.fuses:
            fuse.finish()

    def _add_the_rest(self, lacking: list[int]) -> None:
        """What this pass left out: gradients of earlier passes that were not summed, or zeros."""
        for index in lacking:
            gradient = self.parameters[index].grad
            if gradient is not None:
                fuse, number = self.places[index]
                fuse.add(number, gradient, False)
        self.flags.copy_(torch.tensor(self.used))
        fuse, number = self.flags_place
        fuse.add(number, self.flags, True)
        for fuse in self.fuses:
            fuse.flush()

    def _settle(self, lacking: list[int]) -> None:
        """Results go where the program looks for them. A parameter that no rank used keeps what it
        has."""
        is_first = not self.homes
        if is_first:
            self._find_homes()
        used = self.flags.tolist() if self.has_flags else []
        used_elsewhere = [index for index in lacking if used[index]]
        left_out = set(lacking).difference(used_elsewhere)
        summed = [i for i in range(len(self.parameters)) if i not in left_out]
        if self.wishes.keeps_at_home:
            self._keep_at_home(summed if is_first else used_elsewhere)
        else:
            self._copy_results(used_elsewhere)
        self._divide_by_those_there(summed)

    def _find_homes(self) -> None:
        """They stay from the end of the first step on."""
        self.homes = [fuse.home(number) for fuse, number in self.places]

    def _keep_at_home(self, indices: list[int]) -> None:
        for index in indices:
            parameter = self.parameters[index]
            if parameter.grad is None or not parameter.grad.requires_grad:
                parameter.grad = self.homes[index]

    def _copy_results(self, indices: list[int]) -> None:
        for index in indices:
            parameter = self.parameters[index]
            if parameter.grad is None:
                parameter.grad = self.homes[index].to(parameter.dtype, copy=True)
            else:
                parameter.grad.detach().copy_(self.homes[index])

    def _divide_by_those_there(self, indices: list[int]) -> None:
        """The mean over all ranks becomes that over those which have not joined yet."""
        if self.join_work is None or self.divides_by_all:
            return
        self.join_work.wait()
        factor = self.group.size() / self.join_work.result()[0].item()
        if factor != 1:
            torch._foreach_mul_([self.parameters[i].grad.detach() for i in indices], factor)

    def _step_is_over(self) -> None:
        self.used = [False] * len(self.parameters)
        self.futures = []
        self.join_work = None

    def shadow_step(self) -> None:
        """The step of a rank that has run out of data: zeros."""
        for fuse in self.fuses:
            fuse.flush()
        self._finish_fuses()
        if not self.homes:
            self._find_homes()
        self._step_is_over()

    # ---- results that are taken in the next forward pass (overlap.py)

    def defer(self, take_results: Callable[[], None]) -> None:
        """From now on backward waits for no results, and leaves parameters without gradients.
        take_results is called at the end of the next forward pass, for what is left by then."""
        if self.has_flags or not self.wishes.keeps_at_home:
            raise ValueError(
                "shoal: updates overlap with gradient_as_bucket_view=True, parameters of one type, "
                "and neither find_unused_parameters nor static_graph"
            )
        self.take_results = take_results

    def _defer_results(self) -> None:
        """Homes move at the end of the first step, so that is waited for."""
        self.has_results = True
        self.is_deferred = bool(self.homes)
        if not self.homes:
            self._finish_fuses()
            self._find_homes()

    def result(self, index: int) -> torch.Tensor:
        """Of the last step; waits for it."""
        fuse, number = self.places[index]
        fuse.wait(number)
        return self.homes[index]

    def finish_deferred(self) -> None:
        """Before anything of another step."""
        if self.take_results:
            self.take_results()
        if self.is_deferred:
            self.is_deferred = False
            self._finish_fuses()

    # ---- the rest of what torch's class calls

    def _set_forward_pass_work_handle(self, work: dist.Work, divides_by_all: bool) -> None:
        """work: the count of the ranks that have not joined."""
        if self.take_results:
            raise ValueError("shoal: join() is not for a model whose updates overlap")
        self.join_work, self.divides_by_all = work, divides_by_all

    def _install_post_backward_futures(self, futures: list[torch.futures.Future]) -> None:
        self.futures += futures

    def _set_static_graph(self) -> None:
        if self.fuses:
            raise RuntimeError("shoal: static_graph is said before the first forward pass")
        self.is_static = self.is_learning = True

    def _push_all_rebuilt_params(self) -> None:
        pass

    def _remove_autograd_hooks(self) -> None:
        _remove(self.hook_handles)

    def _set_ddp_runtime_logging_sample_rate(self, _rate: int) -> None:
        pass


class Logger:
    """What torch's class tells its logger: the one of torch reads its own reducer."""

    def __init__(self, facts: dict[str, int | str]):
        self.facts = facts

    def _get_ddp_logging_data(self) -> SimpleNamespace:
        texts = {name: fact for name, fact in self.facts.items() if isinstance(fact, str)}
        numbers = {name: fact for name, fact in self.facts.items() if name not in texts}
        return SimpleNamespace(strs_map=texts, ints_map=numbers)

    @_untraced
    def set_runtime_stats_and_log(self) -> None:
        self.facts["iteration"] += 1

    def set_error_and_log(self, text: str) -> None:
        self.facts |= {"has_error": 1, "error": text}

    def _set_uneven_input_join(self) -> None:
        self.facts["join_uneven_inputs"] = 1

    def _set_static_graph(self) -> None:
        self.facts["static_graph"] = 1
