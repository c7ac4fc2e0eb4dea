# SPDX-License-Identifier: Apache-2.0
"""shoal.pipe.Pipe with tensors for data; the calls that every task makes are compiled
(tensor_pipe.h)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import shoal.pipe
from shoal._library import check
from shoal.pipe import Task

import torch

from .native import binding


class TensorPipe(shoal.pipe.Pipe):
    """As a Pipe, which has the arguments and the errors, and:

    promised(home): A promise whose `value` is dropped when it is no longer referred to.
    view(value, shape, dtype, requires_grad): A tensor over a value of one tensor that a task here
        needs, which is released with it.
    put_later(value, tensor): put, maybe by another thread: until flush() nobody may change the
        tensor. That breaks the pipe if it is seen.
    """

    def __init__(self, group: int, *arguments: Any, **named: Any):
        super().__init__(group, *arguments, **named)
        self.compiled = binding.TensorPipe(self.handle.value, partial(check, group=group))
        for name in ("promise", "promised", "drop", "release", "put_later", "flush", "view"):
            setattr(self, name, getattr(self.compiled, name))

    def close(self) -> None:
        self.compiled.close()
        super().close()

    def put(
        self, value: int, tensors: Sequence[torch.Tensor] = (), descriptor: bytes = b""
    ) -> None:
        """The tensors are copied, one after the other."""
        self.compiled.put(value, tensors, descriptor)

    def submit(self, task: Task) -> None:
        self.compiled.submit(
            task.kind,
            task.rank,
            task.microbatch,
            task.module,
            task.blob,
            task.needs,
            task.keeps,
        )

    def next(self) -> Task:
        return Task(*self.compiled.next())

    def step_end(self) -> None:
        self.flush()
        super().step_end()
