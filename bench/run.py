#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Shoal with other libraries: same protocol and machine, turns in the same minute.

    bench/run.py --op allreduce --ranks 2 --sizes 8:64M --libs shoal,gloo,openmpi --rounds 5

Sizes are taken in small groups. For each group there are rounds; in a round each library's program
is started once and measures the sizes of the group. A round's result is a median; the table shows
the median of the rounds and how far they are apart. With --virtual-hosts N --rate R the ranks run
on virtual hosts of this machine (root). Writes JSON, Markdown and a plot below --out, anew after
each group, so that what was measured stays when a run is ended early; bench/report.py makes a page
of all that lies there.
"""

import argparse
import json
import os
import socket
import sys
from pathlib import Path

import charts
import libraries
import machine
import plot
import processes
from comparison import Comparison, replace_file

DEFAULT_LIBRARIES = "shoal,gloo,openmpi,mpich,intelmpi"
ANY_PORT = 29500


def parse_size(text):
    units = {"K": 10, "M": 20, "G": 30}
    shift = units.get(text[-1:].upper(), 0)
    return int(text[:-1] if shift else text) << shift


def parse_sizes(text):
    """8:64M doubles, 8:64M:4 goes by four, 8,4K,1M is a list."""
    try:
        if ":" not in text:
            return sorted({parse_size(part) for part in text.split(",")})
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
    parser.add_argument(
        "--in-place", action="store_true", help="one buffer is input and output, as in training"
    )
    parser.add_argument(
        "--torch", action="store_true", help="Shoal through torch.distributed, as Gloo always is"
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
        "--declare", action="store_true", help="measure nothing, write only what is to be measured"
    )
    parser.add_argument(
        "--shoal",
        default=os.environ.get("SHOAL_BENCH_COMMAND", str(libraries.DEFAULT_SHOAL)),
        help="the command (default build/release/shoal)",
    )
    arguments = parser.parse_args()
    arguments.shoal = str(Path(arguments.shoal).absolute())  # launchers run it in other folders
    arguments.ranks = arguments.ranks or arguments.virtual_hosts or 2
    if arguments.virtual_hosts and arguments.ranks < arguments.virtual_hosts:
        parser.error("fewer ranks than virtual hosts")
    if arguments.torch and not {*arguments.libs} <= {"shoal", "shoal-shared", "gloo"}:
        parser.error("--torch: only shoal and gloo are called through torch.distributed")
    if arguments.in_place and arguments.op != "allreduce":
        parser.error("--in-place: the libraries' programs share that for allreduce alone")
    if arguments.op == "barrier":
        arguments.sizes = arguments.sizes[:1]  # it has none
    return arguments


def enter_virtual_hosts(arguments):
    """Starts this program again beside virtual hosts, in their head; returns where that is done,
    is not needed, or can't be."""
    needed = arguments.virtual_hosts and not arguments.declare
    if not needed or "SHOAL_VHOSTS" in os.environ or os.geteuid() != 0:
        return
    command = [arguments.shoal, "vhosts", "-n", str(arguments.virtual_hosts)]
    command += ["--rate", arguments.rate, "--", sys.executable, *sys.argv]
    os.execv(arguments.shoal, command)


def split_libraries(arguments):
    """Names of those that can be measured here, and for the others, why they can't."""
    names, missing = [], []
    for name in arguments.libs:
        reason = libraries.missing(libraries.LIBRARIES[name])
        if not reason and name in libraries.ALLREDUCE_ONLY and arguments.op != "allreduce":
            reason = "it has or differs in allreduce only"
        if not reason and name in libraries.IN_PLACE_ONLY and not arguments.in_place:
            reason = "it works in place only"
        if reason:
            print(f"bench: without {name}: {reason}", file=sys.stderr)
            missing.append({"lib": name, "reason": reason})
        else:
            names.append(name)
    return names, missing


def obstacle(arguments, names):
    """What keeps the whole comparison from being measured here; None if nothing does."""
    if arguments.virtual_hosts and os.geteuid() != 0:
        return "virtual hosts need root"
    return None if names else "there is no library to measure"


def free_port(hosts):
    """Free here. Inside virtual hosts any will do: nothing else runs there."""
    if hosts:
        return ANY_PORT
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_place(arguments, port=None):
    hosts = tuple(f"vh{i}" for i in range(arguments.virtual_hosts))
    port = port or free_port(hosts)
    return libraries.Place(arguments.ranks, hosts, arguments.shoal, port, arguments.torch)


