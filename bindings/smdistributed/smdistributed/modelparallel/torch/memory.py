# SPDX-License-Identifier: Apache-2.0
"""How much memory each stage of a pipeline needs at most, foreseen from the trace of one
microbatch: parameters, gradients, the optimizer's state, and what is kept from forward to backward
passes of as many microbatches as the schedule keeps at a time (docs/modelparallel.md)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import torch
from shoal import pipeline

from .partitioning import Tree, own_tensors
from .tracing import OUTSIDE, CallSeen, Save, Trace

if TYPE_CHECKING:
    from .config import Config

LEADER = 0
PROBE_ELEMENTS = 1024
MASTER_BYTES = 4
WORKING_TENSORS = 5  # a gradient that came, one that goes, its copy, and two within a module
BACKWARD_RATIOS = 1, 2, 3  # times a forward pass
NO_CALL = -1
TASKS_MAX = 1 << 17  # of a step, that are simulated one by one


@dataclass(frozen=True)
class Memory:
    """Of one stage, in bytes.

    parameters: With buffers, and in 16 bits also their masters in fp32.
    gradients: Of all of them; data parallel ranks have them twice, the second time in the buffers
        in which they are summed.
    optimizer: Its state.
    microbatch: What is kept of one microbatch.
    kept: What is kept at a time, of all microbatches under way, at most.
    microbatches: Of so many something is kept at a time, at most.
    working: What a module needs while it computes: some tensors like its largest result; and a
        second gradient of a parameter before it is added.
    peak: All of it at the worst moment of a step.
    """

    parameters: int
    gradients: int
    optimizer: int
    microbatch: int
    kept: int
    microbatches: int
    working: int
    peak: int

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


# ---- the optimizer


def state_share(optimizer: torch.optim.Optimizer | None) -> float:
    """Bytes of an optimizer's state for each byte of parameters: seen from a step of one of its
    kind on a small parameter. 0 if there is none yet, or it can't be made so."""
    if optimizer is None:
        return 0.0
    known = inspect.signature(type(optimizer).__init__).parameters
    options = {name: one for name, one in optimizer.defaults.items() if name in known}
    parameter = torch.nn.Parameter(torch.zeros(PROBE_ELEMENTS))
    try:
        probe = type(optimizer)([parameter], **options)
        parameter.grad = torch.zeros_like(parameter)
        probe.step()
    except Exception:  # an optimizer of the user's that is made otherwise
        return 0.0
    values = probe.state[parameter].values()
    large = [one.nbytes for one in values if isinstance(one, torch.Tensor) and one.dim() > 0]
    return sum(large) / parameter.nbytes


# ---- activations


class Kept:
    """What each stage keeps of a microbatch, and in which of its tasks.

    Stages that keep the same tensor have one each. A call from another stage is a task of its own,
    which keeps its arguments, as they came, and its results. What goes to another stage is copied
    once more by the stage that made it, which keeps the copy as long as the other one looks at it.

    chunks: In the order in which a microbatch goes through them: a task, or what comes of one after
        a call of another stage. Work is in proportion to bytes, which are the same in every run.
    """

    def __init__(self, trace: Trace, owners: Sequence[int], stage_count: int):
        self.trace, self.owners = trace, owners
        self.held: list[set[int]] = [set() for _ in range(stage_count)]
        self.chunks: list[pipeline.Chunk] = []
        self.chunk_of: dict[tuple[int, int], pipeline.Chunk] = {}  # by stage and call
        self.present: tuple[int, int] | None = None
        for save in trace.saves:
            self._add(save)
        for stage in range(stage_count):
            if not self._first(stage):
                self._begin(stage, NO_CALL)
        self.made_by: dict[int, int] = {}  # of what a call returned: its number
        for number, call in enumerate(trace.calls):
            self._add_call(number, call)
        for chunk in self.chunks:
            chunk.forward_ns += chunk.activation_bytes

    def microbatch(self, stage: int) -> int:
        return sum(chunk.activation_bytes for chunk in self.chunks if chunk.stage == stage)

    def _first(self, stage: int) -> pipeline.Chunk | None:
        return next((chunk for chunk in self.chunks if chunk.stage == stage), None)

    def _stage_of(self, module: int) -> int:
        """What is outside of the model is the leader's."""
        return LEADER if module == OUTSIDE else self.owners[module]

    def _is_remote(self, number: int) -> bool:
        call = self.trace.calls[number]
        return self._stage_of(call.module) != self._stage_of(call.caller)

    def _begin(self, stage: int, call: int) -> pipeline.Chunk:
        """A chunk of this call, the present one if it can be."""
        if self.present != (stage, call):
            self.present = stage, call
            self.chunks.append(pipeline.Chunk(stage, 1, 1))
            self.chunk_of.setdefault(self.present, self.chunks[-1])
        return self.chunks[-1]

    def _add(self, save: Save) -> None:
        stage = self._stage_of(save.module)
        task = next((call for call in reversed(save.calls) if self._is_remote(call)), NO_CALL)
        chunk = self._begin(stage, task)
        if save.storage not in self.held[stage]:
            self.held[stage].add(save.storage)
            chunk.activation_bytes += save.bytes

    def _add_call(self, number: int, call: CallSeen) -> None:
        if not self._is_remote(number):
            return
        stage = self.owners[call.module]
        chunk = self._chunk_of(stage, number)
        for storage, size in call.inputs:
            if storage not in self.held[stage]:
                self.held[stage].add(storage)
                chunk.activation_bytes += size
            maker = self._maker_of(call, storage)
            if maker.stage != stage:
                maker.activation_bytes += size
        for storage, size in call.outputs:
            self.made_by[storage] = number
            if storage not in call.saved:
                chunk.activation_bytes += size

    def _chunk_of(self, stage: int, call: int) -> pipeline.Chunk:
        return self.chunk_of.get((stage, call)) or self._first(stage)

    def _maker_of(self, call: CallSeen, storage: int) -> pipeline.Chunk:
        """Of an argument."""
        made = self.made_by.get(storage, NO_CALL)
        module = call.caller if made == NO_CALL else self.trace.calls[made].module
        return self._chunk_of(self._stage_of(module), made)

    def peaks(self, config: Config) -> list[tuple[int, int]]:
        """Bytes that each stage keeps in a step, and after the first microbatch has gone back
        there. How many microbatches meet on a stage depends on how long backward passes take, of
        which nothing is known: the most of some ratios. A large number of tasks is put together,
        stage by stage."""
        kind = "simple" if config.pipeline == "simple" else "interleaved"
        active = 0 if kind == "simple" else config.active_microbatches
        stages, count = config.pipeline_parallel_degree, config.microbatches
        peaks = [(0, 0)] * stages
        chunks = self.chunks if len(self.chunks) * count <= TASKS_MAX else _visits(self.chunks)
        for ratio in BACKWARD_RATIOS:
            for chunk in chunks:
                chunk.backward_ns = ratio * chunk.forward_ns
            found = pipeline.simulate(kind, stages, chunks, count, active)
            peaks = [
                (max(kept, one.peak_bytes), max(later, one.later_peak_bytes))
                for (kept, later), one in zip(peaks, found, strict=True)
            ]
        return peaks


