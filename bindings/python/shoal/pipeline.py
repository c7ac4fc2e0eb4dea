# SPDX-License-Identifier: Apache-2.0
"""How much the stages of a pipeline keep at a time: shoal_pipeline_* of shoal.h, which has the
contracts.

docs/pipeline.md.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass

from ._library import LIBRARY, check, declare

PIPELINE = c_void_p
KINDS = (
    "simple",
    "interleaved",
    "1f1b",
    "interleaved-1f1b",
    "zero-bubble",
    "zero-bubble-v",
)  # enum shoal_pipeline_kind


@dataclass
class Chunk:
    """A part of the model, for one microbatch."""

    stage: int
    forward_ns: int
    backward_ns: int
    activation_bytes: int = 0


@dataclass
class Stage:
    """struct shoal_pipeline_stage, and later_peak_bytes: the most that is kept after one microbatch
    has gone back through all of the stage's chunks."""

    start_ns: int
    end_ns: int
    busy_ns: int
    peak_activations: int
    peak_bytes: int
    later_peak_bytes: int


class _Costs(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("forward_ns", POINTER(c_int64)),
        ("backward_input_ns", POINTER(c_int64)),
        ("backward_weight_ns", POINTER(c_int64)),
        ("activation_bytes", POINTER(c_uint64)),
        ("weight_input_bytes", POINTER(c_uint64)),
        ("output_bytes", POINTER(c_uint64)),
        ("bytes_per_ns", c_double),
        ("latency_ns", c_int64),
        ("transfers_block", c_int),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("kind", c_int),
        ("stage_count", c_int),
        ("microbatch_count", c_int),
        ("chunk_count", c_int),
        ("chunk_stages", POINTER(c_int)),
        ("active_microbatches", c_int),
        ("costs", POINTER(_Costs)),
    ]


class _Result(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("step_ns", c_int64),
        ("period_ns", c_int64),
        ("bubble", c_double),
        ("peak_activations", c_int),
        ("peak_bytes", c_uint64),
    ]


class _Stage(ctypes.Structure):
    _fields_ = [
        ("start_ns", c_int64),
        ("end_ns", c_int64),
        ("busy_ns", c_int64),
        ("peak_activations", c_int),
        ("peak_bytes", c_uint64),
    ]


class _Operation(ctypes.Structure):
    _fields_ = [("work", c_int), ("microbatch", c_int), ("chunk", c_int)]


FORWARD = 0  # SHOAL_WORK_FORWARD; the others here are whole backward passes
FALLIBLE = {
    "create": [POINTER(_Options), POINTER(PIPELINE)],
    "free": [PIPELINE],
    "simulate": [PIPELINE, POINTER(_Costs), POINTER(_Result), POINTER(_Stage), c_void_p],
}
declare(LIBRARY, "shoal_pipeline", FALLIBLE)
LIBRARY.shoal_pipeline_operation_count.argtypes = [PIPELINE, c_int]
LIBRARY.shoal_pipeline_operations.argtypes = [PIPELINE, c_int]
LIBRARY.shoal_pipeline_operations.restype = POINTER(_Operation)


def simulate(
    kind: str, stage_count: int, chunks: Sequence[Chunk], microbatches: int, active: int = 0
) -> list[Stage]:
    """What each stage does in a step, in virtual time.

    Args:
        kind: "simple" or "interleaved".
        chunks: In the order in which a microbatch goes through them; each stage has one or more.
        microbatches: In a step.
        active: Microbatches under way at most; 0: the schedule's own limit.

    Raises:
        Error: the input is wrong.
    """
    count = len(chunks)
    times, sizes = c_int64 * count, c_uint64 * count
    costs = _Costs(
        ctypes.sizeof(_Costs),
        times(*(chunk.forward_ns for chunk in chunks)),
        times(*(chunk.backward_ns for chunk in chunks)),
        times(),
        sizes(*(chunk.activation_bytes for chunk in chunks)),
    )
    options = _Options(
        ctypes.sizeof(_Options),
        KINDS.index(kind),
        stage_count,
        microbatches,
        count,
        (c_int * count)(*(chunk.stage for chunk in chunks)),
        active,
        ctypes.pointer(costs),
    )
    handle, result = PIPELINE(), _Result(ctypes.sizeof(_Result))
    stages = (_Stage * stage_count)()
    check(LIBRARY.shoal_pipeline_create(byref(options), byref(handle)))
    try:
        check(LIBRARY.shoal_pipeline_simulate(handle, byref(costs), byref(result), stages, None))
        later = [_later_peak_bytes(handle, number, chunks) for number in range(stage_count)]
    finally:
        check(LIBRARY.shoal_pipeline_free(handle))
    return [
        Stage(*(getattr(one, name) for name, _ in _Stage._fields_), peak_bytes)
        for one, peak_bytes in zip(stages, later, strict=True)
    ]


def _later_peak_bytes(pipeline: c_void_p, stage: int, chunks: Sequence[Chunk]) -> int:
    operations = LIBRARY.shoal_pipeline_operations(pipeline, stage)
    kept = most = 0
    left = sum(chunk.stage == stage for chunk in chunks)
    first = None
    for i in range(LIBRARY.shoal_pipeline_operation_count(pipeline, stage)):
        one = operations[i]
        goes_back = one.work != FORWARD
        kept += chunks[one.chunk].activation_bytes * (-1 if goes_back else 1)
        if goes_back and first is None:
            first = one.microbatch
        left -= goes_back and one.microbatch == first
        if left == 0:
            most = max(most, kept)
    return most
