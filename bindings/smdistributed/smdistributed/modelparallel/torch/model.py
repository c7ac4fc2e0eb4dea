# SPDX-License-Identifier: Apache-2.0
"""A model of which each rank of a pipeline holds a part: docs/modelparallel.md."""

from __future__ import annotations

import logging
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from shoal.pipe import Order, Pipe
from shoal.torch import group_handle
from torch.utils._pytree import tree_map_only
from torch.utils.hooks import RemovableHandle

from . import partitioning, tracing
from .collective import gather_objects
from .data_parallel import GradientMeans
from .exceptions import CheckpointError, PartitionError, SMPError, StepUsageError
from .promise import edge_of
from .stage import Shape, Stage
from .state_mod import PARTIAL, state

OWNERS = "_smp_owners"

log = logging.getLogger("smdistributed.modelparallel")


class DistributedModel(torch.nn.Module):
    """Wraps a model, which becomes a pipeline: in the first step the modules are divided among the
    ranks of each model parallel group, and from then on each rank keeps its own only.

    One in a process. forward and backward are called within functions decorated with smp.step.

    Args:
        module: The model, with the same parameters on all ranks of a model parallel group.
        trace_device: Accepted; the trace runs where the model is.
        trace_execution_times: Modules are placed by their times too, not by memory alone.
        overlapping_allreduce: Gradients are summed over the data parallel ranks while backward
            passes still run; False: at the end of the step.
        backward_passes_per_step: Gradients of so many steps are accumulated before they are summed.
        average_grads_across_microbatches: Gradients are the mean over microbatches, else the sum.
        bucket_cap_mb: MiB of a fusion buffer.
        trace_memory_usage: Accepted; activations are always counted.
        broadcast_buffers: At the start of each step data parallel ranks take the first one's
            buffers.
        gradient_as_bucket_view: Accepted; gradients always are where fusion buffers are.
        find_unused_parameters: Accepted; parameters that a step leaves out are found.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        trace_device: str = "gpu",
        trace_execution_times: bool = False,
        overlapping_allreduce: bool = True,
        backward_passes_per_step: int = 1,
        average_grads_across_microbatches: bool = True,
        bucket_cap_mb: int = 25,
        trace_memory_usage: bool = False,
        broadcast_buffers: bool = True,
        gradient_as_bucket_view: bool = False,
        find_unused_parameters: bool = False,
    ):
        super().__init__()
        self.dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(state.cfg.precision)
        if self.dtype is not None:
            module.to(self.dtype)
        if state.model is not None:
            raise StepUsageError("there is a DistributedModel in this process already")
        self.module = module
        self.averages = average_grads_across_microbatches
        self.counts_time = trace_execution_times
        self.tree = partitioning.Tree.of(module)
        self.stage: Stage | None = None
        self.owners: list[int] = []
        self.owners_wanted: Mapping[str, int] | None = None
        self.waiting: Mapping[str, Any] | None = None  # loaded before the partition
        self.means: GradientMeans | None = None
        self.means_wishes = bucket_cap_mb * 2**20, overlapping_allreduce
        self.broadcasts_buffers = broadcast_buffers
        self.passes, self.passes_per_step = 0, backward_passes_per_step
        self.partition_hooks: dict[int, Callable] = OrderedDict()
        self.step_hooks: dict[int, Callable] = OrderedDict()
        self.known_parameters = _identities(module)
        state.model = self
        if state.cfg.pipeline_parallel_degree == 1:
            self._settle([0] * len(self.tree.modules))

    @property
    def partitioned(self) -> bool:
        return bool(self.owners)

    # ---- in a step

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if state.topology.size_of("pp") > 1 and not state.is_in_step:
            raise StepUsageError(
                "a model of several stages runs only within a function decorated with smp.step"
            )
        if self.dtype is not None:
            args, kwargs = tree_map_only(torch.Tensor, self._as_parameters, (args, kwargs))
        return self.module(*args, **kwargs)

    def _as_parameters(self, tensor: torch.Tensor) -> torch.Tensor:
        """Of the parameters' type, if it is of floating point."""
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def _scale(self) -> float:
        """What gradients are multiplied by."""
        scale = 1 / state.cfg.microbatches if self.averages and state.is_in_step else 1.0
        optimizer = state.optimizer
        if state.cfg.precision == "fp16" and optimizer is not None:
            scale *= optimizer.loss_scale
        return scale

    def backward(self, tensors: Any, grad_tensors: Any = None) -> None:
        """Instead of loss.backward(): within a step.

        Args:
            tensors: A tensor or several, as torch.autograd.backward has them.
            grad_tensors: Their gradients; None: 1 for each, of one element.
        """
        if not state.is_in_step and state.topology.size_of("pp") > 1:
            raise StepUsageError(
                "model.backward() is called within a function decorated with smp.step"
            )
        if state.is_tracing:
            return
        if self.stage is not None:
            self.stage.take_turn()
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        scale = self._scale()
        if grad_tensors is None:
            grad_tensors = [
                torch.full(one.shape, scale, dtype=one.dtype, device=one.device) for one in tensors
            ]
        else:
            given = [grad_tensors] if isinstance(grad_tensors, torch.Tensor) else grad_tensors
            grad_tensors = [one * scale for one in given]
        torch.autograd.backward([edge_of(one) for one in tensors], grad_tensors)

    # ---- partition

    def partition(self, trace_one: Callable[[], Any]) -> None:
        """Divides the modules. Collective over all ranks: the first one decides.

        Args:
            trace_one: Runs the step's function for one microbatch.

        Raises:
            SMPError: what went wrong there, on every rank.
        """
        answer: list[Any] = [None]
        if state.topology.rank == 0:
            answer = [self._answer(trace_one)]
        dist.broadcast_object_list(answer, 0)
        if isinstance(answer[0], SMPError):
            raise answer[0]
        self._check_same_parameters()
        self.make_stage(*answer[0])

    def _answer(self, trace_one: Callable[[], Any]) -> tuple[list[int], dict] | SMPError:
        try:
            return self._decide(trace_one)
        except SMPError as error:
            return type(error)(str(error))

    def _wanted_owners(self) -> list[int] | None:
        """From a partial checkpoint that waits to be loaded."""
        if self.owners_wanted is None:
            return None
        missing = [name for name in self.tree.names if name not in self.owners_wanted]
        if missing:
            raise PartitionError(f"the checkpoint to be loaded has no module {missing[0]}")
        return [self.owners_wanted[name] for name in self.tree.names]

    def _decide(self, trace_one: Callable[[], Any]) -> tuple[list[int], dict]:
        """Owners, and the shapes of what calls give."""
        wanted = self._wanted_owners()
        if wanted:
            return wanted, {}
        trace = None
        if not state.cfg.skip_tracing:
            # Of two passes the second one's times count: the first one loads code and memory.
            passes = 2 if self.counts_time else 1
            trace = tracing.trace(self.tree.modules, self.tree.names, trace_one, passes)
        plan = partitioning.owners(self.tree, trace, state.cfg, self.counts_time)
        for rank, load in enumerate(plan.loads):
            log.info(
                "stage %d: %.1f MiB of parameters, %.1f MiB of activations and %.2f ms forward in "
                "a microbatch",
                rank,
                load.parameter_bytes / 2**20,
                load.activation_bytes / 2**20,
                load.forward_ns / 1e6,
            )
        return plan.devices, trace.shapes if trace else {}

    def _check_same_parameters(self) -> None:
        """The parts must be parts of one model: every rank of a pipeline has the same parameters
        now."""
        sums = [
            (name, zlib.crc32(tensor.detach().reshape(-1).view(torch.uint8).numpy()))
            for name, tensor in self.module.named_parameters()
            if not tensor.is_meta and tensor.numel()
        ]
        group = state.topology.process_groups["pp"]
        everybody: list[Any] = [None] * group.size()
        dist.all_gather_object(everybody, sums, group=group)
        for rank, theirs in enumerate(everybody):
            for mine, other in zip(everybody[0], theirs, strict=True):
                if mine != other:
                    raise PartitionError(
                        f"parameter {mine[0]} is not the same on pp_rank 0 and pp_rank {rank}: "
                        "make the model with the same seed on all ranks (torch.manual_seed), or "
                        "load the same checkpoint"
                    )

    def make_stage(self, owners: list[int], shapes: dict[tuple, Shape]) -> None:
        """Keeps what this rank owns. Collective over the pipeline."""
        topology = state.topology
        rank = topology.rank_in("pp")
        simple = state.cfg.pipeline == "simple"
        pipe = Pipe(
            group_handle(topology.process_groups["pp"]),
            type(self.module).__name__,
            self.tree.names,
            [owner == rank for owner in owners],
            Order.SIMPLE if simple else Order.INTERLEAVED,
            0 if simple else state.cfg.active_microbatches,
        )
        self.stage = Stage(pipe, self.tree.modules, self.tree.names, owners)
        self.stage.shapes |= shapes
        for number, owner in enumerate(owners):
            if owner != rank:
                self.tree.modules[number]._compiled_call_impl = partial(self.stage.call, number)
        self._settle(owners)

    def _settle(self, owners: list[int]) -> None:
        """The partition is made."""
        self.owners = owners
        self._forget_others()
        if self.waiting is not None:
            self.load_state_dict(self.waiting)
            self.waiting = None
        if state.topology.size_of("dp") > 1:
            self._share()
        for hook in list(self.partition_hooks.values()):
            hook(self, state.optimizer)

    def _share(self) -> None:
        """With the data parallel ranks: the first one's parameters and buffers."""
        if not state.cfg.ddp:
            raise PartitionError(
                f"{state.topology.size} ranks hold {state.topology.size_of('dp')} copies of the "
                "model, so 'ddp' must be true in the configuration"
            )
        self._broadcast([*self.local_parameters(), *self.local_buffers()])
        named = [(n, p) for n, p in self.local_named_parameters() if p.requires_grad]
        names, parameters = [name for name, _ in named], [one for _, one in named]
        group = state.topology.process_groups["dp"]
        self.means = GradientMeans(group, names, parameters, *self.means_wishes)

    def _broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        if tensors:
            group = state.topology.process_groups["dp"]
            dist._broadcast_coalesced(group, [one.detach() for one in tensors], 2**25, 0)

    def before_step(self) -> None:
        """All ranks, at the begin of a step's function."""
        self._check_unchanged()
        if self.means is None:
            return
        if self.broadcasts_buffers:
            self._broadcast(list(self.local_buffers()))
        self.passes += 1
        self.means.begin_step(self.passes % self.passes_per_step == 0)

    def after_step(self) -> None:
        """All ranks, when all microbatches are done."""
        if self.means is not None:
            self.means.end_step()
        for hook in list(self.step_hooks.values()):
            hook(self, state.optimizer)

    def _check_unchanged(self) -> None:
        """Parameters are those that were there when the model was wrapped."""
        now = _identities(self.module)
        if now == self.known_parameters:
            return
        for name in {**now, **self.known_parameters}:
            if now.get(name) != self.known_parameters.get(name):
                what = (
                    "replaced"
                    if name in now and name in self.known_parameters
                    else ("added" if name in now else "removed")
                )
                raise StepUsageError(
                    f"parameter {name} was {what} after the model was wrapped in DistributedModel: "
                    "change the model before"
                )

    def _forget_others(self) -> None:
        """In place of parameters and buffers of other ranks stand ones of the same shapes that take
        no memory."""
        own = {
            id(tensor)
            for module in self.local_modules()
            for tensor in partitioning.own_tensors(module)
        }
        stand_ins: dict[int, torch.Tensor] = {}
        for module in self.tree.modules:
            for members in (module._parameters, module._buffers):
                for name, tensor in members.items():
                    if tensor is not None and id(tensor) not in own:
                        members[name] = _stand_in(tensor, stand_ins)
        self.known_parameters = _identities(self.module)

    # ---- what is here

    def local_modules(self) -> Iterator[torch.nn.Module]:
        """Those that this rank owns."""
        return (module for _, module in self.local_named_modules())

    def local_named_modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        rank = state.topology.rank_in("pp")
        for number, owner in enumerate(self.owners):
            if owner == rank:
                yield self.tree.names[number] if number else "", self.tree.modules[number]

    def local_named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        return _named(self.local_named_modules(), torch.nn.Module.named_parameters)

    def local_parameters(self) -> Iterator[torch.nn.Parameter]:
        return (parameter for _, parameter in self.local_named_parameters())

    def local_named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        return _named(self.local_named_modules(), torch.nn.Module.named_buffers)

    def local_buffers(self) -> Iterator[torch.Tensor]:
        return (buffer for _, buffer in self.local_named_buffers())

    def get_module(self) -> torch.nn.Module:
        """The wrapped one."""
        return self.module

    # ---- state

    def local_state_dict(self) -> dict[str, Any]:
        """Parameters and buffers that this rank owns, by their names in the whole model, and which
        rank owns what."""
        own = {
            id(tensor)
            for module in self.local_modules()
            for tensor in partitioning.own_tensors(module)
        }
        values = self.module.state_dict(keep_vars=True)
        made = {name: one for name, one in values.items() if id(one) in own}
        made = {name: one.detach() for name, one in made.items()}
        return made | {PARTIAL: True, OWNERS: dict(zip(self.tree.names, self.owners, strict=True))}

    def state_dict(self, *, gather_to_rank0: bool = False) -> dict[str, Any]:
        """Of the whole model, as the wrapped module would give it. All ranks of a pipeline call it.

        Args:
            gather_to_rank0: Accepted; every rank gets all of it.
        """
        if not self.partitioned or state.topology.size_of("pp") == 1:
            return self.module.state_dict()
        local = self.local_state_dict()
        parts = gather_objects(local, "pp", "DistributedModel.state_dict()")
        found = {name: one for part in parts for name, one in part.items()}
        return OrderedDict((name, found[name]) for name in self.module.state_dict(keep_vars=True))

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, same_partition_load: bool = False
    ) -> Any:
        """A full one, or this rank's partial one. Before the first step a partial one decides how
        the modules are divided, and is loaded then.

        Args:
            same_partition_load: Accepted; it is seen from the dictionary.
        """
        values = dict(state_dict)
        owners, is_partial = values.pop(OWNERS, None), values.pop(PARTIAL, False)
        if is_partial and not self.partitioned:
            self.owners_wanted, self.waiting = owners, dict(state_dict)
            return None
        if self.partitioned:
            self._check_owners(owners)
            return self._load_own(values, strict and not is_partial)
        return self.module.load_state_dict(values, strict)

    def _check_owners(self, owners: Mapping[str, int] | None) -> None:
        if owners is None:
            return
        for name, here in zip(self.tree.names, self.owners, strict=True):
            if owners.get(name) != here:
                raise CheckpointError(
                    f"the checkpoint has module {name} on pp_rank {owners.get(name)}, and here it "
                    f"is on {here}: load it before the first step"
                )

    def _load_own(self, values: Mapping[str, Any], is_whole: bool) -> Any:
        names = self.module.state_dict(keep_vars=True)
        own = {name: one for name, one in names.items() if not one.is_meta}
        taken = {name: one for name, one in values.items() if name in own}
        found = self.module.load_state_dict(taken, strict=False)
        missing = sorted(set(own).difference(values))
        unknown = sorted(set(values).difference(names))
        if missing or (is_whole and unknown):
            raise CheckpointError(
                f"the checkpoint lacks {missing[:8]} and has {unknown[:8]}, which the model has not"
            )
        return found

    def cpu(self) -> DistributedModel:
        """Accepted: it is there."""
        return self

    # ---- hooks

    def register_post_partition_hook(
        self, hook: Callable[[DistributedModel, Any], None]
    ) -> RemovableHandle:
        """Calls hook(model, optimizer) when the modules have been divided, or at once."""
        handle = RemovableHandle(self.partition_hooks)
        self.partition_hooks[handle.id] = hook
        if self.partitioned:
            hook(self, state.optimizer)
        return handle

    def register_post_step_hook(
        self, hook: Callable[[DistributedModel, Any], None]
    ) -> RemovableHandle:
        """Calls hook(model, optimizer) at the end of every step."""
        handle = RemovableHandle(self.step_hooks)
        self.step_hooks[handle.id] = hook
        return handle


def _identities(module: torch.nn.Module) -> dict[str, int]:
    return {name: id(parameter) for name, parameter in module.named_parameters()}


def _stand_in(tensor: torch.Tensor, known: dict[int, torch.Tensor]) -> torch.Tensor:
    """The same one for the same tensor, whose memory is given back."""
    if id(tensor) not in known:
        made = torch.empty_like(tensor, device="meta")
        if isinstance(tensor, torch.nn.Parameter):
            made = torch.nn.Parameter(made, tensor.requires_grad)
        known[id(tensor)] = made
        tensor.data = torch.empty(0, dtype=tensor.dtype)
    return known[id(tensor)]


def _named(modules: Iterable[tuple[str, torch.nn.Module]], members: Callable) -> Iterator:
    """The modules' own members with whole names; each once."""
    seen: set[int] = set()
    for prefix, module in modules:
        for name, member in members(module, recurse=False):
            if id(member) not in seen:
                seen.add(id(member))
                yield f"{prefix}.{name}" if prefix else name, member
