#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What communication adds to a training step of DistributedDataParallel: torch's, or Shoal's.

    bench/peers/ddp_bench.py gloo --backend gloo --ranks 2 --steps 20

The network is a wide MLP that learns to label made data, with torch's defaults for everything. Its
steps go by pairs: one with communication, and one without (no_sync), in changing order. All ranks
begin a step together, by flags in memory that they share, and the slowest one counts. In a step
without communication all take the same batch, so that their parameters stay the same ones: at the
end they have the same bits, or it is an error. Prints one JSON line with medians over the pairs.
"""

import argparse
import contextlib
import hashlib
import importlib
import json
import mmap
import os
import signal
import statistics
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from start_bench import free_port
from torch.nn.parallel import DistributedDataParallel

TIMEOUT_S = 120
FEATURES, CLASSES, HIDDEN_LAYERS = 1024, 1000, 3
BATCHES = 8  # of each rank, used again and again
LINE_WORDS = 8  # of a cache line
MS = 1e3


class Meeting:
    """Ranks that fork from this process wait for each other; nothing of a backend is in it."""

    def __init__(self, ranks):
        words = memoryview(mmap.mmap(-1, ranks * LINE_WORDS * 8)).cast("q")
        self.arrived, self.count = words[::LINE_WORDS], 0

    def wait(self, rank):
        self.count += 1
        self.arrived[rank] = self.count
        while min(self.arrived) < self.count:
            os.sched_yield()


def make_network(width):
    torch.manual_seed(1)
    widths = [FEATURES, *[width] * HIDDEN_LAYERS]
    layers = []
    for inputs, outputs in zip(widths, widths[1:], strict=False):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, CLASSES))


def make_batches(seed, batch):
    """Inputs and labels; a fixed linear map labels them, so that there is something to learn."""
    labels = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(2))
    generator = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(batch, FEATURES, generator=generator) for _ in range(BATCHES)]
    return [(each, (each @ labels).argmax(dim=1)) for each in inputs]


def send_nothing(state, bucket):
    """A communication hook: the bucket as it is."""
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def parallel_class(arguments):
    if arguments.fused:
        return importlib.import_module("shoal.torch").DistributedDataParallel
    return DistributedDataParallel


class Trainer:
    """One rank; the script that is measured is step()."""

    def __init__(self, rank, meeting, arguments):
        self.rank, self.meeting = rank, meeting
        self.model = parallel_class(arguments)(
            make_network(arguments.width), gradient_as_bucket_view=arguments.bucket_view
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.common = make_batches(3, arguments.batch)
        self.own = make_batches(10 + rank, arguments.batch)
        if arguments.send_nothing:
            self.model.register_comm_hook(None, send_nothing)
            self.own = self.common

    def step(self, inputs, labels):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(inputs), labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def timed_step(self, index, communicate):
        """Milliseconds, and the loss."""
        batches = self.own if communicate else self.common
        inputs, labels = batches[index % BATCHES]
        self.meeting.wait(self.rank)
        start = time.perf_counter()
        with contextlib.nullcontext() if communicate else self.model.no_sync():
            loss = self.step(inputs, labels)
        return (time.perf_counter() - start) * MS, loss.item()

    def pairs(self, count):
        """So many steps with and without communication, in the order of time: (ms, loss)."""
        found = {True: [], False: []}
        for index in range(count):
            for communicate in (True, False) if index % 2 else (False, True):
                found[communicate].append(self.timed_step(index, communicate))
        return found

    def digest(self):
        found = hashlib.sha256()
        for parameter in self.model.parameters():
            found.update(parameter.detach().numpy().data)
        return found.hexdigest()


def ways(arguments, model):
    """Bytes that this rank has sent from where they lay, and through the stages; none of Gloo's."""
    if arguments.backend != "shoal":
        return {}
    if arguments.fused:
        counted = model.fuse_traffic()
    else:
        counted = [importlib.import_module("shoal.torch").counters()]
    return {name: sum(one[name] for one in counted) for name in ("direct_bytes", "staged_bytes")}


