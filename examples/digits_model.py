# SPDX-License-Identifier: Apache-2.0
"""What the digits examples share: the data, the network, and who gets which images.

The data are the 1,797 handwritten digits of 8 by 8 pixels that come with scikit-learn.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn

TEST_COUNT = 360


def load_data(seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """(images [n, 1, 8, 8] in 0..1, labels [n]) to train on and to test on, split by the seed."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    images, labels = images[order], labels[order]
    train = (images[TEST_COUNT:], labels[TEST_COUNT:])
    return train, (images[:TEST_COUNT], labels[:TEST_COUNT])


def make_network() -> nn.Sequential:
    """A small convolutional network: [n, 1, 8, 8] to scores [n, 10]; about 280,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64 * 4 * 4, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )


def start(backend: str, seed: int) -> tuple[int, int]:
    """Joins the process group; returns rank and size. One thread for each core of this rank."""
    if backend == "shoal":
        import shoal.torch  # noqa: F401 (registers the backend)
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // local_size))
    torch.manual_seed(seed)
    dist.init_process_group(backend)
    return dist.get_rank(), dist.get_world_size()


def batches(
    train: tuple[Tensor, Tensor], batch: int, epoch: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """This rank's share of an epoch: the images in an order that all ranks know, cut so that no
    image is seen twice and every rank makes the same number of steps."""
    rank, size = dist.get_rank(), dist.get_world_size()
    images, labels = train
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    order = torch.randperm(len(labels), generator=generator)
    for first in range(0, len(order) - batch * size + 1, batch * size):
        mine = order[first + rank * batch : first + (rank + 1) * batch]
        yield images[mine], labels[mine]


@torch.no_grad()
def accuracy(network: nn.Module, test: tuple[Tensor, Tensor]) -> float:
    """Share of the test images that the network names rightly; each rank looks at its part."""
    rank, size = dist.get_rank(), dist.get_world_size()
    images, labels = test[0][rank::size], test[1][rank::size]
    network.eval()
    right = (network(images).argmax(1) == labels).sum()
    network.train()
    counts = torch.tensor([right.item(), len(labels)], dtype=torch.float64)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def same_on_all_ranks(network: nn.Module) -> bool:
    """Whether every rank holds the same bits in every parameter."""
    digest = hashlib.sha256()
    for parameter in network.parameters():
        digest.update(parameter.detach().contiguous().view(torch.uint8).numpy().tobytes())
    digests = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest.hexdigest())
    return len(set(digests)) == 1
