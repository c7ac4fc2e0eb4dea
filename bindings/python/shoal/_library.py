# SPDX-License-Identifier: Apache-2.0
"""libshoal.so through ctypes: where it is, its functions' types, its errors as exceptions.

The library is loaded with its symbols visible to all, because the compiled binding of PyTorch
uses the same one and is not linked with it. ctypes lets other Python threads run during a call.
"""

from __future__ import annotations

import atexit
import ctypes
import ctypes.util
import enum
import os
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path

from . import _signals

PACKAGE = Path(__file__).resolve().parent


class Status(enum.IntEnum):
    """enum shoal_status of shoal.h."""

    OK = 0
    IN_PROGRESS = 1
    ARGUMENT = 100
    UNSUPPORTED = 101
    OPTION = 102
    STATE = 103
    LIMIT = 104
    MEMORY = 200
    SYSTEM = 201
    FORMAT = 202
    PEER_LOST = 300
    PEER_UNREACHABLE = 301
    PEER_REFUSED = 302
    TIMEOUT = 400
    MISMATCH = 401
    ABORTED = 402
    RANK_TAKEN = 403
    INTERNAL = 500


class Error(RuntimeError):
    """A call of the library failed. `status` says what kind; the text says what, where and who."""

    def __init__(self, status: int, text: str):
        self.status = Status(status)
        super().__init__(f"{text or 'failed'} [SHOAL_ERR_{self.status.name}]")


def candidates() -> list[Path]:
    """Where libshoal.so may be, best first: the build that SHOAL_BUILD names, the installed
    package, the build folder of the source tree."""
    found = []
    if os.environ.get("SHOAL_BUILD"):
        found.append(Path(os.environ["SHOAL_BUILD"]) / "libshoal.so")
    found.append(PACKAGE / "lib" / "libshoal.so")
    root = PACKAGE.parent.parent.parent
    if (root / "include" / "shoal.h").exists():
        found.append(root / "build" / "release" / "libshoal.so")
    return found


def library_path() -> Path:
    """The libshoal.so that this process uses.

    Raises:
        ImportError: there is none; the text lists where it was looked for.
    """
    paths = candidates()
    for path in paths:
        if path.exists():
            return path
    installed = ctypes.util.find_library("shoal")
    if installed:
        return Path(installed)
    raise ImportError(
        "libshoal.so was not found; looked for "
        + ", ".join(str(path) for path in paths)
        + " and in the system's library folders. Build it (make build), or name the build folder "
        "in the environment variable SHOAL_BUILD"
    )


class StoreStruct(ctypes.Structure):
    """struct shoal_store; unused here, so only its place is declared."""


class UniqueId(ctypes.Structure):
    """struct shoal_unique_id."""

    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


