#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long processes need until torch.distributed has its group, by `shoal bench start`'s rules.

    bench/peers/start_bench.py gloo|shoal --ranks 64 --rounds 3

The ranks of a start are forked from this process, which has imported torch (and Shoal's binding)
already: Python's start and imports are not counted. All wait for one signal, and the clock, which
they share, begins with it. The last rank counts for times, the largest for bytes; one JSON line
with medians over the starts.
"""

import argparse
import importlib
import json
import os
import select
import signal
import socket
import statistics
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

TIMEOUT_S = 120
MS = 1e6


def field(path, name):
    """A number of one of the kernel's files of lines 'Name:  123 kB'; 0 without it."""
    with open(path) as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    return 0


def footprint():
    return {
        "private_bytes": field("/proc/self/smaps_rollup", "Anonymous") << 10,
        "page_table_bytes": field("/proc/self/status", "VmPTE") << 10,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": field("/proc/self/status", "Threads"),
    }


def measure(backend, rank, ranks, port):
    """What one rank saw: moments of the shared clock, and what it holds more than before."""
    before, moments = footprint(), {}
    dist.init_process_group(
        backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks,
        timeout=timedelta(seconds=TIMEOUT_S),
    )  # fmt: skip
    moments["created"] = time.monotonic_ns()
    growth = {name: value - before[name] for name, value in footprint().items()}
    dist.barrier()
    moments["begin"] = time.monotonic_ns()
    group = dist.new_group(list(range(ranks)))
    moments["grouped"] = time.monotonic_ns()
    ones = torch.ones(1, dtype=torch.float64)
    dist.all_reduce(ones, group=group)
    moments["summed"] = time.monotonic_ns()
    if int(ones) != ranks:
        raise RuntimeError(f"a sum of ones over {ranks} ranks is {ones}")
    dist.barrier()
    dist.destroy_process_group()
    return moments, growth


def child(backend, rank, ranks, port, go, results):
    """Never returns."""
    code = 1
    try:
        os.write(results, b"\n")
        os.read(go, 1)
        line = json.dumps(measure(backend, rank, ranks, port)) + "\n"
        os.write(results, line.encode())
        code = 0
    except Exception as error:
        print(f"{backend}, rank {rank}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def read_lines(descriptor, count, deadline):
    """So many lines, each of which was written at once; fewer at the deadline or the end."""
    text = b""
    while text.count(b"\n") < count and time.monotonic() < deadline:
        if not select.select([descriptor], [], [], 1)[0]:
            continue
        piece = os.read(descriptor, 65536)
        if not piece:
            break
        text += piece
    return text.splitlines()


def start_once(backend, ranks):
    """One start; None when a rank failed."""
    go_read, go_write = os.pipe()
    results_read, results_write = os.pipe()
    port, deadline, pids = free_port(), time.monotonic() + TIMEOUT_S, []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            child(backend, rank, ranks, port, go_read, results_write)
        pids.append(pid)
    os.close(results_write)
    read_lines(results_read, ranks, deadline)
    begin = time.monotonic_ns()
    os.write(go_write, b"g" * ranks)
    lines = read_lines(results_read, ranks, deadline)
    if len(lines) != ranks:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    for descriptor in (go_read, go_write, results_read):
        os.close(descriptor)
    if any(codes) or len(lines) != ranks:
        return None
    moments, growths = zip(*map(json.loads, lines), strict=True)
    first = min(each["begin"] for each in moments)
    found = {name: max(each[name] for each in growths) for name in growths[0]}
    found["create_ms"] = (max(each["created"] for each in moments) - begin) / MS
    found["subset_ms"] = (max(each["grouped"] for each in moments) - first) / MS
    found["subset_sum_ms"] = (max(each["summed"] for each in moments) - first) / MS
    return found


def medians(starts):
    row = {}
    for name in starts[0]:
        values = [start[name] for start in starts]
        row[name] = round(statistics.median(values), 4)
        if name.endswith("_ms"):
            row[f"{name}_low"], row[f"{name}_high"] = round(min(values), 4), round(max(values), 4)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backend", choices=("gloo", "shoal"))
    parser.add_argument("--ranks", default="2,4,8,16,32,64")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.backend == "shoal":
        importlib.import_module("shoal.torch")
    for ranks in map(int, arguments.ranks.split(",")):
        starts = [start_once(arguments.backend, ranks) for _ in range(arguments.rounds)]
        if None in starts:
            sys.exit(f"a start with {ranks} ranks failed")
        name = "shoal-torch" if arguments.backend == "shoal" else arguments.backend
        head = {"lib": name, "version": torch.__version__, "ranks": ranks}
        print(json.dumps(head | {"rounds": arguments.rounds} | medians(starts)), flush=True)


if __name__ == "__main__":
    main()
