# SPDX-License-Identifier: Apache-2.0
"""Model parallel training of PyTorch models, by the names of SageMaker's library.

    import smdistributed.modelparallel.torch as smp

    smp.init()
    model = smp.DistributedModel(Net())
    optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters()))

    @smp.step
    def train_step(model, data, target):
        loss = F.cross_entropy(model(data), target)
        model.backward(loss)
        return loss

docs/modelparallel.md has all of it.
"""

from __future__ import annotations

from .. import __version__
from . import amp
from .checkpoint import load, resume_from_checkpoint, save, save_checkpoint
from .checkpointing import set_activation_checkpointing
from .communication import allgather, barrier, broadcast, dp_barrier, mp_barrier, recv_from, send
from .creation import model_creation
from .delayed import delay_param_initialization
from .initialization import init, is_initialized, is_tracing
from .microbatch import StepOutput
from .model import DistributedModel
from .optimizer import DistributedOptimizer
from .partitioning import partition, set_partition
from .ranks import (
    dp_rank,
    dp_size,
    get_dp_group,
    get_dp_process_group,
    get_mp_group,
    get_mp_process_group,
    get_pp_group,
    get_pp_process_group,
    get_rdp_group,
    get_rdp_process_group,
    get_tp_group,
    get_tp_process_group,
    get_world_process_group,
    local_rank,
    local_size,
    mp_rank,
    mp_size,
    pp_rank,
    pp_size,
    rank,
    rdp_rank,
    rdp_size,
    size,
    tp_rank,
    tp_size,
)
from .state_mod import state
from .step import step
from .topology import CommGroup, RankType

WORLD = CommGroup.WORLD
MP_GROUP = CommGroup.MP_GROUP
DP_GROUP = CommGroup.DP_GROUP
PP_GROUP = CommGroup.PP_GROUP
TP_GROUP = CommGroup.TP_GROUP
RDP_GROUP = CommGroup.RDP_GROUP
WORLD_RANK = RankType.WORLD_RANK
MP_RANK = RankType.MP_RANK
DP_RANK = RankType.DP_RANK
PP_RANK = RankType.PP_RANK
TP_RANK = RankType.TP_RANK
RDP_RANK = RankType.RDP_RANK

__all__ = [
    "__version__",
    "CommGroup",
    "DP_GROUP",
    "DP_RANK",
    "DistributedModel",
    "DistributedOptimizer",
    "MP_GROUP",
    "MP_RANK",
    "PP_GROUP",
    "PP_RANK",
    "RDP_GROUP",
    "RDP_RANK",
    "RankType",
    "StepOutput",
    "TP_GROUP",
    "TP_RANK",
    "WORLD",
    "WORLD_RANK",
    "allgather",
    "amp",
    "barrier",
    "broadcast",
    "delay_param_initialization",
    "dp_barrier",
    "dp_rank",
    "dp_size",
    "get_dp_group",
    "get_dp_process_group",
    "get_mp_group",
    "get_mp_process_group",
    "get_pp_group",
    "get_pp_process_group",
    "get_rdp_group",
    "get_rdp_process_group",
    "get_tp_group",
    "get_tp_process_group",
    "get_world_process_group",
    "init",
    "is_initialized",
    "is_tracing",
    "load",
    "local_rank",
    "local_size",
    "model_creation",
    "mp_barrier",
    "mp_rank",
    "mp_size",
    "partition",
    "pp_rank",
    "pp_size",
    "rank",
    "rdp_rank",
    "rdp_size",
    "recv_from",
    "resume_from_checkpoint",
    "save",
    "save_checkpoint",
    "send",
    "set_activation_checkpointing",
    "set_partition",
    "size",
    "state",
    "step",
    "tp_rank",
    "tp_size",
]
