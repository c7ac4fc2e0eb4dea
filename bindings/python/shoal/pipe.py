# SPDX-License-Identifier: Apache-2.0
"""Values and tasks between the ranks of a group: shoal_pipe_* of shoal.h, which has the contracts.

This module knows no framework: data are addresses and bytes. docs/pipe.md.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_ubyte, c_uint64, c_void_p
from dataclasses import dataclass
from typing import NamedTuple

from ._library import GROUP, LIBRARY, Status, check, declare

PIPE = c_void_p
NEEDS_MAX = 1024  # SHOAL_PIPE_NEEDS_MAX
# Between two looks at signals, which Python handles only between two calls.
LOOK_MS = 100


class Kind(enum.IntEnum):
    """enum shoal_pipe_kind."""

    CONTROL = 0
    RESUME = 1
    BACKWARD = 2
    FORWARD = 3
    START = 4


class Order(enum.IntEnum):
    """enum shoal_pipe_order."""

    INTERLEAVED = 0
    SIMPLE = 1


class Task(NamedTuple):
    """struct shoal_pipe_task. rank: who is to run it, or who has submitted it."""

    kind: Kind
    rank: int
    microbatch: int = 0
    module: int = -1
    blob: bytes = b""
    needs: Sequence[int] = ()
    keeps: bool = False


@dataclass
class Value:
    """A value that is here: its descriptor, and address and bytes of each buffer."""

    descriptor: bytes
    buffers: list[tuple[int, int]]


class _Options(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("name", c_char_p),
        ("order", c_int),
        ("active_microbatches", c_int),
        ("module_count", c_int),
        ("module_names", POINTER(c_char_p)),
        ("runs", POINTER(c_ubyte)),
        ("kept_microbatches", c_int),
    ]


class _Buffer(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_uint64)]


class _Value(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("descriptor", c_void_p),
        ("descriptor_bytes", c_size_t),
        ("buffers", POINTER(_Buffer)),
        ("buffer_count", c_int),
    ]


class _Task(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("rank", c_int),
        ("kind", c_int),
        ("module", c_int),
        ("microbatch", c_int),
        ("blob", c_void_p),
        ("blob_bytes", c_size_t),
        ("needs", POINTER(c_uint64)),
        ("need_count", c_int),
        ("keeps", c_int),
    ]


class _Counters(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("steps", c_uint64),
        ("tasks", c_uint64 * len(Kind)),
        ("values", c_uint64),
        ("messages", c_uint64),
        ("shared_bytes", c_uint64),
        ("message_bytes", c_uint64),
        ("waited_ns", c_uint64),
        ("tasks_deepest", c_uint64),
        ("values_most", c_uint64),
        ("kept_bytes", c_uint64),
        ("kept_most", c_uint64),
    ]


class _Run(ctypes.Structure):
    _fields_ = [
        ("begin_ns", c_int64),
        ("end_ns", c_int64),
        ("kind", c_int),
        ("module", c_int),
        ("microbatch", c_int),
    ]


FALLIBLE = {
    "create": [GROUP, POINTER(_Options), POINTER(PIPE)],
    "free": [PIPE],
    "abort": [PIPE, c_char_p],
    "health": [PIPE],
    "promise": [PIPE, c_int, POINTER(c_uint64)],
    "put": [PIPE, c_uint64, c_char_p, c_size_t, POINTER(_Buffer), c_int],
    "value": [PIPE, c_uint64, POINTER(_Value)],
    "release": [PIPE, c_uint64],
    "drop": [PIPE, c_uint64],
    "submit": [PIPE, POINTER(_Task)],
    "next": [PIPE, c_int64, POINTER(_Task)],
    "microbatch_end": [PIPE],
    "step_begin": [PIPE],
    "step_end": [PIPE],
    "counters": [PIPE, POINTER(_Counters)],
    "timeline": [PIPE, POINTER(_Run), c_int, POINTER(c_int)],
}
declare(LIBRARY, "shoal_pipe", FALLIBLE)


class Pipe:
    """Between the ranks of a group. Collective, as are close, step_end.

    Args:
        group: Handle of the group (shoal_group_t).
        name: For messages.
        module_names: For messages; modules are known by their number.
        runs: Of each module, whether this rank runs it.
        order: Which task goes first.
        active_microbatches: So many may be under way on the rank that starts them; 0: any.
        kept_microbatches: Of so many at a time forward passes keep memory on this rank; 0: any.

    Raises:
        Error: of every method; the text says who and why.
    """

    def __init__(
        self,
        group: int,
        name: str,
        module_names: Sequence[str],
        runs: Sequence[bool],
        order: Order = Order.INTERLEAVED,
        active_microbatches: int = 0,
        kept_microbatches: int = 0,
    ):
        self.group = group
        self.rank = LIBRARY.shoal_group_rank(group)
        self.size = LIBRARY.shoal_group_size(group)
        names = (c_char_p * len(module_names))(*(name.encode() for name in module_names))
        flags = (c_ubyte * len(runs))(*runs)
        options = _Options(
            ctypes.sizeof(_Options),
            name.encode(),
            order,
            active_microbatches,
            len(module_names),
            names,
            flags,
            kept_microbatches,
        )
        self.handle = PIPE()
        self._call("create", group, byref(options), byref(self.handle), first=())

    def _call(self, name: str, *arguments, first: tuple | None = None) -> None:
        first = (self.handle,) if first is None else first
        check(getattr(LIBRARY, f"shoal_pipe_{name}")(*first, *arguments), self.group)

    def close(self) -> None:
        """Views of values that came from other ranks must not be used after it."""
        handle, self.handle = self.handle, PIPE()
        self._call("free", first=(handle,))

    def abort(self, reason: str) -> None:
        self._call("abort", reason.encode())

    def health(self) -> None:
        self._call("health")

    def promise(self, home: int) -> int:
        number = c_uint64()
        self._call("promise", home, byref(number))
        return number.value

    def put(
        self, value: int, descriptor: bytes = b"", buffers: Sequence[tuple[int, int]] = ()
    ) -> None:
        """buffers: address and bytes of each; copied."""
        array = (_Buffer * len(buffers))(*buffers)
        self._call("put", value, descriptor, len(descriptor), array, len(buffers))

    def value(self, number: int) -> Value:
        found = _Value(ctypes.sizeof(_Value))
        self._call("value", number, byref(found))
        buffers = [
            (found.buffers[i].data or 0, found.buffers[i].bytes) for i in range(found.buffer_count)
        ]
        return Value(ctypes.string_at(found.descriptor, found.descriptor_bytes), buffers)

    def release(self, value: int) -> None:
        self._call("release", value)

    def drop(self, value: int) -> None:
        self._call("drop", value)

    def submit(self, task: Task) -> None:
        needs = (c_uint64 * len(task.needs))(*task.needs)
        blob = ctypes.cast(c_char_p(task.blob), c_void_p)
        made = _Task(
            ctypes.sizeof(_Task),
            task.rank,
            task.kind,
            task.module,
            task.microbatch,
            blob,
            len(task.blob),
            needs,
            len(needs),
            task.keeps,
        )
        self._call("submit", byref(made))

    def next(self) -> Task:
        """Waits as long as it takes; a signal's handler runs meanwhile, and may raise."""
        task = _Task(ctypes.sizeof(_Task))
        while True:
            status = LIBRARY.shoal_pipe_next(self.handle, LOOK_MS, byref(task))
            if status != Status.IN_PROGRESS:
                break
        check(status, self.group)
        return Task(
            Kind(task.kind),
            task.rank,
            task.microbatch,
            task.module,
            ctypes.string_at(task.blob, task.blob_bytes),
            task.needs[: task.need_count],
        )

    def microbatch_end(self) -> None:
        self._call("microbatch_end")

    def step_begin(self) -> None:
        self._call("step_begin")

    def step_end(self) -> None:
        self._call("step_end")

    def counters(self) -> dict[str, int | list[int]]:
        """By the names of struct shoal_pipe_counters."""
        counted = _Counters(ctypes.sizeof(_Counters))
        self._call("counters", byref(counted))
        values = {name: getattr(counted, name) for name, _ in _Counters._fields_[1:]}
        return values | {"tasks": list(values["tasks"])}

    def timeline(self) -> list[dict[str, int]]:
        """The tasks that ran here in the last step: struct shoal_pipe_run."""
        count = c_int()
        self._call("timeline", None, 0, byref(count))
        runs = (_Run * count.value)()
        self._call("timeline", runs, count.value, byref(count))
        names = [name for name, _ in _Run._fields_]
        return [{name: getattr(run, name) for name in names} for run in runs]
