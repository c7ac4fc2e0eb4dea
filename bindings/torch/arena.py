# SPDX-License-Identifier: Apache-2.0
"""Which of torch's tensors lie in memory that the ranks of a host share (arena.h).

All of this concerns the calling thread, CPU tensors, and groups whose backend for them is shoal;
for other groups, and with SHOAL_TORCH_SHARED=0, nothing happens.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist

from .native import binding

CPU = torch.device("cpu")


def _backend(group: dist.ProcessGroup) -> dist.Backend | None:
    """The group's backend for CPU tensors, whichever; None if it has none, or if switched off."""
    switch = os.environ.get("SHOAL_TORCH_SHARED", "1").lower()
    if switch in ("0", "off", "no", "false") or CPU not in group._device_types:
        return None
    return group._get_backend(CPU)


@contextlib.contextmanager
def scope(group: dist.ProcessGroup) -> Iterator[None]:
    """Tensors that are made meanwhile lie in shared memory."""
    backend = _backend(group)
    entered = backend is not None and binding.enter_arena(backend)
    try:
        yield
    finally:
        if entered:
            binding.leave_arena()


def expect(group: dist.ProcessGroup, sizes: Iterable[int]) -> None:
    """Until forget(), tensors of one of these sizes (in bytes) lie in shared memory."""
    backend = _backend(group)
    if backend is not None:
        binding.expect(backend, list(sizes))


def forget() -> None:
    """No size is expected any more."""
    binding.forget()
