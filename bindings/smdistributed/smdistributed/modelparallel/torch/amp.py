# SPDX-License-Identifier: Apache-2.0
"""torch's GradScaler, which hears of gradients that are not finite on any rank of the model."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .state_mod import state


class GradScaler(torch.amp.GradScaler):
    """As torch.amp.GradScaler; a step is left out on all ranks if one of them has found a gradient
    that is not finite. `unscale_`, `step` and `update` are called by all ranks."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__("cpu", *args, **kwargs)
        if self._enabled:
            self._lazy_init_scale_growth_tracker(torch.device("cpu"))

    def _unscale_grads_(self, *args: Any, **kwargs: Any) -> dict[torch.device, torch.Tensor]:
        if state.model is not None:
            state.model.sum_gradients()
        found = super()._unscale_grads_(*args, **kwargs)
        device = torch.device("cpu")
        flag = found.setdefault(device, torch.zeros(1))
        dist.all_reduce(flag, dist.ReduceOp.MAX, group=state.topology.process_groups["mp"])
        return found
