# SPDX-License-Identifier: Apache-2.0
"""A batch into microbatches, and the results of microbatches as one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from .exceptions import SplitError, StepUsageError


class StepOutput:
    """What one result of a step's function was in each microbatch.

    outputs: One per microbatch, in their order.
    """

    def __init__(self, outputs: Sequence[Any]):
        self.outputs = list(outputs)

    def _tensors(self, what: str) -> list[torch.Tensor]:
        for output in self.outputs:
            if not isinstance(output, torch.Tensor):
                raise StepUsageError(
                    f"{what}() is for tensors, and the step's function returned "
                    f"{type(output).__name__}; see .outputs"
                )
        return self.outputs

    def reduce_mean(self) -> torch.Tensor:
        """Their mean, element by element. All have one shape."""
        return self.reduce_sum() / len(self.outputs)

    def reduce_sum(self) -> torch.Tensor:
        """Their sum, element by element. All have one shape."""
        return self.stack().sum(dim=0)

    def concat(self) -> torch.Tensor:
        """One behind the other along axis 0, as the batch was."""
        return torch.cat(self._tensors("concat"))

    def stack(self) -> torch.Tensor:
        """Along a new axis 0 of as many elements as there are microbatches."""
        return torch.stack(self._tensors("reduce_mean, reduce_sum or stack"))

    def detach(self) -> StepOutput:
        """The same results without graph."""
        return StepOutput(tensor.detach() for tensor in self._tensors("detach"))

    def __repr__(self) -> str:
        return f"StepOutput({self.outputs})"


def gather(results: Sequence[Any], detach: bool) -> Any:
    """The results of all microbatches as one structure of StepOutputs.

    Raises:
        StepUsageError: the function's results had another structure in another microbatch.
    """
    flat = [tree_flatten(result) for result in results]
    _, first = flat[0]
    for microbatch, (_, structure) in enumerate(flat):
        if structure != first:
            raise StepUsageError(
                f"the step's function returned {structure} for microbatch {microbatch}, and "
                f"{first} for microbatch 0"
            )

    def output(leaves: tuple[Any, ...]) -> StepOutput:
        if not detach:
            return StepOutput(leaves)
        return StepOutput(
            leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
        )

    columns = zip(*(leaves for leaves, _ in flat), strict=True)
    return tree_unflatten([output(column) for column in columns], first)


class Splitter:
    """Cuts the arguments of a step's function.

    Tensors, also within lists, tuples, sets and dictionaries, are cut along axis 0 or the one given
    for their argument; objects with smp_slice(microbatches, microbatch, axis) cut themselves; all
    else is the same in every microbatch.

    Args:
        function: Whose arguments.
        whole: Names of arguments that are not cut.
        axes: Axis of an argument's tensors.
    """

    def __init__(self, function: Callable, whole: Iterable[str], axes: Mapping[str, int]):
        self.signature = inspect.signature(function)
        self.whole, self.axes = set(whole), dict(axes)
        takes_any = any(
            one.kind is inspect.Parameter.VAR_KEYWORD for one in self.signature.parameters.values()
        )
        for name in (*self.whole, *self.axes):
            if name not in self.signature.parameters and not takes_any:
                raise SplitError(
                    f"{function.__name__}() has no argument {name!r}; it has "
                    f"{', '.join(self.signature.parameters)}"
                )

    def split(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], count: int
    ) -> list[inspect.BoundArguments]:
        """The arguments of each of `count` microbatches.

        Raises:
            SplitError: a tensor's axis is not a multiple of `count`; the text names the argument.
        """
        bound = self.signature.bind(*args, **kwargs)
        parts = [
            inspect.BoundArguments(self.signature, bound.arguments.copy()) for _ in range(count)
        ]
        for name, value in bound.arguments.items():
            kind = self.signature.parameters[name].kind
            for part in parts:
                part.arguments[name] = value
            if kind is inspect.Parameter.VAR_KEYWORD:
                named = {key: self._slices(key, one, count) for key, one in value.items()}
                for i, part in enumerate(parts):
                    part.arguments[name] = {key: slices[i] for key, slices in named.items()}
            else:
                slices = self._slices(name, value, count)
                for i, part in enumerate(parts):
                    part.arguments[name] = slices[i]
        return parts

    def _slices(self, name: str, value: Any, count: int) -> list[Any]:
        if name in self.whole:
            return [value] * count
        return _slices(name, value, count, self.axes.get(name, 0))


def _slices(name: str, value: Any, count: int, axis: int) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return _tensor_slices(name, value, count, axis)
    if hasattr(value, "smp_slice"):
        return [value.smp_slice(count, microbatch, axis) for microbatch in range(count)]
    if isinstance(value, Mapping):
        items = {key: _slices(name, one, count, axis) for key, one in value.items()}
        return [
            _like(value, {key: slices[i] for key, slices in items.items()}) for i in range(count)
        ]
    if isinstance(value, (list, tuple, set)):
        members = [_slices(name, one, count, axis) for one in value]
        return [_like(value, [slices[i] for slices in members]) for i in range(count)]
    return [value] * count


def _like(original: Any, members: Any) -> Any:
    """A container of the original's type."""
    if isinstance(original, tuple) and hasattr(original, "_fields"):
        return type(original)(*members)
    return type(original)(members)


def _tensor_slices(name: str, tensor: torch.Tensor, count: int, axis: int) -> list[torch.Tensor]:
    if tensor.dim() == 0:
        return [tensor] * count
    if not -tensor.dim() <= axis < tensor.dim():
        raise SplitError(
            f"argument {name!r}: a tensor of shape {list(tensor.shape)} has no axis {axis} to be "
            "split along"
        )
    size = tensor.shape[axis]
    if size % count:
        raise SplitError(
            f"argument {name!r}: axis {axis} of a tensor of shape {list(tensor.shape)} has {size} "
            f"elements, which do not make {count} microbatches of equal size: let the batch be a "
            f"multiple of {count} (DataLoader(drop_last=True)), or name the argument in "
            "non_split_inputs"
        )
    return list(tensor.chunk(count, dim=axis))
