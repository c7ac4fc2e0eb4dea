# SPDX-License-Identifier: Apache-2.0
"""Trains a convolutional network on handwritten digits under DistributedDataParallel.

    build/release/shoal run -n 2 .venv/bin/python examples/digits_ddp.py
    build/release/shoal run -n 2 .venv/bin/python examples/digits_ddp.py --fused
    build/release/shoal run -n 2 .venv/bin/python examples/digits_ddp.py --fused --compression bf16
    build/release/shoal run -n 2 .venv/bin/python examples/digits_ddp.py --backend gloo

The time in communication is what DistributedDataParallel's own logger measures in every step: from
the start of the first bucket's allreduce until the last one has ended, or, with --fused, while at
least one fusion buffer is on its way. The part of it during which the backward pass still computes
is called overlapped, the rest is exposed: that is what a step takes longer because of
communication. Both include waiting for a rank that is behind.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist
from digits_model import accuracy, batches, load_data, make_network, same_on_all_ranks, start
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--backend", default="shoal", choices=["shoal", "gloo"])
    parser.add_argument("--fused", action="store_true", help="Shoal's class, over fusion buffers")
    parser.add_argument("--compression", choices=["bf16", "fp16", "int8"], help="with --fused")
    parser.add_argument("--no-feedback", action="store_true", help="what rounding loses is lost")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32, help="images per rank and step")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file to write the measurements to")
    return parser.parse_args()


def make_model(arguments: argparse.Namespace) -> DistributedDataParallel:
    network = make_network()
    if not arguments.fused:
        return DistributedDataParallel(network, gradient_as_bucket_view=True)
    import shoal.torch

    return shoal.torch.DistributedDataParallel(
        network,
        gradient_as_bucket_view=True,
        compression=arguments.compression,
        error_feedback=not arguments.no_feedback,
    )


def train_epoch(model, optimizer, train, batch: int, epoch: int, seed: int) -> dict:
    """One epoch; returns the loss of every step, averaged over the ranks, and the speed."""
    losses = []
    count = 0
    started = time.perf_counter()
    for images, labels in batches(train, batch, epoch, seed):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        count += len(labels) * dist.get_world_size()
    seconds = time.perf_counter() - started
    mean = torch.stack(losses)
    dist.all_reduce(mean)
    mean /= dist.get_world_size()
    return {"losses": mean.tolist(), "seconds": seconds, "samples_per_s": count / seconds}


def step_times(model: DistributedDataParallel) -> dict[str, float]:
    """Mean times of a step in milliseconds, from DistributedDataParallel's logger."""
    data = model._get_ddp_logging_data()

    def milliseconds(name: str) -> float:
        return data.get(f"avg_{name}_time", 0) / 1e6

    communication = milliseconds("backward_comm")
    overlapped = milliseconds("backward_compute_comm_overlap")
    return {
        "forward_ms": milliseconds("forward_compute"),
        "backward_ms": milliseconds("backward_compute"),
        "communication_ms": communication,
        "exposed_communication_ms": max(0.0, communication - overlapped),
    }


def main() -> None:
    arguments = parse_arguments()
    rank, size = start(arguments.backend, arguments.seed)
    train, test = load_data(arguments.seed)
    model = make_model(arguments)
    model._set_ddp_runtime_logging_sample_rate(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs)

    losses, speeds = [], []
    for epoch in range(1, arguments.epochs + 1):
        result = train_epoch(model, optimizer, train, arguments.batch, epoch, arguments.seed)
        losses += result["losses"]
        speeds.append(result["samples_per_s"])
        schedule.step()
        right = accuracy(model.module, test)
        if rank == 0:
            mean = statistics.fmean(result["losses"])
            print(
                f"{arguments.backend}: epoch {epoch:2d}/{arguments.epochs}  loss {mean:.4f}  "
                f"test accuracy {right:.4f}  {speeds[-1]:6.0f} samples/s",
                flush=True,
            )
    same = same_on_all_ranks(model)
    if rank == 0:
        report(arguments, size, losses, right, statistics.median(speeds[1:] or speeds), same, model)
    # The model holds the group, and gloo's threads are joined when its last holder goes: in the
    # interpreter's end that can abort the process (pytorch/pytorch#190489).
    del model
    gc.collect()
    dist.destroy_process_group()


def report(arguments, size, losses, right, speed, same, model) -> None:
    """Prints the last lines and writes the JSON file."""
    times = step_times(model)
    print(
        f"{arguments.backend}: accuracy {right:.4f}, {speed:.0f} samples/s on {size} ranks, "
        f"communication {times['communication_ms']:.2f} ms a step "
        f"({times['exposed_communication_ms']:.2f} exposed), "
        f"parameters {'the same bits' if same else 'DIFFERENT'} on all ranks",
        flush=True,
    )
    if arguments.json:
        record = {
            "backend": arguments.backend,
            "ranks": size,
            "losses": losses,
            "accuracy": right,
            "samples_per_s": speed,
            "same_on_all_ranks": same,
            **times,
        }
        arguments.json.write_text(json.dumps(record))


if __name__ == "__main__":
    main()
