#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The picture of docs/compression.md: time of a step and accuracy after training, by kind.

    bench/compression_plot.py > docs/pictures/compression.svg

It draws what stands in that page's tables, so that page and picture say the same.
"""

import re
from html import escape
from pathlib import Path

import plot

PAGE = Path(__file__).resolve().parent.parent / "docs" / "compression.md"
KINDS = ("none", "bf16", "fp16", "int8")
WIDTH, ROW, TOP, NAME, GAP, SIDE, FONT = 960, 44, 62, 60, 70, 14, 12
PANEL = (WIDTH - NAME - GAP - 2 * SIDE) / 2


def tables(text):
    """The page's tables, as lists of rows of cells."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        yield [[cell.strip(" `") for cell in line.strip("|").split("|")]
               for line in block.splitlines()]  # fmt: skip


def read_times(text):
    """kind -> (the bound, the median, lowest, highest) in ms."""
    (table,) = [table for table in tables(text) if table[0][1:2] == ["step, ms"]]
    found = {}
    for kind, step, low_high, bound, *_ in table[2:]:
        low, high = low_high.split(" to ")
        found[kind] = tuple(float(word) for word in (bound, step, low, high))
    return found


def read_accuracies(text):
    """(kind, with feedback) -> (mean, lowest, highest) in percent."""
    (table,) = [table for table in tables(text) if "test accuracy, %" in table[0]]
    found = {}
    for name, _, accuracy, _ in table[2:]:
        numbers = tuple(float(word) for word in re.findall(r"\d+\.\d+", accuracy))
        found[name.split(",")[0], "no feedback" not in name] = numbers
    return found


class Drawing:
    def __init__(self):
        self.parts = []

    def add(self, part):
        self.parts.append(part)

    def text(self, x, y, text, anchor="start", class_=""):
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{class_}">'
                 f"{escape(text)}</text>")  # fmt: skip

    def axis(self, x, title, note, ticks, place):
        self.text(x, 18, title, class_="title")
        self.text(x, 36, note)
        bottom = TOP + ROW * len(KINDS)
        for tick in ticks:
            self.add(f'<path class="grid" d="M{place(tick):.1f} {TOP - 8}V{bottom}"/>')
            self.text(place(tick), bottom + 16, f"{tick:g}", "middle")

    def times(self, x, found):
        most = max(high for *_, high in found.values())
        step = 200 if most > 600 else 100
        most = step * -(-most // step)

        def place(ms):
            return x + ms / most * PANEL

        ticks = range(0, int(most) + 1, step)
        note = "bars: median; strokes: lowest to highest; marks: the bound"
        self.axis(x, "time of a step in which nothing is hidden, ms", note, ticks, place)
        for row, kind in enumerate(KINDS):
            bound, median, low, high = found[kind]
            y = TOP + ROW * row
            self.add(f'<rect class="bar" x="{x:.1f}" y="{y + 8}" width="{place(median) - x:.1f}" '
                     f'height="{ROW - 22}"/><path class="range" d="M{place(low):.1f} {y + 19}'
                     f'H{place(high):.1f}"/><path class="mark" d="M{place(bound):.1f} {y + 4}'
                     f'V{y + ROW - 10}"/>')  # fmt: skip
            self.text(x - 8, y + 23, kind, "end", "title")
            inside = place(high) + 36 > x + PANEL
            self.text(place(low if inside else high) + (-8 if inside else 8), y + 23,
                      f"{median:.0f}", "end" if inside else "start", "value")  # fmt: skip

    def accuracies(self, x, found):
        least = int(min(low for _, low, _ in found.values()))

        def place(percent):
            return x + (percent - least) / (100 - least) * PANEL

        ticks = [least + i / 2 for i in range(2 * (100 - least) + 1)]
        note = "dots: mean; strokes: lowest to highest; hollow: no feedback"
        self.axis(x, "accuracy on unseen images after training, %", note, ticks, place)
        for row, kind in enumerate(KINDS):
            for kept in (True, False):
                if (kind, kept) not in found:
                    continue
                mean, low, high = found[kind, kept]
                y = TOP + ROW * row + (14 if kept else 28)
                self.add(f'<path class="range" d="M{place(low):.1f} {y}H{place(high):.1f}"/>'
                         f'<circle class="{"dot" if kept else "dot hollow"}" '
                         f'cx="{place(mean):.1f}" cy="{y}" r="4"/>')  # fmt: skip


def svg(text):
    drawing = Drawing()
    drawing.times(NAME, read_times(text))
    drawing.accuracies(NAME + PANEL + GAP, read_accuracies(text))
    height = TOP + ROW * len(KINDS) + 28
    style = plot.style() + (
        ".plot .bar{fill:var(--openmpi);opacity:.75}"
        ".plot .dot{fill:var(--openmpi);stroke:var(--openmpi)}"
        ".plot .hollow{fill:var(--paper)}.plot .range{stroke:var(--ink);opacity:.6}"
        ".plot .mark{stroke:var(--ink);stroke-width:2}.plot .value{fill:var(--ink)}"
    )
    label = "time of a step and accuracy after training, by compression"
    return (
        f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-size="{FONT}" role="img" aria-label="{label}">'
        f'<style>{style}</style><rect class="paper" width="100%" height="100%"/>'
        f"{''.join(drawing.parts)}</svg>"
    )


if __name__ == "__main__":
    print(svg(PAGE.read_text()))
