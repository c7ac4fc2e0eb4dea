# SPDX-License-Identifier: Apache-2.0
"""Who a rank is: its place in the pipeline, in the tensor parallel and the data parallel groups.

A placement is a permutation of D, P and T; the rightmost letter varies fastest with the rank. A
model parallel group (MP) is all ranks that hold one copy of the model; a data parallel group (DP)
all that hold the same stage; a reduced one (RDP) all that hold the same parameters.
"""

from __future__ import annotations

import enum
from datetime import timedelta

import torch.distributed as dist
from shoal import plan

from .config import Config
from .exceptions import ConfigurationError


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


class Topology:
    """This rank's groups, and their process groups. Collective over all ranks.

    Args:
        deadline: Of an operation of a group; None: torch's default.

    Raises:
        ConfigurationError: the degrees don't divide the number of ranks.
    """

    def __init__(self, cfg: Config, rank: int, size: int, deadline: timedelta | None):
        self.cfg, self.rank, self.size, self.deadline = cfg, rank, size, deadline
        pipeline, tensor = cfg.pipeline_parallel_degree, cfg.tensor_parallel_degree
        if size % (pipeline * tensor):
            raise ConfigurationError(
                f"{size} ranks can't be divided by pipeline_parallel_degree {pipeline} times "
                f"tensor_parallel_degree {tensor}: start a multiple of {pipeline * tensor}"
            )
        self.members: dict[str, list[int]] = {}
        self.process_groups: dict[str, dist.ProcessGroup] = {}
        for kind in plan.GROUPS:
            self.members[kind] = self._members(kind, rank)
            self.process_groups[kind] = self._make(kind)

    def _members(self, kind: str, rank: int) -> list[int]:
        cfg = self.cfg
        degrees = cfg.pipeline_parallel_degree, cfg.tensor_parallel_degree
        return plan.group(cfg.placement_strategy, self.size, *degrees, kind, rank)

    def _make(self, kind: str) -> dist.ProcessGroup:
        """All ranks make all groups of a kind, as torch wants it; its own is returned."""
        if len(self.members[kind]) == self.size:
            return dist.group.WORLD
        found = None
        seen: set[int] = set()
        for rank in range(self.size):
            if rank in seen:
                continue
            members = self._members(kind, rank)
            seen.update(members)
            made = dist.new_group(members, timeout=self.deadline)
            if self.rank in members:
                found = made
        return found

    def rank_in(self, name: str) -> int:
        return self.members[name].index(self.rank)

    def size_of(self, name: str) -> int:
        return len(self.members[name])
