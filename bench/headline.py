#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares training loops across hosts: torch's DistributedDataParallel over Gloo, and Shoal.

    bench/headline.py --hosts 2,4,8 --rates 1gbit,none        (root: virtual hosts)
    bench/headline.py --hosts 4 --rates 1gbit --servers 0,4

A case is a model, a number of virtual hosts, the rate of their links, and how many hosts more there
are for servers, which sum for Shoal. In each, one start of
bench/peers/headline_bench.py on all hosts trains the model with each way of summing gradients, by
turns; before it, `shoal bench` measures the roof: raw sockets that move what an allreduce of all
gradients must move. Computing is waiting, so long that half of Gloo's step is communication
(--compute half), or as long as Gloo's communication takes alone (equal), or MS milliseconds.

Models whose gradients are more than --bytes are scaled: each tensor has the same share of its
elements. Writes headline.json and headline.svg below --out, anew after each case.
"""

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import bars
import libraries
import machine
import processes
import trainings
from comparison import read_result
from run import parse_size
from trainings import percent

FILE, PICTURE = "headline.json", "headline.svg"
GLOO = "gloo"
WAYS = {
    GLOO: "torch's DistributedDataParallel over Gloo",
    "shoal": "torch's DistributedDataParallel over Shoal",
    "shoal-ddp": "Shoal's DistributedDataParallel",
    "shoal-overlap": "Shoal's DistributedDataParallel, updates in the next forward pass",
    "shoal-overlap-bf16": "the same, gradients travel as bf16",
    "shoal-overlap-int8": "the same, gradients travel as int8",
}
# Ways that round gradients: they send so much of each byte, and are no answer to one that does not.
ROUNDED = {"shoal-overlap-bf16": 1 / 2, "shoal-overlap-int8": (1 + 4 / 256) / 4}
# Percent of speed over PyTorch's DistributedDataParallel on so many p3dn nodes, as published for
# SageMaker's data parallel library (the developer guide's first figures, PyTorch 1.6).
PUBLISHED = {
    "bert-large": {2: 41, 4: 52, 8: 13},
    "mask-rcnn-r50": {2: 4, 4: 19, 8: 15},
}
BOUND_TIMES = 1.1  # what is wanted: the step as a multiple of its bound
FLOAT_BYTES = 4
ROOF_ROUNDS = 5


@dataclass(frozen=True)
class Case:
    model: str
    hosts: int
    rate: str  # of each host's link
    servers: int = 0  # each on a host of its own

    @property
    def name(self):
        servers = f"-{self.servers}servers" if self.servers else ""
        return f"{self.model}-{self.hosts}hosts-{self.rate}{servers}"

    def hosts_text(self):
        servers = f" and {self.servers} servers" if self.servers else ""
        return f"{self.hosts} hosts{servers}"

    def text(self):
        return f"{self.model}, {self.hosts_text()}, {link_text(self.rate)}"

    def wire_share(self):
        """What each port carries, as a share of what it does without servers (docs/servers.md)."""
        ports, servers = self.hosts, min(self.servers, self.hosts)
        return ports**2 / (ports**2 + servers * ports - 2 * servers)


class Headline:
    """What was measured, by which commands, and what went wrong (case: why)."""

    def __init__(self, plan, rows, problems):
        self.plan, self.rows, self.problems = plan, rows, problems

    @classmethod
    def read(cls, path):
        """Raises OSError or ValueError where the file is not one of these."""
        return read_result(path, cls, "problems", "headline")

    def cases(self):
        """Those with results."""
        return list(dict.fromkeys(case_of(row) for row in self.rows))

    def of(self, case, library):
        """Its rows by round."""
        return {
            row["round"]: row for row in self.rows if case_of(row) == case and row["lib"] == library
        }

    def libraries(self):
        return [name for name in self.plan["about"] if any(r["lib"] == name for r in self.rows)]

    def gain(self, case, library):
        """Steps in the time of one of Gloo's, less one: the median of the rounds, or None."""
        own, other = self.of(case, library), self.of(case, GLOO)
        gains = [other[i]["step_ms"] / own[i]["step_ms"] - 1 for i in own if i in other]
        return median(gains) if gains else None

    def summary(self, case, library):
        """None where it has no result."""
        rows = list(self.of(case, library).values())
        if not rows:
            return None
        steps, row = [each["step_ms"] for each in rows], rows[0]
        roof_ms = row["roof_ms"] * ROUNDED.get(library, 1)
        step_ms, bound_ms = median(steps), max(row["compute_ms"], roof_ms)
        exposed_ms = max(step_ms - row["compute_ms"], 0)
        named = {name: row[name] for name in ("model", "hosts", "rate", "servers", "lib")}
        times = {name: row[name] for name in ("compute_ms", "alone_ms")}
        return {
            **named, "rounds": len(rows), "step_ms": step_ms, "step_ms_low": min(steps),
            "step_ms_high": max(steps), **times, "roof_ms": roof_ms, "bound_ms": bound_ms,
            "gain": self.gain(case, library), "over_bound": step_ms / bound_ms,
            "exposed": exposed_ms / step_ms, "hidden": max(1 - exposed_ms / row["alone_ms"], 0),
            "published": published(case), "scale": row["scale"], "bytes": row["bytes"],
        }  # fmt: skip

    def summaries(self):
        found = [self.summary(case, name) for case in self.cases() for name in self.libraries()]
        return [each for each in found if each]

    def best(self, case):
        """Shoal's fastest way there that rounds nothing, or None."""
        names = [name for name in self.libraries() if name != GLOO and name not in ROUNDED]
        found = [self.summary(case, name) for name in names]
        return min((s for s in found if s), key=lambda s: s["step_ms"], default=None)

    def text(self):
        """How many cases have what was wanted, and the range of gains."""
        best = [self.best(case) for case in self.cases()]
        best = [each for each in best if each and each["gain"] is not None]
        if not best:
            return "No training across hosts was measured."
        gains = [each["gain"] for each in best]
        more = sum(exceeds(each) for each in best)
        near = sum(each["over_bound"] <= BOUND_TIMES for each in best)
        return (
            f"Shoal makes {percent(min(gains))} to {percent(max(gains))} more steps than torch's "
            f"DistributedDataParallel over Gloo; more than published at {more} of {len(best)} "
            f"cases, and within {BOUND_TIMES:g} times the bound of a step at {near}."
        )

    def remarks(self):
        if "finished" not in self.plan:
            return ["Training across hosts: not measured, or not to the end."]
        return [f"Training across hosts, {name}: {why}." for name, why in self.problems.items()]

    def content(self):
        return {
            "plan": self.plan,
            "text": self.text(),
            "problems": self.problems,
            "summaries": self.summaries(),
            "rows": self.rows,
        }

    def picture(self, standalone=False):
        """Bars of gains over Gloo, and the published ones; '' without any."""
        libraries_ = [name for name in self.libraries() if name != GLOO]
        groups = []
        for case in self.cases():
            found = [self.summary(case, name) for name in libraries_]
            gains = [each["gain"] if each else None for each in found]
            values = [None if gain is None else 100 * gain for gain in gains]
            heading = f"{case.model}, {link_text(case.rate)}"
            servers = f" + {case.servers}" if case.servers else ""
            name = f"{case.hosts}{servers} hosts"
            groups.append(bars.Group(heading, name, values, published(case)))
        label = "more steps than torch's DistributedDataParallel over Gloo makes, in percent"
        return bars.svg(groups, libraries_, "published", label, standalone)


