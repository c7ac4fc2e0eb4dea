#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what communication adds to a training step of DistributedDataParallel.

    bench/ddp.py --ranks 2 --rounds 5

bench/peers/ddp_bench.py trains a wide MLP, once in each round with each library, by turns. Writes
ddp.json below --out, anew after each round.
"""

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import libraries
import machine
import processes
from comparison import read_result, replace_file

FILE = "ddp.json"
OWN, FUSED, PRIVATE = "shoal", "shoal-ddp", "shoal-private"
GLOO, COPIES = "gloo", "copies"
SHARE = 0.25  # what is wanted: a quarter of what Gloo adds
LOSS_TOLERANCE = 1e-4  # relative; sums of the same gradients in another order
MEDIANS = ("step_ms", "plain_ms", "overhead_ms", "samples_s")


@dataclass(frozen=True)
class Way:
    """How one row is measured: options of the program, and its environment."""

    about: str
    options: tuple[str, ...]
    environment: dict[str, str]


WAYS = {
    OWN: Way("Shoal, buckets in memory that the ranks share", ("--backend", "shoal"), {}),
    FUSED: Way(
        "Shoal, its own DistributedDataParallel over fusion buffers",
        ("--backend", "shoal", "--fused"),
        {},
    ),
    PRIVATE: Way(
        "Shoal, buckets in private memory", ("--backend", "shoal"), {"SHOAL_TORCH_SHARED": "0"}
    ),
    GLOO: Way("Gloo", ("--backend", "gloo"), {}),
    COPIES: Way(
        "torch's copies into its buckets and back, and nothing sent: part of all the others",
        ("--backend", "gloo", "--send-nothing"),
        {},
    ),
}


class Training:
    """What was measured, by which commands, and what went wrong (library: why)."""

    def __init__(self, plan, rows, problems):
        self.plan, self.rows, self.problems = plan, rows, problems

    @classmethod
    def read(cls, path):
        """Raises OSError or ValueError where the file is not one of these."""
        return read_result(path, cls, "problems", "ddp")

    def libraries(self):
        return [name for name in self.plan["about"] if self.of(name)]

    def of(self, library):
        """Its rows by round."""
        return {row["round"]: row for row in self.rows if row["lib"] == library}

    def share(self, library):
        """What it adds to a step, as a share of Gloo's: the median of the rounds, or None."""
        own, other = self.of(library), self.of(GLOO)
        shares = [own[i]["overhead_ms"] / other[i]["overhead_ms"] for i in own if i in other]
        return median(shares) if shares else None

    def summary(self, library):
        rows = list(self.of(library).values())
        found = {"lib": library, "rounds": len(rows), "share": self.share(library)}
        for name in MEDIANS:
            values = [row[name] for row in rows]
            found[name] = median(values)
            found[f"{name}_low"], found[f"{name}_high"] = min(values), max(values)
        for name in ("direct_bytes", "staged_bytes"):
            if name in rows[0]:
                found[name] = rows[0][name]
        return found | {"last_loss": rows[0]["last_loss"]}

    def text(self):
        """What Shoal adds to a step, and what Gloo does."""
        if OWN not in self.libraries():
            return "No training was measured."
        own, share = self.summary(OWN), self.share(OWN)
        text = (
            f"Communication adds {own['overhead_ms']:.1f} ms to a training step of "
            f"{own['plain_ms']:.0f} ms"
        )
        if share is not None:
            gloo = self.summary(GLOO)
            text += f", {share:.2f} of the {gloo['overhead_ms']:.1f} ms that Gloo adds"
        if COPIES in self.libraries():
            copies = self.summary(COPIES)
            text += f"; torch's own copies are {copies['overhead_ms']:.1f} ms of either"
        return f"{text}."

    def remarks(self):
        if "finished" not in self.plan:
            return ["Training with DDP: not measured."]
        return [f"Training with DDP, {name}: {why}." for name, why in self.problems.items()]

    def content(self):
        share = self.share(OWN)
        return {
            "plan": self.plan,
            "text": self.text(),
            "problems": self.problems,
            "reached": share is not None and share <= SHARE,
            "summaries": [self.summary(name) for name in self.libraries()],
            "rows": [row | {"command": self.plan["commands"][row["lib"]]} for row in self.rows],
        }

    def compare_results(self):
        """All that communicate have learned the same: Shoal to the bit, others nearly."""
        for row in self.rows:
            wanted = self.of(OWN).get(row["round"])
            if row["lib"] == COPIES or not wanted:
                continue
            distance = abs(row["last_loss"] - wanted["last_loss"])
            if row["lib"] == PRIVATE and row["digest"] != wanted["digest"]:
                self.problems[PRIVATE] = "its parameters have other bits than in shared memory"
            elif distance > LOSS_TOLERANCE * abs(wanted["last_loss"]):
                self.problems[row["lib"]] = (
                    f"its last loss is {row['last_loss']}, Shoal's {wanted['last_loss']}"
                )


