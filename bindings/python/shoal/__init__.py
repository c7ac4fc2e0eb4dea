# SPDX-License-Identifier: Apache-2.0
"""Shoal for Python without a framework: collectives on NumPy arrays.

    import numpy as np
    import shoal

    with shoal.init() as group:
        values = np.full(4, group.rank, dtype=np.float32)
        group.allreduce(values)

A program started by `shoal run`, torchrun, mpirun or srun finds its rank by itself; started alone
it is a group of one. docs/python.md has the whole list. For PyTorch: `import shoal.torch`.
"""

from __future__ import annotations

from pathlib import Path

from ._library import Error, Status, library_path, version
from .group import ANY_SOURCE, ANY_TAG, Group, Received, Request, init, unique_id

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "Error",
    "Group",
    "Received",
    "Request",
    "Status",
    "init",
    "library_path",
    "unique_id",
    "version",
]

# In the source tree the framework bindings stand beside this one and not inside it.
_bindings = Path(__file__).resolve().parent.parent.parent
if (_bindings / "torch" / "backend.cpp").exists():
    __path__.append(str(_bindings))
