# SPDX-License-Identifier: Apache-2.0
"""Two ways in which gradients of the data parallel ranks become their mean: through fusion buffers
(docs/fuse.md), and by a user's communication hook, bucket by bucket, as torch's
DistributedDataParallel has it.

Both take gradients in any order, add zeros for what does not come, and tell which parameters some
rank has used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from shoal.torch.arena import CPU
from shoal.torch.native import binding

from .exceptions import StepUsageError

FLAGS = "which parameters are used"


class FusedSums:
    """Collective: every rank of the group has the same parameters.

    Args:
        group: The data parallel group.
        names: Of the parameters.
        parameters: Those that need gradients.
        buffer_bytes: Of a fusion buffer.
    """

    is_of_hook = False

    def __init__(
        self,
        group: dist.ProcessGroup,
        names: Sequence[str],
        parameters: Sequence[torch.nn.Parameter],
        buffer_bytes: int,
    ):
        self.places: dict[int, tuple[Any, int]] = {}
        self.fuses = []
        self.flags = torch.zeros(len(parameters))
        backend = group._get_backend(CPU)
        for dtype in dict.fromkeys([torch.float32, *(one.dtype for one in parameters)]):
            members = [i for i, one in enumerate(parameters) if one.dtype == dtype]
            like = [parameters[i].detach() for i in members]
            own_names = [names[i] for i in members]
            if dtype == torch.float32:  # always there, and first
                self.flags_number = len(members)
                like, own_names = [*like, self.flags], [*own_names, FLAGS]
            name = f"gradients ({dtype})"
            fuse = binding.make_fuse(backend, like, own_names, name, dtype, buffer_bytes, 0, False)
            self.places |= {i: (fuse, number) for number, i in enumerate(members)}
            self.fuses.append(fuse)

    def add(self, index: int, gradient: torch.Tensor) -> None:
        """It is ready; from finish() on the mean is in its place."""
        fuse, number = self.places[index]
        fuse.add(number, gradient, True)

    def finish(self, used: Sequence[bool]) -> list[bool]:
        """Waits for all sums; what was not added counts as zeros. Collective.

        Args:
            used: Which parameters this rank has used.

        Returns:
            Which ones any rank has.
        """
        self.flags.copy_(torch.tensor(used))
        self.fuses[0].add(self.flags_number, self.flags, True)
        for fuse in self.fuses:
            fuse.flush()
        for fuse in self.fuses:
            fuse.finish()
        return [flag > 0 for flag in self.flags.tolist()]

    def result(self, index: int) -> torch.Tensor:
        """Of the last step, for a gradient that was not added here."""
        fuse, number = self.places[index]
        return fuse.home(number).clone()


class GradBucket:
    """What a communication hook gets, with the methods of torch.distributed.GradBucket."""

    def __init__(
        self,
        index: int,
        is_last: bool,
        buffer: torch.Tensor,
        parameters: Sequence[torch.nn.Parameter],
    ):
        self._index, self._is_last = index, is_last
        self._buffer, self._parameters = buffer, list(parameters)

    def index(self) -> int:
        """0 for the bucket that is ready first; the same on all ranks."""
        return self._index

    def is_last(self) -> bool:
        """Whether it is the last one of a step."""
        return self._is_last

    def buffer(self) -> torch.Tensor:
        """All gradients of the bucket, one behind the other."""
        return self._buffer

    def set_buffer(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer

    def parameters(self) -> list[torch.nn.Parameter]:
        return list(self._parameters)

    def gradients(self) -> list[torch.Tensor]:
        """Views of the buffer, in the shapes of the parameters."""
        sizes = [one.numel() for one in self._parameters]
        pieces = self._buffer.split(sizes)
        return [piece.view(one.shape) for piece, one in zip(pieces, self._parameters, strict=True)]


@dataclass
class _Filling:
    """Of a bucket, in a step. added: Gradients that want the result."""

    members: list[int]
    buffer: torch.Tensor
    views: dict[int, torch.Tensor]
    added: dict[int, torch.Tensor] = field(default_factory=dict)
    future: torch.futures.Future | None = None


class HookedSums:
    """Gradients are summed by hook(state, bucket), which gives a future of the bucket's result.

    Args:
        group: The data parallel group.
        parameters: Those that need gradients; buckets have them from the last to the first.
        bucket_bytes: Of a bucket at most, or of one gradient that is larger.
        hook: With its state.
    """

    is_of_hook = True

    def __init__(
        self,
        group: dist.ProcessGroup,
        parameters: Sequence[torch.nn.Parameter],
        bucket_bytes: int,
        hook: Callable[[GradBucket], torch.futures.Future],
    ):
        self.group, self.parameters, self.hook = group, list(parameters), hook
        self.buckets = [self._empty(members) for members in self._divide(bucket_bytes)]
        self.bucket_of = {i: bucket for bucket in self.buckets for i in bucket.members}
        self.begun = 0  # buckets of this step that the hook has

    def _divide(self, bucket_bytes: int) -> list[list[int]]:
        found: list[list[int]] = []
        room = 0
        for index in reversed(range(len(self.parameters))):
            one = self.parameters[index]
            fits = found and self.parameters[found[-1][0]].dtype == one.dtype
            if not fits or one.nbytes > room:
                found.append([])
                room = bucket_bytes
            found[-1].append(index)
            room -= one.nbytes
        return found

    def _empty(self, members: list[int]) -> _Filling:
        sizes = [self.parameters[i].numel() for i in members]
        buffer = torch.zeros(sum(sizes), dtype=self.parameters[members[0]].dtype)
        pieces = zip(members, buffer.split(sizes), strict=True)
        return _Filling(members, buffer, {i: one.view_as(self.parameters[i]) for i, one in pieces})

    def add(self, index: int, gradient: torch.Tensor) -> None:
        """It is ready; from finish() on the hook's result is in its place."""
        bucket = self.bucket_of[index]
        bucket.views[index].copy_(gradient)
        bucket.added[index] = gradient
        while self.begun < len(self.buckets) and self._is_full(self.buckets[self.begun]):
            self._begin_next()

    @staticmethod
    def _is_full(bucket: _Filling) -> bool:
        return len(bucket.added) == len(bucket.members)

    def _begin_next(self) -> None:
        """Buckets go to the hook in one order on all ranks."""
        bucket = self.buckets[self.begun]
        is_last = self.begun + 1 == len(self.buckets)
        members = [self.parameters[i] for i in bucket.members]
        future = self.hook(GradBucket(self.begun, is_last, bucket.buffer, members))
        if not callable(getattr(future, "wait", None)):
            raise StepUsageError(
                "a communication hook must return a torch.futures.Future of the bucket's result, "
                f"not {type(future).__name__}"
            )
        bucket.future = future
        self.begun += 1

    def finish(self, used: Sequence[bool]) -> list[bool]:
        """As of FusedSums."""
        while self.begun < len(self.buckets):
            bucket = self.buckets[self.begun]
            for index in set(bucket.members).difference(bucket.added):
                bucket.views[index].zero_()
            self._begin_next()
        for bucket in self.buckets:
            self._take_result(bucket)
        self.begun = 0
        flags = torch.tensor(used, dtype=torch.float32)
        if used:
            dist.all_reduce(flags, dist.ReduceOp.MAX, group=self.group)
        return [flag > 0 for flag in flags.tolist()]

    @staticmethod
    def _take_result(bucket: _Filling) -> None:
        result = bucket.future.wait()
        result = result if isinstance(result, torch.Tensor) else result[0]
        bucket.buffer.copy_(result.view(-1))
        for index, gradient in bucket.added.items():
            gradient.copy_(bucket.views[index])
        bucket.added, bucket.future = {}, None

    def result(self, index: int) -> torch.Tensor:
        return self.bucket_of[index].views[index].clone()
