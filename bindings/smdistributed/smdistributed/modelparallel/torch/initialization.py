# SPDX-License-Identifier: Apache-2.0
"""smp.init: this process becomes a rank."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from shoal.torch import group_handle

from ...dataparallel import environment
from ...dataparallel.torch import torch_smddp  # noqa: F401 (registers the backend)
from .config import Config
from .exceptions import InitializationError
from .state_mod import state
from .topology import Topology


def init(config: Mapping[str, Any] | None = None) -> None:
    """Reads the configuration and makes the groups. Collective; before anything else.

    Args:
        config: Keys as in docs/modelparallel.md; None: the JSON in SM_HP_MP_PARAMETERS.

    Raises:
        ConfigurationError: the configuration is wrong, or does not fit the number of ranks.
        InitializationError: no launcher has started this process, init was called before, or there
            is a default process group whose backend for CPU tensors is another one.
    """
    if state.is_initialized:
        raise InitializationError("smp.init() was called before")
    is_rank = environment.complete(os.environ)
    cfg = Config(config)
    if not dist.is_initialized():
        if not is_rank:
            raise InitializationError(
                "RANK is not set, so no launcher has started this process as a rank; start it by "
                "shoal run -n N python SCRIPT, torchrun or mpirun"
            )
        dist.init_process_group("smddp", timeout=_deadline())
    if group_handle(dist.group.WORLD) is None:
        raise InitializationError(
            "the default process group's backend for CPU tensors is not Shoal's: let smp.init() "
            'make it, or use init_process_group("smddp")'
        )
    state.begin(cfg, Topology(cfg, dist.get_rank(), dist.get_world_size(), _deadline()))


def _deadline() -> timedelta | None:
    """Longest time of one operation, where the user has said one."""
    text = os.environ.get("SHOAL_TIMEOUT_MS", "")
    return timedelta(milliseconds=int(text)) if text.isdigit() and int(text) else None


def is_initialized() -> bool:
    """Whether smp.init() was called."""
    return state.is_initialized


def is_tracing() -> bool:
    """Whether the step's function runs to be traced: its results are not used."""
    return state.is_tracing
