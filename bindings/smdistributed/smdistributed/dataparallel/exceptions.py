# SPDX-License-Identifier: Apache-2.0
"""What operations raise. The training toolkit looks here for the names of classes that, found in a
script's stderr, tell a failure of communication from a failure of the script."""

from torch.distributed import DistBackendError, DistError, DistNetworkError, DistStoreError

__all__ = ["DistBackendError", "DistError", "DistNetworkError", "DistStoreError"]
