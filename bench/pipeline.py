#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares pipelines of virtual devices: smdistributed.modelparallel of Shoal beside
torch.distributed.pipelining over Shoal and over Gloo, and beside the schedule's theory.

    bench/pipeline.py --stages 2,4 --microbatches 4,8,16 --places host:4K
    bench/pipeline.py --stages 4 --places 1gbit:4M --forward-ms 15 --backward-ms 30

A place is a link and the bytes of an activation: `host` has all stages on this host, anything else
is the rate of virtual hosts (root) with a stage on each. In each place one start of
bench/peers/pipeline_bench.py on all ranks makes steps in each way, by turns. A stage's computing is
waiting. The theory is `shoal plan-model`'s: the same schedule in virtual time, with waits as long
as they were in the mean, on links of that rate; on one host data take no time. `over_alone`
compares bubbles where a pass is what it takes alone: its wait, and what autograd does beside it
without any pipeline, which the same run measures.

Writes pipeline.json and pipeline.svg below --out, anew after each place.
"""

import argparse
import json
import os
import subprocess
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

FILE, PICTURE = "pipeline.json", "pipeline.svg"
OWN, SAME, GLOO = "shoal", "torch-shoal", "torch-gloo"
WAYS = {
    OWN: "smdistributed.modelparallel, Shoal's",
    SAME: "torch.distributed.pipelining over Shoal",
    GLOO: "torch.distributed.pipelining over Gloo",
}
SCHEDULES = {"simple": "ScheduleGPipe", "interleaved": "Schedule1F1B"}
HOST = "host"
LATENCY = "50us"
BUBBLE_TIMES = 1.05  # what is wanted: the bubble as a multiple of the schedule's
SPREAD_TIMES = 1.01  # steps that differ by less are of one length
GLOO_GAIN = 0.2  # what is wanted where communication matters
MATTERS = 1.1  # it does where Gloo's step is so many times one without communication
MS = 1e-6  # of a nanosecond
PASSES = "forward_ms", "backward_ms"


@dataclass(frozen=True)
class Case:
    stages: int
    link: str  # host, or the rate of virtual hosts
    bytes: int  # of an activation
    schedule: str
    microbatches: int

    def place(self):
        return self.stages, self.link, self.bytes

    def text(self):
        return f"{place_text(*self.place())}, {self.schedule}, {self.microbatches} microbatches"


class Pipelines:
    """What was measured, by which commands, and what went wrong (place: why)."""

    def __init__(self, plan, rows, problems):
        self.plan, self.rows, self.problems = plan, rows, problems

    @classmethod
    def read(cls, path):
        """Raises OSError or ValueError where the file is not one of these."""
        return read_result(path, cls, "problems", "pipeline")

    def cases(self):
        """Those with results."""
        return list(dict.fromkeys(case_of(row) for row in self.rows))

    def of(self, case, way):
        """Its rows by round."""
        return {
            row["round"]: row for row in self.rows if case_of(row) == case and row["way"] == way
        }

    def gain(self, case, way, other):
        """Steps in the time of one of the other's, less one: the median of the rounds, or None."""
        own, others = self.of(case, way), self.of(case, other)
        gains = [others[i]["step_ms"] / own[i]["step_ms"] - 1 for i in own if i in others]
        return median(gains) if gains else None

    def summary(self, case, way):
        """None where it has no result."""
        rows = list(self.of(case, way).values())
        if not rows:
            return None
        steps = [each["step_ms"] for each in rows]
        step_ms, work_ms, theory = (
            median(row[name] for row in rows) for name in ("step_ms", "work_ms", "theory_ms")
        )
        bubble, least = (1 - work_ms / one for one in (step_ms, theory))
        over_alone = median(row["over_alone"] for row in rows)
        named = {name: rows[0][name] for name in (*Case.__dataclass_fields__, "way")}
        return {
            **named, "rounds": len(rows), "step_ms": step_ms, "step_ms_low": min(steps),
            "step_ms_high": max(steps), "work_ms": work_ms, "theory_ms": theory,
            "bubble": bubble, "theory_bubble": least, "over_theory": bubble / least,
            "over_alone": over_alone,
            "gain_same": self.gain(case, way, SAME), "gain": self.gain(case, way, GLOO),
        }  # fmt: skip

    def summaries(self):
        found = [self.summary(case, way) for case in self.cases() for way in WAYS]
        return [each for each in found if each]

    def own(self):
        return [each for each in self.summaries() if each["way"] == OWN]

    def matters(self, summary):
        """Whether communication takes a share of Gloo's step."""
        gloo = self.summary(case_of(summary), GLOO)
        free_ms = summary["work_ms"] / summary["microbatches"]
        free_ms *= summary["microbatches"] + summary["stages"] - 1
        return gloo is not None and gloo["step_ms"] >= MATTERS * free_ms

    def text(self):
        """How many cases have what was wanted."""
        own = self.own()
        if not own:
            return "No pipeline was measured."
        near = sum(each["over_theory"] <= BUBBLE_TIMES for each in own)
        texts = [
            f"The bubble of Shoal's pipelines is at most {BUBBLE_TIMES:g} times the schedule's at "
            f"{near} of {len(own)} cases"
        ]
        beside = [each for each in own if each["gain_same"] is not None]
        if beside:
            level = sum(each["gain_same"] >= 1 / SPREAD_TIMES - 1 for each in beside)
            texts.append(
                f"steps are as fast as torch.distributed.pipelining's over Shoal at {level} of "
                f"{len(beside)}"
            )
        gains = [each["gain"] for each in own if self.matters(each)]
        if gains:
            fast = sum(gain >= GLOO_GAIN for gain in gains)
            texts.append(
                f"and {percent(GLOO_GAIN)} or more over Gloo's at {fast} of {len(gains)} where "
                f"communication matters ({percent(min(gains))} to {percent(max(gains))})"
            )
        return "; ".join(texts) + "."

    def remarks(self):
        if "finished" not in self.plan:
            return ["Pipelines: not measured, or not to the end."]
        return [f"Pipelines, {name}: {why}." for name, why in self.problems.items()]

    def content(self):
        return {
            "plan": self.plan,
            "text": self.text(),
            "problems": self.problems,
            "summaries": self.summaries(),
            "rows": self.rows,
        }

    def picture(self, standalone=False):
        """Bars of gains over Gloo; '' without any."""
        ways, groups = [OWN, SAME], []
        for case in self.cases():
            found = [self.summary(case, way) for way in ways]
            gains = [each["gain"] if each else None for each in found]
            values = [None if gain is None else 100 * gain for gain in gains]
            heading = f"{place_text(*case.place())}, {case.schedule}"
            groups.append(bars.Group(heading, str(case.microbatches), values, None))
        label = "more steps than torch.distributed.pipelining over Gloo makes, in percent"
        return bars.svg(groups, [WAYS[way] for way in ways], "", label, standalone)