def case_of(row):
    return Case(row["model"], row["hosts"], row["rate"], row["servers"])


def link_text(rate):
    return "no limit of links" if rate == "none" else rate


def published(case):
    return PUBLISHED.get(case.model, {}).get(case.hosts)


def exceeds(summary):
    return summary["published"] is None or 100 * summary["gain"] > summary["published"]


# ---- what is started ---------------------------------------------------------------------------


def scale(arguments, model):
    """So that the model's gradients are at most --bytes."""
    lines = (libraries.ROOT / "models" / f"{model}.txt").read_text().splitlines()
    words = next(line for line in lines if line.startswith("parameters")).split()
    whole = int(words[1]) * FLOAT_BYTES
    return min(1.0, arguments.bytes / whole), min(arguments.bytes, whole)


def roof_command(arguments, case):
    words = [arguments.shoal, "bench", "allreduce", "--virtual-hosts", str(case.hosts)]
    words += ["--rate", case.rate, "--sizes", str(scale(arguments, case.model)[1])]
    return libraries.Start([*words, "--iters", str(ROOF_ROUNDS), "--no-check", "--json"], {})


def training_command(arguments, case):
    root = libraries.ROOT
    names = [f"vh{i}" for i in range(case.hosts + case.servers)]
    words = [arguments.shoal, "vhosts", "-n", str(len(names)), "--rate", case.rate, "--"]
    words += [arguments.shoal, "run", "--no-tag", "-n", str(case.hosts)]
    words += ["--hosts", ",".join(names[: case.hosts])]
    if case.servers:
        words += ["--servers", str(case.servers), "--server-hosts", ",".join(names[case.hosts :])]
    words += ["--agent", f"'{arguments.shoal}' vhosts-exec {{host}} --", "--"]
    words += [str(root / ".venv/bin/python"), str(root / "bench/peers/headline_bench.py")]
    words += ["--model", case.model, "--scale", f"{scale(arguments, case.model)[0]:.6g}"]
    words += ["--libs", ",".join(arguments.libs), "--compute", arguments.compute]
    words += ["--rounds", str(arguments.rounds), "--steps", str(arguments.steps)]
    build = str(Path(arguments.shoal).resolve().parent)
    environment = {"PYTHONPATH": str(root / "bindings/python"), "SHOAL_BUILD": build}
    return libraries.Start(words, environment | {"GLOO_SOCKET_IFNAME": "eth0"})


