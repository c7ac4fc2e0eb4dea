# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer that writes one character after the other, on a real book.

    build/release/shoal run -n 2 .venv/bin/python examples/char_transformer.py --seconds 60

The book is the King James Bible of the Debian package bible-kjv, printed by its command
`bible`; --text takes any other text file. Under DistributedDataParallel every rank reads other
passages. At the end rank 0 writes a passage of its own.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from digits_model import same_on_all_ranks, start
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

CONTEXT = 64  # characters that the network sees
WIDTH = 128
LAYERS = 3
HEADS = 4
REPORT_EVERY = 50  # steps
CHECK_EVERY = 10  # steps between looks at the clock


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--backend", default="shoal", choices=["shoal", "gloo"])
    parser.add_argument("--text", type=Path, help="a text file instead of the Bible")
    parser.add_argument("--seconds", type=float, default=60, help="how long to train")
    parser.add_argument("--steps", type=int, default=10**9, help="at most so many steps")
    parser.add_argument("--batch", type=int, default=16, help="passages per rank and step")
    parser.add_argument("--rate", type=float, default=3e-3, help="learning rate at its peak")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def read_book(path: Path | None) -> str:
    """The text of the file, or of the Bible without line breaks inside of verses."""
    if path:
        return path.read_text(errors="replace")
    try:
        printed = subprocess.run(
            ["bible", "gen1:1-rev22:21"], stdin=subprocess.DEVNULL, capture_output=True, check=True
        ).stdout.decode("ascii", errors="replace")
    except FileNotFoundError:
        sys.exit("char_transformer: no command `bible`: install bible-kjv, or give --text")
    return re.sub(r"(?<!\n)\n(?=\S)", " ", printed).strip()


class Block(nn.Module):
    """Attention to what came before, then a small network: [n, t, width] to the same shape."""

    def __init__(self):
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.joined = nn.Linear(WIDTH, WIDTH)
        self.network = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        n, t, _ = x.shape
        parts = self.qkv(self.before_attention(x)).view(n, t, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.joined(seen.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.network(x)


class Writer(nn.Module):
    """Characters [n, t] to scores of the next ones [n, t, characters]."""

    def __init__(self, characters: int):
        super().__init__()
        self.embedding = nn.Embedding(characters, WIDTH)
        self.position = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.scores = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters))

    def forward(self, text: Tensor) -> Tensor:
        return self.scores(self.blocks(self.embedding(text) + self.position[: text.shape[1]]))


def passages(text: Tensor, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random passages [batch, CONTEXT] and the same moved on by one character."""
    starts = torch.randint(len(text) - CONTEXT - 1, (batch, 1), generator=generator)
    rows = text[starts + torch.arange(CONTEXT + 1)]
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def write(network: Writer, alphabet: str, count: int, seed: int) -> str:
    """`count` characters of the network's own."""
    generator = torch.Generator().manual_seed(seed)
    text = torch.tensor([[alphabet.index("\n")]])
    for _ in range(count):
        scores = network(text[:, -CONTEXT:])[0, -1] / 0.8
        following = torch.multinomial(scores.softmax(0), 1, generator=generator)
        text = torch.cat([text, following.view(1, 1)], 1)
    return "".join(alphabet[i] for i in text[0].tolist())


def train(arguments, model, text: Tensor, rank: int) -> tuple[float, float, int, float]:
    """Trains until rank 0's time is up; returns first and last loss, steps, and seconds."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, weight_decay=0.01)
    generator = torch.Generator().manual_seed(1000 * arguments.seed + rank)
    started = time.perf_counter()
    first = mean = float("nan")
    sums = torch.zeros(1)
    done = 0.0  # share of the time, which all ranks have from rank 0
    step = 0
    while done < 1 and step < arguments.steps:
        warm = min(1.0, (step + 1) / 20)
        optimizer.param_groups[0]["lr"] = (
            arguments.rate * warm * (0.55 + 0.45 * math.cos(math.pi * done))
        )
        seen, following = passages(text, arguments.batch, generator)
        loss = nn.functional.cross_entropy(model(seen).flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sums += loss.detach()
        step += 1
        if step % CHECK_EVERY == 0:
            clock = torch.tensor([(time.perf_counter() - started) / arguments.seconds])
            dist.broadcast(clock, 0)
            done = min(1.0, clock.item())
        if step % REPORT_EVERY == 0:
            dist.all_reduce(sums, dist.ReduceOp.SUM)
            mean = sums.item() / (REPORT_EVERY * dist.get_world_size())
            first = mean if math.isnan(first) else first
            sums.zero_()
            if rank == 0:
                seconds = time.perf_counter() - started
                print(f"step {step:5d}  loss {mean:.3f}  {seconds:5.1f} s", flush=True)
    return first, mean, step, time.perf_counter() - started


def main() -> None:
    arguments = parse_arguments()
    rank, size = start(arguments.backend, arguments.seed)
    book = read_book(arguments.text)
    alphabet = "".join(sorted(set(book)))
    numbers = {character: i for i, character in enumerate(alphabet)}
    text = torch.tensor([numbers[character] for character in book])
    network = Writer(len(alphabet))
    if rank == 0:
        parameters = sum(p.numel() for p in network.parameters())
        print(
            f"{len(book)} characters, {len(alphabet)} different ones; {parameters} parameters; "
            f"{size} ranks, backend {arguments.backend}",
            flush=True,
        )
    model = DistributedDataParallel(network, gradient_as_bucket_view=True)
    first, last, steps, seconds = train(arguments, model, text, rank)
    same = same_on_all_ranks(network)
    if rank == 0:
        print(write(network, alphabet, 400, arguments.seed))
        print(
            f"loss {first:.3f} -> {last:.3f} in {steps} steps, {seconds:.0f} s, "
            f"{steps * size * arguments.batch * CONTEXT / seconds:.0f} characters/s, "
            f"parameters {'the same bits' if same else 'DIFFERENT'} on all ranks"
        )
    dist.barrier()
    dist.destroy_process_group()
    if not same or not last < 0.9 * first:
        sys.exit("char_transformer: the loss did not fall")


if __name__ == "__main__":
    main()
