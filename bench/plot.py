# SPDX-License-Identifier: Apache-2.0
"""Draws curves over message sizes as SVG: logarithmic axes, panels above each other, named curves.

A picture is a list of panels that share the axis of sizes. Colours and dashes are classes of
style(), so that the same SVG is light or dark with the page, or by itself (standalone). A family of
curves has one colour; its members differ by dashes. What has no value is a gap in its curve and a
cross at the top, never a line through. Curves are named where they end, beside the last point.
"""

import math
from dataclasses import dataclass, field
from html import escape

FAMILIES = ("shoal", "gloo", "openmpi", "mpich", "intelmpi")
COLOURS = {
    "paper": ("#ffffff", "#15181c"), "ink": ("#1b1f24", "#e6e9ed"), "dim": ("#5b6470", "#9aa4b0"),
    "grid": ("#e3e6ea", "#2b3138"), "loss": ("#fdeadd", "#3a2417"), "gain": ("#e3effa", "#16293b"),
    "shoal": ("#1b1f24", "#e6e9ed"), "gloo": ("#b45309", "#f59e4b"),
    "openmpi": ("#1668b8", "#62b0f4"), "mpich": ("#a1217e", "#ea7cc4"),
    "intelmpi": ("#0d7a55", "#45c796"), "other": ("#5b6470", "#9aa4b0"),
}  # fmt: skip
DASHES = ("none", "7 3", "2 3", "9 3 2 3", "4 2", "1 5")
TICK_STEPS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8))


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    low: float  # of the rounds; equal to y where there was one
    high: float
    text: str


@dataclass(frozen=True)
class Curve:
    name: str  # '' for none
    family: str  # gives the colour
    member: int  # gives the dashes: the place within its family
    points: list[Point | None]  # None: a gap


@dataclass(frozen=True)
class Cross:
    """A value that is missing, and why."""

    x: float
    family: str
    text: str


@dataclass(frozen=True)
class Panel:
    title: str
    curves: list[Curve]
    crosses: list[Cross] = field(default_factory=list)
    below: str = ""  # what it means to lie below 1: the tint there
    height: float = 300


@dataclass(frozen=True)
class Form:
    """Measures in units of the picture, which are about pixels on the screen it is meant for."""

    name: str  # class of the svg element
    width: float
    left: float
    right: float
    font: float
    tooltips: bool


WIDE = Form("wide", 960, 52, 118, 12, True)
NARROW = Form("narrow", 360, 40, 92, 10.5, False)
SMALL = Form("small", 300, 40, 62, 11, True)
TOP, GAP, BOTTOM = 26, 16, 24


def variables(index):
    return "".join(f"--{name}:{pair[index]};" for name, pair in COLOURS.items())


def style():
    families = "".join(f".plot .{name}{{color:var(--{name})}}" for name in (*FAMILIES, "other"))
    dashes = "".join(f".plot .m{i} path{{stroke-dasharray:{d}}}" for i, d in enumerate(DASHES))
    return (
        f":root{{{variables(0)}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{variables(1)}}}}}"
        "@media print{:root{" + variables(0) + "}}"
        ".plot text{fill:var(--dim);font-family:system-ui,sans-serif}"
        ".plot .title{fill:var(--ink);font-weight:600}"
        ".plot .grid{stroke:var(--grid)}.plot .one{stroke:var(--dim)}"
        ".plot .zone{fill:var(--loss)}.plot .paper{fill:var(--paper)}"
        ".plot .curve path{stroke:currentColor;fill:none;stroke-width:1.5;stroke-linejoin:round}"
        ".plot .curve circle{fill:currentColor}.plot .curve text,.plot .cross{fill:currentColor}"
        ".plot .curve .range{stroke-dasharray:none;stroke-width:1;opacity:.45}"
        ".plot .curve .band{fill:currentColor;stroke:none;opacity:.13}"
        ".plot .curve .leader{stroke-width:.7;stroke-dasharray:none;opacity:.6}"
        ".plot .shoal path{stroke-width:2.4}" + families + dashes
    )


