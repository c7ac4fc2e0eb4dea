# SPDX-License-Identifier: Apache-2.0
"""What the tests of the PyTorch backend share: the start of a rank, and the comparison."""

from __future__ import annotations

from datetime import timedelta

import ranks
import torch
import torch.distributed as dist

UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]


def rank_start(rank: int, size: int, method: str, seconds: int = 60) -> None:
    import shoal.torch  # noqa: F401 (registers the backend)

    torch.set_num_threads(1)
    dist.init_process_group(
        "shoal", init_method=method, rank=rank, world_size=size, timeout=timedelta(seconds=seconds)
    )


def new_method() -> str:
    return f"tcp://127.0.0.1:{ranks.free_port()}"


def same(got, wanted) -> None:
    """Equal bit by bit (but for the rounding of a quotient in 16 bits), shape and type."""
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    if got.dtype in UNSIGNED:
        got, wanted = got.to(torch.int64), wanted.to(torch.int64)
    assert torch.equal(got, wanted), (got, wanted)
