# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer (Transformers 4.x) on machines without GPUs, with every copy of the model
on data of its own.

    from smdistributed.modelparallel.torch.trainer import Trainer, TrainingArguments

in place of Transformers' classes of these names. Those know this library, but they ask for a GPU
first; since their release 4.30 the copies all train on the same data; and they clip each stage's
gradients by its own norm. Where model parallel training is not switched on, these are those.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import torch
import transformers
from transformers.utils import is_sagemaker_mp_enabled

from . import ranks


class TrainingArguments(transformers.TrainingArguments):
    """Transformers' own, of a rank whose part of the model is in the host's memory."""

    def __post_init__(self) -> None:
        if is_sagemaker_mp_enabled():
            self.use_cpu = True
        super().__post_init__()
        if is_sagemaker_mp_enabled():
            # DistributedModel and DistributedOptimizer do what Accelerate refuses without a GPU.
            os.environ["ACCELERATE_MIXED_PRECISION"] = "no"

    @cached_property
    def _setup_devices(self) -> torch.device:
        if not is_sagemaker_mp_enabled():
            return super()._setup_devices
        self.distributed_state, self._n_gpu = None, 0  # ranks are asked of this library
        return torch.device("cpu")


class Trainer(transformers.Trainer):
    """Transformers' own; training data are divided among the copies of the model, and gradients
    clipped by the norm of the whole model's. Every copy evaluates all evaluation data."""

    def _wrap_model(self, *arguments: Any, **named: Any) -> torch.nn.Module:
        wrapped = super()._wrap_model(*arguments, **named)
        if is_sagemaker_mp_enabled():
            self.model_wrapped = wrapped  # Transformers' own notes it only when it trains
        return wrapped

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        if is_sagemaker_mp_enabled():
            self.accelerator.clip_grad_norm_ = self._clip

    def _clip(self, _parameters: Any, max_norm: float, *_more: Any) -> torch.Tensor:
        return self.optimizer.clip_master_grads(max_norm)

    def get_train_dataloader(self) -> torch.utils.data.DataLoader:
        if not is_sagemaker_mp_enabled():
            return super().get_train_dataloader()
        seen = self.accelerator.state
        seen.num_processes, seen.process_index = ranks.dp_size(), ranks.dp_rank()
        try:
            return super().get_train_dataloader()
        finally:
            seen.num_processes, seen.process_index = 1, 0

    def _save_rng_state(self, output_dir: str) -> None:
        """One rank of a copy: all would write the same file."""
        if not is_sagemaker_mp_enabled() or ranks.mp_rank() == 0:
            super()._save_rng_state(output_dir)
