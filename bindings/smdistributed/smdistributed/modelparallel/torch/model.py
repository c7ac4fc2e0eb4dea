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
from shoal import Error
from shoal.pipe import Order
from shoal.plan import Load
from shoal.torch import group_handle
from shoal.torch.pipe import TensorPipe
from torch.distributed.algorithms.join import Join, Joinable
from torch.utils._pytree import tree_map_only
from torch.utils.hooks import RemovableHandle

from . import delayed, memory, partitioning, tracing
from .calls import Shape
from .collective import gather_objects, gather_objects_to_first
from .data_parallel import GradientMeans
from .exceptions import CheckpointError, PartitionError, SMPError, StepUsageError
from .joining import Joining, Pass
from .promise import edge_of
from .stage import Stage
from .state_mod import PARTIAL, state
from .sums import FusedSums, GradBucket, HookedSums

OWNERS = "_smp_owners"

log = logging.getLogger("smdistributed.modelparallel")


class DistributedModel(torch.nn.Module, Joinable):
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
        torch.nn.Module.__init__(self)
        Joinable.__init__(self)
        partitioning.check_divisible(module)
        self.dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(state.cfg.precision)
        self.is_delayed = delayed.is_delayed(module.modules())
        if self.dtype is not None:
            module.to(self.dtype)
        if state.model is not None:
            raise StepUsageError("there is a DistributedModel in this process already")
        if delayed.RECORD.is_on:
            raise StepUsageError(
                "make the DistributedModel after smp.delay_param_initialization(), not within it: "
                "the context is for what is wrapped"
            )
        self.module = module
        self.averages = average_grads_across_microbatches
        self.counts_time = trace_execution_times
        self.tree = partitioning.Tree.of(module)
        self.stage: Stage | None = None
        self.owners: list[int] = []
        self.loads: list[Load] = []
        self.memories: list[memory.Memory] = []
        self.owners_wanted: Mapping[str, int] | None = None
        self.waiting: Mapping[str, Any] | None = None  # loaded before the partition
        self.means: GradientMeans | None = None
        self.bucket_bytes, self.overlaps = int(bucket_cap_mb * 2**20), overlapping_allreduce
        self.comm_hook: Callable[[GradBucket], torch.futures.Future] | None = None
        self.joining: Joining | None = None
        self.broadcasts_buffers = broadcast_buffers
        self.passes, self.passes_per_step = 0, backward_passes_per_step
        self.is_gathered = False  # by cpu()
        self.present = Pass.HAS_NONE  # what the step under way does with gradients
        self.compares_data = True  # the first step
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
        if not state.is_in_step:
            self._begin_alone()
        if self.dtype is not None:
            args, kwargs = tree_map_only(torch.Tensor, self._as_parameters, (args, kwargs))
        return self.module(*args, **kwargs)

    def _begin_alone(self) -> None:
        """Outside of a step, which a model of one stage does without."""
        if len(self.stages()) > 1:
            raise StepUsageError(
                "a model of several stages runs only within a function decorated with smp.step"
            )
        if self.training and torch.is_grad_enabled():
            self.before_step()

    def stages(self) -> list[int]:
        """pp_ranks that own modules: of one that cpu() has gathered, this one alone."""
        if self.is_gathered:
            return [state.topology.rank_in("pp")]
        return list(range(state.topology.size_of("pp")))

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
        if not state.is_in_step and len(self.stages()) > 1:
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
            with torch._C.DisableTorchFunctionSubclass():  # promises are looked at, not read
                grad_tensors = [
                    torch.full(one.shape, scale, dtype=one.dtype, device=one.device)
                    for one in tensors
                ]
        else:
            given = [grad_tensors] if isinstance(grad_tensors, torch.Tensor) else grad_tensors
            grad_tensors = [one * scale for one in given]
        torch.autograd.backward([edge_of(one) for one in tensors], grad_tensors)
        if self.stage is not None:
            self.stage.pass_turn()
        if not state.is_in_step:
            self.after_step()

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
        owners, shapes, self.loads, self.memories = answer[0]
        self.make_stage(owners, shapes)
        if self.means is not None:
            self.means.begin_step(self.present is Pass.SUMS)

    @property
    def predicted_memory(self) -> dict[str, int] | None:
        """What this rank will need at most, in bytes, by what it is for (memory.Memory); None if
        nothing was traced: before the first step, without a pipeline, with skip_tracing, or when a
        checkpoint decided."""
        if not self.memories:
            return None
        return self.memories[state.topology.rank_in("pp")].as_dict()

    def _answer(self, trace_one: Callable[[], Any]) -> tuple | SMPError:
        try:
            return self._decide(trace_one)
        except SMPError as error:
            return type(error)(str(error))

    def _wanted_owners(self) -> list[int] | None:
        """From a partial checkpoint that waits to be loaded."""
        if self.owners_wanted is None:
            return None
        stages = state.cfg.pipeline_parallel_degree
        for name in self.tree.names:
            if name not in self.owners_wanted:
                raise PartitionError(f"the checkpoint to be loaded has no module {name}")
            if self.owners_wanted[name] >= stages:
                raise PartitionError(
                    f"the checkpoint to be loaded has module {name} on pp_rank "
                    f"{self.owners_wanted[name]}, and there are {stages} here"
                )
        return [self.owners_wanted[name] for name in self.tree.names]

    def _decide(self, trace_one: Callable[[], Any]) -> tuple[list[int], dict, list, list]:
        """Owners, the shapes of what calls give, each stage's load, and what it needs of memory;
        these two if they are known."""
        wanted = self._wanted_owners()
        if wanted:
            return wanted, {}, [], []
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
        if trace is None:
            return plan.devices, {}, plan.loads, []
        memories = self._predict(trace, plan.devices)
        return plan.devices, trace.shapes, plan.loads, memories

    def _predict(self, trace: tracing.Trace, owners: Sequence[int]) -> list[memory.Memory]:
        optimizer = state.optimizer.optimizer if state.optimizer is not None else None
        share, copies = memory.state_share(optimizer), state.topology.size_of("dp")
        try:
            made = memory.Forecast(self.tree, trace, owners, state.cfg, share, copies).stages()
        except Error as error:  # a pipeline too large to be simulated
            log.info("memory is not foreseen: %s", error)
            return []
        for rank, one in enumerate(made):
            parts = (one.peak, one.parameters, one.gradients, one.optimizer, one.kept, one.working)
            log.info(
                "stage %d: at most %.1f MiB: parameters %.1f, gradients %.1f, optimizer %.1f, "
                "activations %.1f, working memory %.1f",
                rank,
                *(size / 2**20 for size in parts),
            )
        return made

    def _check_same_parameters(self) -> None:
        """The parts must be parts of one model: every rank of a pipeline has the same parameters
        now."""
        sums = [
            (name, delayed.origin(tensor) if delayed.lacks_values(tensor) else _checksum(tensor))
            for name, tensor in self.module.named_parameters()
            if tensor.numel()
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
        pipe = TensorPipe(
            group_handle(topology.process_groups["pp"]),
            type(self.module).__name__,
            self.tree.names,
            [owner == rank for owner in owners],
            Order.SIMPLE if simple else Order.INTERLEAVED,
            0 if simple else state.cfg.active_microbatches,
            memory.kept_microbatches(self.memories, rank, state.cfg),
        )
        in_order = state.cfg.deterministic_server
        self.stage = Stage(pipe, self.tree.modules, self.tree.names, owners, in_order)
        self.stage.shapes |= shapes
        for number, owner in enumerate(owners):
            if owner != rank:
                self.tree.modules[number]._compiled_call_impl = partial(self.stage.call, number)
        self._settle(owners)

    def _settle(self, owners: list[int]) -> None:
        """The partition is made."""
        self.owners = owners
        if self.is_delayed:
            self._initialise()
        self._forget_others()
        if self.waiting is not None:
            self.load_state_dict(self.waiting)
            self.waiting = None
        if state.topology.size_of("dp") > 1:
            self._share()
        self._make_means()
        for hook in list(self.partition_hooks.values()):
            hook(self, state.optimizer)

    def _initialise(self) -> None:
        """What this rank owns gets values. Collective over all ranks."""
        named = list(self.local_named_modules())
        wrong = delayed.initialise(named, self.module)
        delayed.RECORD.forget()
        everybody: list[Any] = [None] * state.topology.size
        dist.all_gather_object(everybody, wrong)
        for text in everybody:
            if text:
                raise PartitionError(text)
        self.is_delayed = False

    def _share(self) -> None:
        """With the data parallel ranks: the first one's parameters and buffers."""
        if not state.cfg.ddp:
            raise PartitionError(
                f"{state.topology.size} ranks hold {state.topology.size_of('dp')} copies of the "
                "model, so 'ddp' must be true in the configuration"
            )
        self._broadcast([*self.local_parameters(), *self.local_buffers()])

    def _make_means(self) -> None:
        """Collective over the data parallel ranks."""
        if state.topology.size_of("dp") == 1 and self.comm_hook is None:
            return
        named = list(self.default_reducer_named_parameters())
        names, parameters = [name for name, _ in named], [one for _, one in named]
        group = state.topology.process_groups["dp"]
        if self.comm_hook is None:
            sums = FusedSums(group, names, parameters, self.bucket_bytes)
        else:
            sums = HookedSums(group, parameters, self.bucket_bytes, self.comm_hook)
        self.means = GradientMeans(names, parameters, sums, self.overlaps)

    def _broadcast(self, tensors: Sequence[torch.Tensor], source: int = 0) -> None:
        """From one of the data parallel ranks."""
        if tensors:
            group = state.topology.process_groups["dp"]
            dist._broadcast_coalesced(group, [one.detach() for one in tensors], 2**25, source)

    def before_step(self) -> None:
        """All ranks, at the begin of a step's function."""
        self._check_unchanged()
        if self.is_gathered:
            raise StepUsageError(
                "cpu() has gathered the model: every rank has all of it, and it trains no more"
            )
        self.present = Pass.HAS_NONE
        if torch.is_grad_enabled():
            is_last = (self.passes + 1) % self.passes_per_step == 0
            self.present = Pass.SUMS if is_last else Pass.KEEPS
        source = self.joining.announce(self.present) if self.joining else 0
        if self.means is not None:
            self.means.check_known(self.default_reducer_named_parameters(), self.stop_others)
            if self.broadcasts_buffers:
                self._broadcast(list(self.local_buffers()), source)
            self.means.begin_step(self.present is Pass.SUMS)

    def after_step(self) -> None:
        """All ranks, when all microbatches are done."""
        self.passes += self.present is not Pass.HAS_NONE
        if self.means is not None:
            self.means.end_step(self.joining.factor if self.joining else 1.0)
        hooks = list(self.step_hooks.values())
        self.step_hooks.clear()
        for hook in hooks:
            hook(self, state.optimizer)

    def sum_gradients(self) -> None:
        """Those of passes that are fewer than backward_passes_per_step, as at the end of an epoch.
        All ranks of a data parallel group call it."""
        if self.means is not None and self.passes % self.passes_per_step:
            self.means.sum_earlier()
            self.passes = 0

    def stop_others(self, reason: str) -> None:
        """The other stages' next step ends with this reason."""
        if self.stage is not None:
            self.stage.pipe.abort(reason)

    # ---- data parallel copies

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """A context for copies of the model with unequal numbers of steps, as in torch's
        DistributedDataParallel: those without data take part with zeros, and have the parameters,
        buffers and optimizer's state of the others at the end. All ranks of a pipeline have the
        same number of steps.

        Args:
            divide_by_initial_world_size: Gradients are the mean over all copies; False: over those
                that have data.
            enable: False: all copies have the same number of steps.
            throw_on_early_termination: When one has no data any more, all raise RuntimeError.

        Raises:
            StepUsageError: the configuration has no 'ddp'.
        """
        _check_ddp("join()")
        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **options: Any) -> Joining:
        """torch's Join calls it, for this model or several joinables."""
        group = state.topology.process_groups["dp"]
        divides_by_all = options.get("divide_by_initial_world_size", True)
        self.joining = Joining(self, group, divides_by_all)
        return self.joining

    @property
    def join_device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def join_process_group(self) -> dist.ProcessGroup:
        return state.topology.process_groups["dp"]

    def shadow_step(self, source: int, what: Pass) -> None:
        """Of a rank without data, beside a step of the others."""
        self.present = what
        if self.means is not None and self.broadcasts_buffers:
            self._broadcast(list(self.local_buffers()), source)
        if not self.partitioned:
            self.partition(_trace_nothing)
        self.passes += what is not Pass.HAS_NONE
        if self.means is not None and what is Pass.SUMS:
            self.means.shadow_step()

    def end_join(self, source: int | None) -> None:
        """All copies become equal.

        Args:
            source: The data parallel rank that has all steps; None: all of them have.
        """
        self.joining = None
        if source is None:
            return
        self._broadcast([*self.local_parameters(), *self.local_buffers()], source)
        if state.optimizer is not None:
            state.optimizer.take_state_of(source)

    def register_comm_hook(
        self, hook_state: Any, hook: Callable[[Any, GradBucket], torch.futures.Future]
    ) -> None:
        """Gradients are summed over the data parallel ranks by hook(hook_state, bucket), as in
        torch's DistributedDataParallel, instead of in fusion buffers. All ranks call it, once.

        Args:
            hook: Gives a future of the bucket's result, which is to be the mean. A bucket is a
                sums.GradBucket, with the methods of torch.distributed.GradBucket.

        Raises:
            StepUsageError: the configuration has no 'ddp', there is a hook, or a step runs.
        """
        _check_ddp("register_comm_hook()")
        if not callable(hook):
            raise TypeError(f"a communication hook must be callable, not {type(hook).__name__}")
        if self.comm_hook is not None:
            raise StepUsageError("register_comm_hook() was called before")
        if state.is_in_step:
            raise StepUsageError("register_comm_hook() is called within a step")
        self.comm_hook = partial(hook, hook_state)
        if self.partitioned:
            self._make_means()

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

    def default_reducer_named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Those of this rank whose gradients are summed over the data parallel ranks."""
        return ((name, one) for name, one in self.local_named_parameters() if one.requires_grad)

    def virtual_named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """What the optimizer updates here: this rank's parameters."""
        return self.local_named_parameters()

    # ---- tensor parallelism, which there is not: every module and parameter is whole on its rank

    def distributed_modules(self) -> Iterator[torch.nn.Module]:
        """None."""
        return iter(())

    def scaled_batch_reducer_named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """None."""
        return iter(())

    def is_distributed_parameter(self, parameter: torch.nn.Parameter) -> bool:
        """False."""
        return False

    def is_distributed_buffer(self, buffer: torch.Tensor) -> bool:
        """False."""
        return False

    def is_scaled_batch_parameter(self, parameter: torch.nn.Parameter) -> bool:
        """False."""
        return False

    def is_scaled_batch_buffer(self, buffer: torch.Tensor) -> bool:
        """False."""
        return False

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
            gather_to_rank0: The first rank of the pipeline gets it, the others get an empty one.

        Raises:
            CheckpointError: parameters have no values before the first step, or other ranks don't
                call it.
        """
        if self.is_delayed:
            raise CheckpointError(
                "the model's parameters get their values in the first step: there is no "
                "state_dict() before"
            )
        if not self.partitioned or len(self.stages()) == 1:
            return self.module.state_dict()
        local = self.local_state_dict()
        call = "DistributedModel.state_dict()"
        if gather_to_rank0:
            parts = gather_objects_to_first(local, "pp", call)
        else:
            parts = gather_objects(local, "pp", call)
        found = {name: one for part in parts for name, one in part.items()}
        names = self.module.state_dict(keep_vars=True)
        shared: dict[int, torch.Tensor] = {}  # what has several names stays one tensor
        return OrderedDict(
            (name, shared.setdefault(id(own), found[name])) for name, own in names.items() if found
        )

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, same_partition_load: bool = False
    ) -> Any:
        """A full one, or this rank's partial one. Before the first step a partial one decides how
        the modules are divided, and is loaded then.

        Args:
            same_partition_load: The dictionary is a partial one, of a partition like this one.

        Raises:
            CheckpointError: it is of another model or partition, or not partial and should be.
        """
        values = dict(state_dict)
        owners, is_partial = values.pop(OWNERS, None), values.pop(PARTIAL, False)
        values = _with_all_names(values, self.module.state_dict(keep_vars=True))
        if same_partition_load and not is_partial:
            raise CheckpointError(
                "same_partition_load is for what local_state_dict() gave, and this is the state of "
                "a whole model"
            )
        if (is_partial or self.is_delayed) and not self.partitioned:
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
        if state.optimizer is not None:
            state.optimizer.renew_masters()
        return found

    def cpu(self) -> DistributedModel:
        """Every rank gets the whole model, which from then on is an ordinary one: it runs without
        steps, and trains no more. All ranks of a pipeline call it. Before modules are divided
        nothing happens."""
        if not self.partitioned or len(self.stages()) == 1:
            return self
        own = dict(self.local_named_parameters()) | dict(self.local_named_buffers())
        own = {name: one.detach() for name, one in own.items()}
        parts = gather_objects(own, "pp", "DistributedModel.cpu()")
        values = {name: one for part in parts for name, one in part.items()}
        delayed.take_values(self.module, values)
        for module in self.tree.modules:
            module._compiled_call_impl = None
        self.known_parameters = _identities(self.module)
        self.is_gathered = True
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
        """Calls hook(model, optimizer) once, at the end of the next step: then the modules are
        divided, and the optimizer has not used the step's gradients yet. (Hugging Face's Trainer
        loads the optimizer's state so.)"""
        handle = RemovableHandle(self.step_hooks)
        self.step_hooks[handle.id] = hook
        return handle


