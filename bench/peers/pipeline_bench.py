#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of bench/pipeline.py: steps of a pipeline whose stages are virtual devices.

    shoal run -n 4 -- python bench/peers/pipeline_bench.py --microbatches 8 --bytes 4M

A stage's forward pass waits a fixed time, and so does its backward pass, as for an accelerator; the
processor is free meanwhile. Activations and gradients of --bytes go from stage to stage as they
are. The same stages make steps in each of these ways, in the same processes, by turns:

    shoal         smdistributed.modelparallel.torch, its pipelines "simple" and "interleaved"
    torch-shoal   torch.distributed.pipelining, ScheduleGPipe and Schedule1F1B, over Shoal
    torch-gloo    the same over Gloo

The loss belongs to the last stage. The time of a step is that from the end of one to the end of the
next, in a block of steps back to back; the slowest rank counts. The system may wake a sleeper too
late, so how long waits really were is measured too, and what a pass takes beside its wait where
there is no pipeline: on all ranks at once, autograd alone. Before each block all activations and
gradients that arrive are checked, in a step that is not counted, and neither is the next one.
Rank 0 prints a JSON line for each way, schedule, number of microbatches and round.
"""

import argparse
import ctypes
import gc
import json
import logging
import time
from datetime import timedelta
from statistics import median

import shoal.torch  # noqa: F401 (registers the backend)
import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from smdistributed.modelparallel.torch.config import Config
from smdistributed.modelparallel.torch.state_mod import state
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

TIMEOUT_S = 120
MS = 1e3
PR_SET_TIMERSLACK = 29
WIDTH = 1024  # elements in a row of an activation
FLOAT_BYTES = 4
PATTERN = 251  # values of activations and gradients
TIMES = "step_ms", "forward_ms", "backward_ms", "forward_beside_ms", "backward_beside_ms"
ALONE_COUNT = 10  # passes of a stage without a pipeline
SPIN_S = 5e-4  # the end of a wait: a sleeping thread comes back later than it should
WAYS = ("shoal", "torch-shoal", "torch-gloo")
SCHEDULES = {"simple": ScheduleGPipe, "interleaved": Schedule1F1B}


class Device:
    """What all stages of this process run on."""

    def __init__(self, arguments):
        self.forward_s, self.backward_s = arguments.forward_ms / MS, arguments.backward_ms / MS
        rows = max(arguments.bytes // (WIDTH * FLOAT_BYTES), 1)
        self.pattern = (torch.arange(rows * WIDTH) % PATTERN).float().view(rows, WIDTH)
        self.checks, self.checked = False, 0
        self.start_counting()

    def start_counting(self):
        """How long it worked, and how often: forward, backward."""
        self.worked = [0.0, 0, 0.0, 0]

    def forward(self):
        self.work(self.forward_s, 0)

    def backward(self):
        self.work(self.backward_s, 2)

    def work(self, seconds, kind):
        begun = time.monotonic()
        if seconds > SPIN_S:
            time.sleep(seconds - SPIN_S)
        while time.monotonic() < begun + seconds:
            pass
        self.worked[kind] += time.monotonic() - begun
        self.worked[kind + 1] += 1

    def check(self, arrived, number):
        """The pattern, plus this."""
        if not self.checks:
            return
        if not torch.equal(arrived - number, self.pattern):
            raise SystemExit("wrong result: other data arrived than were sent")
        self.checked += 1


class Work(torch.autograd.Function):
    """What a stage does: time passes."""

    @staticmethod
    def forward(context, inputs, weight, stage):
        context.stage = stage
        stage.device.forward()
        return inputs.view_as(inputs)

    @staticmethod
    def backward(context, gradient):
        stage, arrived = context.stage, gradient.view_as(gradient)  # waits for a promise
        stage.device.backward()
        if stage.is_first:
            stage.device.check(arrived, 0)
        return arrived, torch.zeros(1), None


class Stage(torch.nn.Module):
    def __init__(self, device, is_first):
        super().__init__()
        self.device, self.is_first = device, is_first
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, inputs):
        return Work.apply(inputs, self.weight, self)


class Difference(torch.autograd.Function):
    """A loss in no time, whose gradient is there already."""

    @staticmethod
    def forward(context, outputs, target, device):
        context.device = device
        device.check(outputs, target.item())
        return target.float().sum()

    @staticmethod
    def backward(context, gradient):
        return context.device.pattern.view_as(context.device.pattern), None, None


class Loss(torch.nn.Module):
    def __init__(self, device):
        super().__init__()
        self.device = device

    def forward(self, outputs, target):
        return Difference.apply(outputs, target, self.device)


class LastStage(torch.nn.Module):
    def __init__(self, device):
        super().__init__()
        self.stage, self.loss = Stage(device, False), Loss(device)

    def forward(self, inputs, target):
        return self.loss(self.stage(inputs), target)


class Model(torch.nn.Module):
    """All stages, as a user of smdistributed.modelparallel writes them."""

    def __init__(self, device, stages):
        super().__init__()
        self.stages = torch.nn.ModuleList(Stage(device, i == 0) for i in range(stages - 1))
        self.last = LastStage(device)

    def forward(self, inputs, target):
        for stage in self.stages:
            inputs = stage(inputs)
        return self.last(inputs, target)


@smp.step
def smp_step(model, inputs, target):
    loss = model(inputs, target)
    model.backward(loss)
    return loss


class Promised:
    """smdistributed.modelparallel: the first rank calls all stages, and all see the loss."""

    def __init__(self, device, schedule, microbatches, topology):
        count = dist.get_world_size()
        config = {"pipeline": schedule, "microbatches": microbatches, "partitions": count}
        state.begin(Config(config | {"skip_tracing": True}), topology)
        model = Model(device, count)
        for i, stage in enumerate(model.stages):
            smp.set_partition(stage, i)
        smp.set_partition(model.last, count - 1)
        self.model = smp.DistributedModel(model)

    def step(self, inputs, targets):
        smp_step(self.model, inputs, targets)

    def close(self):
        self.model.stage.pipe.close()
        self.model = None
        gc.collect()


class Chained:
    """torch.distributed.pipelining: a chain of stages, one on each rank."""

    def __init__(self, device, schedule, microbatches, group):
        self.rank, self.last = dist.get_rank(), dist.get_world_size() - 1
        inputs = device.pattern.clone().requires_grad_(self.rank > 0)
        stage = PipelineStage(
            Stage(device, self.rank == 0), self.rank, self.last + 1, torch.device("cpu"),
            input_args=inputs, output_args=device.pattern.clone().requires_grad_(), group=group,
        )  # fmt: skip
        self.schedule = SCHEDULES[schedule](stage, microbatches, loss_fn=Loss(device))

    def step(self, inputs, targets):
        target = {"target": targets, "losses": []} if self.rank == self.last else {}
        arguments = (inputs,) if self.rank == 0 else ()
        self.schedule.step(*arguments, **target, return_outputs=False)

    def close(self):
        self.schedule = None


def make_way(name, device, schedule, microbatches, places):
    kind = Promised if name == "shoal" else Chained
    return kind(device, schedule, microbatches, places[name])


def slowest(seconds):
    found = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return found.item()


def mean_waits(device):
    """Of all ranks: a forward and a backward pass."""
    found = torch.tensor(device.worked, dtype=torch.float64)
    dist.all_reduce(found)
    return (found[0] / found[1]).item(), (found[2] / found[3]).item()


def beside_waits(device):
    """Of a stage's forward and backward pass alone, in seconds: means of the ranks' medians."""
    stage, seconds = Stage(device, False), [[], []]
    for _ in range(ALONE_COUNT + 1):
        inputs = device.pattern.clone().requires_grad_()
        device.start_counting()
        begun = time.monotonic()
        outputs = stage(inputs)
        between = time.monotonic()
        torch.autograd.backward([outputs], [device.pattern])
        ended = time.monotonic()
        seconds[0].append(between - begun - device.worked[0])
        seconds[1].append(ended - between - device.worked[2])
    found = torch.tensor([median(each[1:]) for each in seconds], dtype=torch.float64)
    dist.all_reduce(found)
    return tuple((found / dist.get_world_size()).tolist())


def block_s(way, device, microbatches, steps):
    """The time of a step, and the stages' own forward and backward passes in it."""
    targets = torch.arange(microbatches)
    inputs = torch.cat([device.pattern + number for number in range(microbatches)])
    device.checks, device.checked = True, 0
    way.step(inputs, targets)
    device.checks = False
    is_end = dist.get_rank() in (0, dist.get_world_size() - 1)
    if device.checked != (microbatches if is_end else 0):
        raise SystemExit(f"wrong result: {device.checked} of {microbatches} microbatches came")
    dist.barrier()
    way.step(inputs, targets)
    device.start_counting()
    begun = time.monotonic()
    for _ in range(steps):
        way.step(inputs, targets)
    step_s = slowest((time.monotonic() - begun) / steps)
    return step_s, *mean_waits(device)