def _visits(chunks: Sequence[pipeline.Chunk]) -> list[pipeline.Chunk]:
    made: list[pipeline.Chunk] = []
    for chunk in chunks:
        if made and made[-1].stage == chunk.stage:
            made[-1].forward_ns += chunk.forward_ns
            made[-1].activation_bytes += chunk.activation_bytes
        else:
            made.append(replace(chunk))
    return made


# ---- all of it


@dataclass(frozen=True)
class Forecast:
    """Of a model that is divided.

    owners: Of each module of the tree.
    share: Bytes of the optimizer's state for each byte that it updates.
    copies: Data parallel ranks.
    """

    tree: Tree
    trace: Trace
    owners: Sequence[int]
    config: Config
    share: float
    copies: int

    def stages(self) -> list[Memory]:
        config = self.config
        kept = Kept(self.trace, self.owners, config.pipeline_parallel_degree)
        made = []
        for stage, (peak, later) in enumerate(kept.peaks(config)):
            made.append(self._stage(stage, kept.microbatch(stage), peak, later))
        return made

    def _stage(self, stage: int, microbatch: int, kept: int, later: int) -> Memory:
        """later: What is kept at most when there are gradients, of which there are none at the
        begin of a step: they come when the first microbatch goes back."""
        modules = [number for number, owner in enumerate(self.owners) if owner == stage]
        tensors = {id(t): t for number in modules for t in own_tensors(self.tree.modules[number])}
        trained = [one for one in tensors.values() if one.requires_grad]
        parameters = sum(one.nbytes for one in tensors.values())
        updated = sum(one.nbytes for one in trained)
        gradients = updated * (2 if self.copies > 1 else 1)
        if self.config.precision != "fp32":
            updated = sum(MASTER_BYTES * one.numel() for one in trained)
            parameters += updated
        outputs = (self.trace.modules[number].output_bytes for number in modules)
        working = WORKING_TENSORS * max(outputs, default=0)
        if self.config.microbatches > 1:
            working += max((one.nbytes for one in trained), default=0)
        optimizer = round(self.share * updated)
        peak = parameters + optimizer + working + max(kept, gradients + later)
        count = math.ceil(kept / microbatch) if microbatch else 0
        return Memory(parameters, gradients, optimizer, microbatch, kept, count, working, peak)


def kept_microbatches(memories: Sequence[Memory], stage: int, config: Config) -> int:
    """Of so many something may be kept on a stage at a time: those that were foreseen. 0: of any
    number, as on the leader, which starts no more than active_microbatches."""
    if stage == LEADER or not memories or config.pipeline == "simple":
        return 0
    return memories[stage].microbatches
