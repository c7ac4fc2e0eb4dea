#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Shoal with other libraries: same protocol and machine, turns in the same minute.

    bench/run.py --op allreduce --ranks 2 --sizes 8:64M --libs shoal,gloo,openmpi --rounds 5

Sizes are taken in small groups. For each group there are rounds; in a round each library's program
is started once and measures the sizes of the group. A round's result is a median; the table shows
the median of the rounds and how far they are apart. With --virtual-hosts N --rate R the ranks run
on virtual hosts of this machine (root). Writes JSON, Markdown and a plot below --out.
"""

import argparse
import os
import platform
import shlex
import socket
import sys
import time
from pathlib import Path

import libraries
import processes
from report import Comparison

DEFAULT_LIBRARIES = "shoal,gloo,openmpi,mpich,intelmpi"


def parse_size(text):
    units = {"K": 10, "M": 20, "G": 30}
    shift = units.get(text[-1:].upper(), 0)
    return int(text[:-1] if shift else text) << shift


def parse_sizes(text):
    """8:64M doubles, 8:64M:4 goes by four, 8,4K,1M is a list."""
    try:
        if ":" not in text:
            return [parse_size(part) for part in text.split(",")]
        first, last, *factors = text.split(":")
        factor = int(factors[0]) if factors else 2
        size, sizes = parse_size(first), []
        while size <= parse_size(last) and factor > 1:
            sizes.append(size)
            size *= factor
    except ValueError:
        sizes = []
    if not sizes:
        raise argparse.ArgumentTypeError(f"can't read sizes '{text}'; for example 8:64M or 8,4K")
    return sizes


def parse_libraries(text):
    names = text.split(",")
    for name in names:
        if name not in libraries.LIBRARIES:
            known = ", ".join(libraries.LIBRARIES)
            raise argparse.ArgumentTypeError(f"there is no library '{name}'; there are {known}")
    return names


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--op", default="allreduce", help="allreduce, allgather, ...")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--ranks", type=int, help="default 2, or one per virtual host")
    parser.add_argument("--sizes", type=parse_sizes, default="8:64M", help="default 8:64M")
    parser.add_argument(
        "--libs",
        type=parse_libraries,
        default=DEFAULT_LIBRARIES,
        help=f"of {', '.join(libraries.LIBRARIES)}",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--group", type=int, default=6, help="sizes per start of a program")
    parser.add_argument("--size-ms", type=int, default=100, help="time per size and round")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one start")
    parser.add_argument("--virtual-hosts", type=int, default=0, metavar="N")
    parser.add_argument("--rate", default="1gbit", help="of the virtual hosts' links")
    parser.add_argument("--out", type=Path, default=libraries.ROOT / "out/bench")
    parser.add_argument("--name", help="of the files (default from what is measured)")
    parser.add_argument(
        "--shoal",
        default=os.environ.get("SHOAL_BENCH_COMMAND", str(libraries.ROOT / "build/release/shoal")),
        help="the command (default build/release/shoal)",
    )
    arguments = parser.parse_args()
    arguments.ranks = arguments.ranks or arguments.virtual_hosts or 2
    if arguments.virtual_hosts and arguments.ranks < arguments.virtual_hosts:
        parser.error("fewer ranks than virtual hosts")
    return arguments


def enter_virtual_hosts(arguments):
    """Starts this program again beside virtual hosts, in their head; returns only inside."""
    if not arguments.virtual_hosts or "SHOAL_VHOSTS" in os.environ:
        return
    command = [arguments.shoal, "vhosts", "-n", str(arguments.virtual_hosts)]
    command += ["--rate", arguments.rate, "--", sys.executable, *sys.argv]
    os.execv(arguments.shoal, command)


def machine_text():
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, Linux {platform.release()}"


def usable_libraries(arguments):
    names = []
    for name in arguments.libs:
        reason = libraries.missing(libraries.LIBRARIES[name])
        if reason:
            print(f"bench: without {name}: {reason}", file=sys.stderr)
        elif name in libraries.ALLREDUCE_ONLY and arguments.op != "allreduce":
            print(f"bench: without {name}: it differs in allreduce only", file=sys.stderr)
        else:
            names.append(name)
    return names


def free_port(hosts):
    """Free here. Inside virtual hosts any will do: nothing else runs there."""
    if hosts:
        return 29500
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_plan(arguments, names):
    command = shlex.join(["bench/run.py", *sys.argv[1:]])
    return {
        "op": arguments.op,
        "dtype": arguments.dtype,
        "ranks": arguments.ranks,
        "virtual_hosts": arguments.virtual_hosts,
        "rate": arguments.rate if arguments.virtual_hosts else None,
        "rounds": arguments.rounds,
        "libraries": names,
        "command": command,
        "machine": machine_text(),
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "load_before": os.getloadavg()[0],
    }


def measure_once(arguments, name, sizes):
    hosts = tuple(os.environ["SHOAL_VHOSTS"].split()) if arguments.virtual_hosts else ()
    place = libraries.Place(arguments.ranks, hosts, arguments.shoal, free_port(hosts))
    measurement = [arguments.op, "--dtype", arguments.dtype]
    measurement += ["--sizes", ",".join(map(str, sizes)), "--size-ms", str(arguments.size_ms)]
    starts = libraries.starts(libraries.LIBRARIES[name], place, measurement)
    return processes.run(starts, arguments.timeout)


def measure_group(arguments, comparison, names, sizes):
    """All rounds of some sizes; a library that did not finish isn't tried again in them."""
    left = list(names)
    for round_number in range(arguments.rounds):
        for name in list(left):
            rows, problem = measure_once(arguments, name, sizes)
            comparison.add(name, round_number, rows)
            if problem:
                text = f"timeout of {arguments.timeout:g} s" if problem == "timeout" else problem
                done = len(rows)
                comparison.add_problem(name, sizes[done:], round_number, text)
                print(f"bench: {name}, {sizes[done:]} bytes: {text}", file=sys.stderr)
                left.remove(name)


def main():
    arguments = parse_arguments()
    if not os.access(arguments.shoal, os.X_OK):
        sys.exit(f"bench: {arguments.shoal} is missing: make build")
    enter_virtual_hosts(arguments)
    processes.adopt_orphans()
    names = usable_libraries(arguments)
    if not names:
        sys.exit("bench: nothing to measure")
    comparison = Comparison(make_plan(arguments, names))
    print(f"bench: {comparison.title()}: {', '.join(names)}", file=sys.stderr)
    for first in range(0, len(arguments.sizes), arguments.group):
        sizes = arguments.sizes[first : first + arguments.group]
        print(f"bench: {sizes[0]} to {sizes[-1]} bytes", file=sys.stderr)
        measure_group(arguments, comparison, names, sizes)
    hosts = f"-{arguments.virtual_hosts}hosts" if arguments.virtual_hosts else ""
    name = arguments.name or f"{arguments.op}-{arguments.dtype}-{arguments.ranks}ranks{hosts}"
    arguments.out.mkdir(parents=True, exist_ok=True)
    comparison.write_json(arguments.out / f"{name}.json")
    comparison.write_markdown(arguments.out / f"{name}.md")
    if not comparison.write_plot(arguments.out / f"{name}.png"):
        print("bench: no plot: no results, or matplotlib is not installed", file=sys.stderr)
    print(f"\n{comparison.title()}\n\n{comparison.table_text()}\n")
    print(f"bench: written: {arguments.out / name}.json, .md, .png", file=sys.stderr)


if __name__ == "__main__":
    main()