class GroupOptions(ctypes.Structure):
    """struct shoal_group_options."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("rank", c_int),
        ("size", c_int),
        ("store", c_char_p),
        ("unique_id", POINTER(UniqueId)),
        ("user_store", POINTER(StoreStruct)),
        ("secret", c_char_p),
        ("name", c_char_p),
        ("interface", c_char_p),
        ("timeout_ms", c_int64),
        ("reproducible", c_int),
        ("interrupted", _signals.INTERRUPTED),
        ("interrupted_user", c_void_p),
    ]


class ReceiveInfo(ctypes.Structure):
    """struct shoal_recv_info."""

    _fields_ = [("source", c_int), ("tag", c_int), ("bytes", c_uint64)]


class Counters(ctypes.Structure):
    """struct shoal_counters."""

    _fields_ = [
        ("struct_bytes", c_size_t),
        ("operations", c_uint64),
        ("requests", c_uint64),
        ("bytes", c_uint64),
        ("inline_bytes", c_uint64),
        ("symmetric_bytes", c_uint64),
        ("staged_bytes", c_uint64),
        ("direct_bytes", c_uint64),
        ("engine_bytes", c_uint64),
        ("streamed_bytes", c_uint64),
        ("sent_bytes", c_uint64),
        ("received_bytes", c_uint64),
        ("network_sent_bytes", c_uint64),
        ("network_received_bytes", c_uint64),
        ("sleeps", c_uint64),
    ]


GROUP = c_void_p
REQUEST = c_void_p
DATA = c_void_p
COUNTS = POINTER(c_uint64)
TAIL = [GROUP, POINTER(REQUEST)]

# Argument types of every function that returns enum shoal_status.
FALLIBLE = {
    "unique_id_create": [POINTER(UniqueId)],
    "group_create": [POINTER(GroupOptions), POINTER(GROUP)],
    "group_split": [GROUP, c_int, c_int, POINTER(GROUP)],
    "group_subset": [GROUP, POINTER(c_int), c_int, c_char_p, POINTER(GROUP)],
    "group_free": [GROUP],
    "group_abort": [GROUP, c_char_p],
    "group_health": [GROUP],
    "group_set_timeout": [GROUP, c_int64],
    "group_counters": [GROUP, POINTER(Counters)],
    "request_test": [POINTER(REQUEST)],
    "request_wait": [POINTER(REQUEST), c_int64],
    "allreduce": [DATA, DATA, c_uint64, c_int, c_int, *TAIL],
    "allreduce_premul": [DATA, DATA, c_uint64, c_int, DATA, *TAIL],
    "reduce": [DATA, DATA, c_uint64, c_int, c_int, c_int, *TAIL],
    "broadcast": [DATA, c_uint64, c_int, c_int, *TAIL],
    "allgather": [DATA, DATA, c_uint64, c_int, *TAIL],
    "allgatherv": [DATA, DATA, COUNTS, COUNTS, c_int, *TAIL],
    "gather": [DATA, DATA, c_uint64, c_int, c_int, *TAIL],
    "gatherv": [DATA, DATA, COUNTS, COUNTS, c_int, c_int, *TAIL],
    "reduce_scatter": [DATA, DATA, c_uint64, c_int, c_int, *TAIL],
    "reduce_scatterv": [DATA, DATA, COUNTS, c_int, c_int, *TAIL],
    "scatter": [DATA, DATA, c_uint64, c_int, c_int, *TAIL],
    "scatterv": [DATA, DATA, COUNTS, COUNTS, c_int, c_int, *TAIL],
    "alltoall": [DATA, DATA, c_uint64, c_int, *TAIL],
    "alltoallv": [DATA, COUNTS, COUNTS, DATA, COUNTS, COUNTS, c_int, *TAIL],
    "barrier": TAIL,
    "send": [DATA, c_uint64, c_int, c_int, c_int, *TAIL],
    "recv": [DATA, c_uint64, c_int, c_int, c_int, POINTER(ReceiveInfo), *TAIL],
    "alloc": [GROUP, c_size_t, POINTER(DATA)],
    "free": [GROUP, DATA],
}
NUMBERS = [
    "group_rank",
    "group_size",
    "group_local_rank",
    "group_local_size",
    "group_host",
    "group_host_count",
]


def declare(library: ctypes.CDLL, prefix: str, fallible: dict[str, list]) -> None:
    """Sets the types of functions that return enum shoal_status."""
    for name, arguments in fallible.items():
        function = getattr(library, f"{prefix}_{name}")
        function.argtypes = arguments
        function.restype = c_int


def load() -> ctypes.CDLL:
    """The library with the types of its functions set."""
    library = ctypes.CDLL(str(library_path()), mode=ctypes.RTLD_GLOBAL)
    declare(library, "shoal", FALLIBLE)
    for name in NUMBERS:
        function = getattr(library, f"shoal_{name}")
        function.argtypes = [GROUP]
        function.restype = c_int
    library.shoal_last_error.argtypes = [GROUP]
    library.shoal_last_error.restype = c_char_p
    library.shoal_version.restype = c_char_p
    library.shoal_op_name.argtypes = [c_int]
    library.shoal_op_name.restype = c_char_p
    library.shoal_dtype_name.argtypes = [c_int]
    library.shoal_dtype_name.restype = c_char_p
    return library


LIBRARY = load()
atexit.register(LIBRARY.shoal_leave)  # children of multiprocessing end without exit()


def check(status: int, group: int | None = None) -> None:
    """Raises Error for a status other than OK, with the library's text; or, if a signal's handler
    raised during the call, what that raised."""
    if status != Status.OK:
        _signals.reraise()
        raise Error(status, LIBRARY.shoal_last_error(group).decode(errors="replace"))


def version() -> str:
    """Version of the library, such as "0.1.0"."""
    return LIBRARY.shoal_version().decode()


def _names(function, count_max: int = 64) -> dict[str, int]:
    names: dict[str, int] = {}
    for number in range(count_max):
        name = function(number).decode()
        if name == "?":
            break
        names[name] = number
    return names


OPS = _names(LIBRARY.shoal_op_name)
DTYPES = _names(LIBRARY.shoal_dtype_name)
