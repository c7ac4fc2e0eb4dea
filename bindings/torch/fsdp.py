# SPDX-License-Identifier: Apache-2.0
"""FSDP's buffers, in memory that the ranks of a host share: peers read them where they lie.

FSDP2 has objects that allocate and communicate for each group of parameters; its default ones are
replaced by subclasses that allocate here. What a script sets instead stays.

FSDP1 has no such place, so methods of its handles are wrapped: its shard (the input of the
all-gather), its cast to low precision and the gathered parameters are made within a scope. The
gradient (the input of the reduce-scatter) is made by autograd, padded and cast: its sizes are
expected during the backward pass.

Imported when torch.distributed.fsdp is, not before: that takes a second.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import _flat_param, _runtime_utils
from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param_group

from . import arena

# ---- FSDP2 ----------------------------------------------------------------------------------


class _Allocator:
    """What allocates for one communication of FSDP2; before torch's class in the bases."""

    def __init__(self, group: dist.ProcessGroup):
        super().__init__()
        self._group = group

    def allocate(
        self, size: tuple[int, ...], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        with arena.scope(self._group):
            return super().allocate(size, dtype=dtype, device=device)


class _AllGather(_Allocator, _fsdp_collectives.DefaultAllGather):
    """FSDP2's default; the input is a part of the output."""


class _ReduceScatter(_Allocator, _fsdp_collectives.DefaultReduceScatter):
    """FSDP2's default; with a second group that replicates, the output is all-reduced in place."""


def _group_of(mesh: Any) -> dist.ProcessGroup:
    """Of the groups of a mesh the one that shards, else the one that replicates; all of them
    share the same memory."""
    return getattr(mesh, "shard_process_group", None) or mesh.replicate_process_group


def _with_shared_communication(make: Callable) -> Callable:
    """FSDPParamGroup.__init__, which also takes our classes where it has chosen the default."""

    @functools.wraps(make)
    def made(self, *arguments, **named):
        make(self, *arguments, **named)
        if self.device.type != "cpu":
            return
        group = _group_of(self.mesh_info)
        if type(self._all_gather_comm) is _fsdp_collectives.DefaultAllGather:
            self._all_gather_comm = _AllGather(group)
        if type(self._reduce_scatter_comm) is _fsdp_collectives.DefaultReduceScatter:
            self._reduce_scatter_comm = _ReduceScatter(group)

    return made


# ---- FSDP1 ----------------------------------------------------------------------------------


def _in_training(handle: Any) -> bool:
    """Not while a script looks at all parameters at once: what is freed stays in the arena, and
    should not be much more than a training step needs."""
    summoning = _flat_param.HandleTrainingState.SUMMON_FULL_PARAMS
    return handle.device.type == "cpu" and handle._training_state != summoning


def _within_scope(method: Callable) -> Callable:
    """A method of FlatParamHandle whose tensors lie in shared memory."""

    @functools.wraps(method)
    def scoped(self):
        if not _in_training(self):
            return method(self)
        with arena.scope(self.process_group):
            return method(self)

    return scoped


def _gradient_bytes(handle: Any) -> set[int]:
    """Sizes of the gradient on its way: unsharded as autograd makes it, padded, and what is left
    of it for this rank if that is all-reduced; each before and after a cast."""
    flat = handle.flat_param
    counts = {flat._unpadded_unsharded_size.numel()}
    if handle.uses_sharded_strategy:
        counts.add(flat._padded_unsharded_size.numel())
    if handle._sharding_strategy in _HYBRID:
        counts.add(flat._sharded_size.numel())
    types = {handle._fwd_bwd_param_dtype, handle._reduce_dtype}
    return {count * dtype.itemsize for count in counts for dtype in types}


def _with_expected_gradient(prepare: Callable) -> Callable:
    """FlatParamHandle.prepare_gradient_for_backward, which also expects that gradient."""

    @functools.wraps(prepare)
    def prepared(self):
        prepare(self)
        if _in_training(self):
            arena.expect(self.process_group, _gradient_bytes(self))

    return prepared


def _with_end_of_expectations(end: Callable) -> Callable:
    """What FSDP1 calls at the end of a backward pass."""

    @functools.wraps(end)
    def ended(*arguments, **named):
        try:
            return end(*arguments, **named)
        finally:
            arena.forget()

    return ended


_HYBRID = (
    _flat_param.HandleShardingStrategy.HYBRID_SHARD,
    _flat_param.HandleShardingStrategy._HYBRID_SHARD_ZERO2,
)

# ---- both -----------------------------------------------------------------------------------


def _wrap(owner: Any, name: str, wrapper: Callable[[Callable], Callable]) -> None:
    setattr(owner, name, wrapper(getattr(owner, name)))


def install() -> None:
    """Once, for groups of parameters that are made from now on."""
    _wrap(_fsdp_param_group.FSDPParamGroup, "__init__", _with_shared_communication)
    handle = _flat_param.FlatParamHandle
    _wrap(handle, "shard", _within_scope)
    _wrap(handle, "_use_low_precision_shard", _within_scope)
    _wrap(handle, "_alloc_padded_unsharded_flat_param", _within_scope)
    _wrap(handle, "prepare_gradient_for_backward", _with_expected_gradient)
    _wrap(_runtime_utils, "_post_backward_final_callback", _with_end_of_expectations)
