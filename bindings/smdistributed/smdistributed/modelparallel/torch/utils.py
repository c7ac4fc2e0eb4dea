# SPDX-License-Identifier: Apache-2.0
"""Small things that programs import from here."""

from __future__ import annotations

import torch

from .state_mod import state


def rmsg(message: object) -> str:
    """The message, with this rank's number in front."""
    return f"[{state.topology.rank}] {message}"


def get_distribution_axis(tensor: torch.Tensor) -> int | None:
    """Along which axis a parameter is divided among tensor parallel ranks. None: every parameter is
    whole on the rank that owns it."""
    return None
