# SPDX-License-Identifier: Apache-2.0
"""The older API's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.torch import DistributedDataParallel as Base
from torch import nn
from torch.distributed import ProcessGroup

from .. import torch_smddp  # noqa: F401 (registers the backend)

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Base):
    """Shoal's, with the older arguments, over the process group that there is.

    Unlike torch's, its state is that of the module it wraps, without "module." in front of the
    names, and rank 0's buffers are sent to all at the start whatever `broadcast_buffers` says.

    Args:
        module: The model; its parameters must not be added to or taken from afterwards.
        device_ids: The one GPU of this rank; of no meaning for a model on the CPU.
        output_device: Where outputs go; that GPU by default.
        broadcast_buffers: Whether rank 0's buffers are sent at each forward pass.
        process_group: The group to sum over; None for the default one.
        bucket_cap_mb: MiB of gradients that are sent at once; None for the option SHOAL_FUSE_BYTES
            (on a GPU 25).
    """

    def __init__(
        self,
        module: nn.Module,
        device_ids: list[int] | None = None,
        output_device: int | None = None,
        broadcast_buffers: bool = True,
        process_group: ProcessGroup | None = None,
        bucket_cap_mb: int | None = None,
    ):
        if all(parameter.device.type == "cpu" for parameter in module.parameters()):
            device_ids = output_device = None
        super().__init__(
            module,
            device_ids=device_ids,
            output_device=output_device,
            forward_sync_buffers=broadcast_buffers,
            process_group=process_group,
            bucket_cap_mb=bucket_cap_mb,
        )

    def state_dict(self, *args: Any, **named: Any) -> dict[str, Any]:
        """The wrapped module's."""
        return self.module.state_dict(*args, **named)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **named: Any) -> Any:
        """The wrapped module's; takes torch's form with "module." in front of the names as well,
        which checkpoints of torch's class have."""
        has_torch_names = self.module.state_dict().keys().isdisjoint(state_dict)
        load = super().load_state_dict if has_torch_names else self.module.load_state_dict
        return load(state_dict, *args, **named)
