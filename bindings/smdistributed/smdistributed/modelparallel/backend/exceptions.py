# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in model parallel training, by the names that programs may catch."""

from __future__ import annotations


class SMPError(RuntimeError):
    """Any error of this library."""


class ConfigurationError(SMPError, ValueError):
    """The configuration can't be used; the text names the key."""


class InitializationError(SMPError):
    """smp.init() was not called, or not in time, or twice."""


class SplitError(SMPError, ValueError):
    """Inputs of a step can't be cut into microbatches."""


class PartitionError(SMPError):
    """Modules can't be placed; the text names the module."""


class StepError(SMPError):
    """A step failed; the text names rank, module and microbatch. The same on every rank."""


class OutOfMemoryError(StepError):
    """A rank has no memory left; the text says where, how much it wanted, and what was planned."""


class StepUsageError(SMPError):
    """Something was called within, or outside of, a step that must not be."""


class CheckpointError(SMPError):
    """A checkpoint can't be written or read."""


class CommunicationError(SMPError, ValueError):
    """An object can't go from rank to rank; the text names the call, the group and the rank."""
