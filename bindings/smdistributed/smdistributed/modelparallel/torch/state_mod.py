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


class State:
    """Of the process: set by smp.init()."""

    def __init__(self):
        self._cfg: Config | None = None
        self._topology: Topology | None = None
        self.model: weakref.ref[DistributedModel] | None = None
        self.optimizer: weakref.ref[DistributedOptimizer] | None = None
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

    def begin(self, cfg: Config, topology: Topology) -> None:
        self._cfg, self._topology = cfg, topology


state = State()