def command(arguments, library):
    """What measures it once."""
    way, root = WAYS[library], libraries.ROOT
    words = [str(root / ".venv/bin/python"), str(root / "bench/peers/ddp_bench.py"), library]
    for name in ("ranks", "width", "batch", "steps"):
        words += [f"--{name}", str(getattr(arguments, name))]
    words += ["--bucket-view"] if arguments.bucket_view else []
    environment = {"GLOO_SOCKET_IFNAME": "lo"}
    if "shoal" in way.options:
        build = Path(arguments.shoal).resolve().parent
        environment = {"PYTHONPATH": str(root / "bindings/python"), "SHOAL_BUILD": str(build)}
    return libraries.Start([*words, *way.options], environment | way.environment)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--width", type=int, default=3072, help="of the network's hidden layers")
    parser.add_argument("--batch", type=int, default=8, help="samples of each rank in a step")
    parser.add_argument("--steps", type=int, default=20, help="steps of each kind in a round")
    parser.add_argument(
        "--bucket-view", action="store_true", help="DDP with gradient_as_bucket_view=True"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--libs", default=",".join(WAYS), help="of these")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one program")
    parser.add_argument("--out", type=Path, default=libraries.ROOT / "out/bench")
    parser.add_argument(
        "--declare", action="store_true", help="measure nothing, write only what is to be measured"
    )
    parser.add_argument("--shoal", default=str(libraries.DEFAULT_SHOAL), help="the command")
    arguments = parser.parse_args()
    arguments.libs = arguments.libs.split(",")
    if unknown := set(arguments.libs) - set(WAYS):
        parser.error(f"--libs {', '.join(sorted(unknown))}: there are {', '.join(WAYS)}")
    if min(arguments.ranks, arguments.width, arguments.batch, arguments.steps) < 1:
        parser.error("--ranks, --width, --batch and --steps are at least 1")
    return arguments


def make_plan(arguments):
    names = ("ranks", "width", "batch", "steps", "rounds")
    words = [f"--{name} {getattr(arguments, name)}" for name in names]
    words += ["--bucket-view"] if arguments.bucket_view else []
    shown = {name: libraries.shell_line(command(arguments, name)) for name in arguments.libs}
    return {
        "command": f"bench/ddp.py {' '.join(words)} --libs {','.join(arguments.libs)}",
        "commands": shown,
        "about": {name: WAYS[name].about for name in arguments.libs},
        **{name: getattr(arguments, name) for name in (*names, "bucket_view")},
        "machine": machine.describe(),
        "revision": machine.revision(),
    }


def write(training, folder):
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / FILE, json.dumps(training.content(), indent=1) + "\n")


def measure_round(training, arguments, number):
    """Each library once; who begins changes. One that failed is not started again."""
    first = number % len(arguments.libs)
    for name in arguments.libs[first:] + arguments.libs[:first]:
        if name in training.problems:
            continue
        print(f"bench: DDP, round {number + 1} of {arguments.rounds}, {name}", file=sys.stderr)
        rows, problem = processes.run([command(arguments, name)], arguments.timeout)
        training.rows += [row | {"round": number} for row in rows]
        if problem:
            training.problems[name] = f"round {number + 1}: {problem}"


def main():
    arguments = parse_arguments()
    if not os.access(arguments.shoal, os.X_OK):
        sys.exit(f"bench: {arguments.shoal} is missing: make build")
    training = Training(make_plan(arguments), [], {})
    write(training, arguments.out)
    if arguments.declare:
        return
    processes.adopt_orphans()
    watch = machine.Watch()
    training.plan |= watch.start()
    for number in range(arguments.rounds):
        measure_round(training, arguments, number)
        write(training, arguments.out)
    training.plan |= watch.finish()
    training.compare_results()
    write(training, arguments.out)
    print(f"bench: {training.text()}", file=sys.stderr)
    if training.problems:
        sys.exit(f"bench: ddp: {'; '.join(training.remarks())}")


if __name__ == "__main__":
    main()
