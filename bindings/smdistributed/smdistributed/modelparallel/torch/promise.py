# SPDX-License-Identifier: Apache-2.0
"""Promises: tensors of known shape and type whose data another rank is to make.

A call of a module that lives elsewhere returns at once, with promises in place of tensors. They may
be arguments of further such calls, and then the data goes from rank to rank without coming here.
Whatever else reads a promise waits for its data, and goes on with an ordinary tensor. So the code
of a step runs ahead of the computing, and an unchanged model becomes a pipeline.

Two of torch's ways to see what is done with a tensor are used: __torch_function__ for what Python
calls, above autograd, so that the ordinary tensor has its place in the graph; and
__torch_dispatch__ for what autograd does by itself, such as adding up gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map_only


class Meta(NamedTuple):
    """What is known of a tensor before its data."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Meta:
        return cls(tuple(tensor.shape), tensor.dtype, tensor.requires_grad)

    @property
    def bytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


# Of these a promise knows enough: they don't wait.
_KNOWN_METHODS = {
    torch.Tensor.dim,
    torch.Tensor.is_complex,
    torch.Tensor.is_floating_point,
    torch.Tensor.ndimension,
    torch.Tensor.numel,
    torch.Tensor.register_hook,
    torch.Tensor.requires_grad_,
    torch.Tensor.retain_grad,
    torch.Tensor.size,
    torch.Tensor.__hash__,
    torch.Tensor.__len__,
    torch.Tensor.__repr__,
}
_KNOWN_ATTRIBUTES = {
    torch.Tensor._backward_hooks,
    torch.Tensor.device,
    torch.Tensor.dtype,
    torch.Tensor.grad,
    torch.Tensor.grad_fn,
    torch.Tensor.is_leaf,
    torch.Tensor.is_sparse,
    torch.Tensor.layout,
    torch.Tensor.ndim,
    torch.Tensor.output_nr,
    torch.Tensor.requires_grad,
    torch.Tensor.shape,
}


def _is_known(function: Callable) -> bool:
    if function in _KNOWN_METHODS:
        return True
    return getattr(function, "__name__", "") == "__get__" and function.__self__ in _KNOWN_ATTRIBUTES


_WRITING_METHODS = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__"}


def _written(function: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What the function changes in its place, if it does."""
    if "out" in kwargs:
        return kwargs["out"]
    name = getattr(function, "__name__", "")
    by_name = name in _WRITING_METHODS or (name.endswith("_") and not name.endswith("__"))
    return args[0] if args and (by_name or kwargs.get("inplace")) else None


# What has no promises in it, and is not walked by torch's registry of containers.
_WITHOUT = {type(None), bool, int, float, str, torch.Tensor, torch.nn.Parameter, torch.dtype}


def _read(argument: Any, read: Callable[[Promise], torch.Tensor]) -> Any:
    """The argument with read(promise) in place of each promise."""
    kind = type(argument)
    if kind is Promise:
        return read(argument)
    return argument if kind in _WITHOUT else tree_map_only(Promise, read, argument)


class Promise(torch.Tensor):
    """A tensor whose data comes later.

    is_written: Its tensor was changed in its place, and is no longer what the value holds.

    Args:
        meta: Of the tensor.
        value: The number of the value that will hold the data (runtime.py).
        fetch: Gives the data of a value, as a tensor without graph; waits for it.
        keeper: Lives as long as the promise.
    """

    @staticmethod
    def __new__(
        cls,
        meta: Meta,
        value: int,
        fetch: Callable[[Promise], torch.Tensor],
        keeper: Any = None,
    ) -> Promise:
        made = torch.Tensor._make_wrapper_subclass(cls, meta.shape, dtype=meta.dtype)
        made.meta, made.value = meta, value
        made._fetch, made._keeper = fetch, keeper
        made._data = None
        made._tensor = None
        made.is_written = False
        return made

    def data_now(self) -> torch.Tensor:
        """The data, without graph; waits for it the first time."""
        if self._data is None:
            self._data = self._fetch(self)
        return self._data

    def has_data(self) -> bool:
        return self._data is not None

    def arrive(self, data: torch.Tensor) -> None:
        """The data is there before anybody has read it."""
        self._data = data

    def tensor_now(self) -> torch.Tensor:
        """An ordinary tensor at this place of the graph; waits for its data the first time."""
        if self.is_written:
            return self._tensor
        wants_graph = self.requires_grad and torch.is_grad_enabled()
        if self._tensor is None or (wants_graph and not self._tensor.requires_grad):
            self._tensor = _Fetch.apply(self) if wants_graph else self.data_now()
        return self._tensor

    def begin_to_write(self) -> None:
        """The tensor gets memory of its own: other ranks may look at the data."""
        if not self.is_written:
            with torch.set_grad_enabled(self.requires_grad):
                self._tensor = self.tensor_now().clone()
            self.is_written = True

    def __repr__(self, **_options: Any) -> str:
        return f"Promise({tuple(self.shape)}, {self.dtype}, value={self.value:#x})"

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if _is_known(function):
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **(kwargs or {}))
        kwargs = kwargs or {}
        tree_map_only(Promise, Promise.begin_to_write, _written(function, args, kwargs))
        return cls._call(function, args, kwargs, Promise.tensor_now)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return _same_data(args[0])
        return cls._call(function, args, kwargs or {}, Promise.data_now)

    @staticmethod
    def _call(
        function: Callable, args: Sequence[Any], kwargs: dict[str, Any], read: Callable
    ) -> Any:
        args = [_read(one, read) for one in args]
        return function(*args, **{name: _read(one, read) for name, one in kwargs.items()})


def edge_of(tensor: torch.Tensor) -> torch.Tensor | torch.autograd.graph.GradientEdge:
    """Where a backward pass begins, as long as the tensor is there. Of a promise it is its place in
    the graph, so that nobody waits for data: all stages' passes are asked for before there is a
    loss."""
    if isinstance(tensor, Promise) and tensor.is_written:
        return tensor.tensor_now()
    with torch._C.DisableTorchFunctionSubclass():
        if isinstance(tensor, Promise) and tensor.grad_fn is not None:
            return torch.autograd.graph.GradientEdge(tensor.grad_fn, tensor.output_nr)
    return tensor


def _same_data(promise: Promise) -> Promise:
    """Another promise of the same data, which keeps the first one alive."""
    meta = Meta(tuple(promise.shape), promise.dtype, False)
    return Promise(meta, promise.value, lambda _same: promise.data_now())


class _Fetch(torch.autograd.Function):
    """From a promise to its tensor; gradients go back as they are."""

    @staticmethod
    def forward(ctx, promise: Promise) -> torch.Tensor:
        data = promise.data_now()
        return data.view_as(data)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        return gradient
