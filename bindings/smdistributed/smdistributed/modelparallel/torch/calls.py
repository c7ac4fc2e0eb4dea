# SPDX-License-Identifier: Apache-2.0
"""Calls of modules on other ranks: what of them caller and owner tell each other.

Most calls of a step are alike: the same module, arguments of the same structure and shapes, in
every microbatch of every step. What they have in common is a *site*. It travels with its first
calls, and has a number; once the owner has carried one of these out the number is enough.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from shoal.torch.pipe import TensorKinds

from .promise import Meta, Promise
from .structure import Slot, packed, take_out, unpacked

NUMBERS = 0  # the first byte of what is no pickle
NOTHING = nullcontext()


class Mode(NamedTuple):
    """What of the caller's thread holds in the owner's too."""

    grad: bool
    autocast: torch.dtype | None

    @classmethod
    def current(cls) -> Mode:
        autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        return cls(torch.is_grad_enabled(), autocast)

    def is_current(self) -> bool:
        casts = torch.is_autocast_enabled("cpu")
        return (
            self.grad == torch.is_grad_enabled()
            and casts == (self.autocast is not None)
            and (not casts or self.autocast == torch.get_autocast_dtype("cpu"))
        )

    def entered(self) -> AbstractContextManager[None]:
        return NOTHING if self.is_current() else self._entered()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with (
            torch.set_grad_enabled(self.grad),
            torch.autocast("cpu", self.autocast, enabled=self.autocast is not None),
        ):
            yield


@dataclass(frozen=True)
class Shape:
    """Of a result: its structure with slots, and what is known of each tensor."""

    structure: Any
    metas: tuple[Meta, ...]

    @cached_property
    def has_gradients(self) -> bool:
        return any(meta.requires_grad for meta in self.metas)

    @cached_property
    def is_one(self) -> bool:
        """It is a tensor."""
        return self.structure == Slot(0)

    @cached_property
    def kinds(self) -> TensorKinds:
        """Of the tensors, for the pipe."""
        return TensorKinds(self.metas)

    def tensors_in(self, result: Any) -> list[torch.Tensor] | None:
        """Of a result of this shape whose data is here; None: it is not such a one."""
        if self.is_one and type(result) is torch.Tensor:
            tensors = [result]
        else:
            structure, tensors = take_out(result)
            if structure != self.structure:
                return None
        return tensors if self.kinds.fit(tensors) else None

    def __reduce__(self) -> tuple:
        """What is cached stays here."""
        return Shape, (self.structure, self.metas)


@dataclass(eq=False)
class Site:
    """Calls that are alike.

    number: Among its caller's; 0: of one call only.
    structure, inputs: Of the arguments: with slots, and what is known of the tensors.
    shape: Of the result; None until the first call has come back.
    key: By which the shapes of results are known, on the caller.
    is_known: The owner has it.
    is_plain: The arguments are tensors, one after the other.
    takes: The inputs, for the pipe.
    copies: On the owner: the module gets copies of them; None: not known yet.
    """

    module: int
    number: int
    mode: Mode
    structure: Any
    inputs: tuple[Meta, ...]
    shape: Shape | None = None
    key: tuple | None = None
    is_known: bool = False
    is_plain: bool = field(init=False)
    takes: TensorKinds = field(init=False)
    copies: bool | None = None

    def __post_init__(self):
        self.is_plain = self.structure == (tuple(map(Slot, range(len(self.inputs)))), {})
        self.takes = TensorKinds(self.inputs)

    def is_of(self, tensors: tuple[Any, ...]) -> bool:
        """Whether a call with these arguments, now, is one of them; of plain ones."""
        for one in tensors:
            if type(one) is Promise and one.is_written:
                return False
        return self.mode.is_current() and self.takes.are(tensors)


@dataclass(eq=False)
class Call:
    """Of a module elsewhere, as the caller sees it.

    number: The value that says that its forward task is done.
    is_asked: Its backward task was submitted.
    is_done: The task that made it has ended, so its forward task has too.
    """

    site: Site
    owner: int
    microbatch: int
    number: int = 0
    is_asked: bool = False
    is_done: bool = False


def _numbers(values: Sequence[int]) -> bytes:
    return struct.pack(f"<B{len(values)}Q", NUMBERS, *values)


def _read_numbers(blob: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<x{len(blob) // 8}Q", blob)


class Forward(NamedTuple):
    """What a forward task says.

    expected: Of the result, if the caller knows it.
    results: Values of the tensors in it; one, of all of them, if the caller knows nothing.
    """

    site: Site
    number: int
    expected: Shape | None
    results: Sequence[int]

    def blob(self, whose: str) -> bytes:
        if self.site.is_known:
            return _numbers((self.site.number, self.number, *self.results))
        site = self.site
        fields = site.module, site.number, site.mode, site.structure, site.inputs, site.shape
        return packed((fields, self.number, self.results), whose)

    @classmethod
    def read(cls, blob: bytes, known: dict[tuple[int, int], Site], caller: int) -> Forward:
        """known: The sites of all callers, which gets a new one."""
        if blob[0] == NUMBERS:
            site_number, number, *results = _read_numbers(blob)
            site = known[caller, site_number]
            return cls(site, number, site.shape, results)
        fields, number, results = unpacked(blob)
        site = Site(*fields)
        expected = site.shape
        if site.number:
            site = known.setdefault((caller, site.number), site)
        return cls(site, number, expected, results)


class Backward(NamedTuple):
    """What a backward task says.

    number: Of the call.
    done: The value that says that it is done.
    given: Which results have gradients, the task's last needs.
    results: Values of the arguments' gradients; 0: not wanted.
    """

    number: int
    done: int
    given: Sequence[int]
    results: Sequence[int]

    def blob(self) -> bytes:
        return _numbers((self.number, self.done, len(self.given), *self.given, *self.results))

    @classmethod
    def read(cls, blob: bytes) -> Backward:
        number, done, count, *rest = _read_numbers(blob)
        return cls(number, done, rest[:count], rest[count:])
