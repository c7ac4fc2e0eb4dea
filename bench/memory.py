#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains models over the stages of a pipeline and compares each rank's peak of memory with what was
predicted when the model was divided.

    bench/memory.py --shoal build/release/shoal --out memory.json --plot memory.svg

The measure is the peak of the process's resident memory (VmHWM, which the kernel counts) in two
steps of training, without what was resident when everything was loaded and before the model was
made. malloc gives every tensor of 64 KiB or more pages of its own, which go back when it is freed
(MALLOC_*), and MKL keeps no buffers for each thread, so what is resident is in use: also what
torch's own counters don't see, such as values on their way between stages. Pages of files (code)
don't count. Cases that the file has already are not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
from html import escape
from pathlib import Path

import plot
from comparison import replace_file

ROOT = Path(__file__).resolve().parent.parent
MARK = "memory-of-rank "
STEPS = 2
MALLOC = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_MMAP_MAX_": "100000",
    "MKL_DISABLE_FAST_MM": "1",
}
TIMEOUT_S = 300
STAGES, MICROBATCHES, PIPELINES = (2, 4), (2, 4, 8), ("simple", "interleaved")
WANTED = 0.1  # how far measured peaks may be from predicted ones
MIB = 2**20


# ---- on a rank


def resident(name):
    """Bytes of VmRSS, VmHWM or RssFile."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s*(\d+) kB", status).group(1)) * 1024


def forget_peak():
    Path("/proc/self/clear_refs").write_text("5")


def transformer(torch):
    """That of examples/pipeline_transformer.py: a network, small or not, and batches of so many
    microbatches."""
    sys.path.insert(0, str(ROOT / "examples"))
    from pipeline_transformer import CONTEXT, Writer

    def make(is_small):
        return Writer(96, 64, 1) if is_small else Writer(96, 512, 8)

    return make, lambda share: torch.randint(96, (4 * share, CONTEXT))


def convolutions(torch):
    """Residual convolutions over images: few parameters, large activations."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inner = nn.Conv2d(width, width, 3, padding=1, groups=8)
            self.norm = nn.GroupNorm(8, width)
            self.outer = nn.Conv2d(width, width, 3, padding=1, groups=8)

        def forward(self, x):
            return x + self.outer(torch.relu(self.norm(self.inner(x))))

    def make(is_small):
        width, depth = (8, 1) if is_small else (64, 8)
        first, last = nn.Conv2d(3, width, 3, padding=1), nn.Linear(width, 10)
        blocks = [Block(width) for _ in range(depth)]
        return nn.Sequential(first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)

    return make, lambda share: torch.randn(16 * share, 3, 32, 32)


MODELS = {"transformer": transformer, "convolutions": convolutions}


def loss_of(torch, scores, wanted):
    return torch.nn.functional.cross_entropy(scores.flatten(0, -2), wanted.flatten())


def load_everything(torch, make, batch):
    """Code and its data, by a step of a small network."""
    network = make(True)
    optimizer = torch.optim.Adam(network.parameters())
    data = batch(1)
    wanted = data if data.dim() == 2 else torch.zeros(len(data), dtype=torch.int64)
    loss_of(torch, network(data), wanted).backward()
    optimizer.step()


def rank_main(arguments):
    import smdistributed.modelparallel.torch as smp
    import torch

    torch.set_num_threads(1)
    smp.init(
        {
            "partitions": arguments.stages,
            "microbatches": arguments.microbatches,
            "pipeline": arguments.pipeline,
        }
    )
    make, batch = MODELS[arguments.model](torch)
    load_everything(torch, make, batch)
    baseline, code = resident("VmRSS"), resident("RssFile")
    torch.manual_seed(1)
    model = smp.DistributedModel(make(False))
    optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters()))

    @smp.step
    def train(model, data, wanted):
        loss = loss_of(torch, model(data), wanted)
        model.backward(loss)
        return loss

    def step():
        data = batch(arguments.microbatches)
        wanted = data if data.dim() == 2 else torch.randint(10, (len(data),))
        optimizer.zero_grad()
        train(model, data, wanted)
        optimizer.step()

    step()  # divides the model, and makes the optimizer's state
    forget_peak()
    for _ in range(STEPS):
        step()
    peak = resident("VmHWM") - baseline - (resident("RssFile") - code)
    line = {"rank": smp.rank(), "peak": peak, "predicted": model.predicted_memory}
    print(MARK + json.dumps(line), flush=True)
    smp.barrier()


