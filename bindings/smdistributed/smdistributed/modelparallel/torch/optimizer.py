# SPDX-License-Identifier: Apache-2.0
"""An optimizer of which each rank carries out the part that updates its own parameters; with fp16
and bf16 it keeps them in fp32 too, and looks for gradients that have overflowed.

State dictionaries name parameters by their number in the optimizer as it was made, over the whole
model; so a full one fits any partition, and the model on one process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from . import shortage
from .collective import gather_objects
from .exceptions import CheckpointError, OutOfMemoryError, StepUsageError
from .state_mod import PARTIAL, state


class LossScaler:
    """What losses are multiplied by, so that gradients in fp16 don't vanish.

    Args:
        scale: At first.
        factor: The scale is divided by it after an overflow, and multiplied after a window
            without one; 1: it stays.
        window: Steps.
        min_scale: It does not fall below it.
        delayed_shift: So many overflows in a row divide it once.
        consecutive_hysteresis: A step without overflow begins that count anew.
    """

    def __init__(
        self,
        scale: float,
        factor: float = 1.0,
        window: int = 1000,
        min_scale: float = 1.0,
        delayed_shift: int = 1,
        consecutive_hysteresis: bool = False,
    ):
        self.scale, self.factor, self.window, self.min_scale = scale, factor, window, min_scale
        self.delayed_shift, self.consecutive = delayed_shift, consecutive_hysteresis
        self.patience = delayed_shift
        self.steps_since = 0

    def update(self, has_overflowed: bool) -> None:
        """After a step."""
        if self.factor == 1.0:
            return
        if has_overflowed:
            self.steps_since = 0
            self.patience -= 1
            if self.patience <= 0:
                self.scale = max(self.scale / self.factor, self.min_scale)
                self.patience = self.delayed_shift
            return
        self.steps_since += 1
        if self.consecutive:
            self.patience = self.delayed_shift
        if self.steps_since % self.window == 0:
            self.patience = self.delayed_shift
            self.scale *= self.factor

    def state_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def load_state_dict(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)


def _scaler(static: float, is_dynamic: bool, args: dict[str, Any]) -> LossScaler:
    if not is_dynamic:
        return LossScaler(static)
    known = {
        "init_scale": 2.0**32,
        "scale_factor": 2.0,
        "scale_window": 1000,
        "min_scale": 1,
        "delayed_shift": 1,
        "consecutive_hysteresis": False,
    }
    for name in args:
        if name not in known:
            raise TypeError(
                f"DistributedOptimizer has no argument {name!r} of dynamic loss scaling; there are "
                + ", ".join(known)
            )
    values = known | args
    return LossScaler(
        values["init_scale"],
        values["scale_factor"],
        values["scale_window"],
        values["min_scale"],
        values["delayed_shift"],
        values["consecutive_hysteresis"],
    )


class DistributedOptimizer(torch.optim.Optimizer):
    """Wraps an optimizer of all of the model's parameters. It is one itself only as far as learning
    rate schedulers and Accelerate ask: what it has is the wrapped one's.

    Args:
        optimizer: Of torch's kind.
        static_loss_scale: With fp16: losses are multiplied by it.
        dynamic_loss_scale: With fp16: the scale follows what overflows; dynamic_loss_args are
            init_scale, scale_factor, scale_window, min_scale, delayed_shift and
            consecutive_hysteresis.
    """

    _is_accelerate_prepared = True  # Accelerate takes it as it is

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        static_loss_scale: float = 1.0,
        dynamic_loss_scale: bool = False,
        **dynamic_loss_args: Any,
    ):
        self.optimizer = optimizer
        self.scaler = _scaler(static_loss_scale, dynamic_loss_scale, dynamic_loss_args)
        self.overflow = False
        self.masters: dict[torch.nn.Parameter, torch.nn.Parameter] = {}
        # Numbers of all parameters, by group, before other ranks' are left out.
        self.numbers = self._count()
        self.groups = [
            [self.numbers[one] for one in group["params"]] for group in self.param_groups
        ]
        self.waiting: dict[str, Any] | None = None  # loaded before the partition
        state.optimizer = self
        if state.model is None:
            raise StepUsageError("make the DistributedModel before its DistributedOptimizer")
        state.model.register_post_partition_hook(DistributedOptimizer._at_partition)

    def _count(self) -> dict[torch.nn.Parameter, int]:
        everything = [one for group in self.optimizer.param_groups for one in group["params"]]
        return {one: number for number, one in enumerate(everything)}

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    @property
    def state(self) -> dict[Any, Any]:
        return self.optimizer.state

    @property
    def defaults(self) -> dict[str, Any]:
        return self.optimizer.defaults

    @property
    def loss_scale(self) -> float:
        return self.scaler.scale

    @property
    def step_was_skipped(self) -> bool:
        """Accelerate's word for overflow."""
        return self.overflow

    @staticmethod
    def _at_partition(model: Any, optimizer: DistributedOptimizer | None) -> None:
        if optimizer is not None:
            optimizer._keep_own(model)

    def _keep_own(self, model: Any) -> None:
        own = set(model.local_parameters())
        for group in self.param_groups:
            group["params"] = [one for one in group["params"] if one in own]
        for parameter in list(self.optimizer.state):
            if parameter not in own:
                del self.optimizer.state[parameter]
        if state.cfg.precision != "fp32":
            self._make_masters()
        if self.waiting is not None:
            self.load_state_dict(self.waiting)
            self.waiting = None

    def _make_masters(self) -> None:
        for group in self.param_groups:
            made = []
            for parameter in group["params"]:
                master = torch.nn.Parameter(parameter.detach().float())
                self.masters[parameter] = master
                self.numbers[master] = self.numbers[parameter]
                made.append(master)
            group["params"] = made

    def renew_masters(self) -> None:
        """The model's parameters were loaded."""
        with torch.no_grad():
            for parameter, master in self.masters.items():
                master.copy_(parameter)

    # ---- a step

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)
        for parameter in self.masters:
            parameter.grad = None

    def _take_gradients(self) -> None:
        """Those of all data parallel ranks, from parameters to their fp32 forms, without the loss's
        scale."""
        if state.model is not None:
            state.model.sum_gradients()
        for parameter, master in self.masters.items():
            if parameter.grad is not None:
                master.grad = parameter.grad.float().div_(self.scaler.scale)
                parameter.grad = None

    def _has_overflowed(self) -> bool:
        """Whether any rank of the model parallel group has a gradient that is not finite."""
        found = any(
            not torch.isfinite(master.grad).all()
            for master in self.masters.values()
            if master.grad is not None
        )
        flag = torch.tensor([float(found)])
        dist.all_reduce(flag, dist.ReduceOp.MAX, group=state.topology.process_groups["mp"])
        return bool(flag)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates this rank's parameters. All ranks of the model call it. With fp16 nothing is
        updated where a gradient has overflowed (`overflow`)."""
        try:
            with shortage.explained("the optimizer's step"):
                return self._step(closure)
        except OutOfMemoryError as error:
            if state.model is not None:
                state.model.stop_others(str(error))
            raise

    def _step(self, closure: Callable[[], Any] | None) -> Any:
        self._take_gradients()
        if not self.masters:
            return self.optimizer.step(closure)
        self.overflow = state.cfg.precision == "fp16" and self._has_overflowed()
        self.scaler.update(self.overflow)
        result = None
        if not self.overflow:
            result = self.optimizer.step(closure)
            with torch.no_grad():
                for parameter, master in self.masters.items():
                    parameter.copy_(master)
        for master in self.masters.values():
            master.grad = None
        return result

    def clip_master_grads(self, max_norm: float) -> torch.Tensor:
        """Scales all gradients so that the norm of the whole model's is at most max_norm. All ranks
        of the model call it.

        Returns:
            The norm before.
        """
        self._take_gradients()
        gradients = [
            one.grad
            for group in self.param_groups
            for one in group["params"]
            if one.grad is not None
        ]
        square = torch.zeros(1)
        for gradient in gradients:
            square += gradient.float().square().sum()
        dist.all_reduce(square, group=state.topology.process_groups["mp"])
        norm = square.sqrt()[0]
        factor = max_norm / (norm + 1e-6)
        if factor < 1:
            torch._foreach_mul_(gradients, factor.item())
        return norm

    # ---- state

    def local_state_dict(self, gather_if_shard: bool = True) -> dict[str, Any]:
        """Of this rank's parameters only."""
        own = {
            self.numbers[parameter]: values for parameter, values in self.optimizer.state.items()
        }
        groups = []
        for group, numbers in zip(self.param_groups, self.groups, strict=True):
            groups.append({k: v for k, v in group.items() if k != "params"} | {"params": numbers})
        made = {"state": own, "param_groups": groups, PARTIAL: True}
        if self.masters:
            made["masters"] = {self.numbers[p]: m.detach() for p, m in self.masters.items()}
            made["loss_scaler"] = self.scaler.state_dict()
        return made

    def state_dict(self) -> dict[str, Any]:
        """Of the whole model. All ranks of a model parallel group call it."""
        local = self.local_state_dict()
        parts = gather_objects(local, "mp", "DistributedOptimizer.state_dict()")
        for part in parts:
            local["state"] |= part["state"]
            if self.masters:
                local["masters"] |= part["masters"]
        del local[PARTIAL]
        local["state"] = dict(sorted(local["state"].items()))
        return local

    def load_state_dict(self, values: dict[str, Any]) -> None:
        """A full one, or this rank's partial one. Before the first step it is kept until modules
        are divided.

        Raises:
            CheckpointError: it is of other parameters.
        """
        if not state.model.partitioned:
            self.waiting = values
            return
        groups = values["param_groups"]
        if [len(group["params"]) for group in groups] != [len(numbers) for numbers in self.groups]:
            raise CheckpointError(
                "the optimizer's state has groups of "
                f"{[len(group['params']) for group in groups]} parameters, and the optimizer of "
                f"{[len(numbers) for numbers in self.groups]}"
            )
        own = {self.numbers[one] for group in self.param_groups for one in group["params"]}
        taken = {number: one for number, one in values["state"].items() if number in own}
        local = []
        for group, mine in zip(groups, self.param_groups, strict=True):
            numbers = [self.numbers[one] for one in mine["params"]]
            local.append({k: v for k, v in group.items() if k != "params"} | {"params": numbers})
        self._load_by_numbers(taken, local)
        for parameter, master in self.masters.items():
            if self.numbers[parameter] in values.get("masters", {}):
                with torch.no_grad():
                    master.copy_(values["masters"][self.numbers[parameter]])
        if "loss_scaler" in values:
            self.scaler.load_state_dict(values["loss_scaler"])

    def save_optimizer_backcompat(self, gather_if_shard: bool = True) -> dict[str, Any]:
        """The older name of local_state_dict()."""
        return self.local_state_dict(gather_if_shard)

    def load_optimizer_backcompat(
        self, state_dict: dict[str, Any], gather_if_shard: bool = True
    ) -> None:
        """The older name of load_state_dict()."""
        self.load_state_dict(state_dict)

    def take_state_of(self, source: int) -> None:
        """Of a data parallel rank, which has the same parameters. Collective over them."""
        topology = state.topology
        values = [self.local_state_dict() if topology.rank_in("dp") == source else None]
        group, members = topology.process_groups["dp"], topology.members["dp"]
        dist.broadcast_object_list(values, members[source], group=group)
        if topology.rank_in("dp") != source:
            self.load_state_dict(values[0])

    def _load_by_numbers(self, taken: dict[int, Any], groups: list[dict[str, Any]]) -> None:
        """torch counts the parameters that it has; ours have gaps."""
        counted = {n: i for i, n in enumerate(n for group in groups for n in group["params"])}
        self.optimizer.load_state_dict(
            {
                "state": {counted[number]: one for number, one in taken.items()},
                "param_groups": [
                    group | {"params": [counted[n] for n in group["params"]]} for group in groups
                ],
            }
        )

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self.optimizer!r})"
