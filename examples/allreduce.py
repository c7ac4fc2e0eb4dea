# SPDX-License-Identifier: Apache-2.0
"""An allreduce in a few lines: shoal run -n 4 python examples/allreduce.py"""

import numpy as np
import shoal

with shoal.init() as group:
    values = np.array([1, 2, 3, group.rank], dtype=np.float32)
    group.allreduce(values)
    print(f"rank {group.rank} of {group.size}: {values}")
