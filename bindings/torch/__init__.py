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
import importlib.machinery
import importlib.util
from datetime import timedelta
from types import ModuleType

import shoal

import torch.distributed as dist  # also loads the libraries that the binding needs

from . import build

__all__ = ["monitored_barrier"]


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
