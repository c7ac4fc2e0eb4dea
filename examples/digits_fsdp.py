# SPDX-License-Identifier: Apache-2.0
"""Trains the digits network with its parameters sharded over the ranks: FSDP1 or FSDP2.

    build/release/shoal run -n 2 .venv/bin/python examples/digits_fsdp.py --version 2

Prints the loss of every epoch with all its digits, to compare with another backend.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.distributed as dist
from digits_model import batches, load_data, make_network, start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--backend", default="shoal", choices=["shoal", "gloo"])
    parser.add_argument("--version", type=int, default=2, choices=[1, 2])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32, help="images per rank and step")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file to write the losses to")
    return parser.parse_args()


def shard(network: nn.Sequential, version: int, backend: str) -> nn.Module:
    """The network with every layer's parameters cut over the ranks."""
    if version == 1:
        return FullyShardedDataParallel(network, device_id=torch.device("cpu"))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in network:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    model = fully_shard(network, mesh=mesh)
    if backend == "gloo":  # has no AVG
        model.set_force_sum_reduction_for_comms(True)
    return model


def main() -> None:
    arguments = parse_arguments()
    rank, size = start(arguments.backend, arguments.seed)
    train, _ = load_data(arguments.seed)
    model = shard(make_network(), arguments.version, arguments.backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.rate, momentum=0.9)

    losses = []
    for epoch in range(1, arguments.epochs + 1):
        total = torch.zeros(1)
        steps = 0
        for images, labels in batches(train, arguments.batch, epoch, arguments.seed):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            steps += 1
        dist.all_reduce(total)
        losses.append(total.item() / (steps * size))
        if rank == 0:
            print(
                f"{arguments.backend} FSDP{arguments.version}: "
                f"epoch {epoch}/{arguments.epochs}  loss {losses[-1]!r}",
                flush=True,
            )
    if rank == 0 and arguments.json:
        arguments.json.write_text(json.dumps({"backend": arguments.backend, "losses": losses}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
