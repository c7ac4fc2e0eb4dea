# SPDX-License-Identifier: Apache-2.0
"""Who a rank is: its place in the pipeline, in the tensor parallel and the data parallel groups.

A placement is a permutation of D, P and T; the rightmost letter varies fastest with the rank. A
model parallel group (MP) is all ranks that hold one copy of the model; a data parallel group (DP)
all that hold the same stage; a reduced one (RDP) all that hold the same parameters.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import torch.distributed as dist

from .exceptions import ConfigurationError

PERMUTATION_OF = {"cluster": "DPT", "spread": "TPD"}


class CommGroup(enum.Enum):
    """The groups that a rank is in."""

    WORLD = "world"
    MP_GROUP = "mp"
    DP_GROUP = "dp"
    PP_GROUP = "pp"
    TP_GROUP = "tp"
    RDP_GROUP = "rdp"


class RankType(enum.Enum):
    """By which group a rank is counted."""

    WORLD_RANK = "world"
    MP_RANK = "mp"
    DP_RANK = "dp"
    PP_RANK = "pp"
    TP_RANK = "tp"
    RDP_RANK = "rdp"


# Of which letters' ranks a group consists: the other letters are the same in all of it.
LETTERS_OF = {"world": "DPT", "mp": "PT", "dp": "DT", "pp": "P", "tp": "T", "rdp": "D"}


@dataclass(frozen=True)
class Placement:
    """Which rank has which part.

    order: A permutation of D, P and T.
    degrees: How many there are of each: reduced data parallel, pipeline and tensor parallel.
    """

    order: str
    degrees: dict[str, int]

    @classmethod
    def of(cls, strategy: str, size: int, pipeline: int, tensor: int) -> Placement:
        """Of `size` ranks.

        Raises:
            ConfigurationError: size is not a multiple of pipeline * tensor.
        """
        if size % (pipeline * tensor):
            raise ConfigurationError(
                f"{size} ranks can't be divided by pipeline_parallel_degree {pipeline} times "
                f"tensor_parallel_degree {tensor}: start a multiple of {pipeline * tensor}"
            )
        order = PERMUTATION_OF.get(strategy, strategy)
        return cls(order, {"D": size // (pipeline * tensor), "P": pipeline, "T": tensor})

    def parts(self, rank: int) -> dict[str, int]:
        """The rank's number by each letter."""
        found = {}
        for letter in reversed(self.order):
            rank, found[letter] = divmod(rank, self.degrees[letter])
        return found

    def members(self, rank: int, letters: str) -> list[int]:
        """The ranks that differ from this one in these letters only, itself included."""
        size = self.degrees["D"] * self.degrees["P"] * self.degrees["T"]
        own = self.parts(rank)
        fixed = [letter for letter in "DPT" if letter not in letters]
        return [
            other
            for other in range(size)
            if all(self.parts(other)[letter] == own[letter] for letter in fixed)
        ]


class Topology:
    """This rank's groups, and their process groups. Collective over all ranks."""

    def __init__(self, placement: Placement, rank: int, size: int):
        self.placement, self.rank, self.size = placement, rank, size
        self.members: dict[str, list[int]] = {}
        self.process_groups: dict[str, dist.ProcessGroup] = {}
        for name, letters in LETTERS_OF.items():
            self.members[name] = placement.members(rank, letters)
            self.process_groups[name] = self._make(letters)

    def _make(self, letters: str) -> dist.ProcessGroup:
        """All ranks make all groups of a kind, as torch wants it; its own is returned."""
        if len(self.placement.members(self.rank, letters)) == self.size:
            return dist.group.WORLD
        found = None
        seen: set[int] = set()
        for rank in range(self.size):
            if rank in seen:
                continue
            members = self.placement.members(rank, letters)
            seen.update(members)
            made = dist.new_group(members)
            if self.rank in members:
                found = made
        return found

    def rank_in(self, name: str) -> int:
        return self.members[name].index(self.rank)

    def size_of(self, name: str) -> int:
        return len(self.members[name])

    def world_rank(self, rank: int, name: str) -> int:
        """Of the rank that has this number in this rank's group.

        Raises:
            ValueError: it has no such number.
        """
        members: Sequence[int] = self.members[name]
        if not 0 <= rank < len(members):
            raise ValueError(
                f"there is no {name}_rank {rank}: the group of rank {self.rank} has {len(members)}"
            )
        return members[rank]
