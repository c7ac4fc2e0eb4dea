# SPDX-License-Identifier: Apache-2.0
"""What the tests of the PyTorch backend share: the start of a rank, and the comparison."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from ports import free_port

UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]


def rank_start(rank: int, size: int, method: str, seconds: int = 60) -> None:
    import shoal.torch  # noqa: F401 (registers the backend)

    torch.set_num_threads(1)
    dist.init_process_group(
        "shoal", init_method=method, rank=rank, world_size=size, timeout=timedelta(seconds=seconds)
    )


def rank_start_small(rank: int, size: int, method: str) -> None:
    os.environ["SHOAL_SHARED_BYTES"] = "64M"
    rank_start(rank, size, method)


def new_method() -> str:
    return f"tcp://127.0.0.1:{free_port()}"


def same(got, wanted) -> None:
    """Equal bit by bit (but for the rounding of a quotient in 16 bits), shape and type."""
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    if got.dtype in UNSIGNED:
        got, wanted = got.to(torch.int64), wanted.to(torch.int64)
    assert torch.equal(got, wanted), (got, wanted)


def lies_in_a_region(tensor) -> bool:
    """Whether /proc says that the tensor is in a region of Shoal."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            start, end = (int(word, 16) for word in line.split()[0].split("-"))
            if start <= tensor.data_ptr() < end:
                return "memfd:shoal" in line
    raise AssertionError("the tensor is nowhere")


def fill_the_region():
    """Takes all shared memory; what holds it, and the text of the error at the end."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    held = []
    try:
        while True:
            held.append(
                backend.allocate_tensor(1 << 14, dtype=torch.uint8, device=torch.device("cpu"))
            )
    except (RuntimeError, MemoryError) as error:
        return held, str(error)
