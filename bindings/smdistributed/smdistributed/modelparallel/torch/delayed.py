# SPDX-License-Identifier: Apache-2.0
"""Parameters that get their memory and values when it is known who owns them.

Within delay_param_initialization() tensors are made on torch's meta device, which has shapes and no
memory, and what is done to them is recorded, operation by operation. When the modules have been
divided each rank carries out again what its own parameters and buffers come from. Random numbers
are drawn for all of them, in the order of the program, into memory that is given back at once where
the tensor is another rank's; so the values are those that the program would have got without
delay, on any number of ranks, and the memory is that of the rank's own plus one tensor.

What is recorded are operations on storages, not on tensors: a view of a tensor, or what `.data`
gives, has the tensor's storage, so nothing needs to be known of it.

A meta tensor that was made elsewhere (torch.device("meta")) has no record: its module's
reset_parameters(), or the root's _init_weights(module), initialise it, with a seed of the module's
own.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

META, CPU = torch.device("meta"), torch.device("cpu")
TRUNCATION = "_no_grad_trunc_normal_"  # what torch.nn.init.trunc_normal_ calls
NO_RESERVE = 0x4000  # MAP_NORESERVE: address space that is never written takes no memory


def _key(tensor: torch.Tensor) -> int:
    """Of a storage; stands for it as long as somebody holds it."""
    return tensor.untyped_storage()._cdata


@dataclass(frozen=True)
class _Ref:
    """A tensor of a recorded storage."""

    key: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Ref:
        geometry = tuple(tensor.size()), tuple(tensor.stride()), tensor.storage_offset()
        return cls(_key(tensor), tensor.dtype, *geometry)

    def of_storage(self, storage: torch.UntypedStorage) -> torch.Tensor:
        empty = torch.empty(0, dtype=self.dtype)
        return empty.set_(storage, self.offset, self.size, self.stride)


@dataclass
class _Operation:
    """generator: Key of the one that it draws from.
    random_state: Of that before it, where the program has set it.
    """

    function: Any
    args: Any
    kwargs: dict[str, Any]
    results: list[_Ref]
    reads: set[int]
    writes: set[int]
    default_dtype: torch.dtype
    generator: int | None = None
    random_state: torch.Tensor | None = None


@dataclass
class _Record:
    """Of this process: from the first delayed tensor until they have their values."""

    operations: list[_Operation] = field(default_factory=list)
    storages: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    random_states: dict[int, torch.Tensor] = field(default_factory=dict)
    generators: list[torch.Generator] = field(default_factory=list)
    is_on: bool = False
    counted: int = 0  # operations that are in the sum
    sum: int = 0

    def knows(self, tensor: torch.Tensor) -> bool:
        with torch._C.DisableTorchFunctionSubclass():
            return tensor.is_meta and _key(tensor) in self.storages

    def forget(self) -> None:
        self.operations.clear()
        self.storages.clear()
        self.random_states.clear()
        self.generators.clear()
        self.counted = self.sum = 0

    @contextmanager
    def recording(self) -> Iterator[None]:
        if self.is_on:
            yield
            return
        self.is_on = True
        try:
            with _Recorder(), _whole_truncation():
                yield
        finally:
            self.is_on = False

    def fingerprint(self) -> int:
        """Equal on ranks that have recorded the same, with the same random numbers."""
        while self.counted < len(self.operations):
            one = self.operations[self.counted]
            text = f"{one.function.__name__}{[ref.size for ref in one.results]}"
            self.sum = zlib.crc32(text.encode(), self.sum)
            if one.random_state is not None:
                self.sum = zlib.crc32(one.random_state.numpy(), self.sum)
            self.counted += 1
        return self.sum

    # ---- recording

    def run(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """An operation of the program's: on tensors without memory, if it makes or takes one."""
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        makes = not tensors and _makes_a_tensor(function) and _is_here(kwargs.get("device"))
        if not makes and not any(self.knows(one) for one in tensors):
            return function(*args, **kwargs)
        if makes or kwargs.get("device") is not None:
            kwargs = kwargs | {"device": META}
        if not makes and _gives_no_tensor(function):
            return function(*self._values((args, kwargs))[0], **kwargs)
        shapes = tree_map_only(torch.Tensor, self._shape_of, (args, kwargs))
        try:
            result = function(*shapes[0], **shapes[1])
        except NotImplementedError:  # the shape of its result is a matter of values
            return function(*self._values((args, kwargs))[0], **kwargs)
        self._note(function, args, kwargs, tensors, result)
        return result

    def _shape_of(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.is_meta else torch.empty_like(tensor, device=META)

    def _note(
        self,
        function: Any,
        args: Any,
        kwargs: dict[str, Any],
        tensors: Sequence[torch.Tensor],
        result: Any,
    ) -> None:
        results = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
        reads = {_key(one) for one in tensors if one.is_meta}
        writes = {_key(one) for one in results}.difference(reads)
        writes |= {_key(one) for one in _written(function, args, kwargs) if one.is_meta}
        if not writes:
            return  # views
        for one in results:
            self.storages.setdefault(_key(one), one.untyped_storage())
        args, kwargs = tree_map_only(torch.Tensor, self._kept, (args, kwargs))
        if "device" in kwargs:
            kwargs["device"] = CPU
        refs = [_Ref.of(one) for one in results]
        dtype = torch.get_default_dtype()
        made = _Operation(function, args, kwargs, refs, reads, writes, dtype)
        if torch.Tag.nondeterministic_seeded in function.tags:
            drawn = kwargs.pop("generator", None) or torch.default_generator
            made.generator, made.random_state = drawn._cdata, self._new_state(drawn)
        self.operations.append(made)

    def note_whole(
        self,
        function: Callable[..., Any],
        tensor: torch.Tensor,
        args: Sequence[Any],
        generator: torch.Generator | None,
    ) -> None:
        """A function that fills a tensor at random."""
        with torch._C.DisableTorchFunctionSubclass():
            ref = _Ref.of(tensor)
        dtype, drawn = torch.get_default_dtype(), generator or torch.default_generator
        self.operations.append(
            _Operation(
                function,
                (ref, *args),
                {},
                [ref],
                {ref.key},
                {ref.key},
                dtype,
                drawn._cdata,
                self._new_state(drawn),
            )
        )

    def _kept(self, tensor: torch.Tensor) -> Any:
        return _Ref.of(tensor) if self.knows(tensor) else tensor.detach().clone()

    def _new_state(self, generator: torch.Generator) -> torch.Tensor | None:
        """If it was set since the last recorded operation, which draws nothing yet."""
        state, before = generator.get_state(), self.random_states.get(generator._cdata)
        if before is not None and torch.equal(state, before):
            return None
        self.random_states[generator._cdata] = state
        self.generators.append(generator)  # so that no other one gets its key
        return state

    # ---- values

    def _values(self, structure: Any) -> Any:
        """With values in place of shapes."""
        leaves = tree_leaves(structure)
        known = [one for one in leaves if isinstance(one, torch.Tensor) and self.knows(one)]
        storages = self.replay({_key(one) for one in known})
        return tree_map_only(
            torch.Tensor,
            lambda one: _Ref.of(one).of_storage(storages[_key(one)]) if self.knows(one) else one,
            structure,
        )

    def replay(self, wanted: set[int]) -> dict[int, torch.UntypedStorage]:
        """The storages, with their values. The program's random numbers are not touched."""
        return _Replay(self.operations, wanted).run()


RECORD = _Record()


class _Recorder(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch asks; else it loads its compiler, which takes seconds and 70 MiB

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = RECORD.run(function, args, dict(kwargs or {}))
            return tree_map_only(torch.Tensor, _watched, result)


@contextmanager
def _whole_truncation() -> Iterator[None]:
    """torch.nn.init.trunc_normal_ looks at values again and again, so it is recorded as one."""
    original = getattr(torch.nn.init, TRUNCATION, None)
    if original is None:
        yield
        return

    def truncate(tensor, mean, std, a, b, generator=None):
        if not RECORD.knows(tensor):
            return original(tensor, mean, std, a, b, generator)
        RECORD.note_whole(original, tensor, (mean, std, a, b), generator)
        return tensor

    setattr(torch.nn.init, TRUNCATION, truncate)
    try:
        yield
    finally:
        setattr(torch.nn.init, TRUNCATION, original)


def _makes_a_tensor(function: Any) -> bool:
    return any(argument.name == "device" for argument in function._schema.arguments)


def _is_here(device: Any) -> bool:
    return device is None or torch.device(device) == CPU


def _gives_no_tensor(function: Any) -> bool:
    return not any("Tensor" in str(one.type) for one in function._schema.returns)


def _written(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    found = []
    for index, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += tree_leaves(args[index] if index < len(args) else kwargs.get(argument.name))
    return [one for one in found if isinstance(one, torch.Tensor)]


class _Replay:
    """Carries out what some storages come from.

    Of operations on other storages only those are carried out that draw random numbers before the
    last one that matters.
    """

    def __init__(self, operations: Sequence[_Operation], wanted: set[int]):
        self.operations, self.wanted = operations, wanted
        needed, self.runs = set(wanted), [False] * len(operations)
        self.last_random = -1
        for i in reversed(range(len(operations))):
            one = operations[i]
            if one.writes & needed:
                self.runs[i] = True
                needed |= one.reads
                if one.generator is not None:
                    self.last_random = max(self.last_random, i)
        self.last_use = {
            key: i
            for i, one in enumerate(operations)
            if self.runs[i]
            for key in one.reads | one.writes
        }
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.generators: dict[int, torch.Generator] = {}

    def run(self) -> dict[int, torch.UntypedStorage]:
        default_dtype, random_state = torch.get_default_dtype(), torch.get_rng_state()
        try:
            with torch.no_grad():
                for i, one in enumerate(self.operations):
                    torch.set_default_dtype(one.default_dtype)
                    if self.runs[i]:
                        self._carry_out(one)
                        self._drop(i, one)
                    elif one.generator is not None and i < self.last_random:
                        self._draw(one)
        finally:
            torch.set_default_dtype(default_dtype)
            torch.set_rng_state(random_state)
        return self.storages

    def _kwargs(self, one: _Operation) -> dict[str, Any]:
        """With a generator that is at the same place as the program's was: torch's own, or another
        in place of one that the program made."""
        if one.generator is None:
            return one.kwargs
        is_own = one.generator == torch.default_generator._cdata
        generator = torch.default_generator if is_own else self._in_place_of(one.generator)
        if one.random_state is not None:
            generator.set_state(one.random_state)
        return one.kwargs if is_own else one.kwargs | {"generator": generator}

    def _in_place_of(self, generator: int) -> torch.Generator:
        return self.generators.setdefault(generator, torch.Generator())

    def _carry_out(self, one: _Operation) -> None:
        def tensor(ref: _Ref) -> torch.Tensor:
            return ref.of_storage(self.storages[ref.key])

        args, kwargs = tree_map_only(_Ref, tensor, (one.args, self._kwargs(one)))
        results = [r for r in tree_leaves(one.function(*args, **kwargs)) if torch.is_tensor(r)]
        for ref, result in zip(one.results, results, strict=True):
            if ref.key not in self.storages:
                if (result.stride(), result.storage_offset()) != (ref.stride, ref.offset):
                    result = torch.empty_strided(ref.size, ref.stride, dtype=ref.dtype).copy_(
                        result
                    )
                self.storages[ref.key] = result.untyped_storage()

    def _drop(self, index: int, one: _Operation) -> None:
        for key in one.reads | one.writes:
            if key not in self.wanted and self.last_use[key] == index:
                self.storages.pop(key, None)

    def _draw(self, one: _Operation) -> None:
        """The random numbers of an operation whose result nobody here needs."""
        args, kwargs = tree_map_only(
            _Ref,
            lambda ref: torch.empty_strided(ref.size, ref.stride, dtype=ref.dtype).zero_(),
            (one.args, self._kwargs(one)),
        )
        one.function(*args, **kwargs)


class DelayedTensor(torch.Tensor):
    """A tensor without values yet. What is done to it later, outside of
    delay_param_initialization(), is recorded as well."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function == torch.Tensor.is_meta.__get__:
            return False  # some of torch.nn.init leaves it alone else
        with torch._C.DisableTorchFunctionSubclass(), RECORD.recording():
            result = function(*args, **(kwargs or {}))
        return tree_map_only(torch.Tensor, _watched, result)


def _watched(tensor: torch.Tensor) -> torch.Tensor:
    if type(tensor) is torch.Tensor and RECORD.knows(tensor):
        tensor.__class__ = DelayedTensor
    return tensor


@contextmanager
def delay_param_initialization(enabled: bool = True) -> Iterator[None]:
    """Parameters and buffers of modules that are made within it get memory and values when the
    modules have been divided, on the rank that owns them; the values are those that they would have
    without it.

    with smp.delay_param_initialization():
        model = Net()

    Args:
        enabled: False: nothing is delayed.
    """
    if not enabled:
        yield
        return
    with RECORD.recording():
        yield


# ---- of a model


def lacks_values(tensor: torch.Tensor) -> bool:
    """Whether it is on the meta device."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.is_meta


def is_delayed(modules: Iterable[torch.nn.Module]) -> bool:
    """Whether any parameter or buffer has no values yet."""
    return any(lacks_values(tensor) for _, _, tensor in _members(modules))


def without_values(tensor: torch.Tensor) -> torch.Tensor:
    """One of the same form that takes no memory."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, tensor.requires_grad)
    return made


def origin(tensor: torch.Tensor) -> int:
    """What decides the values of a tensor that has none yet; equal on ranks where they will be."""
    return RECORD.fingerprint() if RECORD.knows(tensor) else torch.initial_seed()


def _members(
    modules: Iterable[torch.nn.Module],
) -> Iterator[tuple[dict[str, Any], str, torch.Tensor]]:
    for module in modules:
        for members in (module._parameters, module._buffers):
            for name, tensor in members.items():
                if tensor is not None:
                    yield members, name, tensor


@contextmanager
def stand_ins(modules: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Within it modules can run: parameters without values are zeros that take no memory as long as
    nobody writes them, and buffers have their values."""
    found = [each for each in _members(modules) if lacks_values(each[2])]
    buffers = [
        one for _, _, one in found if not isinstance(one, torch.nn.Parameter) and RECORD.knows(one)
    ]
    values = _materialised(buffers)
    made: dict[int, torch.Tensor] = {}
    for members, name, tensor in found:
        if id(tensor) not in made:
            made[id(tensor)] = values[id(tensor)] if id(tensor) in values else _zeros(tensor)
        members[name] = made[id(tensor)]
    try:
        yield
    finally:
        for members, name, tensor in found:
            members[name] = tensor


def _zeros(tensor: torch.Tensor) -> torch.Tensor:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    memory = mmap.mmap(-1, max(tensor.nbytes, 1), flags=flags)
    made = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel() or -1)
    made = made[: tensor.numel()].view(tensor.shape)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, tensor.requires_grad)
    return made


def _materialised(tensors: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
    """By id: tensors with values, in place of these."""
    with torch._C.DisableTorchFunctionSubclass():
        refs = {id(one): _Ref.of(one) for one in tensors}
        storages = RECORD.replay({ref.key for ref in refs.values()})
        return {number: ref.of_storage(storages[ref.key]) for number, ref in refs.items()}


def take_values(root: torch.nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    """Parameters and buffers on the meta device become these, by their names in the root; they stay
    the same objects."""
    named = [*root.named_parameters(), *root.named_buffers()]
    for name, tensor in named:
        if lacks_values(tensor):
            _exchange(tensor, values[name])


def initialise(named: Sequence[tuple[str, torch.nn.Module]], root: torch.nn.Module) -> str | None:
    """Parameters and buffers of these modules get memory and values; they stay the same objects.

    Args:
        named: The modules that are this rank's, with their names.
        root: Of the model.

    Returns:
        What is wrong: a module that nobody can initialise.
    """
    modules = [module for _, module in named]
    found = {id(one): one for _, _, one in _members(modules) if lacks_values(one)}
    known = [one for one in found.values() if RECORD.knows(one)]
    for number, values in _materialised(known).items():
        _exchange(found[number], values)
    for name, module in named:
        wrong = _initialise_by_module(name, module, root)
        if wrong:
            return wrong
    return None


def _exchange(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """The object stays, for optimizers and whoever has it."""
    with torch._C.DisableTorchFunctionSubclass():
        if isinstance(tensor, torch.nn.Parameter):
            values = torch.nn.Parameter(values, tensor.requires_grad)
        values.__dict__.update(tensor.__dict__)
        values.__dict__.pop("_is_param", None)  # of parameters that are of a class of tensors
        torch.utils.swap_tensors(tensor, values)


def _initialise_by_module(name: str, module: torch.nn.Module, root: torch.nn.Module) -> str | None:
    found = [(key, one) for _, key, one in _members([module]) if lacks_values(one)]
    if not found:
        return None
    for _, tensor in found:
        fill = float("nan") if tensor.is_floating_point() else 0
        _exchange(tensor, torch.full(tensor.shape, fill, dtype=tensor.dtype))
    known: list[Callable[[], Any]] = []
    if callable(getattr(module, "reset_parameters", None)):
        known.append(module.reset_parameters)
    if callable(getattr(root, "_init_weights", None)):
        known.append(lambda: root._init_weights(module))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(zlib.crc32(f"{torch.initial_seed()} {name}".encode()))
        for function in known:
            function()
    lacking = [key for key, one in found if not known or bool(one.isnan().any())]
    if not lacking:
        return None
    return (
        f"{lacking[0]} of module {name or 'of the model'} ({type(module).__name__}) has no values "
        "(it is on torch's meta device), and nobody can initialise it: make the model within "
        f"smp.delay_param_initialization(), or give {type(module).__name__} a reset_parameters() "
        "method"
    )
