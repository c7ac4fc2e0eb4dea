# SPDX-License-Identifier: Apache-2.0
"""Groups of processes and their operations on NumPy arrays.

Arrays are used where they lie, never copied, so they must be C-contiguous; anything with the
buffer protocol (bytearray, array.array, memoryview) counts as an array. Shapes: p is the size of
the group.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

try:
    import numpy as np
except ImportError:  # groups work without it, and so does shoal.torch; arrays don't
    np = None

from . import _signals
from ._library import (
    DTYPES,
    LIBRARY,
    OPS,
    Counters,
    GroupOptions,
    ReceiveInfo,
    Status,
    UniqueId,
    check,
)

ANY_SOURCE = -1
ANY_TAG = -1

# NumPy's names of what shoal.h has; bfloat16 is ml_dtypes' type.
DTYPE_OF = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "bool",
    "complex64": "complex64",
    "complex128": "complex128",
}


class Received(NamedTuple):
    """Who sent a message: group rank, tag, and its size in bytes."""

    source: int
    tag: int
    bytes: int


class _Buffer(NamedTuple):
    array: np.ndarray
    data: int
    count: int
    dtype: int


def _need_numpy() -> None:
    if np is None:
        raise ImportError("operations on arrays need NumPy, which is not installed here")


def _buffer(value: Any, written: bool) -> _Buffer:
    _need_numpy()
    array = value if isinstance(value, np.ndarray) else np.asarray(memoryview(value))
    if not array.flags.c_contiguous:
        raise ValueError("the array is not C-contiguous; pass numpy.ascontiguousarray(array)")
    if written and not array.flags.writeable:
        raise ValueError("the array is read-only, and the result is to be written to it")
    name = DTYPE_OF.get(array.dtype.name)
    if name is None or not array.dtype.isnative:
        raise TypeError(f"no operation on arrays of {array.dtype}")
    return _Buffer(array, array.__array_interface__["data"][0], array.size, DTYPES[name])


def _op(name: str) -> int:
    if name not in OPS:
        raise ValueError(f"no op named {name!r}; there are {', '.join(OPS)}")
    return OPS[name]


def _counts(values: Sequence[int] | None):
    if values is None:
        return None
    return (ctypes.c_uint64 * len(values))(*values)


def _milliseconds(timeout: float | timedelta | None, default: int) -> int:
    if timeout is None:
        return default
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    return max(0, round(seconds * 1000))


class Request:
    """An operation under way; its arrays must not be touched before it is done."""

    def __init__(self, group: Group, kept: tuple, result: Any, info: ReceiveInfo | None = None):
        self._group = group
        self._handle = ctypes.c_void_p()
        self._kept = kept
        self._result = result
        self._info = info
        self._status: int | None = None

    def _end(self, status: int) -> None:
        self._group._requests.discard(self)
        self._kept = ()
        self._status = status
        check(status, self._group._handle)

    def test(self) -> bool:
        """True when done. Raises Error if the operation failed."""
        if self._status is not None:
            return True
        status = LIBRARY.shoal_request_test(ctypes.byref(self._handle))
        if status == Status.IN_PROGRESS:
            return False
        self._end(status)
        return True

    def wait(self, timeout: float | timedelta | None = None) -> Any:
        """Waits and returns what the blocking form returns.

        Args:
            timeout: Seconds; None waits until the operation's own deadline.

        Raises:
            Error: the operation failed; or, with status TIMEOUT, the time given here passed first,
                and the operation goes on.
        """
        if self._status is None:
            status = LIBRARY.shoal_request_wait(
                ctypes.byref(self._handle), _milliseconds(timeout, -1)
            )
            if self._handle:
                check(status, self._group._handle)
            self._end(status)
        if self._info is not None:
            return Received(self._info.source, self._info.tag, self._info.bytes)
        return self._result


class Group:
    """Some processes that act together. Every operation is called by all of them, in the same
    order. With blocking=False an operation returns a Request at once."""

    def __init__(self, handle: ctypes.c_void_p, parent: Group | None = None):
        self._handle = handle.value
        self._parent = parent
        self._requests: set[Request] = set()
        self.rank: int = LIBRARY.shoal_group_rank(handle)
        self.size: int = LIBRARY.shoal_group_size(handle)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *exception: object) -> None:
        self.free()

    def __repr__(self) -> str:
        return f"<shoal.Group rank {self.rank} of {self.size}>"

    @property
    def local_rank(self) -> int:
        """Rank among the ranks on this host."""
        return LIBRARY.shoal_group_local_rank(self._handle)

    @property
    def local_size(self) -> int:
        """Number of ranks on this host."""
        return LIBRARY.shoal_group_local_size(self._handle)

    @property
    def host(self) -> int:
        """Index of this host, 0 to host_count - 1."""
        return LIBRARY.shoal_group_host(self._handle)

    @property
    def host_count(self) -> int:
        """Number of hosts."""
        return LIBRARY.shoal_group_host_count(self._handle)

    def free(self) -> None:
        """Leaves the group; sub-groups have to be freed before. A second call does nothing."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            check(LIBRARY.shoal_group_free(handle))
            self._requests.clear()

    def abort(self, reason: str = "") -> None:
        """Breaks the group on all ranks: every pending and later call fails with this reason."""
        check(LIBRARY.shoal_group_abort(self._handle, reason.encode() or None))

    def health(self) -> None:
        """Raises Error with the cause if something broke in the group."""
        check(LIBRARY.shoal_group_health(self._handle), self._handle)

    def set_timeout(self, timeout: float | timedelta) -> None:
        """Seconds that operations started from now on may take."""
        milliseconds = max(1, _milliseconds(timeout, 1))
        check(LIBRARY.shoal_group_set_timeout(self._handle, milliseconds), self._handle)

    def counters(self) -> dict[str, int]:
        """What this rank has done in the group: operations, requests, sleeps, and bytes by the way
        they went, under the names of struct shoal_counters in shoal.h."""
        counters = Counters(struct_bytes=ctypes.sizeof(Counters))
        check(LIBRARY.shoal_group_counters(self._handle, ctypes.byref(counters)), self._handle)
        return {name: getattr(counters, name) for name, _ in Counters._fields_[1:]}

    def split(self, color: int, key: int = 0) -> Group | None:
        """New groups of the ranks with equal color, ordered by key; None where color < 0."""
        out = ctypes.c_void_p()
        check(LIBRARY.shoal_group_split(self._handle, color, key, ctypes.byref(out)), self._handle)
        return Group(out, self) if out else None

    def subset(self, ranks: Sequence[int], name: str = "subset") -> Group:
        """A new group of the ranks listed; called by these only, with the same list and name."""
        out = ctypes.c_void_p()
        listed = (ctypes.c_int * len(ranks))(*ranks)
        status = LIBRARY.shoal_group_subset(
            self._handle, listed, len(ranks), name.encode(), ctypes.byref(out)
        )
        check(status, self._handle)
        return Group(out, self)

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32") -> np.ndarray:
        """An array in memory that the ranks of this host share: operations on it copy nothing.
        It lives as long as the group."""
        _need_numpy()
        dtype = np.dtype(dtype)
        size = int(np.prod(shape))
        out = ctypes.c_void_p()
        status = LIBRARY.shoal_alloc(self._handle, max(1, size * dtype.itemsize), ctypes.byref(out))
        check(status, self._handle)
        memory = (ctypes.c_char * max(1, size * dtype.itemsize)).from_address(out.value)
        return np.frombuffer(memory, dtype=dtype, count=size).reshape(shape)

    def _call(
        self,
        name: str,
        arguments: tuple,
        kept: tuple,
        result: Any,
        blocking: bool,
        info: ReceiveInfo | None = None,
    ) -> Any:
        function = getattr(LIBRARY, f"shoal_{name}")
        if blocking:
            check(function(*arguments, self._handle, None), self._handle)
            return result if info is None else Received(info.source, info.tag, info.bytes)
        request = Request(self, kept, result, info)
        check(function(*arguments, self._handle, ctypes.byref(request._handle)), self._handle)
        self._requests.add(request)
        return request

    def _in_and_out(self, array: Any, out: Any, in_count: int, out_count: int):
        """Both buffers; `out` is made where it is None. Counts are multiples that must match."""
        source = _buffer(array, False)
        if out is None:
            shape = source.array.shape
            if out_count > 1:
                shape = (out_count, *shape)
            elif in_count > 1:
                if not shape or shape[0] % in_count:
                    raise ValueError(f"the first dimension of {shape} is no multiple of {in_count}")
                shape = (shape[0] // in_count, *shape[1:])
            out = np.empty(shape, dtype=source.array.dtype)
        target = _buffer(out, True)
        if source.dtype != target.dtype:
            raise TypeError(f"input {source.array.dtype} and output {target.array.dtype}")
        if source.count * out_count != target.count * in_count:
            raise ValueError(
                f"{source.count} elements in and {target.count} out do not fit "
                f"a group of {self.size}"
            )
        return source, target

    def allreduce(
        self,
        array: Any,
        op: str = "sum",
        out: Any = None,
        factor: Any = None,
        blocking: bool = True,
    ) -> Any:
        """array[n] of each rank, combined by op, in place or into out; returns where it is.

        Args:
            op: sum, avg, prod, min, max, band, bor, bxor, land, lor, lxor or premul_sum.
            factor: Only for premul_sum: what this rank's input is multiplied by first.
        """
        source = _buffer(array, out is None)
        target = source if out is None else _buffer(out, True)
        if target.count != source.count or target.dtype != source.dtype:
            raise ValueError("input and output differ in size or dtype")
        arguments = (source.data, target.data, source.count, source.dtype)
        kept = (source, target)
        if op == "premul_sum":
            scale = np.array([1 if factor is None else factor], dtype=source.array.dtype)
            arguments = (*arguments, scale.ctypes.data)
            return self._call("allreduce_premul", arguments, kept, target.array, blocking)
        return self._call("allreduce", (*arguments, _op(op)), kept, target.array, blocking)

    def reduce(
        self, array: Any, root: int = 0, op: str = "sum", out: Any = None, blocking: bool = True
    ) -> Any:
        """array[n] of each rank, combined by op, to the root: in place there, or into out."""
        here = self.rank == root
        source = _buffer(array, here and out is None)
        target = source if out is None else _buffer(out, True)
        if here and (target.count != source.count or target.dtype != source.dtype):
            raise ValueError("input and output differ in size or dtype")
        data = target.data if here else None
        arguments = (source.data, data, source.count, source.dtype, _op(op), root)
        return self._call("reduce", arguments, (source, target), target.array, blocking)

    def broadcast(self, array: Any, root: int = 0, blocking: bool = True) -> Any:
        """array[n] of the root to every rank's array[n]."""
        buffer = _buffer(array, self.rank != root)
        arguments = (buffer.data, buffer.count, buffer.dtype, root)
        return self._call("broadcast", arguments, (buffer,), buffer.array, blocking)

    def allgather(self, array: Any, out: Any = None, blocking: bool = True) -> Any:
        """array[n] of each rank -> out[p, n], in rank order."""
        source, target = self._in_and_out(array, out, 1, self.size)
        arguments = (source.data, target.data, source.count, source.dtype)
        return self._call("allgather", arguments, (source, target), target.array, blocking)

    def allgatherv(
        self, array: Any, counts: Sequence[int], out: Any = None, blocking: bool = True
    ) -> Any:
        """array[counts[rank]] -> out[sum(counts)], in rank order. Same counts on all ranks."""
        source = _buffer(array, False)
        if out is None:
            out = np.empty(sum(counts), dtype=source.array.dtype)
        target = self._listed(source, _buffer(out, True), counts)
        arguments = (source.data, target.data, _counts(counts), None, source.dtype)
        return self._call("allgatherv", arguments, (source, target), target.array, blocking)

    def _listed(self, part: _Buffer, whole: _Buffer, counts: Sequence[int]) -> _Buffer:
        """Checks counts against this rank's part and the whole."""
        if len(counts) != self.size:
            raise ValueError(f"{len(counts)} counts for a group of {self.size}")
        if part.count != counts[self.rank] or whole.count != sum(counts):
            raise ValueError(
                f"the counts say {counts[self.rank]} elements here and {sum(counts)} in all, "
                f"the arrays have {part.count} and {whole.count}"
            )
        if part.dtype != whole.dtype:
            raise TypeError(f"arrays of {part.array.dtype} and {whole.array.dtype}")
        return whole

    def gather(self, array: Any, root: int = 0, out: Any = None, blocking: bool = True) -> Any:
        """array[n] of each rank -> out[p, n] on the root; None elsewhere."""
        if self.rank == root:
            source, target = self._in_and_out(array, out, 1, self.size)
            address, result = target.data, target.array
        else:
            source, address, result = _buffer(array, False), None, None
        arguments = (source.data, address, source.count, source.dtype, root)
        return self._call("gather", arguments, (source, result), result, blocking)

    def gatherv(
        self,
        array: Any,
        counts: Sequence[int],
        root: int = 0,
        out: Any = None,
        blocking: bool = True,
    ) -> Any:
        """array[counts[rank]] -> out[sum(counts)] on the root; None elsewhere."""
        source = _buffer(array, False)
        address = result = None
        if self.rank == root:
            if out is None:
                out = np.empty(sum(counts), dtype=source.array.dtype)
            target = self._listed(source, _buffer(out, True), counts)
            address, result = target.data, target.array
        arguments = (source.data, address, _counts(counts), None, source.dtype, root)
        return self._call("gatherv", arguments, (source, result), result, blocking)

    def reduce_scatter(
        self, array: Any, op: str = "sum", out: Any = None, blocking: bool = True
    ) -> Any:
        """array[p * n] of each rank, combined by op: rank i gets block i in out[n]."""
        source, target = self._in_and_out(array, out, self.size, 1)
        arguments = (source.data, target.data, target.count, source.dtype, _op(op))
        return self._call("reduce_scatter", arguments, (source, target), target.array, blocking)

    def reduce_scatterv(
        self,
        array: Any,
        counts: Sequence[int],
        op: str = "sum",
        out: Any = None,
        blocking: bool = True,
    ) -> Any:
        """As reduce_scatter with a block of counts[i] elements for rank i."""
        source = _buffer(array, False)
        if out is None:
            out = np.empty(counts[self.rank], dtype=source.array.dtype)
        target = _buffer(out, True)
        self._listed(target, source, counts)
        arguments = (source.data, target.data, _counts(counts), source.dtype, _op(op))
        return self._call("reduce_scatterv", arguments, (source, target), target.array, blocking)

    def scatter(self, array: Any, out: Any, root: int = 0, blocking: bool = True) -> Any:
        """array[p * n] of the root -> out[n]; array may be None elsewhere."""
        target = _buffer(out, True)
        address, kept = None, None
        if self.rank == root:
            source, target = self._in_and_out(array, out, self.size, 1)
            address, kept = source.data, source.array
        arguments = (address, target.data, target.count, target.dtype, root)
        return self._call("scatter", arguments, (kept, target), target.array, blocking)

    def scatterv(
        self, array: Any, counts: Sequence[int], out: Any, root: int = 0, blocking: bool = True
    ) -> Any:
        """array[sum(counts)] of the root -> out[counts[rank]]; array may be None elsewhere."""
        target = _buffer(out, True)
        address, kept = None, None
        if self.rank == root:
            source = self._listed(target, _buffer(array, False), counts)
            address, kept = source.data, source.array
        arguments = (address, target.data, _counts(counts), None, target.dtype, root)
        return self._call("scatterv", arguments, (kept, target), target.array, blocking)

    def alltoall(self, array: Any, out: Any = None, blocking: bool = True) -> Any:
        """Block i of array[p * n] goes to rank i; out[p * n] has what came, in rank order."""
        if out is None:
            out = np.empty_like(_buffer(array, False).array)
        source, target = self._in_and_out(array, out, 1, 1)
        if source.count % self.size:
            raise ValueError(f"{source.count} elements can't be cut in {self.size} blocks")
        arguments = (source.data, target.data, source.count // self.size, source.dtype)
        return self._call("alltoall", arguments, (source, target), target.array, blocking)

    def alltoallv(
        self,
        array: Any,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        out: Any = None,
        blocking: bool = True,
    ) -> Any:
        """send_counts[i] elements to rank i, recv_counts[i] from it, both packed in rank order."""
        source = _buffer(array, False)
        if out is None:
            out = np.empty(sum(recv_counts), dtype=source.array.dtype)
        target = _buffer(out, True)
        if sum(send_counts) != source.count or sum(recv_counts) != target.count:
            raise ValueError("the counts do not sum up to the sizes of the arrays")
        if len(send_counts) != self.size or len(recv_counts) != self.size:
            raise ValueError(f"counts for each of the {self.size} ranks are needed")
        sent = (source.data, _counts(send_counts), None)
        received = (target.data, _counts(recv_counts), None)
        arguments = (*sent, *received, source.dtype)
        return self._call("alltoallv", arguments, (source, target), target.array, blocking)

    def barrier(self, blocking: bool = True) -> Any:
        """Returns after every rank has called it."""
        return self._call("barrier", (), (), None, blocking)

    def send(self, array: Any, destination: int, tag: int = 0, blocking: bool = True) -> Any:
        """Sends to a rank; matched there by source and tag in the order of the sends."""
        source = _buffer(array, False)
        arguments = (source.data, source.count, source.dtype, destination, tag)
        return self._call("send", arguments, (source,), None, blocking)

    def recv(
        self, out: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, blocking: bool = True
    ) -> Any:
        """Receives at most as much as out holds. Returns Received, or a Request for it."""
        target = _buffer(out, True)
        info = ReceiveInfo()
        arguments = (target.data, target.count, target.dtype, source, tag, ctypes.byref(info))
        return self._call("recv", arguments, (target, info), None, blocking, info)


def unique_id() -> bytes:
    """128 bytes that name a group which does not exist yet; one process makes them and carries
    them to the others, which pass them to init."""
    out = UniqueId()
    check(LIBRARY.shoal_unique_id_create(ctypes.byref(out)))
    return bytes(out.bytes)


def init(
    rank: int = -1,
    size: int = -1,
    store: str | None = None,
    unique_id: bytes | None = None,
    name: str | None = None,
    interface: str | None = None,
    timeout: float | timedelta | None = None,
    reproducible: bool | None = None,
) -> Group:
    """Joins the group of all processes; every one of them calls it.

    Args:
        rank, size: -1 takes them from the environment.
        store: "host:port" where rank 0 serves the meeting; None takes it from the environment.
        unique_id: What unique_id() of one process returned, instead of store.
        name: For messages.
        interface: Network interface or address prefix, several with commas; None goes by the
            route to the peer.
        timeout: Seconds that an operation may take.
        reproducible: Bits that don't depend on size, split or transport; None takes the option.

    Raises:
        Error: not all ranks came, or one of them can't be reached; the text names it.
    """
    options = GroupOptions(struct_bytes=ctypes.sizeof(GroupOptions), rank=rank, size=size)
    options.store = store.encode() if store else None
    options.name = name.encode() if name else None
    options.interface = interface.encode() if interface else None
    options.timeout_ms = _milliseconds(timeout, 0)
    options.reproducible = -1 if reproducible is None else int(reproducible)
    options.interrupted = _signals.question()
    if unique_id is not None:
        if len(unique_id) != 128:
            raise ValueError(f"a unique id has 128 bytes, not {len(unique_id)}")
        options.unique_id = ctypes.pointer(UniqueId.from_buffer_copy(unique_id))
    out = ctypes.c_void_p()
    check(LIBRARY.shoal_group_create(ctypes.byref(options), ctypes.byref(out)))
    return Group(out)
