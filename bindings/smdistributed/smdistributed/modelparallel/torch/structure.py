# SPDX-License-Identifier: Apache-2.0
"""Arguments and results on their way between ranks: the structure travels as a pickle, in which
tensors are slots; the tensors travel as values of the pipe."""

from __future__ import annotations

import copyreg
import io
import pickle
from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from .exceptions import StepError
from .promise import Promise


@dataclass(frozen=True)
class Slot:
    """In place of the tensor of this number."""

    index: int


# In the plainest structures, which are walked without torch's registry of containers.
_LEAVES = {type(None), bool, int, float, str}


def _mapped(kind: type, function: Callable, structure: Any) -> Any:
    """With function(x) in place of each x of that type; tree_map_only, but several times as fast
    where the structure is of tuples, lists and dictionaries."""
    if isinstance(structure, kind):
        return function(structure)
    container = type(structure)
    if container in _LEAVES:
        return structure
    if container is tuple or container is list:
        return container([_mapped(kind, function, one) for one in structure])
    if container is dict:
        return {key: _mapped(kind, function, one) for key, one in structure.items()}
    return tree_map_only(kind, function, structure)


def take_out(structure: Any) -> tuple[Any, list[torch.Tensor]]:
    """The structure with slots, and the tensors. A tensor that is there twice has one slot."""
    tensors: list[torch.Tensor] = []
    slot_of: dict[int, Slot] = {}

    def replace(tensor: torch.Tensor) -> Slot:
        slot = slot_of.get(id(tensor))
        if slot is None:
            slot = slot_of[id(tensor)] = Slot(len(tensors))
            tensors.append(tensor)
        return slot

    return _mapped(torch.Tensor, replace, structure), tensors


class NotPlain(Exception):
    """A structure has in it what can't be compared."""


def signature(structure: Any, tensors: list[torch.Tensor]) -> Any:
    """The same for the same structures of tensors, numbers and texts in tuples, lists and
    dictionaries; the tensors, each once, are appended to the list.

    Raises:
        NotPlain: something else is in it.
    """
    if isinstance(structure, torch.Tensor):
        for index, one in enumerate(tensors):
            if one is structure:
                return index
        tensors.append(structure)
        return len(tensors) - 1
    container = type(structure)
    if container in _LEAVES:
        return container, repr(structure) if container is float else structure  # 0.0 is not -0.0
    if container is tuple or container is list:
        return container, *[signature(one, tensors) for one in structure]
    if container is dict:
        names = [signature(key, []) for key in structure]
        return container, *names, *[signature(one, tensors) for one in structure.values()]
    raise NotPlain


def fill_in(structure: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """The reverse of take_out."""
    return _mapped(Slot, lambda slot: tensors[slot.index], structure)


def _reduce_hidden(tensor: torch.Tensor) -> Any:
    """A tensor in an object that is no container: it travels as a copy."""
    if tensor.requires_grad:
        raise TypeError(
            "it has a tensor in it that needs a gradient, which would be lost; if it is a cache of "
            "a Hugging Face model, set model.config.use_cache = False"
        )
    plain = tensor.data_now() if isinstance(tensor, Promise) else tensor
    return plain.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


_REDUCERS = ChainMap(
    {one: _reduce_hidden for one in (torch.Tensor, torch.nn.Parameter, Promise)},
    copyreg.dispatch_table,
)


def _pickled(obj: Any) -> bytes:
    made = io.BytesIO()
    pickler = pickle.Pickler(made, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(obj)
    return made.getvalue()


def packed(structure: Any, whose: str) -> bytes:
    """As bytes.

    Raises:
        StepError: something in it can't be pickled; the text says whose it is, and what.
    """
    try:
        return _pickled(structure)
    except Exception:
        raise StepError(
            f"{whose} can't go to another rank: they must be tensors, or objects that can be "
            f"pickled, in lists, tuples and dictionaries ({_culprit(structure)})"
        ) from None


def _culprit(structure: Any) -> str:
    """Which of its members can't be pickled, and why."""
    for leaf in tree_leaves(structure):
        try:
            _pickled(leaf)
        except Exception as error:
            return f"{type(leaf).__name__}: {error}"
    return "its structure"


def unpacked(data: bytes) -> Any:
    return pickle.loads(data)
