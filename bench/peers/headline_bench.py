#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of bench/headline.py: steps of training a known model, with several ways of summing.

    shoal run -n 2 -- python bench/peers/headline_bench.py --model bert-large --scale 0.01

The model is a chain of layers, made of a table of models/: parameters of its shapes, whose
gradients come in its order. Computing is waiting, as for an accelerator: a layer's forward and
backward pass each sleep until the accelerator would be done, and backward hands out gradients that
were made before. All ways go through the same loop; updating the parameters is part of the
accelerator's computing.

Ways take turns, in blocks of steps back to back: the time of a step is that from the end of one to
the end of the next, the first of a block is not counted, and the slowest rank counts. At the end of
all, one more step checks that every gradient is exactly the mean (as int8: nearly). Rank 0 prints a
JSON line for each way and round.
"""

import argparse
import gc
import importlib
import json
import math
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

MODELS = Path(__file__).resolve().parent.parent.parent / "models"
TIMEOUT_S = 120
MS = 1e3
FORWARD_SHARE = 1 / 3  # of computing: a backward pass is two such products
BLOCKED_S = 1e-3  # a host that comes so late had to wait; less is its own overhead
HALF, EQUAL = "half", "equal"
CALIBRATIONS = 3
VALUES = 8  # of gradients: small integers, so that all sums are exact
OVERLAP = "shoal-overlap"
WAYS = ("gloo", "shoal", "shoal-ddp", OVERLAP, f"{OVERLAP}-bf16", f"{OVERLAP}-int8")
OVER_FUSION_BUFFERS = WAYS[2:]
ROUNDING = {"int8": 0.3}  # at most, of a mean of what travels so; small integers are exact as bf16
# Of torch's class: of a whole model, and the least of a scaled one.
BUCKET_MB, LEAST_BUCKET_MB = 25, 1


# ---- the model ---------------------------------------------------------------------------------


@dataclass
class LayerShape:
    """Parameters whose gradients come together."""

    counts: list[int]
    work: float  # its share of computing


def read_layers(model, scale):
    """In the order of the forward pass. A layer's rows follow each other in the table, and their
    names differ in the last word."""
    path = MODELS / f"{model}.txt"
    rows = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
    layers, last = [], None
    for name, shape, work in (row for row in rows if len(row) == 3):
        module = name.rpartition(".")[0]
        if module != last:
            layers.append(LayerShape([], 0))
            last = module
        count = math.prod(int(edge) for edge in shape.split("x"))
        layers[-1].counts.insert(0, math.ceil(count * scale))
        layers[-1].work += float(work)
    whole = sum(layer.work for layer in layers)
    for layer in layers:
        layer.work = layer.work / whole if whole else 1 / len(layers)
    return layers[::-1]


class Accelerator:
    """Works while the processor sleeps."""

    def __init__(self):
        self.compute_s = 0.0  # of a step
        self.busy_until = self.left = 0.0

    def wait_for_host(self):
        """The work that follows could not be given to it before."""
        self.busy_until = max(self.busy_until, time.monotonic())

    def wait_if_host_waited(self):
        """The same, if the host comes so late that it had to wait for something."""
        if time.monotonic() - self.left > BLOCKED_S:
            self.wait_for_host()

    def work(self, share):
        self.busy_until += share * self.compute_s
        time_left = self.busy_until - time.monotonic()
        if time_left > 0:
            time.sleep(time_left)
        self.left = time.monotonic()


class Pass(torch.autograd.Function):
    """A layer's work: the accelerator's time, and gradients that are there already."""

    @staticmethod
    def forward(context, signal, layer, *_parameters):
        context.layer = layer
        layer.accelerator.work(layer.work * FORWARD_SHARE)
        return signal.clone()

    @staticmethod
    def backward(context, gradient):
        layer = context.layer
        layer.accelerator.work(layer.work * (1 - FORWARD_SHARE))
        return gradient, None, *(made.detach() for made in layer.made)


class Layer(torch.nn.Module):
    def __init__(self, shape, pattern, accelerator):
        super().__init__()
        self.work, self.accelerator = shape.work, accelerator
        for index, count in enumerate(shape.counts):
            self.register_parameter(f"held{index}", torch.nn.Parameter(torch.zeros(count)))
        self.made = [pattern[:count] for count in shape.counts]

    def forward(self, signal):
        self.accelerator.wait_if_host_waited()
        return Pass.apply(signal, self, *self.parameters())


# ---- ways of summing ---------------------------------------------------------------------------


class Elsewhere(torch.optim.Optimizer):
    """The accelerator updates its parameters; that is part of its computing. When told to, step()
    checks the gradients: those of a rank are its number more than a pattern."""

    def __init__(self, parameters, pattern, rounding):
        super().__init__(parameters, {})
        self.wanted = pattern - dist.get_rank() + (dist.get_world_size() - 1) / 2
        self.rounding = rounding
        self.checks, self.checked = False, 0

    @torch.no_grad()
    def step(self):
        for group in self.param_groups if self.checks else []:
            for parameter in group["params"]:
                error = parameter.grad - self.wanted[: parameter.numel()]
                if not error.abs().max() <= self.rounding:
                    raise SystemExit(f"wrong result: a gradient of {parameter.numel()} elements")
                self.checked += 1


class Way:
    """A model, and the loop that trains it."""

    def __init__(self, name, layers, pattern, accelerator, arguments):
        self.name, self.accelerator = name, accelerator
        network = torch.nn.Sequential(*(Layer(each, pattern, accelerator) for each in layers))
        group = dist.group.WORLD if name == "gloo" else arguments.shoal_group
        settings = {"process_group": group, "gradient_as_bucket_view": True}
        own = importlib.import_module("shoal.torch")
        compression = name.partition(f"{OVERLAP}-")[2] or None
        if name in OVER_FUSION_BUFFERS:
            self.model = own.DistributedDataParallel(network, compression=compression, **settings)
        else:
            settings["bucket_cap_mb"] = bucket_mb(arguments.scale)
            self.model = DistributedDataParallel(network, **settings)
        rounding = ROUNDING.get(compression, 0)
        self.update = self.optimizer = Elsewhere(self.model.parameters(), pattern, rounding)
        if name.startswith(OVERLAP):
            self.optimizer = own.OverlappedOptimizer(self.update, self.model)
        self.signal = torch.zeros(())

    def step(self):
        self.accelerator.wait_for_host()
        self.optimizer.zero_grad()
        loss = self.model(self.signal)
        self.accelerator.wait_if_host_waited()
        loss.backward()
        self.optimizer.step()

    def end(self):
        """All updates are made."""
        if self.optimizer is not self.update:
            self.optimizer.synchronize()

    def check(self):
        self.update.checks = True
        self.step()
        self.end()
        if self.update.checked != len(list(self.model.parameters())):
            raise SystemExit(f"wrong result: {self.name} has not updated all parameters")


def bucket_mb(scale):
    """The default for a whole model; a scaled one is to have as many, if they don't get small."""
    return None if scale == 1 else max(BUCKET_MB * scale, LEAST_BUCKET_MB)


