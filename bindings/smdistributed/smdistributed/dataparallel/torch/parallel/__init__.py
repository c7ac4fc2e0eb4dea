# SPDX-License-Identifier: Apache-2.0
"""The older API's DistributedDataParallel; scripts import it from here and from distributed."""

from .distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