# ---- all cases


def measure(arguments, case):
    """Runs one case: rows of its ranks."""
    paths = [ROOT / "bindings" / "python", ROOT / "bindings" / "smdistributed"]
    environment = os.environ | MALLOC | {"PYTHONPATH": ":".join(map(str, paths))}
    environment["SHOAL_BUILD"] = str(arguments.shoal.resolve().parent)
    model, stages, microbatches, pipeline = case
    run = subprocess.run(
        [arguments.shoal, "run", "--no-tag", "-n", str(stages), "--", sys.executable, __file__,
         "--rank", "--models", model, "--stages", str(stages), "--microbatches",
         str(microbatches), "--pipelines", pipeline],
        env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    lines = [line for line in run.stdout.splitlines() if line.startswith(MARK)]
    if run.returncode != 0 or len(lines) != stages:
        sys.exit(f"{case}: {run.stderr[-2000:]}")
    rows = [json.loads(line.removeprefix(MARK)) for line in lines]
    names = ("model", "stages", "microbatches", "pipeline")
    return [dict(zip(names, case, strict=True)) | row for row in rows]


def cases_of(arguments):
    return [
        (model, stages, microbatches, pipeline)
        for model in arguments.models.split(",")
        for stages in map(int, arguments.stages.split(","))
        for microbatches in map(int, arguments.microbatches.split(","))
        for pipeline in arguments.pipelines.split(",")
    ]


def case_of(row):
    return row["model"], row["stages"], row["microbatches"], row["pipeline"]


def ratio(row):
    return row["peak"] / row["predicted"]["peak"]


def table(rows):
    """As Markdown: of each model and pipeline, the smallest and the largest ratio."""
    lines = [
        "| model | stages | pipeline | peak, MiB | measured / predicted |",
        "|---|---:|---|---:|---:|",
    ]
    groups = {}
    for row in rows:
        groups.setdefault((row["model"], row["stages"], row["pipeline"]), []).append(row)
    for (model, stages, pipeline), members in sorted(groups.items()):
        sizes, ratios = [one["peak"] / MIB for one in members], [ratio(one) for one in members]
        lines.append(
            f"| {model} | {stages} | {pipeline} | {min(sizes):.0f} to {max(sizes):.0f} | "
            f"{min(ratios):.2f} to {max(ratios):.2f} |"
        )
    near = sum(abs(ratio(row) - 1) <= WANTED for row in rows)
    return "\n".join([*lines, "", f"{near} of {len(rows)} ranks within {WANTED:.0%}"])


# ---- the picture

SIZE, LEFT, BOTTOM, TOP = 420, 56, 44, 12
COLOURS = {"transformer": "openmpi", "convolutions": "gloo"}


class Picture:
    """Measured over predicted peaks, both axes logarithmic, and the band that is wanted."""

    def __init__(self, rows):
        self.rows = rows
        sizes = [one for row in rows for one in (row["peak"], row["predicted"]["peak"])]
        self.low, self.high = math.log2(min(sizes) * 0.8), math.log2(max(sizes) * 1.25)
        self.parts = []

    def share(self, size):
        return (math.log2(size) - self.low) / (self.high - self.low)

    def x(self, size):
        return LEFT + self.share(size) * (SIZE - LEFT - TOP)

    def y(self, size):
        return SIZE - BOTTOM - self.share(size) * (SIZE - BOTTOM - TOP)

    def text(self, x, y, text, anchor="start", turn=""):
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn}>{escape(text)}</text>'
        )

    def grid(self):
        for power in range(math.ceil(self.low), math.floor(self.high) + 1):
            size = 2.0**power
            x, y, name = self.x(size), self.y(size), f"{size / MIB:.0f}"
            way = f"M{x:.1f} {TOP}V{SIZE - BOTTOM}M{LEFT} {y:.1f}H{SIZE - TOP}"
            self.parts.append(f'<path class="grid" d="{way}"/>')
            self.text(x, SIZE - BOTTOM + 16, name, "middle")
            self.text(LEFT - 6, y + 4, name, "end")
        self.text((LEFT + SIZE) / 2, SIZE - 8, "predicted peak of a rank, MiB", "middle")
        turn = f' transform="rotate(-90 14 {SIZE / 2})"'
        self.text(14, SIZE / 2, "measured, MiB", "middle", turn)

    def band(self):
        for factor in (1 - WANTED, 1, 1 + WANTED):
            first, last = 2.0**self.low / min(factor, 1), 2.0**self.high / max(factor, 1)
            dash = "" if factor == 1 else ' stroke-dasharray="4 3"'
            start = f"{self.x(first):.1f} {self.y(first * factor):.1f}"
            end = f"{self.x(last):.1f} {self.y(last * factor):.1f}"
            self.parts.append(f'<path d="M{start}L{end}" stroke="var(--ink)"{dash}/>')

    def point(self, row):
        model, stages, microbatches, pipeline = case_of(row)
        peak, predicted = row["peak"], row["predicted"]["peak"]
        text = (
            f"{model}, {stages} stages, {microbatches} microbatches, {pipeline}, rank "
            f"{row['rank']}: {peak / MIB:.0f} MiB, predicted {predicted / MIB:.0f}"
        )
        self.parts.append(
            f'<circle cx="{self.x(predicted):.1f}" cy="{self.y(peak):.1f}" r="3.5" '
            f'fill="var(--{COLOURS[model]})" fill-opacity="0.7"><title>{escape(text)}</title>'
            "</circle>"
        )

    def key(self):
        for number, (model, colour) in enumerate(COLOURS.items()):
            y = TOP + 14 + 18 * number
            self.parts.append(f'<circle cx="{LEFT + 14}" cy="{y}" r="4" fill="var(--{colour})"/>')
            self.text(LEFT + 24, y + 4, model)

    def draw(self):
        self.grid()
        self.band()
        for row in self.rows:
            self.point(row)
        self.key()
        return (
            f'<svg class="plot" viewBox="0 0 {SIZE} {SIZE}" xmlns="http://www.w3.org/2000/svg" '
            f'width="{SIZE}" height="{SIZE}" font-size="12" role="img" aria-label="Measured and '
            f'predicted peaks of memory"><style>{plot.style()}</style><rect class="paper" '
            f'width="100%" height="100%"/>{"".join(self.parts)}</svg>\n'
        )


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shoal", type=Path, default=ROOT / "build" / "release" / "shoal")
    parser.add_argument("--out", type=Path, default=Path("memory.json"))
    parser.add_argument("--plot", type=Path, help="a picture as SVG")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--stages", default=",".join(map(str, STAGES)))
    parser.add_argument("--microbatches", default=",".join(map(str, MICROBATCHES)))
    parser.add_argument("--pipelines", default=",".join(PIPELINES))
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.rank:
        arguments.stages, arguments.microbatches = (
            int(arguments.stages),
            int(arguments.microbatches),
        )
        arguments.model, arguments.pipeline = arguments.models, arguments.pipelines
        rank_main(arguments)
        return
    rows = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
    done = {case_of(row) for row in rows}
    for case in cases_of(arguments):
        if case not in done:
            rows += measure(arguments, case)
            replace_file(arguments.out, json.dumps(rows, indent=1) + "\n")
    print(table(rows))
    if arguments.plot:
        replace_file(arguments.plot, Picture(rows).draw())


if __name__ == "__main__":
    main()
