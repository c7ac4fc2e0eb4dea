# SPDX-License-Identifier: Apache-2.0
"""shoal.pipe.Pipe with tensors for data; the calls that every task makes are compiled
(tensor_pipe.h)."""

from __future__ import annotations

from functools import partial
from typing import Any

import shoal.pipe
from shoal._library import check
from shoal.pipe import Task

from .native import binding

TensorKinds = binding.TensorKinds
COMPILED = (
    *("promise", "promised", "put", "put_later", "put_all", "put_gradients", "drop", "release"),
    *("view", "views", "backward", "submit", "next", "flush"),
)


class TensorPipe(shoal.pipe.Pipe):
    """As a Pipe, which has the arguments and the errors, and:

    promised(home): A promise whose `value` is dropped when it is no longer referred to.
    put(value, tensors, descriptor): The tensors are copied, one after the other.
    put_later(value, tensor): put, maybe by another thread: until flush() nobody may change the
        tensor. That breaks the pipe if it is seen.
    put_all(values, tensors): put_later of each.
    view(value, shape, dtype, requires_grad): A tensor over a value of one tensor that a task here
        needs, which is released with it.
    views(values, kinds, gradients): One over each of these; kinds: TensorKinds of their shape,
        dtype and requires_grad, and whether it counts.
    backward(needs, given, results): torch.autograd.backward from the results of these numbers;
        their gradients are the last of the values that a task here needs, and the others are
        released.
    put_gradients(values, tensors): put_later of the gradient of each tensor whose value is not 0,
        up to the first without one that has data; the number of that one, or of all.
    """

    def __init__(self, group: int, *arguments: Any, **named: Any):
        super().__init__(group, *arguments, **named)
        self.compiled = binding.TensorPipe(self.handle.value, Task, partial(check, group=group))
        for name in COMPILED:
            setattr(self, name, getattr(self.compiled, name))

    def close(self) -> None:
        self.compiled.close()
        super().close()

    def step_end(self) -> None:
        self.flush()
        super().step_end()
