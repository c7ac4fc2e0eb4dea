# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: parts, one file for each rank of the model, or the whole model in one.

    smp.save({"model": model.local_state_dict()}, "last.pt", partial=True)
    smp.save_checkpoint("checkpoints", tag="step_100", model=model, optimizer=optimizer)

A file is written under another name first, so that one of this name is always whole.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from . import ranks
from .exceptions import CheckpointError
from .state_mod import state

NEWEST = "newest"
DEGREES = "_smp_degrees"


def _part(f: str | os.PathLike) -> str:
    return f"{os.fspath(f)}_{ranks.mp_rank()}"


def _degrees() -> dict[str, int]:
    cfg = state.cfg
    return {
        "pipeline_parallel_degree": cfg.pipeline_parallel_degree,
        "tensor_parallel_degree": cfg.tensor_parallel_degree,
    }


def save(
    obj: Any,
    f: str | os.PathLike,
    partial: bool = True,
    pickle_module: Any = pickle,
    pickle_protocol: int = 2,
    v3: bool = False,
) -> None:
    """torch.save.

    Args:
        partial: To a file of this rank's own: the rank's mp_rank is added to the name.
        v3: Accepted; files have one format here.
    """
    path = Path(_part(f) if partial else f)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f".{path.name}.writing")
    try:
        torch.save(obj, written, pickle_module=pickle_module, pickle_protocol=pickle_protocol)
        os.replace(written, path)
    finally:
        written.unlink(missing_ok=True)


def load(
    f: str | os.PathLike,
    map_location: Any = None,
    pickle_module: Any = pickle,
    partial: bool = True,
    back_compat: bool = False,
    **pickle_load_args: Any,
) -> Any:
    """torch.load, from the file that save wrote with the same arguments.

    Raises:
        CheckpointError: there is no such file; the text says which.
    """
    path = Path(_part(f) if partial else f)
    if not path.exists():
        raise CheckpointError(f"there is no checkpoint {path} for mp_rank {ranks.mp_rank()}")
    pickle_load_args.setdefault("weights_only", False)
    return torch.load(path, map_location, pickle_module, **pickle_load_args)


def _file(folder: Path, what: str) -> Path:
    return folder / f"{what}_{ranks.pp_rank()}_{ranks.tp_rank()}.pt"


def save_checkpoint(
    path: str | os.PathLike,
    tag: str,
    partial: bool = True,
    model: Any = None,
    optimizer: Any = None,
    user_content: Any = None,
    translate_if_full: bool = True,
    num_kept_partial_checkpoints: int | None = None,
) -> None:
    """Writes model, optimizer and whatever else under one tag. All ranks call it.

    Args:
        path: A folder.
        partial: Files of each stage's own in <tag>_partial; else the whole model in file <tag>.
        user_content: Anything that can be pickled; the first rank's is written.
        translate_if_full: Accepted; state dictionaries have the model's own names here.
        num_kept_partial_checkpoints: Older ones are removed.
    """
    root = Path(path)
    root.mkdir(parents=True, exist_ok=True)
    if partial:
        _save_parts(root, tag, model, optimizer, user_content)
    else:
        _save_whole(root, tag, model, optimizer, user_content)
    dist.barrier()
    if ranks.rank() == 0:
        (root / NEWEST).write_text(tag)
        if partial and num_kept_partial_checkpoints:
            _remove_old(root, num_kept_partial_checkpoints)


def _save_parts(root: Path, tag: str, model: Any, optimizer: Any, user_content: Any) -> None:
    folder = root / f"{tag}_partial"
    if ranks.rdp_rank() == 0:
        if model is not None:
            content = model.local_state_dict() | {DEGREES: _degrees()}
            save(content, _file(folder, "model"), partial=False)
        if optimizer is not None:
            save(optimizer.local_state_dict(), _file(folder, "optimizer"), partial=False)
    if ranks.rank() == 0 and user_content is not None:
        save(user_content, folder / "user_content.pt", partial=False)


def _save_whole(root: Path, tag: str, model: Any, optimizer: Any, user_content: Any) -> None:
    content = {}
    if model is not None:
        content["model"] = model.state_dict()
    if optimizer is not None:
        content["optimizer"] = optimizer.state_dict()
    if ranks.rank() == 0:
        save(content, root / tag, partial=False)
        if user_content is not None:
            save(user_content, root / f"user_content_{tag}", partial=False)


def _remove_old(root: Path, kept: int) -> None:
    found = sorted(root.glob("*_partial"), key=lambda one: one.stat().st_mtime_ns)
    for folder in found[:-kept]:
        shutil.rmtree(folder)


def resume_from_checkpoint(
    path: str | os.PathLike,
    tag: str | None = None,
    partial: bool = True,
    strict: bool = True,
    load_optimizer: bool = True,
    load_sharded_optimizer_state: bool = True,
    translate_function: Any = None,
) -> Any:
    """Reads what save_checkpoint wrote, into the model and the optimizer of this process; before
    the first step it is used when the modules are divided. All ranks call it.

    Args:
        tag: None: the newest one.
        strict: Names must be those of the model.
        translate_function: Called with the whole model's state dictionary; gives the one to load.

    Returns:
        The user_content.

    Raises:
        CheckpointError: there is none, or it is of other degrees; the text says which.
    """
    root = Path(path)
    if tag is None:
        if not (root / NEWEST).exists():
            raise CheckpointError(f"there is no checkpoint in {root}: no file {root / NEWEST}")
        tag = (root / NEWEST).read_text().strip()
    model = state.model
    optimizer = state.optimizer if load_optimizer else None
    if partial:
        return _resume_parts(root / f"{tag}_partial", model, optimizer, strict)
    content = _read_whole(root, tag)
    if model is not None:
        values = content["model"]
        model.load_state_dict(translate_function(values) if translate_function else values, strict)
    if optimizer is not None and "optimizer" in content:
        optimizer.load_state_dict(content["optimizer"])
    user = root / f"user_content_{tag}"
    return _read(user) if user.exists() else None


def _resume_parts(folder: Path, model: Any, optimizer: Any, strict: bool) -> Any:
    if model is not None:
        values = _read(_file(folder, "model"))
        degrees = values.pop(DEGREES)
        if degrees != _degrees():
            raise CheckpointError(
                f"{folder} was written with {degrees}, and this job has {_degrees()}: use a full "
                "checkpoint (partial=False) to change them"
            )
        model.load_state_dict(values, strict)
    if optimizer is not None:
        optimizer.load_state_dict(_read(_file(folder, "optimizer")))
    user = folder / "user_content.pt"
    return _read(user) if user.exists() else None


def _read_whole(root: Path, tag: str) -> dict[str, Any]:
    """What save_checkpoint wrote, or a file of the model's state alone, as Hugging Face's Trainer
    writes it: under the name that it asks for, or, of late, another one."""
    other = root / "model.safetensors"
    if tag == "pytorch_model.bin" and not (root / tag).exists() and other.exists():
        from safetensors.torch import load_file

        return {"model": load_file(other)}
    content = _read(root / tag)
    return content if isinstance(content.get("model"), Mapping) else {"model": content}


def _read(path: Path) -> Any:
    if not path.exists():
        raise CheckpointError(f"there is no checkpoint file {path}")
    return torch.load(path, weights_only=False)
