#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures torch.distributed in the way that `shoal bench` measures Shoal.

One process per rank, started with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT:

    torch_bench.py gloo allreduce --sizes 8:64M --dtype f32 --backend gloo

The protocol is that of cmd/shoal/bench_measure.h: warm-up, then rounds; in each all inputs are
written anew, then a barrier, the clock, the operation (short ones in batches with buffers of their
own), the clock, and a check of the result; the time of a round is that of the slowest rank.
torch.distributed's allreduce, broadcast and reduce work in place. --backend deepspeed sums by
DeepSpeed's op (deepspeed_op.py), and meets through Gloo. Prints one JSON object per size.
"""

import argparse
import contextlib
import json
import os
import socket
import sys
import time
from datetime import timedelta

import deepspeed_op
import torch
import torch.distributed as dist

BATCH_US = 20.0
BATCH_MAX = 256
BATCH_BYTES_MAX = 16 << 20
ROUNDS_MIN, ROUNDS_MAX = 5, 2000
PHASES = 8
VALUES = [0, 1, 2, 3, 1, 3, 0, 2]

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "i8": torch.int8, "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64,
}  # fmt: skip
REDUCTIONS = {
    "sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX,
}  # fmt: skip
REDUCING = ("allreduce", "reduce_scatter", "reduce")
BLOCKED = ("allgather", "reduce_scatter", "alltoall")


def parse_size(text):
    units = {"K": 10, "M": 20, "G": 30}
    shift = units.get(text[-1:].upper(), 0)
    return int(text[:-1] if shift else text) << shift


def parse_sizes(text):
    if ":" not in text:
        return [parse_size(part) for part in text.split(",")]
    first, last, *factor = text.split(":")
    size, sizes = parse_size(first), []
    while size <= parse_size(last):
        sizes.append(size)
        size *= int(factor[0]) if factor else 2
    return sizes


class Bench:
    """One operation on one dtype; measures size by size."""

    def __init__(self, arguments):
        self.operation = arguments.operation
        self.dtype = DTYPES[arguments.dtype]
        self.reduction = REDUCTIONS[arguments.op]
        self.arguments = arguments
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.round = 0
        self.cpu_us = 0.0
        self.all_reduce = lambda tensor: dist.all_reduce(tensor, self.reduction)
        if arguments.backend == "deepspeed":
            self.all_reduce = deepspeed_op.start(os.environ["SHOAL_BENCH_DEEPSPEED"])

    def place(self):
        """Where the buffers are made."""
        if self.arguments.memory == "private":
            return contextlib.nullcontext()
        return sys.modules["shoal.torch"].shared_memory()

    def shape(self, size_bytes):
        """Elements of input and output, and bytes rounded up to whole elements for each rank."""
        element = torch.empty(0, dtype=self.dtype).element_size()
        unit = element * self.size if self.operation in BLOCKED else element
        self.count = -(-size_bytes // unit)
        self.bytes = self.count * unit
        larger = self.count * (self.size if self.operation in BLOCKED else 1)
        self.in_count = self.count if self.operation == "allgather" else larger
        self.out_count = self.count if self.operation == "reduce_scatter" else larger
        reducing = self.operation in REDUCING
        self.inputs = [self.cycle(rank, reducing) for rank in range(self.size)]
        self.expected = self.reduce_cycles() if reducing else None

    def cycle(self, rank, reducing):
        shift = (rank & 1) * 3 if reducing else rank * 3 + rank // 8
        values = [VALUES[(i + shift) % PHASES] for i in range(PHASES)]
        if reducing and self.arguments.op == "prod":
            values = [1 + (value & 1) for value in values]
        return torch.tensor(values)

    def reduce_cycles(self):
        stack = torch.stack(self.inputs)
        reduce = {"sum": torch.sum, "prod": torch.prod, "min": torch.amin, "max": torch.amax}
        return reduce[self.arguments.op](stack, dim=0)

    def sequence(self, cycle, count):
        """An endless sequence of the cycle, long enough to start at any phase."""
        repeats = -(-(count + PHASES) // PHASES)
        return cycle.to(self.dtype).repeat(repeats)

    def make_buffers(self, batch):
        self.fresh = self.sequence(self.inputs[self.rank], self.in_count)
        with self.place():
            self.ins = [torch.zeros(self.in_count, dtype=self.dtype) for _ in range(batch)]
            if self.operation in BLOCKED:
                self.outs = [torch.zeros(self.out_count, dtype=self.dtype) for _ in range(batch)]
            else:
                self.outs = self.ins
        if self.operation in REDUCING:
            self.wanted = [self.sequence(self.expected, self.out_count)]
        else:
            self.wanted = [self.sequence(cycle, self.in_count) for cycle in self.inputs]

    def call(self, slot):
        if self.operation == "allreduce":
            self.all_reduce(self.ins[slot])
        elif self.operation == "allgather":
            dist.all_gather_single(self.outs[slot], self.ins[slot])
        elif self.operation == "reduce_scatter":
            dist.reduce_scatter_single(self.outs[slot], self.ins[slot], self.reduction)
        elif self.operation == "broadcast":
            dist.broadcast(self.ins[slot], 0)
        elif self.operation == "reduce":
            dist.reduce(self.ins[slot], 0, self.reduction)
        elif self.operation == "alltoall":
            dist.all_to_all_single(self.outs[slot], self.ins[slot])
        else:
            dist.barrier()

    def fill(self, slot, phase):
        if self.operation != "broadcast" or self.rank == 0:
            self.ins[slot].copy_(self.fresh[phase : phase + self.in_count])

    def check(self, slot, phase):
        out, count = self.outs[slot], self.count
        if self.operation in ("allreduce", "reduce"):
            parts = [(out, self.wanted[0], 0)]
        elif self.operation == "reduce_scatter":
            parts = [(out, self.wanted[0], self.rank * count % PHASES)]
        elif self.operation == "broadcast":
            parts = [(out, self.wanted[0], 0)]
        else:
            first = self.rank * count if self.operation == "alltoall" else 0
            parts = [
                (out[rank * count : (rank + 1) * count], self.wanted[rank], first % PHASES)
                for rank in range(self.size)
            ]
        if self.operation == "reduce" and self.rank != 0:
            return
        for part, sequence, shift in parts:
            start = (phase + shift) % PHASES
            if not torch.equal(part, sequence[start : start + len(part)]):
                sys.exit(f"wrong result: {self.operation} of {self.bytes} bytes, rank {self.rank}")

    def run_round(self, batch):
        phases = [(self.round + i) * 5 % PHASES for i in range(batch)]
        self.round += batch
        for slot, phase in enumerate(phases):
            self.fill(slot, phase)
        dist.barrier()
        cpu, start = time.process_time(), time.perf_counter()
        for slot in range(batch):
            self.call(slot)
        elapsed_us = (time.perf_counter() - start) * 1e6 / batch
        self.cpu_us += (time.process_time() - cpu) * 1e6
        if self.operation != "barrier" and not self.arguments.no_check:
            for slot, phase in enumerate(phases):
                self.check(slot, phase)
        return elapsed_us

    def slowest(self, times):
        tensor = torch.tensor(times, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor.tolist()

    def sum(self, value):
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.item()

    def estimate(self):
        """Time of one call, and of a round of one call with all that is around it."""
        calls, rounds = [], []
        for _ in range(3):
            start = time.perf_counter()
            calls.append(self.run_round(1))
            rounds.append((time.perf_counter() - start) * 1e6)
        return [min(calls), min(rounds)]

    def measure(self, size_bytes):
        self.shape(size_bytes)
        self.make_buffers(1)
        estimate_us, round_us = self.slowest(self.estimate())
        slot_bytes = max(1, self.in_count + self.out_count) * self.ins[0].element_size()
        batch = int(max(1, min(BATCH_US / estimate_us, BATCH_MAX, BATCH_BYTES_MAX / slot_bytes)))
        rounds = int(self.arguments.size_ms * 1000 / (round_us * batch))
        rounds = self.arguments.iters or max(ROUNDS_MIN, min(rounds, ROUNDS_MAX))
        self.make_buffers(batch)
        self.cpu_us = 0.0
        times = sorted(self.slowest([self.run_round(batch) for _ in range(rounds)]))
        return {
            "bytes": self.bytes,
            "count": self.count,
            "p50_us": round(times[rounds // 2], 4),
            "p99_us": round(times[(rounds * 99 + 99) // 100 - 1], 4),
            "min_us": round(times[0], 4),
            "cpu_us": round(self.sum(self.cpu_us) / (rounds * batch), 4),
            "iters": rounds,
            "batch": batch,
        }


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measures a backend; see the head of this file.")
    parser.add_argument("library", help="its name in the rows")
    operations = ["allreduce", "broadcast", "reduce", "barrier", *BLOCKED]
    parser.add_argument("operation", choices=sorted(set(operations)))
    parser.add_argument("--backend", default="gloo", choices=["gloo", "shoal", "deepspeed"])
    parser.add_argument(
        "--memory",
        default="private",
        choices=["private", "shared"],
        help="shared: the tensors lie in shoal.torch.shared_memory()",
    )
    parser.add_argument("--sizes", default="8:64M")
    parser.add_argument("--dtype", default="f32", choices=DTYPES)
    parser.add_argument("--op", default="sum", choices=REDUCTIONS)
    parser.add_argument("--in-place", action="store_true", help="allreduce is always in place")
    parser.add_argument("--iters", type=int, default=0)
    parser.add_argument("--size-ms", type=int, default=200)
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--note", default="{}", help="JSON object with the library's settings")
    arguments = parser.parse_args()
    if arguments.backend == "deepspeed" and (
        (arguments.operation, arguments.op) != ("allreduce", "sum")
        or arguments.dtype not in ("f32", "f16", "bf16")
    ):
        parser.error("--backend deepspeed: only allreduce, sum, of f32, f16 or bf16")
    if arguments.memory == "shared" and arguments.backend != "shoal":
        parser.error("--memory shared: only with --backend shoal")
    return arguments


def count_hosts():
    names = [None] * dist.get_world_size()
    dist.all_gather_object(names, socket.gethostname())
    return len(set(names))


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    if arguments.backend == "shoal":
        import shoal.torch  # noqa: F401 (registers the backend)
    through = "gloo" if arguments.backend == "deepspeed" else arguments.backend
    dist.init_process_group(through, timeout=timedelta(seconds=120))
    bench = Bench(arguments)
    hosts = count_hosts()
    head = {
        "lib": arguments.library,
        "version": torch.__version__,
        "op": arguments.operation,
        "dtype": arguments.dtype,
        "reduction": arguments.op,
        "ranks": bench.size,
        "hosts": hosts,
    }
    tail = {
        "in_place": arguments.operation not in BLOCKED,
        "checked": not arguments.no_check,
        "settings": json.loads(arguments.note),
    }
    for size_bytes in [0] if arguments.operation == "barrier" else parse_sizes(arguments.sizes):
        row = head | bench.measure(size_bytes) | tail
        if bench.rank == 0:
            print(json.dumps(row), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