def measurement(arguments, sizes):
    """What every library's program is told to measure."""
    words = [arguments.op, "--dtype", arguments.dtype]
    words += ["--in-place"] if arguments.in_place else []
    return [*words, "--sizes", sizes, "--size-ms", str(arguments.size_ms)]


def command_texts(arguments, names):
    """How each library is started, for a shell, with SIZE where the size belongs."""
    place = make_place(arguments, ANY_PORT)
    return {
        name: libraries.command_text(
            libraries.LIBRARIES[name], place, arguments.rate, measurement(arguments, "SIZE")
        )
        for name in names
    }


def make_plan(arguments, names, missing):
    hosts = arguments.virtual_hosts
    chosen = [libraries.LIBRARIES[name] for name in names]
    default_shoal = arguments.shoal == str(libraries.DEFAULT_SHOAL)
    return {
        "name": arguments.name,
        "op": arguments.op,
        "dtype": arguments.dtype,
        "in_place": arguments.in_place,
        "torch": arguments.torch,
        "ranks": arguments.ranks,
        "virtual_hosts": hosts,
        "rate": arguments.rate if hosts else None,
        "sizes": arguments.sizes,
        "rounds": arguments.rounds,
        "group": arguments.group,
        "size_ms": arguments.size_ms,
        "timeout_s": arguments.timeout,
        "shoal": None if default_shoal else arguments.shoal.replace(f"{libraries.ROOT}/", ""),
        "libraries": names,
        "missing": missing,
        "settings": {each.name: {"about": each.about} | each.settings for each in chosen},
        "commands": command_texts(arguments, names),
        "environment": machine.environment(),
        "machine": machine.describe(),
        "revision": machine.revision(),
    }


def measure_once(arguments, name, sizes):
    words = measurement(arguments, ",".join(map(str, sizes)))
    starts = libraries.starts(libraries.LIBRARIES[name], make_place(arguments), words)
    return processes.run(starts, arguments.timeout)


def measure_group(arguments, comparison, sizes):
    """All rounds of some sizes; a library that did not finish isn't tried again in them."""
    left = list(comparison.libraries())
    for round_number in range(arguments.rounds):
        for name in list(left):
            rows, problem = measure_once(arguments, name, sizes)
            comparison.add(name, round_number, sizes, rows)
            if problem:
                text = f"timeout of {arguments.timeout:g} s" if problem == "timeout" else problem
                done = len(rows)
                comparison.add_problem(name, sizes[done:], round_number, text)
                print(f"bench: {name}, {sizes[done:]} bytes: {text}", file=sys.stderr)
                left.remove(name)


def write(comparison, folder):
    """All that there is so far, as JSON, Markdown and, as soon as there are results, a plot."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / comparison.name()
    picture = charts.comparison_svg(comparison, plot.WIDE, standalone=True)
    replace_file(Path(f"{path}.json"), json.dumps(comparison.content(), indent=1) + "\n")
    replace_file(Path(f"{path}.md"), comparison.markdown())
    if picture:
        replace_file(Path(f"{path}.svg"), picture)
    else:
        Path(f"{path}.svg").unlink(missing_ok=True)


def measure(arguments, comparison):
    """Measures group by group, and writes what there is after each."""
    watch = machine.Watch()
    comparison.plan |= watch.start()
    write(comparison, arguments.out)
    for first in range(0, len(arguments.sizes), arguments.group):
        sizes = arguments.sizes[first : first + arguments.group]
        print(f"bench: {sizes[0]} to {sizes[-1]} bytes", file=sys.stderr)
        measure_group(arguments, comparison, sizes)
        write(comparison, arguments.out)
    comparison.plan |= watch.finish()
    write(comparison, arguments.out)


def main():
    arguments = parse_arguments()
    if not os.access(arguments.shoal, os.X_OK):
        sys.exit(f"bench: {arguments.shoal} is missing: make build")
    enter_virtual_hosts(arguments)
    names, missing = split_libraries(arguments)
    comparison = Comparison(make_plan(arguments, names, missing))
    problem = obstacle(arguments, names)
    if problem:
        comparison.plan["obstacle"] = problem
    write(comparison, arguments.out)
    if arguments.declare:
        return
    if problem:
        sys.exit(f"bench: {comparison.title()}: nothing measured: {problem}")
    processes.adopt_orphans()
    print(f"bench: {comparison.title()}: {', '.join(names)}", file=sys.stderr)
    measure(arguments, comparison)
    print(f"\n{comparison.title()}\n\n{comparison.table_text()}\n\n{comparison.verdict().text()}\n")
    path = arguments.out / comparison.name()
    print(f"bench: written: {path}.json, .md, .svg", file=sys.stderr)


if __name__ == "__main__":
    main()
