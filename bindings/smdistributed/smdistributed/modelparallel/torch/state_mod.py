# SPDX-License-Identifier: Apache-2.0
"""What this process knows of itself: `state`. Programs read state.cfg."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from .exceptions import InitializationError

if TYPE_CHECKING:
    from .config import Config
    from .model import DistributedModel
    from .optimizer import DistributedOptimizer
    from .topology import Topology


PARTIAL = "_smp_is_partial"  # in state dictionaries of one rank


class ModuleManager:
    """What programs ask for the names in state dictionaries: they are the model's own.

    translate_functions: Pairs, to the model's names and back: none are needed.
    """

    translate_functions: tuple = ()


class State:
    """Of the process: set by smp.init()."""

    module_manager = ModuleManager()

    def __init__(self):
        self._cfg: Config | None = None
        self._topology: Topology | None = None
        self._model: weakref.ref[DistributedModel] | None = None
        self._optimizer: weakref.ref[DistributedOptimizer] | None = None
        self.is_tracing = False
        self.is_in_step = False

    @property
    def is_initialized(self) -> bool:
        return self._cfg is not None

    @property
    def cfg(self) -> Config:
        """The configuration.

        Raises:
            InitializationError: smp.init() was not called.
        """
        if self._cfg is None:
            raise InitializationError("call smp.init() first")
        return self._cfg

    @property
    def topology(self) -> Topology:
        """This rank's groups.

        Raises:
            InitializationError: smp.init() was not called.
        """
        if self._topology is None:
            raise InitializationError("call smp.init() first")
        return self._topology

    @property
    def model(self) -> DistributedModel | None:
        """The one of this process, as long as somebody has it."""
        return self._model() if self._model else None

    @model.setter
    def model(self, model: DistributedModel) -> None:
        self._model = weakref.ref(model)

    @property
    def optimizer(self) -> DistributedOptimizer | None:
        """The last one that was made, as long as somebody has it."""
        return self._optimizer() if self._optimizer else None

    @optimizer.setter
    def optimizer(self, optimizer: DistributedOptimizer) -> None:
        self._optimizer = weakref.ref(optimizer)

    def begin(self, cfg: Config, topology: Topology) -> None:
        self._cfg, self._topology = cfg, topology


state = State()
