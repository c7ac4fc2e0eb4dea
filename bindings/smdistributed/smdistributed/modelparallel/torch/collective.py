# SPDX-License-Identifier: Apache-2.0
"""Collective calls of which a user may forget one side: the error says which call, and who did not
make it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from .exceptions import CheckpointError
from .state_mod import state


def gather_objects(obj: Any, group: str, call: str) -> list[Any]:
    """What all ranks of a group give, in the order of their numbers.

    Args:
        group: "mp", "dp" and so on.
        call: What the user has called, for the message.

    Raises:
        CheckpointError: other ranks have not called it in time.
    """
    process_group = state.topology.process_groups[group]
    gathered: list[Any] = [None] * process_group.size()
    with _named(group, call):
        dist.all_gather_object(gathered, obj, group=process_group)
    return gathered


def gather_objects_to_first(obj: Any, group: str, call: str) -> list[Any]:
    """The same, on the first rank of the group; the others get an empty list."""
    process_group = state.topology.process_groups[group]
    is_first = process_group.rank() == 0
    gathered: list[Any] | None = [None] * process_group.size() if is_first else None
    with _named(group, call):
        dist.gather_object(obj, gathered, state.topology.members[group][0], process_group)
    return gathered or []


@contextmanager
def _named(group: str, call: str) -> Iterator[None]:
    try:
        yield
    except dist.DistError as error:
        members = state.topology.members[group]
        raise CheckpointError(
            f"{call} is collective: all ranks of the {group} group ({members}) must call it; "
            f"local_state_dict() is for one rank alone ({error})"
        ) from error
