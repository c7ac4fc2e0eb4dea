# SPDX-License-Identifier: Apache-2.0
"""Python objects between ranks: any that can be pickled; all calls block.

A message is its size and then its bytes, from rank to rank over the process group of all. Messages
between two ranks are received in the order in which they were sent.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import torch
import torch.distributed as dist

from .exceptions import CommunicationError
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


@contextmanager
def _named(call: str, other: str) -> Iterator[None]:
    """An error says which call, and what others should have done."""
    try:
        yield
    except dist.DistError as error:
        raise CommunicationError(f"{call}: {other} ({error})") from error


def _checked(kind: Any, wanted: type[CommGroup] | type[RankType], call: str) -> str:
    if not isinstance(kind, wanted):
        names = ", ".join(f"smp.{one.name}" for one in wanted)
        raise CommunicationError(f"{call}: {kind!r} is none of {names}")
    return kind.value


def _other(number: int, rank_type: RankType, call: str) -> int:
    """The rank of all that is meant."""
    topology = state.topology
    name = _checked(rank_type, RankType, call)
    if not isinstance(number, Integral) or not 0 <= number < topology.size_of(name):
        raise CommunicationError(
            f"{call}: there is no {name}_rank {number}; rank {topology.rank}'s group has "
            f"{topology.size_of(name)} ranks"
        )
    rank = topology.members[name][number]
    if rank == topology.rank:
        raise CommunicationError(f"{call}: {name}_rank {number} is this rank itself")
    return rank


def send(obj: Any, dest_rank: int, rank_type: RankType) -> None:
    """To one rank, which calls recv_from. Returns when it has been taken.

    Args:
        dest_rank: The rank's number, counted as rank_type says, in this rank's group.

    Raises:
        CommunicationError: there is no such rank, or it does not call recv_from in time.
    """
    rank = _other(dest_rank, rank_type, "smp.send()")
    with _named("smp.send()", f"rank {rank} has not called recv_from()"):
        for work in _send_bytes(_tensor(obj), rank):
            work.wait()


def recv_from(src_rank: int, rank_type: RankType) -> Any:
    """What a rank has sent, or broadcast, to this one; waits for it.

    Raises:
        CommunicationError: there is no such rank, or it sends nothing in time.
    """
    rank = _other(src_rank, rank_type, "smp.recv_from()")
    with _named("smp.recv_from()", f"rank {rank} has sent nothing to rank {state.topology.rank}"):
        return _receive(rank)


def broadcast(obj: Any, group: CommGroup) -> None:
    """To all other ranks of this rank's group, which call recv_from.

    Raises:
        CommunicationError: there is no such group, or one of them does not call it in time.
    """
    name = _checked(group, CommGroup, "smp.broadcast()")
    data = _tensor(obj)
    topology = state.topology
    others = [rank for rank in topology.members[name] if rank != topology.rank]
    sent = [(rank, work) for rank in others for work in _send_bytes(data, rank)]
    for rank, work in sent:
        with _named("smp.broadcast()", f"rank {rank} has not called recv_from()"):
            work.wait()


def allgather(obj: Any, group: CommGroup) -> list[Any]:
    """What all ranks of the group give, in the order of their numbers. Collective.

    Raises:
        CommunicationError: there is no such group, or some rank of it does not call it in time.
    """
    name = _checked(group, CommGroup, "smp.allgather()")
    topology = state.topology
    gathered = [None] * topology.size_of(name)
    with _named("smp.allgather()", f"ranks {topology.members[name]} must call it"):
        dist.all_gather_object(gathered, obj, group=topology.process_groups[name])
    return gathered


def barrier(group: CommGroup = CommGroup.WORLD) -> None:
    """Returns after every rank of the group has called it.

    Raises:
        CommunicationError: there is no such group, or some rank of it does not call it in time.
    """
    name = _checked(group, CommGroup, "smp.barrier()")
    with _named("smp.barrier()", f"ranks {state.topology.members[name]} must call it"):
        dist.barrier(group=state.topology.process_groups[name])


def dp_barrier() -> None:
    barrier(CommGroup.DP_GROUP)


def mp_barrier() -> None:
    barrier(CommGroup.MP_GROUP)
