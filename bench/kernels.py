#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Shoal's arithmetic loops on one core by `shoal bench kernel`.

    bench/kernels.py --dtype f32,bf16 --sizes 16K,4M

Each form that the processor has stands beside the roof, a copy that moves as many bytes. What is
not named here is as in `shoal bench kernel --help`. Writes kernels.json below --out.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import libraries
import machine
from comparison import bytes_text, read_result, replace_file

FILE = "kernels.json"


class Kernels:
    """What was measured, by which command, and what went wrong (None: nothing)."""

    def __init__(self, plan, rows, problem):
        self.plan, self.rows, self.problem = plan, rows, problem

    @classmethod
    def read(cls, path):
        """Raises OSError or ValueError where the file is not one of these."""
        return read_result(path, cls, "problem", "kernels")

    def dtypes(self):
        return list(dict.fromkeys(row["dtype"] for row in self.rows))

    def forms(self):
        return list(dict.fromkeys(row["form"] for row in self.rows))

    def sizes(self):
        return sorted({row["bytes"] for row in self.rows})

    def row(self, dtype, form, size, stream):
        key = (dtype, form, size, stream)
        for row in self.rows:
            if (row["dtype"], row["form"], row["bytes"], row["stream"]) == key:
                return row
        return None

    def row_command(self, row):
        """Measures one row again, and the other kind of stores beside it."""
        words = [self.plan["shoal"], "bench", "kernel", "--isa", row["form"]]
        words += ["--dtype", row["dtype"], "--op", row["op"], "--inputs", str(row["inputs"])]
        return shlex.join([*words, "--sizes", str(row["bytes"]), *self.plan["time"]])

    def text(self):
        """How near the best form of each dtype and size comes to the roof."""
        best = {}
        for row in self.rows:
            key = row["dtype"], row["bytes"]
            best[key] = min(best.get(key, row), row, key=lambda each: each["us"])
        if not best:
            return "No kernel was measured."
        near = sum(row["ratio_roof"] <= 1.1 for row in best.values())
        worst = max(best.values(), key=lambda row: row["ratio_roof"])
        return (
            f"The fastest form is within 10 % of the roof in {near} of {len(best)} cases (a dtype "
            f"at a size); farthest: {worst['ratio_roof']:.2f} times the roof's time, "
            f"{worst['dtype']} at {bytes_text(worst['bytes'])} ({worst['form']})."
        )

    def remarks(self):
        problem = self.problem or (None if "finished" in self.plan else "not measured")
        return [f"Arithmetic of one core: {problem}."] if problem else []

    def content(self):
        rows = [row | {"command": self.row_command(row)} for row in self.rows]
        return {
            "plan": self.plan,
            "text": self.text(),
            "problem": self.problem,
            "rows": rows,
        }


def run(command, timeout_s):
    """Rows printed, and what went wrong or None. Rows before a failure are kept."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    problem = None
    try:
        out, errors = process.communicate(timeout=timeout_s)
        if process.returncode != 0:
            problem = f"failed: {errors.strip() or f'exit status {process.returncode}'}"
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        problem = f"timeout of {timeout_s:g} s"
    lines = [line for line in out.splitlines() if line.startswith("{") and line.endswith("}")]
    return [json.loads(line) for line in lines], problem


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("sizes", "dtype", "op", "inputs", "isa", "size-ms"):
        parser.add_argument(f"--{name}", help=f"as for shoal bench kernel --{name}")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for all of it")
    parser.add_argument("--out", type=Path, default=libraries.ROOT / "out/bench")
    parser.add_argument(
        "--declare", action="store_true", help="measure nothing, write only what is to be measured"
    )
    parser.add_argument("--shoal", default=str(libraries.DEFAULT_SHOAL), help="the command")
    return parser.parse_args()


def bench_command(arguments):
    words = [arguments.shoal, "bench", "kernel", "--json"]
    for name in ("sizes", "dtype", "op", "inputs", "isa", "size_ms"):
        value = getattr(arguments, name)
        words += [f"--{name.replace('_', '-')}", value] if value else []
    return words


def make_plan(arguments):
    shown = [word.replace(f"{libraries.ROOT}/", "") for word in bench_command(arguments)]
    return {
        "command": shlex.join(shown),
        "shoal": shown[0],
        "time": ["--size-ms", arguments.size_ms] if arguments.size_ms else [],
        "machine": machine.describe(),
        "revision": machine.revision(),
    }


def write(kernels, folder):
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / FILE, json.dumps(kernels.content(), indent=1) + "\n")


def main():
    arguments = parse_arguments()
    if not os.access(arguments.shoal, os.X_OK):
        sys.exit(f"bench: {arguments.shoal} is missing: make build")
    kernels = Kernels(make_plan(arguments), [], None)
    write(kernels, arguments.out)
    if arguments.declare:
        return
    print("bench: arithmetic of one core", file=sys.stderr)
    watch = machine.Watch()
    kernels.plan |= watch.start()
    kernels.rows, kernels.problem = run(bench_command(arguments), arguments.timeout)
    kernels.plan |= watch.finish()
    write(kernels, arguments.out)
    print(f"bench: {kernels.text()}", file=sys.stderr)
    if kernels.problem:
        sys.exit(f"bench: kernels: {kernels.problem}")


if __name__ == "__main__":
    main()