def measure(arguments, device, places):
    beside = beside_waits(device)
    ways = [(way, schedule) for schedule in arguments.schedules for way in arguments.ways]
    for microbatches in arguments.microbatches:
        for number in range(arguments.rounds):
            first = number % len(ways)
            for name, schedule in ways[first:] + ways[:first]:
                way = make_way(name, device, schedule, microbatches, places)
                times = block_s(way, device, microbatches, arguments.steps)
                way.close()
                if dist.get_rank() == 0:
                    row = {"way": name, "schedule": schedule, "microbatches": microbatches}
                    row |= {"round": number, "version": torch.__version__}
                    row |= {key: MS * one for key, one in zip(TIMES, times + beside, strict=True)}
                    print(json.dumps(row), flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--microbatches", default="8")
    parser.add_argument("--bytes", type=int, default=4096, help="of an activation")
    parser.add_argument("--forward-ms", type=float, default=20)
    parser.add_argument("--backward-ms", type=float, default=40)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--schedules", default=",".join(SCHEDULES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="of a block that are counted")
    arguments = parser.parse_args()
    for name in ("ways", "schedules", "microbatches"):
        setattr(arguments, name, getattr(arguments, name).split(","))
    arguments.microbatches = [int(word) for word in arguments.microbatches]
    return arguments


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # of later threads too
    logging.getLogger("smdistributed.modelparallel").setLevel(logging.WARNING)
    timeout = timedelta(seconds=TIMEOUT_S)
    dist.init_process_group("shoal", timeout=timeout)
    smp.init({"partitions": dist.get_world_size()})
    places = {"shoal": state.topology, "torch-shoal": dist.new_group(timeout=timeout)}
    places["torch-gloo"] = dist.new_group(backend="gloo", timeout=timeout)
    measure(arguments, Device(arguments), places)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
