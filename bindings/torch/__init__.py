# SPDX-License-Identifier: Apache-2.0
"""PyTorch over Shoal: importing this module makes "shoal" a backend of torch.distributed.

    import torch.distributed as dist
    import shoal.torch

    dist.init_process_group("shoal")              # CPU tensors
    dist.init_process_group("cpu:shoal,cuda:nccl")  # beside another backend for GPUs

DistributedDataParallel, fully sharded data parallel, sub-groups by new_group, object collectives
and point-to-point messages work as with any backend; docs/torch.md has the list.
"""

from __future__ import annotations

import atexit
import warnings
from contextlib import AbstractContextManager
from datetime import timedelta

import torch.distributed as dist

from . import arena
from .after_import import after_import
from .ddp import DistributedDataParallel
from .native import binding
from .overlap import OverlappedOptimizer

__all__ = [
    "DistributedDataParallel",
    "OverlappedOptimizer",
    "counters",
    "create_backend",
    "group_handle",
    "monitored_barrier",
    "shared_memory",
]


def create_backend(options, backend_options=None):
    """What torch calls for init_process_group and new_group; to register the backend under another
    name too."""
    if backend_options is not None:
        raise TypeError(
            "shoal takes no pg_options; its options come from the environment (SHOAL_...)"
        )
    return binding.create(options)


class _Reducer(dist.Reducer):
    """torch's reducer of DistributedDataParallel, its buckets in shared memory if they are sent by
    shoal: then peers read and write them where they lie."""

    def __init__(self, parameters, bucket_indices, bucket_limits, process_group, *rest, **named):
        self._group = process_group
        with arena.scope(process_group):
            super().__init__(
                parameters, bucket_indices, bucket_limits, process_group, *rest, **named
            )

    def _rebuild_buckets(self) -> bool:
        with arena.scope(self._group):
            return super()._rebuild_buckets()


def _place_fsdp() -> None:
    """FSDP's insides are torch's own affair: one that has others works, only not as fast."""
    try:
        from . import fsdp

        fsdp.install()
    except (ImportError, AttributeError) as error:
        warnings.warn(f"FSDP's buffers stay in private memory: {error}", stacklevel=2)


def _given_or_default(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    found = group or dist.group.WORLD
    if found is None:
        raise ValueError("there is no process group yet: call init_process_group first")
    return found


def counters(group: dist.ProcessGroup | None = None) -> dict[str, int]:
    """What this rank has done in a process group, by the names of struct shoal_counters in shoal.h.

    direct_bytes are those of tensors that were used where they lie in shared memory, such as the
    buckets of DistributedDataParallel and FSDP's; staged_bytes were copied through shared memory.

    Args:
        group: The process group; None for the default one.

    Raises:
        ValueError: its backend for CPU tensors is not shoal.
    """
    group = _given_or_default(group)
    counted = None
    if arena.CPU in group._device_types:
        counted = binding.counters(group._get_backend(arena.CPU))
    if counted is None:
        raise ValueError("the process group's backend for CPU tensors is not shoal")
    return counted


def group_handle(group: dist.ProcessGroup | None = None) -> int | None:
    """The shoal_group_t of a process group, for functions of shoal.h that torch has no form of. It
    lives as long as the process group.

    Args:
        group: The process group; None for the default one.

    Returns:
        None if its backend for CPU tensors is not shoal.
    """
    group = _given_or_default(group)
    if arena.CPU not in group._device_types:
        return None
    return binding.handle(group._get_backend(arena.CPU))


def shared_memory(group: dist.ProcessGroup | None = None) -> AbstractContextManager[None]:
    """Places the CPU tensors of 16 KiB and more that this thread makes within it in memory that the
    ranks of a host share, so that operations on them copy nothing.

        with shoal.torch.shared_memory():
            gradients = torch.zeros(1 << 24)
        dist.all_reduce(gradients)

    Where that is not to be had (the region is full, or the group's backend for CPU tensors is not
    shoal, or SHOAL_TORCH_SHARED=0) they lie in the usual memory; values and bits are the same.

    Args:
        group: The process group that will use them; None for the default one.

    Raises:
        ValueError: there is no process group yet.
    """
    return arena.scope(_given_or_default(group))


def monitored_barrier(
    group: dist.ProcessGroup | None = None, timeout: timedelta | None = None
) -> None:
    """A barrier that says who is missing.

    torch.distributed.monitored_barrier refuses every backend but gloo, so this is the same for
    shoal. Rank 0 waits for all others; if some don't come in time, every rank that waits gets an
    error that names them, and the group can't be used any more.

    Args:
        group: The process group; None for the default one.
        timeout: How long to wait; None for the group's own timeout.

    Raises:
        torch.distributed.DistError: ranks are missing (or died); the text names them.
    """
    group = _given_or_default(group)
    group.monitored_barrier(timeout or timedelta(milliseconds=-1), wait_all_ranks=True)


atexit.register(binding.stop)
dist.Backend.register_backend("shoal", create_backend, extended_api=True, devices=["cpu"])
dist.Reducer = _Reducer
after_import("torch.distributed.fsdp", _place_fsdp)
