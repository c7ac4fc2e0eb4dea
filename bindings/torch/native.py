# SPDX-License-Identifier: Apache-2.0
"""The compiled binding, loaded: `binding` is the module that backend.cpp defines."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from types import ModuleType

import shoal

import torch.distributed  # noqa: F401 (loads the libraries that the binding needs)

from . import build


def _load() -> ModuleType:
    """libshoal.so is loaded by package shoal before."""
    path = str(build.binding(shoal.library_path()))
    loader = importlib.machinery.ExtensionFileLoader(build.MODULE, path)
    spec = importlib.util.spec_from_file_location(build.MODULE, path, loader=loader)
    if spec is None:
        raise ImportError(f"{path} is not a Python extension module")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


binding = _load()
