# SPDX-License-Identifier: Apache-2.0
"""Activation checkpoints where a module is called."""

from ..checkpointing import checkpoint, checkpoint_sequential

__all__ = ["checkpoint", "checkpoint_sequential"]
