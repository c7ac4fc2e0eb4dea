# SPDX-License-Identifier: Apache-2.0
"""An optimizer whose updates are made in the next forward pass: docs/ddp.md.

backward() returns when all gradients are on their way. step() notes with which settings they are to
be applied; just before a module runs in the next forward pass, its parameters' results are waited
for and they are updated. So communication goes on while the forward pass runs, and the buffers that
hold what it needs first are sent first.

Where the parameters that a pass needs are not those of the modules that it enters, the first pass
shows it: what no entered module owns is updated before the pass begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from .ddp import DistributedDataParallel

BATCH_BYTES = 1 << 20  # of parameters that are updated together: each update costs some Python


class OverlappedOptimizer:
    """Makes an optimizer's updates in the next forward pass, as results of the sum come in.

        model = shoal.torch.DistributedDataParallel(Net(), gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = shoal.torch.OverlappedOptimizer(optimizer, model)

    The loop stays as it is. Gradients are used up by the sum: `grad` of a parameter is None after
    backward(), so they can't be clipped or read. Updates that are due are made before a module of
    the model runs or its state_dict is taken; whoever reads parameters in another way calls
    synchronize() before. Where the model's gradients are not summed in fusion buffers, step() is
    the optimizer's.

    Args:
        optimizer: Any of torch.optim whose update of a parameter needs no other one; schedulers are
            given this one. Its parameters are the model's, and stay the same ones.
        model: With gradient_as_bucket_view=True, parameters of one type, and none of
            find_unused_parameters, static_graph and join().

    Raises:
        ValueError: the model is another one, or the optimizer has parameters that are not of it.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, model: DistributedDataParallel):
        if not isinstance(model, DistributedDataParallel):
            raise ValueError("shoal: updates overlap in a shoal.torch.DistributedDataParallel only")
        self.optimizer, self.model = optimizer, model
        self.settings: list[dict[str, Any]] = []  # of each group, when step() was called
        self.due: dict[torch.Tensor, None] = {}  # parameters that wait for their update
        self.entered: dict[torch.Tensor, None] = {}  # of modules that ran, in that order
        self.batches: dict[torch.Tensor, list[torch.Tensor]] = {}
        self.group_of = {
            parameter: number
            for number, group in enumerate(optimizer.param_groups)
            for parameter in group["params"]
        }
        self.reducer = model.reducer if model.fused else None
        if self.reducer:
            self.index_of = {each: i for i, each in enumerate(self.reducer.parameters)}
            if any(each not in self.index_of for each in self.group_of):
                raise ValueError("shoal: the optimizer has parameters that the model does not sum")
            self.reducer.defer(self.synchronize)
            self._place_hooks()

    def _place_hooks(self) -> None:
        self.model.register_forward_pre_hook(lambda *_: self._begin_pass())
        for module in self.model.modules():
            own = [each for each in _own_parameters(module) if each in self.index_of]
            if own:
                module.register_forward_pre_hook(lambda *_, own=own: self._enter(own))
                module.register_state_dict_pre_hook(lambda *_: self.synchronize())

    # ---- what a loop calls

    def step(self) -> None:
        """The gradients of the last backward pass are to be applied, with the settings of now."""
        if not (self.reducer and self.model.reducer is self.reducer and self.reducer.has_results):
            self.optimizer.step()
            return
        self.synchronize()
        self.reducer.has_results = False
        self.settings = [
            {name: value for name, value in group.items() if name != "params"}
            for group in self.optimizer.param_groups
        ]
        self.due = dict.fromkeys(self.group_of)
        if not self.reducer.is_deferred:  # the first step, which was waited for
            self.synchronize()

    def synchronize(self) -> None:
        """Makes the updates that are due, and waits for what they need."""
        self._update(list(self.due))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the optimizer's."""
        self.optimizer.zero_grad(set_to_none)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The optimizer's."""
        return self.optimizer.param_groups

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's, with all updates made."""
        self.synchronize()
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As the optimizer's."""
        self.synchronize()
        self.optimizer.load_state_dict(state)

    # ---- the forward pass

    def _begin_pass(self) -> None:
        if self.entered and not self.batches:
            self.batches = _batches(self.entered)
        self._update([each for each in self.due if each not in self.entered])

    def _enter(self, own: list[torch.Tensor]) -> None:
        if not self.batches:
            self.entered |= dict.fromkeys(own)
        for parameter in own:
            if parameter in self.due:
                self._update(self.batches.get(parameter, [parameter]))

    def _update(self, parameters: Iterable[torch.Tensor]) -> None:
        taken = [each for each in parameters if each in self.due]
        if not taken:
            return
        for parameter in taken:
            parameter.grad = self.reducer.result(self.index_of[parameter])
            del self.due[parameter]
        with self._narrowed(taken):
            self.optimizer.step()
        for parameter in taken:
            parameter.grad = None

    @contextlib.contextmanager
    def _narrowed(self, parameters: list[torch.Tensor]) -> Iterator[None]:
        """The optimizer knows these alone, and the settings of the step that is due."""
        groups = self.optimizer.param_groups
        some = [settings | {"params": []} for settings in self.settings]
        for parameter in parameters:
            some[self.group_of[parameter]]["params"].append(parameter)
        self.optimizer.param_groups = [group for group in some if group["params"]]
        try:
            yield
        finally:
            self.optimizer.param_groups = groups


def _own_parameters(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """With those of its lists: these are modules that nothing enters."""
    yield from module.parameters(recurse=False)
    for child in module.children():
        if isinstance(child, torch.nn.ParameterList | torch.nn.ParameterDict):
            yield from child.parameters(recurse=False)


def _batches(parameters: Iterable[torch.Tensor]) -> dict[torch.Tensor, list[torch.Tensor]]:
    """For each, those that are updated together with it: its neighbours."""
    found, batch, size = {}, [], 0
    for parameter in parameters:
        if size >= BATCH_BYTES:
            batch, size = [], 0
        batch.append(parameter)
        size += parameter.numel() * parameter.element_size()
        found[parameter] = batch
    return found
