# SPDX-License-Identifier: Apache-2.0
"""Data parallel copies with unequal numbers of steps: one that has no data any more takes part in
what the others do together, until all have none (torch.distributed.algorithms.join)."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, JoinHook

if TYPE_CHECKING:
    from .model import DistributedModel


class Pass(enum.IntEnum):
    """What a step does with gradients."""

    HAS_NONE = 0
    KEEPS = 1  # they are accumulated
    SUMS = 2


class Joining(JoinHook):
    """Of one rank, from join() until all have joined.

    Args:
        model: Whose.
        group: The data parallel group.
        divides_by_all: Gradients are the mean over all ranks; False: over those that have data.
    """

    def __init__(self, model: DistributedModel, group: dist.ProcessGroup, divides_by_all: bool):
        self.model, self.group, self.divides_by_all = model, group, divides_by_all
        self.count_there = group.size()

    def announce(self, what: Pass) -> int:
        """With data, at the begin of a step: the rank of the group whose buffers count."""
        work = Join.notify_join_context(self.model)
        if work is None:  # join(enable=False)
            return 0
        work.wait()
        self.count_there = int(work.result()[0].item())
        source, _ = self._largest(self.group.rank(), what)
        return source

    @property
    def factor(self) -> float:
        """From the mean over all ranks to the one that is wanted."""
        return 1.0 if self.divides_by_all else self.group.size() / self.count_there

    def main_hook(self) -> None:
        """Without data, beside a step of the others."""
        source, what = self._largest(-1, Pass.HAS_NONE)
        self.model.shadow_step(source, Pass(what))

    def post_hook(self, is_last_joiner: bool) -> None:
        """When no rank has data."""
        source, someone_was_before = self._largest(
            self.group.rank() if is_last_joiner else -1, not is_last_joiner
        )
        self.model.end_join(source if someone_was_before else None)

    def _largest(self, *numbers: int) -> list[int]:
        """Of what all ranks of the group give."""
        largest = torch.tensor(numbers, dtype=torch.int64)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=self.group)
        return largest.tolist()
