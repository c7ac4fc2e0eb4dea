# SPDX-License-Identifier: Apache-2.0
"""Importing this module makes "smddp" a backend of torch.distributed.

    import torch.distributed as dist
    import smdistributed.dataparallel.torch.torch_smddp

    dist.init_process_group(backend="smddp")

CPU tensors go over Shoal. Where torch has GPUs and NCCL, the name stands for both, and CUDA tensors
go over NCCL.
"""

import os

import torch
import torch.distributed as dist
from shoal.torch import create_backend

from .. import environment


def _register(beside: str | None) -> None:
    """Over Shoal alone, or with the given backend of another device beside it: torch takes what a
    backend's name stands for from the attribute of Backend of that name."""
    dist.Backend.register_backend("smddp", create_backend, extended_api=True, devices=["cpu"])
    if beside is not None:
        dist.Backend.SMDDP = f"cpu:shoal,{beside}"


environment.complete(os.environ)
_register("cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else None)
