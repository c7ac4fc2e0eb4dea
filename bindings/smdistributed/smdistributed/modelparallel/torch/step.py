# SPDX-License-Identifier: Apache-2.0
"""smp.step: a function of a batch becomes one that is carried out by microbatches, by all ranks of
a pipeline together.

The first rank of the pipeline runs the function, once for each microbatch; what others own is
called there. When all microbatches are done it tells the others, with the results, so that every
rank returns the same.
"""

from __future__ import annotations

import functools
import logging
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from shoal import Error
from shoal.pipe import Kind, Task
from torch.utils._pytree import tree_leaves

from . import microbatch, shortage
from .calls import Mode
from .exceptions import OutOfMemoryError, SplitError, StepError, StepUsageError
from .model import DistributedModel
from .promise import Promise
from .stage import Stage
from .state_mod import state
from .structure import fill_in, packed, take_out, unpacked

LEADER = 0

log = logging.getLogger("smdistributed.modelparallel")


def step(
    function: Callable | None = None,
    *,
    non_split_inputs: Iterable[str] | None = None,
    input_split_axes: Mapping[str, int] | None = None,
    detach_outputs: bool = True,
) -> Callable:
    """Decorates a function that does a forward, and maybe a backward pass.

        @smp.step
        def train_step(model, data, target):
            loss = F.cross_entropy(model(data), target)
            model.backward(loss)
            return loss

    Args:
        non_split_inputs: Names of arguments whose tensors are not cut into microbatches.
        input_split_axes: Axis along which an argument's tensors are cut; 0 for all others.
        detach_outputs: Results have no graph.

    Returns:
        What the function returns, with a StepOutput in place of each result; on every rank.
    """
    if function is None:
        return functools.partial(
            step,
            non_split_inputs=non_split_inputs,
            input_split_axes=input_split_axes,
            detach_outputs=detach_outputs,
        )
    splitter = microbatch.Splitter(function, non_split_inputs or (), input_split_axes or {})

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return _run(function, splitter, detach_outputs, args, kwargs)

    return run


def _run(
    function: Callable,
    splitter: microbatch.Splitter,
    detach: bool,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    count = state.cfg.microbatches
    if state.is_in_step:
        raise StepUsageError(f"{function.__name__}() is called within another step")
    model = state.model
    if model is not None:
        model.before_step()
        if model.compares_data and not model.joining:
            _warn_of_same_data((args, kwargs))
            model.compares_data = False
    state.is_in_step = True
    try:
        if state.topology.size_of("pp") == 1 or model is None:
            parts = splitter.split(args, kwargs, count)
            results = [function(*part.args, **part.kwargs) for part in parts]
        else:
            results = _run_pipeline(model, function, lambda: splitter.split(args, kwargs, count))
    finally:
        state.is_in_step = False
    if model is not None:
        model.after_step()
    return microbatch.gather(results, detach)


def _warn_of_same_data(given: Any) -> None:
    """Copies of the model that are given the same batch learn what one would."""
    topology = state.topology
    if topology.size_of("dp") == 1 or topology.rank_in("pp") != LEADER:
        return
    mine = [
        zlib.crc32(tensor.detach().cpu().contiguous().view(torch.uint8).numpy())
        for tensor in tree_leaves(given)
        if isinstance(tensor, torch.Tensor) and tensor.dim()
    ]
    everybody: list[Any] = [None] * topology.size_of("dp")
    dist.all_gather_object(everybody, mine, group=topology.process_groups["dp"])
    if mine and topology.rank_in("dp") == 0 and everybody.count(mine) > 1:
        log.warning(
            "the first batch is the same on %d of %d data parallel ranks: give each its own part "
            "of the data, by smp.dp_rank() and smp.dp_size()",
            everybody.count(mine),
            len(everybody),
        )


def _run_pipeline(model: DistributedModel, function: Callable, split: Callable) -> list[Any]:
    if not model.partitioned:
        model.partition(lambda: _run_one(function, split()[0]))
    return _Step(model.stage, function).run(split)


def _run_one(function: Callable, part: Any) -> Any:
    return function(*part.args, **part.kwargs)


class _Step:
    """One step of a pipeline, on one rank."""

    def __init__(self, stage: Stage, function: Callable):
        self.stage, self.function = stage, function
        self.mode = Mode.current()
        self.parts: list[Any] = []
        self.results: list[Any] = []
        self.left: int | None = None
        self.failure: str | None = None

    def run(self, split: Callable) -> list[Any]:
        stage = self.stage
        stage.carry_out_other = self._carry_out
        try:
            stage.pipe.step_begin()
            if stage.pipe.rank == LEADER:
                self._start(split)
            stage.executor.run(lambda: self.left == 0)
            if stage.pipe.rank == LEADER and not self.failure:
                self._tell("end", self.results)
            stage.forget_step()
            stage.pipe.step_end()
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            stage.carry_out_other = None  # else arguments and results live on with the stage
        if self.failure:
            raise SplitError(self.failure)
        return self.results

    def _fail(self, error: BaseException) -> None:
        """Ends the step on all ranks; raises what it was, here as there."""
        if isinstance(error, Error):
            if shortage.is_one(error):
                raise OutOfMemoryError(f"{error}. {shortage.REMEDIES}") from error
            raise StepError(str(error)) from error
        what = f"{type(error).__name__}: {error}"
        where = self.stage.failed_where
        is_told = not where or isinstance(error, OutOfMemoryError)
        self.stage.pipe.abort(what if is_told else f"{where}: {what}")

    def _start(self, split: Callable) -> None:
        try:
            self.parts = split()
        except Exception as error:
            self._tell("fail", str(error))
            self.failure, self.left = str(error), 0
            return
        self.left = len(self.parts)
        self.results = [None] * self.left
        is_simple = state.cfg.pipeline == "simple"
        if is_simple or state.cfg.deterministic_server:
            self.stage.begin_turns(self.left, is_simple)
        for number in range(self.left):
            self.stage.pipe.submit(Task(Kind.START, LEADER, number))

    def _tell(self, what: str, results: Any) -> None:
        """All others, that the step is over."""
        pipe = self.stage.pipe
        structure, tensors = take_out(results)
        metas = [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
        for rank in range(pipe.size):
            if rank != LEADER:
                blob = packed((what, structure, metas), "results of the step's function")
                self.stage.send(Task(Kind.CONTROL, rank, blob=blob, needs=[]), tensors)

    def _carry_out(self, task: Task) -> None:
        if task.kind == Kind.START:
            self._run_microbatch(task.microbatch)
        else:
            self._take_results(task)

    def _run_microbatch(self, number: int) -> None:
        with self.mode.entered():
            result = _run_one(self.function, self.parts[number])
        self.stage.take_turn()
        self.stage.pass_turn()
        structure, tensors = take_out(result)
        self.stage.end_calls(tensors)
        self.results[number] = _kept(structure, tensors)
        self.stage.pipe.microbatch_end()
        self.left -= 1

    def _take_results(self, task: Task) -> None:
        what, structure, metas = unpacked(task.blob)
        tensors = [
            self.stage.take(value, shape, dtype)
            for value, (shape, dtype) in zip(task.needs, metas, strict=True)
        ]
        if what == "fail":
            self.failure = structure
        self.results = fill_in(structure, tensors)
        self.left = 0


def _kept(structure: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Without promises, and without memory of the pipe's."""
    tensors = [one.tensor_now() if isinstance(one, Promise) else one for one in tensors]
    return fill_in(structure, [tensor.clone() for tensor in tensors])
