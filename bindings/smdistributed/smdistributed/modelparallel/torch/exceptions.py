# SPDX-License-Identifier: Apache-2.0
"""The errors of ../backend/exceptions.py, under the name that programs for PyTorch know."""

from __future__ import annotations

from ..backend.exceptions import (
    CheckpointError,
    CommunicationError,
    ConfigurationError,
    InitializationError,
    OutOfMemoryError,
    PartitionError,
    SMPError,
    SplitError,
    StepError,
    StepUsageError,
)

__all__ = [
    "CheckpointError",
    "CommunicationError",
    "ConfigurationError",
    "InitializationError",
    "OutOfMemoryError",
    "PartitionError",
    "SMPError",
    "SplitError",
    "StepError",
    "StepUsageError",
]
