# SPDX-License-Identifier: Apache-2.0
"""Draws groups of bars as SVG: percentages from a common zero line, and a mark to be reached.

Colours are plot.style()'s, so that the picture is light or dark with the page, or by itself.
Groups that follow each other and have the same heading stand below one.
"""

from dataclasses import dataclass
from html import escape

import plot

FAMILIES = ("openmpi", "intelmpi", "mpich", "other")  # their colours, bar by bar
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, FONT = 960, 300, 52, 44, 42, 12
GAP = 0.3  # between groups, as a share of a group
STEPS = (5, 10, 20, 50, 100, 200, 500)
LINES_MAX = 8


@dataclass(frozen=True)
class Group:
    heading: str
    name: str
    values: list[float | None]  # percent, one for each bar; None: no result
    mark: float | None  # to be reached


def value_range(groups):
    values = [value for group in groups for value in (*group.values, group.mark) if value]
    low, high = min([0, *values]), max([10, *values])
    step = next((s for s in STEPS if (high - low) / s <= LINES_MAX), STEPS[-1])
    return step * int(low // step), step * int(-(-high // step)), step


class Drawing:
    def __init__(self, groups, names, mark_name):
        self.groups, self.names, self.mark_name = groups, names, mark_name
        self.low, self.high, self.step = value_range(groups)
        self.pitch = (WIDTH - LEFT) / len(groups)
        self.parts = []

    def y(self, value):
        share = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)

    def text(self, x, y, text, anchor="middle", class_=""):
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{class_}">'
            f"{escape(text)}</text>"
        )

    def axis(self):
        for value in range(self.low, self.high + 1, self.step):
            y, kind = self.y(value), "grid" if value else "one"
            self.parts.append(f'<path class="{kind}" d="M{LEFT} {y:.1f}H{WIDTH}"/>')
            self.text(LEFT - 5, y + 4, f"{value:+d} %" if value else "0", "end")

    def key(self):
        x = LEFT
        for index, name in enumerate(self.names):
            family = FAMILIES[index % len(FAMILIES)]
            self.parts.append(
                f'<rect x="{x}" y="6" width="{FONT}" height="{FONT}" fill="var(--{family})"/>'
            )
            self.text(x + FONT + 5, 6 + FONT - 2, name, "start")
            x += 2 * FONT + 10 + 0.6 * FONT * len(name)
        if any(group.mark is not None for group in self.groups):
            self.parts.append(mark(x, 6 + FONT / 2, 2 * FONT))
            self.text(x + 2 * FONT + 5, 6 + FONT - 2, self.mark_name, "start")

    def group(self, index, group):
        room = self.pitch * (1 - GAP)
        left, width = LEFT + index * self.pitch + self.pitch * GAP / 2, room / len(self.names)
        for bar, value in enumerate(group.values):
            if value is None:
                self.text(left + (bar + 0.5) * width, self.y(0) - 4, "✕")
                continue
            top, bottom = sorted((self.y(value), self.y(0)))
            words = f"{group.heading}, {group.name}, {self.names[bar]}: {value:+.1f} %"
            self.parts.append(
                f'<rect x="{left + bar * width:.1f}" y="{top:.1f}" width="{0.92 * width:.1f}" '
                f'height="{max(bottom - top, 0.5):.1f}" '
                f'fill="var(--{FAMILIES[bar % len(FAMILIES)]})"><title>{escape(words)}</title>'
                "</rect>"
            )
        if group.mark is not None:
            self.parts.append(mark(left - 3, self.y(group.mark), room + 6))
        self.text(left + room / 2, HEIGHT - BOTTOM + FONT + 4, group.name)

    def headings(self):
        """Each below its run of groups."""
        first = 0
        for index, group in enumerate(self.groups):
            last = index + 1 == len(self.groups)
            if last or self.groups[index + 1].heading != group.heading:
                middle = LEFT + self.pitch * (first + index + 1) / 2
                self.text(middle, HEIGHT - 8, group.heading, class_="title")
                first = index + 1

    def draw(self):
        self.axis()
        self.key()
        for index, group in enumerate(self.groups):
            self.group(index, group)
        self.headings()
        return "".join(self.parts)


def mark(x, y, width):
    return (
        f'<path d="M{x:.1f} {y:.1f}h{width:.1f}" stroke="var(--ink)" stroke-width="2" '
        'stroke-dasharray="4 2"/>'
    )


def svg(groups, names, mark_name, label, standalone=False):
    """The picture; '' without any value. label says in words what it shows."""
    if not any(value is not None for group in groups for value in group.values):
        return ""
    body = Drawing(groups, names, mark_name).draw()
    head = f'class="plot bars" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="{FONT}"'
    if standalone:
        head += f' xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"'
        body = (
            f'<style>{plot.style()}</style><rect class="paper" width="100%" height="100%"/>{body}'
        )
    return f'<svg {head} role="img" aria-label="{escape(label)}">{body}</svg>\n'