def case_of(row):
    return Case(*(row[name] for name in Case.__dataclass_fields__))


def place_text(stages, link, size):
    where = "one host" if link == HOST else link
    unit, divisor = ("MiB", 2**20) if size >= 2**20 else ("KiB", 2**10)
    return f"{stages} stages, {where}, {size / divisor:g} {unit}"


# ---- what is started ---------------------------------------------------------------------------


def theory_command(arguments, row):
    case = case_of(row)
    words = [arguments.shoal, "plan-model", "--stages", str(case.stages)]
    words += ["--forward-ms", f"{row['forward_ms']:.4f}"]
    words += ["--backward-ms", f"{row['backward_ms']:.4f}"]
    words += ["--microbatches", str(case.microbatches), "--pipeline", case.schedule, "--json"]
    if case.link != HOST and case.link != "none":
        words += ["--output", str(case.bytes), "--rate", case.link, "--latency", LATENCY]
    return words


def theory_ms(arguments, row):
    """A step of this schedule, in virtual time."""
    found = subprocess.run(
        theory_command(arguments, row), stdout=subprocess.PIPE, check=True, timeout=60
    )
    return json.loads(found.stdout)["schedules"][0]["step_ns"] * MS


def over_alone(arguments, row):
    """The bubble as a multiple of the schedule's, of passes that take as long as alone."""
    alone = {name: row[name] + row[name.replace("_", "_beside_")] for name in PASSES}
    work_ms = row["microbatches"] * sum(alone.values())
    least = 1 - work_ms / theory_ms(arguments, row | alone)
    return (1 - work_ms / row["step_ms"]) / least


def command(arguments, stages, link, size):
    root = libraries.ROOT
    words = [arguments.shoal, "run", "--no-tag", "-n", str(stages)]
    if link != HOST:
        names = [f"vh{i}" for i in range(stages)]
        head = [arguments.shoal, "vhosts", "-n", str(stages), "--rate", link, "--"]
        words = [*head, *words, "--hosts", ",".join(names)]
        words += ["--agent", f"'{arguments.shoal}' vhosts-exec {{host}} --"]
    words += ["--", str(root / ".venv/bin/python"), str(root / "bench/peers/pipeline_bench.py")]
    words += ["--microbatches", ",".join(map(str, arguments.microbatches)), "--bytes", str(size)]
    for name in ("forward_ms", "backward_ms", "rounds", "steps"):
        words += [f"--{name.replace('_', '-')}", f"{getattr(arguments, name):g}"]
    words += ["--ways", ",".join(arguments.ways), "--schedules", ",".join(arguments.schedules)]
    paths = [str(root / "bindings" / name) for name in ("python", "smdistributed")]
    environment = {
        "PYTHONPATH": ":".join(paths),
        "SHOAL_BUILD": str(Path(arguments.shoal).resolve().parent),
        "GLOO_SOCKET_IFNAME": "lo" if link == HOST else "eth0",
    }
    return libraries.Start(words, environment)


# ---- measuring ---------------------------------------------------------------------------------


