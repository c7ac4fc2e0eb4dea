# SPDX-License-Identifier: Apache-2.0
"""Which rank of a pipeline owns which module: what was placed by hand, what was seen in the trace,
and the planner's answer (docs/plan.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from shoal import plan

from .checkpointing import is_kept_whole
from .config import Config
from .exceptions import PartitionError, StepUsageError
from .state_mod import state
from .tracing import Seen, Trace

PLACED = "_smp_partition"


@contextmanager
def partition(index: int) -> Iterator[None]:
    """Modules that are made within it, and all that is in them, live on this stage.

    with smp.partition(1):
        self.decoder = Decoder()
    """
    _check_index(index, "smp.partition()")
    initialize = torch.nn.Module.__init__

    def place(module: torch.nn.Module, *args, **kwargs) -> None:
        initialize(module, *args, **kwargs)
        module.__dict__.setdefault(PLACED, index)

    torch.nn.Module.__init__ = place
    try:
        yield
    finally:
        torch.nn.Module.__init__ = initialize


def set_partition(module: torch.nn.Module, index: int) -> None:
    """The module, and all in it that is not placed otherwise, lives on this stage."""
    _check_index(index, "smp.set_partition()")
    module.__dict__[PLACED] = index


def _check_index(index: int, where: str) -> None:
    stages = state.cfg.pipeline_parallel_degree
    if not isinstance(index, int) or not 0 <= index < stages:
        raise PartitionError(f"{where}: there is no partition {index!r} of {stages}")


def check_divisible(module: torch.nn.Module) -> None:
    """That it can be divided."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"DistributedModel is of a torch.nn.Module, not of {type(module).__name__}")
    for name, one in module.named_modules():
        what = f"module {name}" if name else "the model"
        if isinstance(one, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            raise StepUsageError(
                f"{what} is a {type(one).__name__}: wrap what is in it, and set 'ddp': true in the "
                "configuration for data parallel copies"
            )
        if isinstance(one, torch.jit.ScriptModule):
            raise StepUsageError(
                f"{what} is a ScriptModule, whose calls can't go to other ranks: wrap the model "
                "from before torch.jit.script or torch.jit.trace"
            )


@dataclass
class Tree:
    """A model's modules. The root is module 0; children are in the order of named_modules().

    names: As named_modules() has them; the root's is its class's.
    parents: Numbers; -1 of the root's.
    """

    modules: list[torch.nn.Module]
    names: list[str]
    parents: list[int]

    @classmethod
    def of(cls, root: torch.nn.Module) -> Tree:
        named = dict(root.named_modules())
        names = list(named)
        number_of = {name: number for number, name in enumerate(names)}
        parents = [-1]
        for name in names[1:]:
            parents.append(number_of[name.rpartition(".")[0]])
        names[0] = type(root).__name__
        return cls(list(named.values()), names, parents)

    def children(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.modules]
        for number, parent in enumerate(self.parents[1:], 1):
            found[parent].append(number)
        return found


def _order(tree: Tree, seen: Sequence[Seen]) -> list[int]:
    """Modules before those in them, which come as they were first entered; without those in modules
    that are kept whole."""
    entered = [one.entered for one in seen]
    for number in range(len(entered) - 1, 0, -1):
        parent = tree.parents[number]
        if not seen[parent].calls:
            entered[parent] = min(entered[parent], entered[number])
    children = tree.children()
    order: list[int] = []
    stack = [0]
    while stack:
        number = stack.pop()
        order.append(number)
        if is_kept_whole(tree.modules[number]):
            continue
        stack.extend(reversed(sorted(children[number], key=entered.__getitem__)))
    return order


def _keepers(tree: Tree, seen: Sequence[Seen]) -> list[int]:
    """With which module each one must be: a module that is never called can't be called elsewhere,
    so what it has is its parent's, who uses it; and some are kept whole."""
    keepers = [0]
    inside = [is_kept_whole(tree.modules[0])]
    for number, parent in enumerate(tree.parents[1:], 1):
        uncalled = not seen[number].calls and bool(own_tensors(tree.modules[number]))
        keepers.append(keepers[parent] if uncalled or inside[parent] else number)
        inside.append(inside[parent] or is_kept_whole(tree.modules[number]))
    return keepers


def own_tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    """Its parameters and buffers, without those of the modules in it."""
    return [*module.parameters(recurse=False), *module.buffers(recurse=False)]


def _planned(
    tree: Tree, order: Sequence[int], keepers: Sequence[int], seen: Sequence[Seen]
) -> list[plan.Module]:
    """For the planner, in this order."""
    position = {number: i for i, number in enumerate(order)}
    planned = []
    for number in order:
        made = plan.Module(tree.names[number], position.get(tree.parents[number], -1))
        made.device = tree.modules[number].__dict__.get(PLACED, -1)
        made.output_bytes = seen[number].output_bytes
        planned.append(made)
    first_user: dict[int, int] = {}
    for number in sorted(range(len(keepers)), key=lambda number: position[keepers[number]]):
        keeper = position[keepers[number]]
        planned[keeper].activation_bytes += seen[number].activation_bytes
        planned[keeper].forward_ns += seen[number].forward_ns
        planned[keeper].backward_ns += 2 * seen[number].forward_ns
        for tensor in own_tensors(tree.modules[number]):
            user = first_user.setdefault(id(tensor), keeper)
            if user == keeper:
                planned[keeper].parameter_bytes += tensor.nbytes
            elif user < keeper:
                planned[keeper].shares = user
    return planned


def owners(tree: Tree, trace: Trace | None, config: Config, counts_time: bool) -> plan.Plan:
    """The stage of each module, in the tree's order.

    Args:
        trace: None: nothing is known but parameters.
        counts_time: Not only memory counts.

    Raises:
        PartitionError: nobody can own some module; the text names it.
    """
    seen = trace.modules if trace is not None else [Seen(calls=1) for _ in tree.modules]
    order, keepers = _order(tree, seen), _keepers(tree, seen)
    try:
        made = plan.partition(
            _planned(tree, order, keepers, seen),
            config.pipeline_parallel_degree,
            config.memory_weight if trace is not None and counts_time else 1.0,
            default_device=None if config.auto_partition else config.default_partition,
        )
    except RuntimeError as error:
        raise PartitionError(str(error)) from error
    device_of = dict(zip(order, made.devices, strict=True))
    made.devices = [device_of[keeper] for keeper in keepers]
    return made
