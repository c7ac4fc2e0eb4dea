# SPDX-License-Identifier: Apache-2.0
"""Something to do once a module is imported, whoever imports it and whenever."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as the others would, and has its loader call back at the end; once. It
    stays in the list then: other threads may be going through that."""

    def __init__(self, name: str, call: Callable[[], None]):
        self._name = name
        self._call = call
        self._found = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name or self._found:
            return None
        self._found = True
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            self._call_after(spec.loader)
        return spec

    def _call_after(self, loader: importlib.abc.Loader) -> None:
        execute = loader.exec_module

        def execute_and_call(module: ModuleType) -> None:
            execute(module)
            self._call()

        loader.exec_module = execute_and_call


def after_import(name: str, call: Callable[[], None]) -> None:
    """Calls at once if the module is there already. `call` is called at most once."""
    if name in sys.modules:
        call()
    else:
        sys.meta_path.insert(0, _Finder(name, call))