# ---- measuring ---------------------------------------------------------------------------------


def measure(arguments, headline, case):
    """The roof, and then all ways by turns."""
    print(f"bench: {case.text()}", file=sys.stderr)
    roof, problem = processes.run([roof_command(arguments, case)], arguments.timeout)
    rows = []
    if not problem:
        start = training_command(arguments, case)
        rows, problem = processes.run([start], arguments.timeout)
    if problem:
        headline.problems[case.name] = problem
        print(f"bench: {case.text()}: {problem}", file=sys.stderr)
    place = {"hosts": case.hosts, "rate": case.rate, "servers": case.servers}
    for row in rows:
        roof_ms = roof[0]["roof_us"] / 1e3 * case.wire_share()
        headline.rows.append(row | place | {"roof_ms": roof_ms})
    for name in arguments.libs:
        found = headline.summary(case, name)
        if found:
            print(f"bench:   {summary_text(found)}", file=sys.stderr)


def summary_text(found):
    gain = "" if found["gain"] is None else f", {percent(found['gain'])} beside Gloo"
    return (
        f"{found['lib']}: step {found['step_ms']:.1f} ms ({found['step_ms_low']:.1f} to "
        f"{found['step_ms_high']:.1f}), computing {found['compute_ms']:.1f}, communication alone "
        f"{found['alone_ms']:.1f}, roof {found['roof_ms']:.1f}{gain}, "
        f"{found['over_bound']:.2f} times the bound, hidden {100 * found['hidden']:.0f} %"
    )


def known_models():
    return sorted(path.stem for path in (libraries.ROOT / "models").glob("*.txt"))