def _check_ddp(call: str) -> None:
    if not state.cfg.ddp:
        raise StepUsageError(
            f"{call} is for data parallel copies of the model, and 'ddp' is not true in the "
            "configuration"
        )


def _trace_nothing() -> None:
    raise PartitionError(
        "the first rank has joined without a single batch, so nothing can be traced to divide the "
        "modules: give it one, or say 'skip_tracing': true"
    )


def _checksum(tensor: torch.Tensor) -> int:
    return zlib.crc32(tensor.detach().reshape(-1).view(torch.uint8).numpy())


def _with_all_names(
    values: dict[str, torch.Tensor], named: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Of a tensor that has several names in the model, files may have one only."""
    by_tensor = {id(own): values[name] for name, own in named.items() if name in values}
    return values | {
        name: by_tensor[id(own)] for name, own in named.items() if id(own) in by_tensor
    }


def _identities(module: torch.nn.Module) -> dict[str, int]:
    return {name: id(parameter) for name, parameter in module.named_parameters()}


def _stand_in(tensor: torch.Tensor, known: dict[int, torch.Tensor]) -> torch.Tensor:
    """The same one for the same tensor, whose memory is given back."""
    if id(tensor) not in known:
        known[id(tensor)] = delayed.without_values(tensor)
        if not delayed.lacks_values(tensor):
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
