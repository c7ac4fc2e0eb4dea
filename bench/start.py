#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how ranks of one host start and what a group costs them, Gloo's beside Shoal's.

    bench/start.py --ranks 2,64 --rounds 3

Shoal by `shoal bench start`; through torch.distributed, Gloo and Shoal, by
bench/peers/start_bench.py. Writes start.json below --out.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import libraries
import machine
import processes
from comparison import read_result, replace_file

FILE = "start.json"
OWN, TORCH, GLOO = "shoal", "shoal-torch", "gloo"
ABOUT = {
    OWN: "Shoal, processes started by `shoal run`",
    TORCH: "Shoal through torch.distributed, processes forked after the import of torch",
    GLOO: "Gloo through torch.distributed, likewise",
}
READY_MS, GROUP_MS, RANKS = 2000, 5, 64  # what is wanted: 64 ranks within 2 s, a group in 5 ms


class Starts:
    """What was measured, by which commands, and what went wrong (library: why)."""

    def __init__(self, plan, rows, problems):
        self.plan, self.rows, self.problems = plan, rows, problems

    @classmethod
    def read(cls, path):
        """Raises OSError or ValueError where the file is not one of these."""
        return read_result(path, cls, "problems", "start")

    def numbers(self):
        return sorted({row["ranks"] for row in self.rows})

    def row(self, library, ranks):
        for row in self.rows:
            if (row["lib"], row["ranks"]) == (library, ranks):
                return row
        return None

    def text(self):
        """The largest start, and Gloo beside it."""
        row = self.row(OWN, max(self.numbers(), default=0))
        if not row:
            return "No start was measured."
        text = (
            f"{row['ranks']} ranks are ready {row['launch_ms']:,.0f} ms after their launch, and "
            f"make another group in {row['subset_ms']:.2f} ms; each then holds "
            f"{row['shared_bytes'] / 1024:,.0f} KiB of shared memory and "
            f"{row['private_bytes'] / 1024:,.0f} KiB of its own."
        )
        pair = [self.row(library, row["ranks"]) for library in (TORCH, GLOO)]
        if all(pair):
            text += (
                f" Through torch.distributed a group takes {pair[0]['create_ms']:,.0f} ms, "
                f"Gloo's {pair[1]['create_ms']:,.0f} ms."
            )
        return text

    def remarks(self):
        if "finished" not in self.plan:
            return ["Start of ranks: not measured."]
        return [f"Start of ranks, {name}: {why}." for name, why in self.problems.items()]

    def content(self):
        row = self.row(OWN, RANKS)
        return {
            "plan": self.plan,
            "text": self.text(),
            "problems": self.problems,
            "reached": bool(row and row["launch_ms"] <= READY_MS and row["subset_ms"] <= GROUP_MS),
            "rows": [row | {"command": self.plan["commands"][row["lib"]]} for row in self.rows],
        }


def commands(arguments, ranks):
    """By library, what measures it with so many ranks (text)."""
    root, build = libraries.ROOT, Path(arguments.shoal).resolve().parent
    peer = [str(root / ".venv/bin/python"), str(root / "bench/peers/start_bench.py")]
    binding = {"PYTHONPATH": str(root / "bindings/python"), "SHOAL_BUILD": str(build)}
    loopback = {"GLOO_SOCKET_IFNAME": "lo"}
    rounds = ["--rounds", str(arguments.rounds)]
    own = [arguments.shoal, "bench", "start", "--json", "-n", ranks, *rounds]
    return {
        OWN: libraries.Start(own, {}),
        TORCH: libraries.Start([*peer, "shoal", "--ranks", ranks, *rounds], binding),
        GLOO: libraries.Start([*peer, "gloo", "--ranks", ranks, *rounds], loopback),
    }


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="2,4,8,16,32,64", help="numbers of ranks")
    parser.add_argument("--rounds", type=int, default=5, help="starts for each")
    parser.add_argument("--libs", default=",".join(ABOUT), help="of these")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one program")
    parser.add_argument("--out", type=Path, default=libraries.ROOT / "out/bench")
    parser.add_argument(
        "--declare", action="store_true", help="measure nothing, write only what is to be measured"
    )
    parser.add_argument("--shoal", default=str(libraries.DEFAULT_SHOAL), help="the command")
    arguments = parser.parse_args()
    arguments.libs = arguments.libs.split(",")
    if unknown := set(arguments.libs) - set(ABOUT):
        parser.error(f"--libs {', '.join(sorted(unknown))}: there are {', '.join(ABOUT)}")
    return arguments


def make_plan(arguments):
    own = f"bench/start.py --ranks {arguments.ranks} --rounds {arguments.rounds}"
    shown = commands(arguments, arguments.ranks)
    return {
        "command": f"{own} --libs {','.join(arguments.libs)}",
        "commands": {name: libraries.shell_line(shown[name]) for name in arguments.libs},
        "about": {name: ABOUT[name] for name in arguments.libs},
        "machine": machine.describe(),
        "revision": machine.revision(),
    }


def write(starts, folder):
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / FILE, json.dumps(starts.content(), indent=1) + "\n")


def measure(starts, arguments):
    """Libraries take turns with each number of ranks; one that fails is not started again."""
    for ranks in arguments.ranks.split(","):
        for name in arguments.libs:
            if name in starts.problems:
                continue
            print(f"bench: start of {ranks} ranks, {name}", file=sys.stderr)
            rows, problem = processes.run([commands(arguments, ranks)[name]], arguments.timeout)
            starts.rows += rows
            if problem:
                starts.problems[name] = f"{ranks} ranks: {problem}"


def main():
    arguments = parse_arguments()
    if not os.access(arguments.shoal, os.X_OK):
        sys.exit(f"bench: {arguments.shoal} is missing: make build")
    starts = Starts(make_plan(arguments), [], {})
    write(starts, arguments.out)
    if arguments.declare:
        return
    processes.adopt_orphans()
    watch = machine.Watch()
    starts.plan |= watch.start()
    measure(starts, arguments)
    starts.plan |= watch.finish()
    write(starts, arguments.out)
    print(f"bench: {starts.text()}", file=sys.stderr)
    if starts.problems:
        sys.exit(f"bench: start: {'; '.join(starts.remarks())}")


if __name__ == "__main__":
    main()
