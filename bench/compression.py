# SPDX-License-Identifier: Apache-2.0
"""What compressed gradients do to training: the digits network with each kind, over several seeds.

    build/release/shoal run -n 4 .venv/bin/python bench/compression.py

All kinds of a seed begin with the same parameters and see the same images. Prints the table of
docs/compression.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from digits_model import (  # noqa: E402 (from the examples)
    accuracy,
    batches,
    load_data,
    make_network,
    same_on_all_ranks,
    start,
)

KINDS = [
    (None, True),
    *((name, kept) for name in ("bf16", "fp16", "int8") for kept in (True, False)),
]
GRADIENT_BYTES = 4


@dataclass
class Found:
    """What one kind came to, an entry for each seed."""

    accuracies: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # mean of the last epoch
    wire_bytes: float = 0  # for each element


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=16, help="images per rank and step")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate")
    return parser.parse_args()


def train_epoch(model, optimizer, data, arguments, epoch: int, seed: int) -> float:
    """Returns the mean loss of all ranks."""
    losses = []
    for images, labels in batches(data, arguments.batch, epoch, seed):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    mean = torch.stack(losses).mean()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    return mean.item()


def train(arguments, seed: int, compression: str | None, feedback: bool, found: Found) -> None:
    import shoal.torch

    torch.manual_seed(seed)
    learnt, tested = load_data(seed)
    model = shoal.torch.DistributedDataParallel(
        make_network(), compression=compression, error_feedback=feedback
    )
    torch.manual_seed(1000 * seed + dist.get_rank())  # dropout
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs)
    for epoch in range(1, arguments.epochs + 1):
        loss = train_epoch(model, optimizer, learnt, arguments, epoch, seed)
        schedule.step()
    if not same_on_all_ranks(model):
        raise RuntimeError(f"compression {compression}: the ranks' parameters differ")
    (counted,) = model.fuse_counters()
    found.accuracies.append(accuracy(model.module, tested))
    found.losses.append(loss)
    found.wire_bytes = GRADIENT_BYTES * counted["wire_bytes"] / counted["bytes"]


def row(compression: str | None, feedback: bool, found: Found) -> str:
    name = compression or "none"
    if not feedback:
        name += ", no feedback"
    right, low, high = (100 * each(found.accuracies) for each in (statistics.fmean, min, max))
    return (
        f"| {name} | {found.wire_bytes:.3f} | {right:.2f} ({low:.2f} to {high:.2f}) "
        f"| {statistics.fmean(found.losses):.4f} |"
    )


def main() -> None:
    arguments = parse_arguments()
    rank, size = start("shoal", 1)
    if rank == 0:
        print(f"{arguments.seeds} seeds, {arguments.epochs} epochs, {size} ranks\n")
        print("| compression | bytes per element | test accuracy, % | loss of the last epoch |")
        print("|---|---|---|---|", flush=True)
    for compression, feedback in KINDS:
        found = Found()
        for seed in range(1, arguments.seeds + 1):
            train(arguments, seed, compression, feedback, found)
        if rank == 0:
            print(row(compression, feedback, found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