def slowest(seconds):
    found = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return found.item()


def step_s(way, compute_s, steps):
    """Of a block of steps."""
    way.accelerator.compute_s = compute_s
    dist.barrier()
    ends = []
    for _ in range(steps + 1):
        way.step()
        ends.append(time.monotonic())
    way.end()
    return slowest((ends[-1] - ends[0]) / steps)


# ---- measuring ---------------------------------------------------------------------------------


def choose_compute_s(reference, alone_s, arguments):
    """half: as long as half a step of the reference, so that the other half is communication which
    computing does not hide; equal: as long as its communication alone."""
    if arguments.compute == EQUAL:
        return alone_s
    if arguments.compute != HALF:
        return float(arguments.compute) / MS
    compute_s = alone_s / (2 - FORWARD_SHARE)  # if nothing is hidden but by the backward pass
    for _ in range(CALIBRATIONS):
        exposed_s = step_s(reference, compute_s, arguments.steps) - compute_s
        compute_s = max((compute_s + exposed_s) / 2, 0)
    return compute_s


def report(arguments, layers, row):
    if dist.get_rank() == 0:
        counts = [count for layer in layers for count in layer.counts]
        head = {"model": arguments.model, "scale": arguments.scale, "tensors": len(counts),
                "layers": len(layers), "bytes": 4 * sum(counts), "ranks": dist.get_world_size(),
                "version": torch.__version__}  # fmt: skip
        print(json.dumps(head | row), flush=True)


def measure(arguments):
    rank, accelerator = dist.get_rank(), Accelerator()
    layers = read_layers(arguments.model, arguments.scale)
    most = max(count for layer in layers for count in layer.counts)
    pattern = (torch.arange(most) % VALUES + rank).float()
    ways = [Way(name, layers, pattern, accelerator, arguments) for name in arguments.libs]
    for way in ways:
        way.step()
        way.end()
    gc.collect()
    gc.freeze()  # so that no step is the one in which Python goes through all that torch has made
    alone_s = {way.name: step_s(way, 0, arguments.steps) for way in ways}
    compute_s = choose_compute_s(ways[0], alone_s[ways[0].name], arguments)
    for number in range(arguments.rounds):
        first = number % len(ways)
        for way in ways[first:] + ways[:first]:
            seconds = step_s(way, compute_s, arguments.steps)
            row = {"lib": way.name, "round": number, "step_ms": seconds * MS,
                   "alone_ms": alone_s[way.name] * MS, "compute_ms": compute_s * MS}  # fmt: skip
            report(arguments, layers, row)
    for way in ways:
        way.check()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a table of models/")
    parser.add_argument("--scale", type=float, default=1.0, help="of each tensor's elements")
    parser.add_argument(
        "--libs", default=",".join(WAYS), help="of these; computing suits the first"
    )
    parser.add_argument("--compute", default=HALF, help="half, equal, or ms")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="of a block that are counted")
    arguments = parser.parse_args()
    arguments.libs = arguments.libs.split(",")
    return arguments


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    importlib.import_module("shoal.torch")
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT_S))
    arguments.shoal_group = dist.new_group(backend="shoal", timeout=timedelta(seconds=TIMEOUT_S))
    measure(arguments)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
