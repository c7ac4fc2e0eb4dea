# SPDX-License-Identifier: Apache-2.0
"""Trains a transformer of 50 million parameters, of which each rank holds a part, on a real book.

    build/release/shoal run -n 4 .venv/bin/python examples/pipeline_transformer.py --partitions 2

The network is an ordinary one: smdistributed.modelparallel divides it, and runs it as a pipeline
(docs/modelparallel.md). Ranks beyond --partitions hold further copies. The book is that of
char_transformer.py. Needs bindings/python and bindings/smdistributed in PYTHONPATH, or both wheels.
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path

import smdistributed.modelparallel.torch as smp
import torch
from char_transformer import read_book
from torch import Tensor, nn

CONTEXT = 64  # characters that the network sees
HEAD_WIDTH = 64


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--partitions", type=int, default=2, help="stages of the pipeline")
    parser.add_argument("--microbatches", type=int, default=4, help="in a step")
    parser.add_argument("--pipeline", default="interleaved", choices=["interleaved", "simple"])
    parser.add_argument("--width", type=int, default=768, help="of a layer, a multiple of 64")
    parser.add_argument("--layers", type=int, default=7)
    parser.add_argument("--text", type=Path, help="a text file instead of the Bible")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16, help="passages of all ranks in a step")
    parser.add_argument("--rate", type=float, default=3e-4, help="learning rate")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


class Block(nn.Module):
    """Attention to what came before, then a small network: [n, t, width] to the same shape."""

    def __init__(self, width: int):
        super().__init__()
        self.heads = width // HEAD_WIDTH
        self.before_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.before_network = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        parts = self.qkv(self.before_attention(x)).view(n, t, 3, self.heads, HEAD_WIDTH)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.joined(seen.transpose(1, 2).reshape(n, t, width))
        return x + self.narrow(nn.functional.gelu(self.wide(self.before_network(x))))


class Writer(nn.Module):
    """Characters [n, t] to scores of the next ones [n, t, characters]."""

    def __init__(self, characters: int, width: int, layers: int):
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.position = nn.Parameter(torch.zeros(CONTEXT, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, characters)

    def forward(self, text: Tensor) -> Tensor:
        x = self.embedding(text) + self.position
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x))


@smp.step
def train_step(model: smp.DistributedModel, seen: Tensor, following: Tensor) -> Tensor:
    loss = nn.functional.cross_entropy(model(seen).flatten(0, 1), following.flatten())
    model.backward(loss)
    return loss


def passages(text: Tensor, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """This copy's part of random passages, and the same moved on by one character."""
    starts = torch.randint(len(text) - CONTEXT - 1, (batch, 1), generator=generator)
    rows = text[starts + torch.arange(CONTEXT + 1)].chunk(smp.dp_size())[smp.dp_rank()]
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def main() -> None:
    arguments = parse_arguments()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    smp.init(
        {
            "partitions": arguments.partitions,
            "microbatches": arguments.microbatches,
            "pipeline": arguments.pipeline,
            "optimize": "speed",
            "ddp": True,
        }
    )
    torch.manual_seed(arguments.seed)
    book = read_book(arguments.text)
    alphabet = sorted(set(book))
    numbers = {character: i for i, character in enumerate(alphabet)}
    text = torch.tensor([numbers[character] for character in book])
    network = Writer(len(alphabet), arguments.width, arguments.layers)
    count = sum(parameter.numel() for parameter in network.parameters())
    model = smp.DistributedModel(network, trace_execution_times=True)
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=arguments.rate))
    generator = torch.Generator().manual_seed(arguments.seed)
    for step in range(1, arguments.steps + 1):
        begun = time.perf_counter()
        seen, following = passages(text, arguments.batch, generator)
        optimizer.zero_grad()
        loss = train_step(model, seen, following).reduce_mean().item()
        optimizer.step()
        mean = sum(smp.allgather(loss, smp.DP_GROUP)) / smp.dp_size()
        if step == 1:
            own = sum(parameter.numel() for parameter in model.local_parameters())
            print(f"rank {smp.rank()}: {own} of {count} parameters", flush=True)
        if smp.rank() == 0:
            seconds = time.perf_counter() - begun
            print(f"step {step:4d}  loss {mean:.6f}  {seconds:.2f} s", flush=True)
    smp.barrier()


if __name__ == "__main__":
    main()