def compute_choice(text):
    """half, equal or milliseconds."""
    try:
        fits = text in ("half", "equal") or float(text) >= 0
    except ValueError:
        fits = False
    if not fits:
        raise argparse.ArgumentTypeError(f"{text}: half, equal, or milliseconds")
    return text


def host_counts(text):
    return trainings.numbers(text, 2, "numbers of hosts, from 2 on, as in 2,4,8")


def server_counts(text):
    return trainings.numbers(text, 0, "numbers of servers, as in 0,4")


def size(text):
    try:
        found = parse_size(text)
    except ValueError:
        found = 0
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text}: bytes, as in 64M")
    return found


def make_parser():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(PUBLISHED), help="of models/")
    parser.add_argument("--hosts", type=host_counts, default="2,4,8", help="default 2,4,8")
    parser.add_argument("--rates", default="1gbit,none", help="of links; none: no limit")
    parser.add_argument("--servers", type=server_counts, default="0", help="default 0")
    exact = ",".join(name for name in WAYS if name not in ROUNDED)
    parser.add_argument("--libs", default=exact, help=f"of {', '.join(WAYS)}; default {exact}")
    parser.add_argument("--bytes", type=size, default="64M", help="of gradients, at most")
    parser.add_argument("--compute", type=compute_choice, default="half", help="half, equal, or MS")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="of each way in a round")
    trainings.add_options(parser)
    return parser


def parse_arguments():
    parser = make_parser()
    arguments = parser.parse_args()
    trainings.split_names(parser, arguments, models=known_models(), libs=WAYS)
    arguments.rates = arguments.rates.split(",")
    if arguments.libs[0] != GLOO:
        parser.error("--libs: the first is gloo, which computing is made to suit")
    if min(arguments.rounds, arguments.steps) < 1:
        parser.error("--rounds and --steps are at least 1")
    return arguments


def all_cases(arguments):
    return [
        Case(model, hosts, rate, servers)
        for rate in arguments.rates for model in arguments.models
        for hosts in arguments.hosts for servers in arguments.servers
    ]  # fmt: skip


def make_plan(arguments):
    words = ["bench/headline.py"]
    for name in ("models", "hosts", "rates", "servers", "libs"):
        words += [f"--{name}", ",".join(map(str, getattr(arguments, name)))]
    for name in ("bytes", "compute", "rounds", "steps"):
        words += [f"--{name}", str(getattr(arguments, name))]
    commands = {}
    for case in all_cases(arguments):
        commands[case.name] = libraries.shell_line(training_command(arguments, case))
    return {
        "command": " ".join(words),
        "commands": commands,
        "about": {name: WAYS[name] for name in arguments.libs},
        **{name: getattr(arguments, name) for name in ("bytes", "compute", "rounds", "steps")},
        "environment": machine.environment(),
        "machine": machine.describe(),
        "revision": machine.revision(),
    }


def main():
    arguments = parse_arguments()
    if not os.access(arguments.shoal, os.X_OK):
        sys.exit(f"bench: {arguments.shoal} is missing: make build")
    headline = Headline(make_plan(arguments), [], {})
    trainings.write(headline, arguments.out, FILE, PICTURE)
    if arguments.declare:
        return
    if os.geteuid() != 0:
        sys.exit("bench: training across hosts: nothing measured: virtual hosts need root")
    processes.adopt_orphans()
    watch = machine.Watch()
    headline.plan |= watch.start()
    for case in all_cases(arguments):
        measure(arguments, headline, case)
        trainings.write(headline, arguments.out, FILE, PICTURE)
    headline.plan |= watch.finish()
    trainings.write(headline, arguments.out, FILE, PICTURE)
    print(f"bench: {headline.text()}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(headline.content(), indent=1))
    if headline.problems:
        sys.exit(f"bench: headline: {'; '.join(headline.remarks())}")


if __name__ == "__main__":
    main()