def ticks(low, high, count_max):
    """Round values between the two, as many as fit."""
    found = []
    for steps in TICK_STEPS:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        values = [step * 10.0**decade for decade in decades for step in steps]
        inside = [value for value in values if low <= value <= high]
        if len(inside) > count_max and found:
            break
        found = inside
    return found


def spread_out(wanted, gap, low, high):
    """Places near the wanted ones, at least a gap apart, between low and high where they fit."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    places = sorted(wanted)
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    if places and places[-1] > high:
        places[-1] = high
        for i in range(len(places) - 2, -1, -1):
            places[i] = max(low, min(places[i], places[i + 1] - gap))
    return [place for _, place in sorted(zip(order, places, strict=True))]


class Scale:
    """Values to places in the picture, logarithmically."""

    def __init__(self, low, high, start, end):
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, value):
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


def value_range(panel):
    """Around all values and 1, with a little room."""
    points = [point for curve in panel.curves for point in curve.points if point]
    values = [1.0, *(p.low for p in points), *(p.high for p in points)]
    low, high = min(values), max(values)
    room = 1.12 * (high / low) ** 0.03
    return min(low / room, 0.8), max(high * room, 1.25)


class Drawing:
    """One panel at its place."""

    def __init__(self, panel, form, x, top):
        self.panel, self.form, self.x, self.top = panel, form, x, top
        self.bottom = top + panel.height
        self.y = Scale(*value_range(panel), self.bottom, top)
        self.parts = []

    def add(self, text):
        self.parts.append(text)

    def text(self, x, y, text, **attributes):
        names = {name: name.rstrip("_").replace("_", "-") for name in attributes}
        words = "".join(f' {names[name]}="{value}"' for name, value in attributes.items())
        self.add(f'<text x="{x:.1f}" y="{y:.1f}"{words}>{escape(text)}</text>')

    def tooltip(self, text):
        return f"<title>{escape(text)}</title>" if self.form.tooltips else ""

    def frame(self, sizes):
        left, right, one = self.form.left, self.form.width - self.form.right, self.y(1)
        if self.panel.below:
            self.add(f'<rect class="zone" x="{left}" y="{one:.1f}" width="{right - left:.1f}" '
                     f'height="{self.bottom - one:.1f}"/>')  # fmt: skip
        for size in sizes:
            self.add(f'<path class="grid" d="M{self.x(size):.1f} {self.top}V{self.bottom:.1f}"/>')
        note = f"tinted: {self.panel.below}" if self.panel.below else ""
        self.add(f'<text x="4" y="{self.top - 10:.1f}"><tspan class="title">'
                 f'{escape(self.panel.title)}</tspan> {escape(note)}</text>')  # fmt: skip
        for value in ticks(self.y.low, self.y.high, self.panel.height / (2 * self.form.font)):
            y = self.y(value)
            kind = "one" if value == 1 else "grid"
            self.add(f'<path class="{kind}" d="M{left} {y:.1f}H{right:.1f}"/>')
            self.text(left - 5, y + 4, f"{value:g}×", text_anchor="end")

    def runs(self, curve):
        """The points between gaps."""
        run = []
        for point in [*curve.points, None]:
            if point:
                run.append(point)
            elif run:
                yield run
                run = []

    def line(self, run, value="y", start="M"):
        places = [f"{self.x(p.x):.1f} {self.y(getattr(p, value)):.1f}" for p in run]
        return start + "L".join(places)

    def curve(self, curve, label_y):
        self.add(f'<g class="curve {curve.family} m{curve.member % len(DASHES)}">')
        for run in self.runs(curve):
            if curve.family == "shoal":
                band = self.line(run, "high") + self.line(run[::-1], "low", "L") + "Z"
                self.add(f'<path class="band" d="{band}"/>')
            self.add(f'<path d="{self.line(run)}"/>')
            for point in run:
                self.point(curve, point)
        if curve.name:
            self.label(curve, label_y)
        self.add("</g>")

    def point(self, curve, point):
        x, y = self.x(point.x), self.y(point.y)
        if curve.family != "shoal" and point.high > point.low:
            low, high = self.y(point.low), self.y(point.high)
            self.add(f'<path class="range" d="M{x:.1f} {low:.1f}V{high:.1f}"/>')
        self.add(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4">{self.tooltip(point.text)}</circle>')

    def label(self, curve, label_y):
        """Beside the axis with a line to it; beside the last point where the curve ends early."""
        last = [point for point in curve.points if point][-1]
        x, y, lower = self.x(last.x), self.y(last.y), 0.34 * self.form.font
        if label_y is None:
            self.text(x + 6, y + lower, curve.name)
            return
        end = self.form.width - self.form.right + 8
        self.add(f'<path class="leader" d="M{x + 3:.1f} {y:.1f}L{end:.1f} {label_y:.1f}"/>')
        self.text(end + 3, label_y + lower, curve.name)

    def crosses(self):
        row = {}
        for cross in self.panel.crosses:
            row[cross.x] = row.get(cross.x, -1) + 1
            x, y = self.x(cross.x), self.top + 4 + 8 * row[cross.x]
            self.add(f'<text class="cross {cross.family}" x="{x:.1f}" y="{y:.1f}" '
                     f'text-anchor="middle">✕{self.tooltip(cross.text)}</text>')  # fmt: skip

    def draw(self, sizes):
        curves = [curve for curve in self.panel.curves if any(curve.points)]
        self.frame(sizes)
        whole = [curve for curve in curves if curve.name and curve.points[-1]]
        ends = [self.y(curve.points[-1].y) for curve in whole]
        places = spread_out(ends, self.form.font + 1, self.top, self.bottom)
        for curve in sorted(curves, key=lambda curve: curve.family == "shoal"):
            self.curve(curve, places[whole.index(curve)] if curve in whole else None)
        self.crosses()
        return "".join(self.parts)


def fit(sizes, form, scale, size_text):
    ends = [(scale(size), 0.29 * form.font * len(size_text(size))) for size in sizes]
    return all(
        left + half + 0.6 * form.font <= right - other
        for (left, half), (right, other) in zip(ends, ends[1:], strict=False)
    )


def readable_sizes(sizes, form, scale, size_text):
    """All, or each second, or each third, ..., so that their names fit beside each other."""
    steps = range(1, len(sizes) + 1)
    return next(sizes[::step] for step in steps if fit(sizes[::step], form, scale, size_text))


def svg(panels, form, sizes, size_text, label, standalone=False):
    """The picture of panels over sizes; label says in words what it shows. '' without any curve."""
    panels = [panel for panel in panels if any(any(curve.points) for curve in panel.curves)]
    if not panels:
        return ""
    low, high = sizes[0], max(sizes[-1], sizes[0] * 2)
    scale = Scale(low, high, form.left + 12, form.width - form.right - 12)
    named = readable_sizes(sizes, form, scale, size_text)
    body, bottom = [], -GAP
    for panel in panels:
        drawing = Drawing(panel, form, scale, bottom + GAP + TOP)
        body.append(drawing.draw(named))
        bottom = drawing.bottom
    for size in named:
        body.append(f'<text x="{scale(size):.1f}" y="{bottom + form.font + 4:.1f}" '
                    f'text-anchor="middle">{size_text(size)}</text>')  # fmt: skip
    width, height = form.width, bottom + BOTTOM
    head = f'class="plot {form.name}" viewBox="0 0 {width:g} {height:g}" font-size="{form.font:g}"'
    if standalone:
        head += f' xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
        body.insert(0, f'<style>{style()}</style><rect class="paper" width="100%" height="100%"/>')
    return f'<svg {head} role="img" aria-label="{escape(label)}">{"".join(body)}</svg>\n'
