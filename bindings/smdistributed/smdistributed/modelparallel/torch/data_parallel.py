# SPDX-License-Identifier: Apache-2.0
"""Gradients summed over the data parallel ranks of a stage, through fusion buffers (docs/fuse.md).

A parameter gets a gradient from each microbatch, and from each use within one. How many there are
is seen in the first step, whose gradients are summed at its end; from then on each is on its way as
soon as its last part has come, while other modules' backward passes still run.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
import torch.distributed as dist
from shoal.torch.arena import CPU
from shoal.torch.native import binding

from .exceptions import StepError

FLAGS = "which parameters are used"


class GradientMeans:
    """Of one rank's parameters.

    Args:
        group: The data parallel group. Every rank of it has the same parameters.
        names: Of the parameters.
        parameters: Those that need gradients.
        buffer_bytes: Of a fusion buffer.
        overlaps: Gradients are sent while backward passes still run.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        names: Sequence[str],
        parameters: Sequence[torch.nn.Parameter],
        buffer_bytes: int,
        overlaps: bool,
    ):
        self.group, self.names, self.parameters = group, list(names), list(parameters)
        self.overlaps = overlaps
        self.expected: list[int] | None = None
        self.came = [0] * len(self.parameters)
        self.added = [False] * len(self.parameters)
        self.is_summed = True  # whether this step's gradients are
        self.places, self.fuses = self._make_fuses(buffer_bytes)
        own = weakref.ref(self)
        for index, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(
                lambda _parameter, index=index: own() and own()._gradient_came(index)
            )

    def _make_fuses(self, buffer_bytes: int):
        """One for each type, with a tensor more that says which parameters this rank has used."""
        backend = self.group._get_backend(CPU)
        places, fuses = {}, []
        self.flags = torch.zeros(len(self.parameters))
        for dtype in dict.fromkeys([torch.float32, *(one.dtype for one in self.parameters)]):
            members = [i for i, one in enumerate(self.parameters) if one.dtype == dtype]
            like = [self.parameters[i].detach() for i in members]
            names = [self.names[i] for i in members]
            if dtype == torch.float32:
                self.flags_index = len(members)
                like, names = [*like, self.flags], [*names, FLAGS]
            name = f"gradients ({dtype})"
            fuse = binding.make_fuse(backend, like, names, name, dtype, buffer_bytes, 0, False)
            places |= {i: (fuse, number) for number, i in enumerate(members)}
            fuses.append(fuse)
        return places, fuses

    def begin_step(self, is_summed: bool) -> None:
        self.is_summed = is_summed
        self.came = [0] * len(self.parameters)
        self.added = [False] * len(self.parameters)

    def _gradient_came(self, index: int) -> None:
        self.came[index] += 1
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
        fuse, number = self.places[index]
        fuse.add(number, self.parameters[index].grad, True)
        self.added[index] = True

    def end_step(self) -> None:
        """Waits for the sums: gradients are the mean over all ranks. Collective."""
        if not self.is_summed:
            return
        if self.expected is None:
            self.expected = list(self.came)
        lacking = []
        for index, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                lacking.append(index)
            elif not self.added[index]:
                self._add(index)
        self.flags.copy_(torch.tensor([count > 0 for count in self.came]))
        self.fuses[0].add(self.flags_index, self.flags, True)
        for fuse in self.fuses:
            fuse.flush()
        for fuse in self.fuses:
            fuse.finish()
        for index in lacking:
            if self.flags[index]:
                fuse, number = self.places[index]
                self.parameters[index].grad = fuse.home(number).clone()
