# SPDX-License-Identifier: Apache-2.0
"""The API of before the backend: torch.distributed's functions with the older names and defaults.

    import smdistributed.dataparallel.torch.distributed as dist

    dist.init_process_group()
    torch.cuda.set_device(dist.get_local_rank())

Groups, works and operations are torch's own, so both APIs can be used in one program.
"""

from __future__ import annotations

import os

import torch.distributed as torch_distributed
from torch import Tensor
from torch.distributed import (
    Backend,
    ProcessGroup,
    Work,
    all_gather,
    all_reduce,
    barrier,
    destroy_process_group,
    get_backend,
    get_rank,
    get_world_size,
    group,
    is_available,
    is_initialized,
    new_group,
)

from . import torch_smddp  # noqa: F401 (registers the backend)

__all__ = [
    "Backend",
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "destroy_process_group",
    "get_backend",
    "get_local_rank",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "is_available",
    "is_initialized",
    "new_group",
    "reduce",
]


class ReduceOp:
    """torch's operations; AVERAGE is the older name of AVG."""

    SUM = torch_distributed.ReduceOp.SUM
    AVERAGE = torch_distributed.ReduceOp.AVG
    MIN = torch_distributed.ReduceOp.MIN
    MAX = torch_distributed.ReduceOp.MAX
    PRODUCT = torch_distributed.ReduceOp.PRODUCT


def _from_launcher(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise RuntimeError(
            f"{name} is not set, so no launcher has started this process as a rank; start it by "
            "smddprun -n N python SCRIPT, shoal run, torchrun or mpirun"
        ) from None


def init_process_group(*_args: object, **_named: object) -> None:
    """Makes the default group of all ranks, as the launcher set them. Must come first; takes any
    arguments and ignores them.

    Raises:
        RuntimeError: no launcher has started this process.
        ValueError: there is a default group already.
    """
    _from_launcher("RANK")
    torch_distributed.init_process_group("smddp")


def get_local_rank() -> int:
    """This rank's number on its host, from 0; for torch.cuda.set_device.

    Raises:
        RuntimeError: no launcher has started this process.
    """
    return int(_from_launcher("LOCAL_RANK"))


def broadcast(
    tensor: Tensor, src: int = 0, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """torch's, from rank 0 unless told."""
    return torch_distributed.broadcast(tensor, src, group, async_op)


def reduce(
    tensor: Tensor,
    dst: int = 0,
    op: torch_distributed.ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """torch's, to rank 0 unless told."""
    return torch_distributed.reduce(tensor, dst, op, group, async_op)


def all_to_all_single(
    output_t: Tensor,
    input_t: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """torch's, whose tensors have other names."""
    return torch_distributed.all_to_all_single(
        output_t, input_t, output_split_sizes, input_split_sizes, group, async_op
    )
