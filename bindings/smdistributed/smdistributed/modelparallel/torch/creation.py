# SPDX-License-Identifier: Apache-2.0
"""smp.model_creation: how a model is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .delayed import delay_param_initialization
from .exceptions import ConfigurationError
from .state_mod import state

# Of tensor parallel modules.
TENSOR_PARALLEL_OPTIONS = (
    "attention_in_fp32",
    "query_key_layer_scaling",
    "fused_softmax",
    "fused_dropout",
    "fused_bias_gelu",
    "distribute_embedding",
)


@contextmanager
def model_creation(
    tensor_parallelism: bool = False, dtype: torch.dtype | None = None, **tp_config: Any
) -> Iterator[None]:
    """Within it models are made, with parameters of a type, and without values if the configuration
    says 'delayed_parameter_initialization'.

    with smp.model_creation(dtype=torch.float16):
        model = Net()

    Args:
        tensor_parallelism: Not there yet; True is an error.
        dtype: Of parameters and buffers of floating point; None: torch's default.
        tp_config: Of tensor parallel modules, so without effect.

    Raises:
        ConfigurationError: tensor_parallelism=True.
        TypeError: an unknown argument.
    """
    for name in tp_config:
        if name not in TENSOR_PARALLEL_OPTIONS:
            raise TypeError(
                f"smp.model_creation() has no argument {name!r}; there are tensor_parallelism, "
                f"dtype, {', '.join(TENSOR_PARALLEL_OPTIONS)}"
            )
    if tensor_parallelism:
        raise ConfigurationError(
            "smp.model_creation(tensor_parallelism=True) is not supported by Shoal yet"
        )
    before = torch.get_default_dtype()
    if dtype is not None:
        torch.set_default_dtype(dtype)
    try:
        with delay_param_initialization(state.cfg.delayed_parameter_initialization):
            yield
    finally:
        torch.set_default_dtype(before)