def measure(rank, meeting, arguments, port):
    """What one rank saw."""
    torch.set_num_threads(threads(arguments.ranks))
    dist.init_process_group(
        arguments.backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank,
        world_size=arguments.ranks, timeout=timedelta(seconds=TIMEOUT_S),
    )  # fmt: skip
    trainer = Trainer(rank, meeting, arguments)
    trainer.pairs(arguments.warm_up)
    before = ways(arguments, trainer.model)
    pairs = trainer.pairs(arguments.steps)
    after = ways(arguments, trainer.model)
    moved = {name: value - before[name] for name, value in after.items()}
    digest = trainer.digest()
    dist.barrier()
    dist.destroy_process_group()
    parameters = sum(each.numel() for each in trainer.model.parameters())
    return {
        "step_ms": [ms for ms, _ in pairs[True]],
        "plain_ms": [ms for ms, _ in pairs[False]],
        "losses": [loss for _, loss in pairs[True]],
        "parameters": parameters,
        "digest": digest,
        "moved": {name: value // arguments.steps for name, value in moved.items()},
    }


def threads(ranks):
    return max(1, len(os.sched_getaffinity(0)) // ranks)


def child(rank, meeting, arguments, port, result):
    """Never returns."""
    code = 1
    try:
        result.write(json.dumps(measure(rank, meeting, arguments, port)).encode())
        result.flush()
        code = 0
    except Exception as error:
        print(f"{arguments.library}, rank {rank}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def wait_for(pids):
    """Whether all ended well; the first failure ends the others."""
    left, well = set(pids), True
    while left:
        pid, status = os.wait()
        left.discard(pid)
        if status and well:
            well = False
            for other in left:
                os.kill(other, signal.SIGKILL)
    return well


def run_ranks(arguments):
    """What each rank saw; None when one failed."""
    meeting, port, pids = Meeting(arguments.ranks), free_port(), []
    with contextlib.ExitStack() as stack:
        results = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(arguments.ranks)]
        for rank, result in enumerate(results):
            pid = os.fork()
            if pid == 0:
                child(rank, meeting, arguments, port, result)
            pids.append(pid)
        if not wait_for(pids):
            return None
        for result in results:
            result.seek(0)
        return [json.load(result) for result in results]


def slowest(ranks, name):
    return [max(times) for times in zip(*(rank[name] for rank in ranks), strict=True)]


def summarize(ranks, arguments):
    steps, plain = slowest(ranks, "step_ms"), slowest(ranks, "plain_ms")
    extra = [with_ms - without_ms for with_ms, without_ms in zip(steps, plain, strict=True)]
    found = {
        "step_ms": statistics.median(steps),
        "plain_ms": statistics.median(plain),
        "overhead_ms": statistics.median(extra),
    }
    found["samples_s"] = arguments.batch * arguments.ranks * MS / found["step_ms"]
    losses = [statistics.mean(rank["losses"][i] for rank in ranks) for i in (0, -1)]
    return {
        **{name: round(value, 4) for name, value in found.items()},
        "first_loss": losses[0],
        "last_loss": losses[1],
        "parameters": ranks[0]["parameters"],
        "digest": ranks[0]["digest"],
        **ranks[0]["moved"],
    }


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", help="its name in the row")
    parser.add_argument("--backend", choices=("gloo", "shoal"), default="gloo")
    parser.add_argument(
        "--send-nothing", action="store_true", help="DDP's copies alone; all take the same batches"
    )
    parser.add_argument("--fused", action="store_true", help="Shoal's class, over fusion buffers")
    parser.add_argument("--bucket-view", action="store_true", help="gradients are views of buckets")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--width", type=int, default=3072, help="of the hidden layers")
    parser.add_argument("--batch", type=int, default=8, help="samples of each rank")
    parser.add_argument("--steps", type=int, default=20, help="pairs of steps that are measured")
    parser.add_argument("--warm-up", type=int, default=4, help="pairs of steps before")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if arguments.backend == "shoal":
        importlib.import_module("shoal.torch")
    ranks = run_ranks(arguments)
    if ranks is None:
        sys.exit("a rank failed")
    if len({rank["digest"] for rank in ranks}) > 1:
        sys.exit("wrong result: the ranks' parameters differ after training")
    head = {"lib": arguments.library, "version": torch.__version__, "ranks": arguments.ranks,
            "threads": threads(arguments.ranks), "width": arguments.width,
            "batch": arguments.batch, "steps": arguments.steps}  # fmt: skip
    print(json.dumps(head | summarize(ranks, arguments)), flush=True)


if __name__ == "__main__":
    main()
