#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's allreduce through shared memory, without the rest of DeepSpeed.

    bench/peers/deepspeed_op.py FOLDER

compiles it, out of the package that lies in FOLDER/package, with the options that DeepSpeed itself
compiles it with; start() loads it from there.
"""

import importlib.machinery
import importlib.util
import os
import sys
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist

NAME = "deepspeed_shm_comm"
SOURCES = ("shm_interface.cpp", "shm.cpp")


def compile_in(folder):
    from torch.utils import cpp_extension

    csrc = folder / "package/deepspeed/ops/csrc/cpu"
    cpp_extension.load(
        NAME,
        [str(csrc / "comm" / name) for name in SOURCES],
        extra_include_paths=[str(csrc / "includes")],
        extra_cflags=["-O2", "-fopenmp"],
        build_directory=str(folder),
    )


def segment(rank):
    """Where the op's shared memory has its name; it never removes it, and would take an old one."""
    where = f"{os.environ['MASTER_ADDR']}_{os.environ['MASTER_PORT']}"
    return Path(f"/dev/shm/deepspeed_allreduce_buffer_{os.getuid()}_{where}_{rank}")


def start(folder):
    """The function that sums a tensor in place over all ranks of the default group."""
    path = str(Path(folder) / f"{NAME}.so")
    loader = importlib.machinery.ExtensionFileLoader(NAME, path)
    op = importlib.util.module_from_spec(importlib.util.spec_from_loader(NAME, loader))
    loader.exec_module(op)
    ranks, own = dist.get_world_size(), segment(dist.get_rank())
    os.environ["LOCAL_SIZE"] = str(ranks)  # all on this host: else it does nothing
    with suppress(FileNotFoundError):
        own.unlink()
    dist.barrier()
    op.initialize(ranks, dist.get_rank())
    dist.barrier()
    own.unlink()
    return torch.ops.deepspeed.inference_all_reduce_


if __name__ == "__main__":
    compile_in(Path(sys.argv[1]))
