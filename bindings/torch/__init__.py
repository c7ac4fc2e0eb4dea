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
import contextlib
import importlib.machinery
import importlib.util
import os
from collections.abc import Iterator
from datetime import timedelta
from types import ModuleType

import shoal

import torch
import torch.distributed as dist  # also loads the libraries that the binding needs

from . import build

__all__ = ["counters", "monitored_barrier"]


def _load_binding() -> ModuleType:
    """The compiled binding; libshoal.so is loaded by package shoal before."""
    path = str(build.binding(shoal.library_path()))
    loader = importlib.machinery.ExtensionFileLoader(build.MODULE, path)
    spec = importlib.util.spec_from_file_location(build.MODULE, path, loader=loader)
    if spec is None:
        raise ImportError(f"{path} is not a Python extension module")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _create(options, backend_options=None):
    """What torch calls for init_process_group and new_group."""
    if backend_options is not None:
        raise TypeError(
            "shoal takes no pg_options; its options come from the environment (SHOAL_...)"
        )
    return _binding.create(options)


@contextlib.contextmanager
def _arena(group: dist.ProcessGroup) -> Iterator[None]:
    """Tensors that this thread makes meanwhile lie in memory that the ranks of a host share."""
    device = torch.device("cpu")
    ours = (
        os.environ.get("SHOAL_TORCH_SHARED", "1").lower() not in ("0", "off", "no", "false")
        and device in group._device_types
        and _binding.enter_arena(group._get_backend(device))
    )
    try:
        yield
    finally:
        if ours:
            _binding.leave_arena()


class _Reducer(dist.Reducer):
    """torch's reducer of DistributedDataParallel, its buckets in shared memory if they are sent by
    shoal: then peers read and write them where they lie."""

    def __init__(self, parameters, bucket_indices, bucket_limits, process_group, *rest, **named):
        self._group = process_group
        with _arena(process_group):
            super().__init__(
                parameters, bucket_indices, bucket_limits, process_group, *rest, **named
            )

    def _rebuild_buckets(self) -> bool:
        with _arena(self._group):
            return super()._rebuild_buckets()


def counters(group: dist.ProcessGroup | None = None) -> dict[str, int]:
    """What this rank has done in a process group, by the names of struct shoal_counters in shoal.h.

    direct_bytes are those of tensors that were used where they lie in shared memory, such as the
    buckets of DistributedDataParallel; staged_bytes were copied through shared memory.

    Args:
        group: The process group; None for the default one.

    Raises:
        ValueError: its backend for CPU tensors is not shoal.
    """
    group = group or dist.group.WORLD
    device = torch.device("cpu")
    counted = None
    if device in group._device_types:
        counted = _binding.counters(group._get_backend(device))
    if counted is None:
        raise ValueError("the process group's backend for CPU tensors is not shoal")
    return counted


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
    group = group or dist.group.WORLD
    group.monitored_barrier(timeout or timedelta(milliseconds=-1), wait_all_ranks=True)


_binding = _load_binding()
atexit.register(_binding.stop)
dist.Backend.register_backend("shoal", _create, extended_api=True, devices=["cpu"])
dist.Reducer = _Reducer
