# SPDX-License-Identifier: Apache-2.0
"""What runs in the training job: a network on handwritten digits, on all instances together.

A plain script for SageMaker: data in SM_CHANNEL_TRAINING, the model in SM_MODEL_DIR, settings as
arguments. ../fit.py and ../train_v3.py send it.
"""

import argparse
import os
from pathlib import Path

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 (registers the backend)
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TEST_COUNT = 360


def load(folder):
    """Images [n, 64] in 0..1 and labels [n], to train on and to test on, of all CSV files."""
    lines = [line for path in sorted(folder.glob("*.csv")) for line in path.read_text().split()]
    table = torch.tensor([[float(word) for word in line.split(",")] for line in lines])
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(1))]
    images, labels = table[:, :-1] / 16, table[:, -1].long()
    return (images[TEST_COUNT:], labels[TEST_COUNT:]), (images[:TEST_COUNT], labels[:TEST_COUNT])


def train_epoch(model, optimizer, data, batch, epoch):
    """One epoch over this rank's share; returns the last loss."""
    images, labels = data
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
    step = batch * dist.get_world_size()
    for first in range(0, len(order) - step + 1, step):
        mine = order[first + dist.get_rank() * batch :][:batch]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[mine]), labels[mine])
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=16, help="images per rank and step")
    parser.add_argument("--rate", type=float, default=0.003, help="learning rate")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("smddp")
    data, (images, labels) = load(Path(os.environ["SM_CHANNEL_TRAINING"]))
    network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.rate)
    for epoch in range(1, arguments.epochs + 1):
        loss = train_epoch(model, optimizer, data, arguments.batch, epoch)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss={loss:.4f}", flush=True)
    if dist.get_rank() == 0:
        with torch.no_grad():
            right = (network(images).argmax(1) == labels).float().mean().item()
        ranks, hosts = dist.get_world_size(), os.environ["SM_HOSTS"]
        print(f"accuracy={right:.4f} on {ranks} ranks of {hosts}", flush=True)
        torch.save(network.state_dict(), Path(os.environ["SM_MODEL_DIR"]) / "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
