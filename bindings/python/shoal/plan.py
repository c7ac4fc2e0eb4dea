# SPDX-License-Identifier: Apache-2.0
"""Which device runs which module of a model, and which ranks are a group: shoal_plan_* and
shoal_placement_* of shoal.h, which has the contracts.

docs/plan.md.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass

from ._library import LIBRARY, check, declare

PLAN = c_void_p
METHODS = ("published", "balanced", "manual")
GROUPS = ("world", "mp", "dp", "pp", "tp", "rdp")  # enum shoal_placement_group


@dataclass
class Module:
    """struct shoal_plan_module: what is a module's own, per microbatch."""

    name: str
    parent: int
    shares: int = -1
    device: int = -1
    parameter_bytes: int = 0
    activation_bytes: int = 0
    forward_ns: int = 0
    backward_ns: int = 0
    output_bytes: int = 0


@dataclass
class Load:
    """struct shoal_plan_load: what one device has to do, per microbatch."""

    cost: float
    parameter_bytes: int
    activation_bytes: int
    forward_ns: int
    backward_ns: int
    memory_bytes: int
    output_bytes: int
    visits: int
    module_count: int


@dataclass
class Plan:
    """Device of each module, load of each device, and by which method."""

    devices: list[int]
    loads: list[Load]
    method: str
    largest_cost: float
    optimum_cost: float


class _Module(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("parent", c_int),
        ("shares", c_int),
        ("device", c_int),
        ("parameter_bytes", c_uint64),
        ("activation_bytes", c_uint64),
        ("forward_ns", c_uint64),
        ("backward_ns", c_uint64),
        ("output_bytes", c_uint64),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("module_bytes", c_size_t),
        ("modules", POINTER(_Module)),
        ("module_count", c_int),
        ("device_count", c_int),
        ("memory_weight", c_double),
        ("auto_partition", c_int),
        ("default_device", c_int),
        ("memory_limits", POINTER(c_uint64)),
        ("parameter_copies", c_int),
        ("in_flight", POINTER(c_int)),
    ]


class _Report(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("method", c_int),
        ("devices_used", c_int),
        ("largest_cost", c_double),
        ("mean_cost", c_double),
        ("optimum_cost", c_double),
        ("published_cost", c_double),
        ("crossings", c_int),
        ("crossing_bytes", c_uint64),
    ]


class _Load(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("cost", c_double),
        ("parameter_bytes", c_uint64),
        ("activation_bytes", c_uint64),
        ("forward_ns", c_uint64),
        ("backward_ns", c_uint64),
        ("memory_bytes", c_uint64),
        ("output_bytes", c_uint64),
        ("visits", c_int),
        ("module_count", c_int),
    ]


class _Placement(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("strategy", c_char_p),
        ("size", c_int),
        ("pipeline_degree", c_int),
        ("tensor_degree", c_int),
    ]


FALLIBLE = {
    "create": [POINTER(_Options), POINTER(PLAN)],
    "free": [PLAN],
    "report": [PLAN, POINTER(_Report)],
    "load": [PLAN, c_int, POINTER(_Load)],
}
declare(LIBRARY, "shoal_plan", FALLIBLE)
LIBRARY.shoal_plan_device.argtypes = [PLAN, c_int]
LIBRARY.shoal_plan_device.restype = c_int
_NUMBERS = POINTER(c_int)
_GROUP = [POINTER(_Placement), c_int, c_int, _NUMBERS, c_int, _NUMBERS, _NUMBERS]
declare(LIBRARY, "shoal_placement", {"group": _GROUP})


def _optional(kind: type, values: Sequence[int] | None):
    return None if values is None else (kind * len(values))(*values)


def partition(
    modules: Sequence[Module],
    device_count: int,
    memory_weight: float,
    default_device: int | None = None,
    memory_limits: Sequence[int] | None = None,
    parameter_copies: int = 1,
    in_flight: Sequence[int] | None = None,
) -> Plan:
    """Cuts a model over devices.

    Args:
        modules: A module before those in it, which come in the order in which they run.
        device_count: How many devices there are.
        memory_weight: Cost is so much memory, the rest time.
        default_device: Where modules go that are not placed by hand; None: where they fit best.
        memory_limits: Bytes of each device; None: unlimited.
        parameter_copies: How often parameters are counted.
        in_flight: Microbatches whose activations are kept at a time, on each device; None: one.

    Raises:
        Error: the input is wrong, or memory too small; the text names the module.
    """
    array = (_Module * len(modules))(
        *(
            _Module(
                one.name.encode(),
                one.parent,
                one.shares,
                one.device,
                one.parameter_bytes,
                one.activation_bytes,
                one.forward_ns,
                one.backward_ns,
                one.output_bytes,
            )
            for one in modules
        )
    )
    options = _Options(
        ctypes.sizeof(_Options),
        ctypes.sizeof(_Module),
        array,
        len(modules),
        device_count,
        memory_weight,
        default_device is None,
        default_device or 0,
        _optional(c_uint64, memory_limits),
        parameter_copies,
        _optional(c_int, in_flight),
    )
    handle = PLAN()
    check(LIBRARY.shoal_plan_create(byref(options), byref(handle)))
    try:
        return _read(handle, len(modules), device_count)
    finally:
        check(LIBRARY.shoal_plan_free(handle))


def _read(handle: PLAN, module_count: int, device_count: int) -> Plan:
    report = _Report(ctypes.sizeof(_Report))
    check(LIBRARY.shoal_plan_report(handle, byref(report)))
    loads = []
    for device in range(device_count):
        load = _Load(ctypes.sizeof(_Load))
        check(LIBRARY.shoal_plan_load(handle, device, byref(load)))
        loads.append(Load(*(getattr(load, name) for name, _ in _Load._fields_[1:])))
    devices = [LIBRARY.shoal_plan_device(handle, module) for module in range(module_count)]
    method = METHODS[report.method]
    return Plan(devices, loads, method, report.largest_cost, report.optimum_cost)


def group(
    strategy: str, size: int, pipeline_degree: int, tensor_degree: int, kind: str, rank: int
) -> list[int]:
    """The ranks of a rank's group, in the order of their numbers there.

    Args:
        strategy: "cluster", "spread" or a permutation of D, P and T.
        size: How many ranks there are.
        kind: One of GROUPS.

    Raises:
        Error: the degrees don't divide the ranks, or there is no such strategy.
    """
    placement = _Placement(
        ctypes.sizeof(_Placement), strategy.encode(), size, pipeline_degree, tensor_degree
    )
    ranks, count = (c_int * size)(), c_int()
    check(
        LIBRARY.shoal_placement_group(
            byref(placement), GROUPS.index(kind), rank, ranks, size, byref(count), None
        )
    )
    return list(ranks[: count.value])
