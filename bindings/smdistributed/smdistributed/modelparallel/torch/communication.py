# SPDX-License-Identifier: Apache-2.0
"""Python objects between ranks: any that can be pickled; all calls block.

A message is its size and then its bytes, from rank to rank over the process group of all. Messages
between two ranks are received in the order in which they were sent.
"""

from __future__ import annotations

import pickle
from typing import Any

import torch
import torch.distributed as dist

from .state_mod import state
from .topology import CommGroup, RankType

SIZE_TAG, DATA_TAG = 1 << 20, (1 << 20) + 1


def _tensor(obj: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)


def _send_bytes(data: torch.Tensor, rank: int) -> list[dist.Work]:
    size = torch.tensor([data.numel()])
    return [dist.isend(size, rank, tag=SIZE_TAG), dist.isend(data, rank, tag=DATA_TAG)]


def _receive(rank: int) -> Any:
    size = torch.empty(1, dtype=torch.int64)
    dist.recv(size, rank, tag=SIZE_TAG)
    data = torch.empty(size.item(), dtype=torch.uint8)
    dist.recv(data, rank, tag=DATA_TAG)
    return pickle.loads(data.numpy().tobytes())


def send(obj: Any, dest_rank: int, rank_type: RankType) -> None:
    """To one rank, which calls recv_from. Returns when it has been taken.

    Args:
        dest_rank: The rank's number, counted as rank_type says, in this rank's group.
    """
    rank = state.topology.world_rank(dest_rank, rank_type.value)
    for work in _send_bytes(_tensor(obj), rank):
        work.wait()


def recv_from(src_rank: int, rank_type: RankType) -> Any:
    """What a rank has sent, or broadcast, to this one; waits for it."""
    return _receive(state.topology.world_rank(src_rank, rank_type.value))


def broadcast(obj: Any, group: CommGroup) -> None:
    """To all other ranks of this rank's group, which call recv_from."""
    data = _tensor(obj)
    topology = state.topology
    others = [rank for rank in topology.members[group.value] if rank != topology.rank]
    for work in [work for rank in others for work in _send_bytes(data, rank)]:
        work.wait()


def allgather(obj: Any, group: CommGroup) -> list[Any]:
    """What all ranks of the group give, in the order of their numbers. Collective."""
    gathered = [None] * state.topology.size_of(group.value)
    dist.all_gather_object(gathered, obj, group=state.topology.process_groups[group.value])
    return gathered


def barrier(group: CommGroup = CommGroup.WORLD) -> None:
    """Returns after every rank of the group has called it."""
    dist.barrier(group=state.topology.process_groups[group.value])


def dp_barrier() -> None:
    barrier(CommGroup.DP_GROUP)


def mp_barrier() -> None:
    barrier(CommGroup.MP_GROUP)
