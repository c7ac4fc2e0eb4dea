# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel over fusion buffers: docs/ddp.md."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.utils import _cast_forward_inputs
from torch.func import functional_call
from torch.nn.parallel import DistributedDataParallel as Base
from torch.nn.parallel.distributed import _MixedPrecision

from . import arena
from .native import binding
from .reducer import Logger, Reducer, Wishes

log = logging.getLogger("shoal.torch")

BUFFER_BYTES_MIN, BUFFER_BYTES_MAX = 4096, 1 << 30  # as of the option SHOAL_FUSE_BYTES


class DistributedDataParallel(Base):
    """torch's class, with gradients in balanced fusion buffers while the backward pass runs.

    Arguments, methods, attributes and checkpoints are those of
    torch.nn.parallel.DistributedDataParallel, of which this is a subclass. Where fusion buffers
    can't be used (parameters on a GPU, a group of another backend, a communication hook), torch's
    own reducer sums, and `fused` is False.

    Args:
        module: The model; its parameters must not be added to or taken from afterwards.
        bucket_cap_mb: MiB of a fusion buffer, at least 4 KiB and at most 1 GiB; None: by the option
            SHOAL_FUSE_BYTES.
        gradient_as_bucket_view: Gradients are views of the fusion buffers, so that results are not
            copied; False: they stay where autograd makes them.
        find_unused_parameters: Passes may leave parameters out.
        static_graph: All passes use the same parameters equally often.
        mixed_precision: The types that forward casts parameters and inputs to, that gradients are
            summed in, and of buffers; parameters and gradients keep theirs.
        others: As in torch.
        compression: "bf16", "fp16" or "int8" (with a scale for each 256 elements): float32
            gradients are rounded to that on their way (docs/compression.md); None: they travel as
            they are.
        error_feedback: With compression, what rounding loses on a rank is added there in the next
            step.

    Raises:
        ValueError: Compression is not known, or can't be: the gradients are not float32, or are not
            summed in fusion buffers.
    """

    precision: _MixedPrecision | None = None  # that is carried out here and not by torch's class
    compression: str | None = None
    error_feedback: bool = True

    def __init__(
        self,
        *arguments: Any,
        compression: str | None = None,
        error_feedback: bool = True,
        **options: Any,
    ):
        if compression is not None and compression not in binding.compressions:
            raise ValueError(
                f"shoal: compression={compression!r} is none of {', '.join(binding.compressions)}"
            )
        self.compression, self.error_feedback = compression, error_feedback
        super().__init__(*arguments, **options)

    def _ddp_init_helper(
        self,
        parameters: list[torch.nn.Parameter],
        expect_sparse_gradient: list[bool],
        param_to_name_mapping: dict[int, str],
        static_graph: bool,
    ) -> None:
        """torch's class calls it to get its reducer."""
        why_not = self._why_not_fused()
        if why_not:
            self._refuse_compression(why_not)
            log.info("gradients are summed by torch's reducer: %s", why_not)
            super()._ddp_init_helper(
                parameters, expect_sparse_gradient, param_to_name_mapping, static_graph
            )
            return
        names = [param_to_name_mapping[i].lstrip(".") for i in range(len(parameters))]
        sparse = [name for i, name in enumerate(names) if expect_sparse_gradient[i]]
        if sparse:
            raise ValueError(
                f"shoal: the gradient of {', '.join(sparse)} is sparse; fusion buffers take dense "
                "ones: make the embedding with sparse=False, or use torch's "
                "DistributedDataParallel"
            )
        sum_type = self._take_precision()
        self._check_compression(parameters, names, sum_type)
        one_type = all(sum_type in (None, each.dtype) for each in parameters)
        wishes = Wishes(
            name=f"gradients of {type(self.module).__name__}",
            finds_unused=self.find_unused_parameters and not static_graph,
            keeps_at_home=self.gradient_as_bucket_view and one_type,
            buffer_bytes=self._buffer_bytes(),
            sum_type=sum_type,
            compression=self.compression,
            error_feedback=self.error_feedback,
        )
        self.reducer = Reducer(parameters, names, self.process_group, wishes)
        self.logger = Logger(self._facts(parameters))
        self._passing_sync_batchnorm_handle(self.module)

    def _buffer_bytes(self) -> int:
        """Of a fusion buffer; 0: the option's. torch takes any number, and the nearest counts."""
        if self.bucket_bytes_cap_default:
            return 0
        return min(max(self.bucket_bytes_cap, BUFFER_BYTES_MIN), BUFFER_BYTES_MAX)

    def _why_not_fused(self) -> str | None:
        """Why torch's own reducer sums; None: it does not."""
        if self.device_type != "cpu":
            return f"the parameters are on {self.device_type}"
        group = self.process_group
        if arena.CPU not in group._device_types or not binding.is_shoal(
            group._get_backend(arena.CPU)
        ):
            return "the process group's backend for CPU tensors is not shoal"
        if self._use_python_reducer:
            return "torch.compile was told to sum them"
        return None

    def _refuse_compression(self, why: str) -> None:
        if self.compression is not None:
            raise ValueError(
                f"shoal: compression={self.compression!r} is of fusion buffers, and gradients are "
                f"summed by torch's reducer: {why}"
            )

    def _check_compression(
        self, parameters: list[torch.nn.Parameter], names: list[str], sum_type: torch.dtype | None
    ) -> None:
        for parameter, name in zip(parameters, names, strict=True):
            dtype = sum_type or parameter.dtype
            if self.compression is not None and dtype != torch.float32:
                raise ValueError(
                    f"shoal: compression={self.compression!r} takes gradients of float32, and "
                    f"those of {name} are summed in {str(dtype).removeprefix('torch.')}"
                )

    def _take_precision(self) -> torch.dtype | None:
        """Carries out the argument mixed_precision here: torch's way needs a GPU's streams. Returns
        the type that gradients are summed in; None: their own."""
        if self.mixed_precision is not None:
            self.precision, self.mixed_precision = self.mixed_precision, None
        if self.precision is None:
            return None
        for buffer in self.modules_buffers:
            if self.precision.buffer_dtype and buffer.is_floating_point():
                buffer.data = buffer.to(self.precision.buffer_dtype)
        return self.precision.reduce_dtype or self.precision.param_dtype

    def _run_ddp_forward(self, *inputs: Any, **named: Any) -> Any:
        """torch's class calls it for the forward pass of the module."""
        if self.precision is None or self.precision.param_dtype is None:
            return super()._run_ddp_forward(*inputs, **named)
        dtype = self.precision.param_dtype
        cast = {
            name: parameter.to(dtype)
            for name, parameter in self.module.named_parameters()
            if parameter.is_floating_point() and name not in self.parameters_to_ignore
        }
        inputs, named = _cast_forward_inputs(dtype, *inputs, **named)
        with self._inside_ddp_forward():
            return functional_call(self.module, cast, inputs, named)

    def _facts(self, parameters: list[torch.nn.Parameter]) -> dict[str, int | str]:
        bytes_of = [each.numel() * each.element_size() for each in parameters]
        return {
            "module_name": type(self.module).__name__,
            "backend_name": "shoal",
            "dtypes": ", ".join(sorted({str(each.dtype) for each in parameters})),
            "rank": dist.get_rank(self.process_group),
            "world_size": self.process_group.size(),
            "num_parameter_tensors": len(parameters),
            "total_parameter_size_bytes": sum(bytes_of),
            "broadcast_buffers": int(self.forward_sync_buffers),
            "find_unused_parameters": int(self.find_unused_parameters),
            "gradient_as_bucket_view": int(self.gradient_as_bucket_view),
            "iteration": 0,
        }

    def _post_forward(self, output: Any) -> Any:
        """torch's class calls it after the forward pass, and tells the reducer of the end of the
        first backward pass of a static graph: of the first that is summed, here."""
        if self.static_graph and self.fused and self.reducer.is_learning:
            self._static_graph_delay_allreduce_enqueued = False
        return super()._post_forward(output)

    @property
    def fused(self) -> bool:
        """Whether fusion buffers are used; False: torch's own reducer sums."""
        return isinstance(getattr(self, "reducer", None), Reducer)

    def fuse_counters(self) -> list[dict[str, int]]:
        """What this rank's fusion buffers have done, by the names of struct shoal_fuse_counters in
        shoal.h: one for each type of gradient; none before the first forward pass or if not
        `fused`."""
        return [fuse.counters() for fuse in self.reducer.fuses] if self.fused else []

    def fuse_traffic(self) -> list[dict[str, int]]:
        """The same for the bytes of the fusion buffers by the way they went, as
        shoal.torch.counters() has them for other operations."""
        return [fuse.traffic() for fuse in self.reducer.fuses] if self.fused else []

    def _get_ddp_logging_data(self) -> dict[str, int | str]:
        """torch's, with the mean times of a step in ns by its names: on the wire, and there while
        nobody waited."""
        data = super()._get_ddp_logging_data()
        counted = self.fuse_counters()
        steps = counted[0]["steps"] if counted else 0
        if steps:
            flight_ns = sum(each["flight_ns"] for each in counted) // steps
            exposed_ns = sum(each["exposed_ns"] for each in counted) // steps
            data["avg_backward_comm_time"] = flight_ns
            data["avg_backward_compute_comm_overlap_time"] = flight_ns - exposed_ns
        return data

    def register_comm_hook(self, state: object, hook: Callable) -> None:
        """torch's. A hook sums buckets by itself, so torch's reducer makes them from here on."""
        self._check_comm_hook(hook)
        self._leave_fusion_buffers("a communication hook is registered")
        super().register_comm_hook(state, hook)

    def _register_builtin_comm_hook(self, comm_hook_type: dist.BuiltinCommHookType) -> None:
        self._leave_fusion_buffers("a communication hook is registered")
        super()._register_builtin_comm_hook(comm_hook_type)

    def _leave_fusion_buffers(self, why: str) -> None:
        if not self.fused:
            return
        self._refuse_compression(why)
        log.info("gradients are summed by torch's reducer: %s", why)
        self.reducer.finish_deferred()
        self.reducer._remove_autograd_hooks()
        parameters, sparse = self._build_params_for_reducer()
        names = self._build_debug_param_to_name_mapping(parameters)
        super()._ddp_init_helper(parameters, sparse, names, self.static_graph)
        if self.static_graph:
            self.reducer._set_static_graph()
            self.logger._set_static_graph()

    def _match_all_reduce_for_bwd_pass(self) -> None:
        """torch's class calls it on a rank that has joined, beside the others' backward pass."""
        if self.fused:
            self.reducer.shadow_step()
        else:
            super()._match_all_reduce_for_bwd_pass()

    def _match_unused_params_allreduce(self) -> None:
        """Which parameters are used is part of the fusion buffers."""
        if not self.fused:
            super()._match_unused_params_allreduce()
