#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes one page of all results that lie in a folder: report.html, report.json and main.svg there.

    bench/report.py out/bench

Takes what the measuring programs of bench/ wrote, also while they still measure or when they were
ended early. What is missing is named on the page; a file that can't be read too.
"""

import argparse
import json
import sys
from pathlib import Path

import charts
import ddp
import headline
import kernels
import page
import pipeline
import plot
import start
from comparison import Comparison, replace_file

PAGE, CONTENT, MAIN_PICTURE = "report.html", "report.json", "main.svg"


def distinct(values):
    """Without repetitions, in order; of values that need not be hashable."""
    found = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


class Report:
    """All results of a folder, in the order in which they are shown."""

    def __init__(self, folder):
        self.comparisons, self.unreadable = [], []
        self.kernels = self.starts = self.training = self.headline = self.pipelines = None
        for path in sorted(folder.glob("*.json")):
            if path.name != CONTENT:
                self.read(path)
        self.comparisons.sort(key=Comparison.order)

    def read(self, path):
        try:
            if path.name == kernels.FILE:
                self.kernels = kernels.Kernels.read(path)
            elif path.name == start.FILE:
                self.starts = start.Starts.read(path)
            elif path.name == ddp.FILE:
                self.training = ddp.Training.read(path)
            elif path.name == headline.FILE:
                self.headline = headline.Headline.read(path)
            elif path.name == pipeline.FILE:
                self.pipelines = pipeline.Pipelines.read(path)
            else:
                self.comparisons.append(Comparison.read(path))
        except (OSError, ValueError) as error:
            self.unreadable.append(f"{path.name} can't be read: {error}")

    def named_plans(self):
        plans = [(comparison.title(), comparison.plan) for comparison in self.comparisons]
        plans += [("training across hosts", self.headline.plan)] if self.headline else []
        plans += [("pipelines", self.pipelines.plan)] if self.pipelines else []
        plans += [("training with DDP", self.training.plan)] if self.training else []
        plans += [("start of ranks", self.starts.plan)] if self.starts else []
        return plans + ([("arithmetic of one core", self.kernels.plan)] if self.kernels else [])

    def plans(self):
        return [plan for _, plan in self.named_plans()]

    def machines(self):
        return distinct(plan["machine"] for plan in self.plans())

    def revisions(self):
        return distinct(plan["revision"] for plan in self.plans() if plan["revision"])

    def first_plan(self):
        """Of what was measured first, before other measurements kept the machine busy; or None."""
        started = [plan for plan in self.plans() if "started" in plan]
        return min(started, key=lambda plan: plan["started"], default=None)

    def when(self):
        first = self.first_plan()
        ends = [plan["finished"] for plan in self.plans() if "finished" in plan]
        return f"{first['started']} to {max(ends)}" if first and ends else None

    def libraries(self):
        """By name: version (None without any result) and settings."""
        found = {}
        for comparison in self.comparisons:
            versions = comparison.versions()
            for name, settings in comparison.plan["settings"].items():
                known, _ = found.get(name, (None, None))
                found[name] = versions.get(name) or known, settings
        return found

    def environment(self):
        found = {}
        for comparison in self.comparisons:
            found |= comparison.plan["environment"]
        return found

    def remarks(self):
        """What was not measured, or not fully, and why."""
        found = list(self.unreadable)
        for comparison in self.comparisons:
            found += [f"{comparison.title()}: {remark}" for remark in comparison.remarks()]
        found += self.headline.remarks() if self.headline else []
        found += self.pipelines.remarks() if self.pipelines else []
        found += self.training.remarks() if self.training else []
        found += self.starts.remarks() if self.starts else []
        return found + (self.kernels.remarks() if self.kernels else [])

    def content(self):
        return {
            "format": 1,
            "measured": self.when(),
            "revisions": self.revisions(),
            "machines": self.machines(),
            "environment": self.environment(),
            "libraries": {
                name: {"version": version, **settings}
                for name, (version, settings) in self.libraries().items()
            },
            "summary": {each.title(): each.verdict().text() for each in self.comparisons},
            "remarks": self.remarks(),
            "comparisons": [comparison.content() for comparison in self.comparisons],
            "headline": self.headline.content() if self.headline else None,
            "pipelines": self.pipelines.content() if self.pipelines else None,
            "training": self.training.content() if self.training else None,
            "starts": self.starts.content() if self.starts else None,
            "kernels": self.kernels.content() if self.kernels else None,
        }


def write(report, folder):
    replace_file(folder / CONTENT, json.dumps(report.content(), indent=1) + "\n")
    replace_file(folder / PAGE, page.page(report))
    drawn = [charts.comparison_svg(each, plot.WIDE, True) for each in report.comparisons]
    (folder / MAIN_PICTURE).unlink(missing_ok=True)
    for picture in filter(None, drawn):
        replace_file(folder / MAIN_PICTURE, picture)
        break


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("out/bench"))
    folder = parser.parse_args().folder
    report = Report(folder)
    if not report.plans() and not report.unreadable:
        sys.exit(f"bench: there are no results in {folder}: make bench")
    write(report, folder)
    for comparison in report.comparisons:
        print(f"bench: {comparison.title()}: {comparison.verdict().text()}")
    for remark in report.remarks():
        print(f"bench: {remark}", file=sys.stderr)
    print(f"bench: the page: {folder / PAGE}")


if __name__ == "__main__":
    main()