def measure(arguments, pipelines, stages, link, size):
    """All ways by turns, in one place."""
    text = place_text(stages, link, size)
    print(f"bench: {text}", file=sys.stderr)
    rows, problem = processes.run([command(arguments, stages, link, size)], arguments.timeout)
    if problem:
        pipelines.problems[text] = problem
        print(f"bench: {text}: {problem}", file=sys.stderr)
    for row in rows:
        row |= {"stages": stages, "link": link, "bytes": size}
        row["work_ms"] = row["microbatches"] * (row["forward_ms"] + row["backward_ms"])
        row["theory_ms"] = theory_ms(arguments, row)
        pipelines.rows.append(row | {"over_alone": over_alone(arguments, row)})
    for case in dict.fromkeys(case_of(row) for row in rows):
        for way in arguments.ways:
            found = pipelines.summary(case, way)
            if found:
                print(f"bench:   {case.text()}: {summary_text(found)}", file=sys.stderr)


def summary_text(found):
    gain = "" if found["gain"] is None else f", {percent(found['gain'])} beside Gloo"
    return (
        f"{found['way']}: step {found['step_ms']:.1f} ms ({found['step_ms_low']:.1f} to "
        f"{found['step_ms_high']:.1f}), theory {found['theory_ms']:.1f}, bubble "
        f"{100 * found['bubble']:.2f} %, {found['over_theory']:.3f} times the schedule's, "
        f"{found['over_alone']:.3f} with passes as long as alone{gain}"
    )


def counts(text):
    return trainings.numbers(text, 1, "whole numbers from 1 on, as in 2,4")


def places(text):
    found = []
    for word in text.split(","):
        link, _, size = word.partition(":")
        try:
            found.append((link, parse_size(size)))
        except ValueError:
            size = ""
        if not link or not size:
            raise argparse.ArgumentTypeError(f"{word}: a link and bytes, as in host:4K,1gbit:4M")
    return found


def make_parser():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stages", type=counts, default="2,4", help="default 2,4")
    parser.add_argument("--microbatches", type=counts, default="8", help="default 8")
    parser.add_argument(
        "--places", type=places, default="host:4K,1gbit:4M", help="default host:4K,1gbit:4M"
    )
    parser.add_argument("--forward-ms", type=float, default=20, help="of each stage")
    parser.add_argument("--backward-ms", type=float, default=40)
    parser.add_argument("--ways", default=",".join(WAYS), help=f"of {', '.join(WAYS)}")
    parser.add_argument("--schedules", default=",".join(SCHEDULES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="of each way in a round")
    trainings.add_options(parser)
    return parser


def parse_arguments():
    parser = make_parser()
    arguments = parser.parse_args()
    trainings.split_names(parser, arguments, ways=WAYS, schedules=SCHEDULES)
    if min(arguments.stages) < 2:
        parser.error("--stages are at least 2")
    if min(arguments.rounds, arguments.steps) < 1:
        parser.error("--rounds and --steps are at least 1")
    if min(arguments.microbatches) < max(arguments.stages):
        parser.error("--microbatches are at least as many as stages: Schedule1F1B wants that")
    return arguments


def all_places(arguments):
    return [(stages, link, size) for link, size in arguments.places for stages in arguments.stages]


def make_plan(arguments):
    words = ["bench/pipeline.py"]
    for name in ("stages", "microbatches", "ways", "schedules"):
        words += [f"--{name}", ",".join(map(str, getattr(arguments, name)))]
    words += ["--places", ",".join(f"{link}:{size}" for link, size in arguments.places)]
    for name in ("forward_ms", "backward_ms", "rounds", "steps"):
        words += [f"--{name.replace('_', '-')}", f"{getattr(arguments, name):g}"]
    return {
        "command": " ".join(words),
        "commands": {
            place_text(*place): libraries.shell_line(command(arguments, *place))
            for place in all_places(arguments)
        },
        "about": {way: WAYS[way] for way in arguments.ways},
        **{name: getattr(arguments, name) for name in ("forward_ms", "backward_ms", "rounds")},
        "steps": arguments.steps,
        "environment": machine.environment(),
        "machine": machine.describe(),
        "revision": machine.revision(),
    }


def main():
    arguments = parse_arguments()
    if not os.access(arguments.shoal, os.X_OK):
        sys.exit(f"bench: {arguments.shoal} is missing: make build")
    pipelines = Pipelines(make_plan(arguments), [], {})
    trainings.write(pipelines, arguments.out, FILE, PICTURE)
    if arguments.declare:
        return
    processes.adopt_orphans()
    watch = machine.Watch()
    pipelines.plan |= watch.start()
    for place in all_places(arguments):
        if place[1] != HOST and os.geteuid() != 0:
            pipelines.problems[place_text(*place)] = "virtual hosts need root"
            continue
        measure(arguments, pipelines, *place)
        trainings.write(pipelines, arguments.out, FILE, PICTURE)
    pipelines.plan |= watch.finish()
    trainings.write(pipelines, arguments.out, FILE, PICTURE)
    print(f"bench: {pipelines.text()}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(pipelines.content(), indent=1))
    if pipelines.problems:
        sys.exit(f"bench: pipeline: {'; '.join(pipelines.remarks())}")


if __name__ == "__main__":
    main()
