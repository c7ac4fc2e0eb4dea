# SPDX-License-Identifier: Apache-2.0
"""Gradients of a stage become their mean over the data parallel ranks (sums.py).

A parameter gets a gradient from each microbatch, and from each use within one. How many there are
is seen in the first step, whose gradients are summed at its end; from then on each is on its way as
soon as its last part has come, while other modules' backward passes still run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence

import torch

from .exceptions import StepError, StepUsageError
from .sums import FusedSums, HookedSums


class GradientMeans:
    """Of one rank's parameters.

    Args:
        names: Of the parameters.
        parameters: Those that need gradients.
        sums: Of them.
        overlaps: Gradients are sent while backward passes still run.
    """

    def __init__(
        self,
        names: Sequence[str],
        parameters: Sequence[torch.nn.Parameter],
        sums: FusedSums | HookedSums,
        overlaps: bool,
    ):
        self.names, self.parameters = list(names), list(parameters)
        self.sums, self.overlaps = sums, overlaps
        self.expected: list[int] | None = None
        self.used = [False] * len(self.parameters)  # since the last sum
        self.begin_step(is_summed=False)
        own = weakref.ref(self)
        for index, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(_told(own, index))

    def check_known(
        self, named: Iterable[tuple[str, torch.nn.Parameter]], stop_others: Callable[[str], None]
    ) -> None:
        """What needs gradients now did so when these sums were made.

        Args:
            stop_others: Tells the other stages why.

        Raises:
            StepUsageError: with the name of one that did not.
        """
        own = {id(one) for one in self.parameters}
        for name, one in named:
            if id(one) not in own:
                text = (
                    f"parameter {name} needs gradients now, and did not when the model was "
                    "divided, so its copies would differ: set requires_grad before the first step"
                )
                stop_others(text)
                raise StepUsageError(text)

    def begin_step(self, is_summed: bool) -> None:
        """is_summed: Whether gradients are summed at the end of this step."""
        self.is_summed = is_summed
        self.came = [0] * len(self.parameters)
        self.added = [False] * len(self.parameters)

    def gradient_came(self, index: int) -> None:
        self.came[index] += 1
        self.used[index] = True
        if not self.is_summed:
            return
        if self.added[index]:
            raise StepError(
                f"{self.names[index]} got more gradients in this step than in the first one: use "
                "it equally often in all steps, or say overlapping_allreduce=False"
            )
        if self.overlaps and self.expected and self.came[index] == self.expected[index]:
            self._add(index)

    def _add(self, index: int) -> None:
        self.sums.add(index, self.parameters[index].grad)
        self.added[index] = True

    def end_step(self, factor: float = 1.0) -> None:
        """Waits for the sums: gradients are the mean over all ranks. Collective.

        Args:
            factor: What the mean is multiplied by, unless a communication hook has made it.
        """
        if self.expected is None and any(self.came):
            self.expected = list(self.came)
        if self.is_summed:
            self._sum(factor)

    def sum_earlier(self) -> None:
        """Sums the gradients of earlier steps that were not. Collective."""
        self.begin_step(is_summed=True)
        self._sum(1.0)

    def _sum(self, factor: float) -> None:
        lacking = []
        for index, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                lacking.append(index)
            elif not self.added[index]:
                self._add(index)
        used = self.sums.finish(self.used)
        for index in lacking:
            if used[index]:
                self.parameters[index].grad = self.sums.result(index)
        if factor != 1 and not self.sums.is_of_hook:
            gradients = [one.grad for one in self.parameters if one.grad is not None]
            torch._foreach_mul_(gradients, factor)
        self.used = [False] * len(self.parameters)

    def shadow_step(self) -> None:
        """The sum of a step that this rank has no data for: what earlier passes have left, or
        zeros. Collective."""
        for index, parameter in enumerate(self.parameters):
            if self.used[index] and parameter.grad is not None:
                self.sums.add(index, parameter.grad)
        self.sums.finish(self.used)
        self.used = [False] * len(self.parameters)


def _told(means: weakref.ref[GradientMeans], index: int) -> Callable[[torch.Tensor], None]:
    """A parameter must not keep what has been replaced."""

    def came(_parameter: torch.Tensor) -> None:
        alive = means()
        if alive is not None:
            alive.gradient_came(index)

    return came
