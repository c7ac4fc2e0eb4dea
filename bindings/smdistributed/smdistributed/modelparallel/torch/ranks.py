# SPDX-License-Identifier: Apache-2.0
"""Numbers of this rank, sizes of its groups, and the groups."""

from __future__ import annotations

import os

import torch.distributed as dist

from .state_mod import state


def rank() -> int:
    """Of all ranks."""
    return state.topology.rank


def size() -> int:
    """How many ranks there are."""
    return state.topology.size


def local_rank() -> int:
    """On this host."""
    return int(os.environ.get("LOCAL_RANK", state.topology.rank))


def local_size() -> int:
    """How many ranks there are on this host."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", state.topology.size))


def mp_rank() -> int:
    """Among the ranks that hold one copy of the model."""
    return state.topology.rank_in("mp")


def mp_size() -> int:
    return state.topology.size_of("mp")


def dp_rank() -> int:
    """Among the ranks that hold the same stage. Data are divided by it."""
    return state.topology.rank_in("dp")


def dp_size() -> int:
    return state.topology.size_of("dp")


def pp_rank() -> int:
    """Among the stages of a pipeline."""
    return state.topology.rank_in("pp")


def pp_size() -> int:
    return state.topology.size_of("pp")


def tp_rank() -> int:
    """Among the ranks that divide modules among themselves."""
    return state.topology.rank_in("tp")


def tp_size() -> int:
    return state.topology.size_of("tp")


def rdp_rank() -> int:
    """Among the ranks that hold the same parameters."""
    return state.topology.rank_in("rdp")


def rdp_size() -> int:
    return state.topology.size_of("rdp")


def get_mp_group() -> list[int]:
    """Ranks of this rank's model parallel group."""
    return list(state.topology.members["mp"])


def get_dp_group() -> list[int]:
    """Ranks of this rank's data parallel group."""
    return list(state.topology.members["dp"])


def get_tp_group() -> list[int]:
    """Ranks of this rank's tensor parallel group."""
    return list(state.topology.members["tp"])


def get_pp_group() -> list[int]:
    """Ranks of this rank's pipeline."""
    return list(state.topology.members["pp"])


def get_rdp_group() -> list[int]:
    """Ranks of this rank's reduced data parallel group."""
    return list(state.topology.members["rdp"])


def get_world_process_group() -> dist.ProcessGroup:
    return state.topology.process_groups["world"]


def get_mp_process_group() -> dist.ProcessGroup:
    return state.topology.process_groups["mp"]


def get_dp_process_group() -> dist.ProcessGroup:
    return state.topology.process_groups["dp"]


def get_pp_process_group() -> dist.ProcessGroup:
    return state.topology.process_groups["pp"]


def get_tp_process_group() -> dist.ProcessGroup:
    return state.topology.process_groups["tp"]


def get_rdp_process_group() -> dist.ProcessGroup:
    return state.topology.process_groups["rdp"]
