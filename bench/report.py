# SPDX-License-Identifier: Apache-2.0
"""What came out of a comparison: JSON, a table, a plot."""

import json
from statistics import median

BUS_FACTORS = {
    "allreduce": lambda p: 2 * (p - 1) / p,
    "allgather": lambda p: (p - 1) / p,
    "reduce_scatter": lambda p: (p - 1) / p,
    "alltoall": lambda p: (p - 1) / p,
    "gather": lambda p: (p - 1) / p,
    "scatter": lambda p: (p - 1) / p,
}
OWN = "shoal"


def bytes_text(count):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"


def time_text(time_us):
    return f"{time_us:.2f}" if time_us < 100 else f"{time_us:.0f}"


def summarize(rows):
    """Rows of one library and size, one per round: medians, and how far the rounds are apart."""
    times = [row["p50_us"] for row in rows]
    summary = {
        "p50_us": median(times),
        "p99_us": median(row["p99_us"] for row in rows),
        "min_us": min(row["min_us"] for row in rows),
        "spread": (max(times) - min(times)) / median(times),
        "rounds": len(rows),
        "batch": rows[0]["batch"],
        "bytes": rows[0]["bytes"],
    }
    roofs = [row["roof_us"] for row in rows if "roof_us" in row]
    if roofs:
        summary |= {"roof_us": median(roofs), "roof": rows[0]["roof"]}
        summary["ratio_roof"] = median(row["ratio_roof"] for row in rows)
    one_way = [row["pingpong_us"] for row in rows if "pingpong_us" in row]
    if one_way:
        summary["pingpong_us"] = median(one_way)
    return summary


class Comparison:
    """Rows and problems of all libraries, in the order in which they are shown."""

    def __init__(self, plan):
        self.plan = plan
        self.rows = []  # as printed by the programs, with "round"
        self.problems = []  # library, sizes, round, text

    def add(self, library, round_number, rows):
        self.rows += [row | {"lib": library, "round": round_number} for row in rows]

    def add_problem(self, library, sizes, round_number, text):
        self.problems.append(
            {"lib": library, "sizes": sizes, "round": round_number, "problem": text}
        )

    def libraries(self):
        return self.plan["libraries"]

    def reference(self):
        """To whose time the others' are compared in the plot."""
        measured = [name for name in self.libraries() if any(r["lib"] == name for r in self.rows)]
        return OWN if OWN in measured or not measured else measured[0]

    def sizes(self):
        return sorted({row["bytes"] for row in self.rows})

    def summary(self, library, size):
        rows = [row for row in self.rows if row["lib"] == library and row["bytes"] == size]
        return summarize(rows) if rows else None

    def table(self):
        return {
            size: {library: self.summary(library, size) for library in self.libraries()}
            for size in self.sizes()
        }

    def versions(self):
        return {row["lib"]: row["version"] for row in self.rows}

    # ---- files ----

    def write_json(self, path):
        content = {
            "plan": self.plan,
            "versions": self.versions(),
            "summary": self.table(),
            "problems": self.problems,
            "rows": self.rows,
        }
        path.write_text(json.dumps(content, indent=1) + "\n")

    def problem_text(self, library, size):
        for problem in self.problems:
            if problem["lib"] == library and size in problem["sizes"]:
                return problem["problem"].split(":")[0]
        return "-"

    def cells(self, size, by_library):
        """Bytes, own columns, then one per peer: time, and how many times shoal's it is."""
        own = by_library.get(OWN)
        cells = [bytes_text(size)]
        if own:
            factor = BUS_FACTORS.get(self.plan["op"], lambda p: 1.0)(self.plan["ranks"])
            bus = size / own["p50_us"] / 1e3 * factor
            roof = f"{own['ratio_roof']:.2f}" if "ratio_roof" in own else "-"
            cells += [time_text(own["p50_us"]), f"{own['spread']:.0%}", f"{bus:.3f}", roof]
        elif OWN in self.libraries():
            cells += [self.problem_text(OWN, size), "-", "-", "-"]
        for library in self.libraries():
            if library == OWN:
                continue
            peer = by_library[library]
            if peer is None:
                cells.append(self.problem_text(library, size))
                continue
            ratio = f" (x{peer['p50_us'] / own['p50_us']:.2f})" if own else ""
            cells.append(time_text(peer["p50_us"]) + ratio)
        return cells

    def header(self):
        own = ["shoal us", "spread", "bus GB/s", "x roof"] if OWN in self.libraries() else []
        return ["bytes", *own, *(library for library in self.libraries() if library != OWN)]

    def table_text(self):
        """A Markdown table that is aligned for a terminal too."""
        lines = [self.header()]
        lines += [self.cells(size, by_library) for size, by_library in self.table().items()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        texts = [
            "| " + " | ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) + " |"
            for line in lines
        ]
        texts.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
        return "\n".join(texts)

    def title(self):
        plan = self.plan
        where = (
            f"{plan['virtual_hosts']} virtual hosts at {plan['rate']}"
            if plan["virtual_hosts"]
            else "one host"
        )
        return f"{plan['op']} {plan['dtype']}, {plan['ranks']} ranks, {where}"

    def write_markdown(self, path):
        lines = [f"# {self.title()}", "", f"Command: `{self.plan['command']}`", ""]
        lines += [f"{self.plan['machine']}, {self.plan['date']}.", ""]
        lines += [
            "Times are medians in us of the slowest rank, then of "
            f"{self.plan['rounds']} rounds, between which the libraries take turns; in brackets, "
            "how many times Shoal's time. spread: (largest - smallest round) / median. x roof: "
            "time / roof of the same run.",
            "",
            self.table_text(),
            "",
            "Versions: " + ", ".join(f"{name} {v}" for name, v in self.versions().items()) + ".",
            "",
        ]
        for problem in self.problems:
            sizes = ", ".join(bytes_text(size) for size in problem["sizes"])
            lines.append(f"- {problem['lib']}, {sizes}: {problem['problem']}")
        path.write_text("\n".join(lines).rstrip() + "\n")

    def write_plot(self, path):
        """False where matplotlib, or everything to draw, is missing."""
        if not self.rows:
            return False
        try:
            import matplotlib
        except ImportError:
            return False
        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5.2))
        table = self.table()
        self.draw_times(left, table)
        self.draw_ratios(right, table)
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xlabel("bytes")
            axes.grid(True, which="major", alpha=0.3)
        figure.suptitle(self.title())
        left.legend(fontsize=8)
        figure.tight_layout()
        figure.savefig(path, dpi=110)
        pyplot.close(figure)
        return True

    def line(self, table, library, key):
        points = [(size, by[library]) for size, by in table.items() if by.get(library)]
        points = [(size, summary[key]) for size, summary in points if key in summary]
        return [size for size, _ in points], [value for _, value in points]

    def draw_times(self, axes, table):
        for library in self.libraries():
            own = library.startswith(OWN)
            axes.plot(
                *self.line(table, library, "p50_us"),
                label=library,
                marker="o" if own else ".",
                linewidth=2.2 if own else 1.1,
            )
        axes.plot(*self.line(table, OWN, "roof_us"), "k--", linewidth=1, label="roof")
        axes.set_ylabel("time, us (median)")
        axes.set_title("time: lower is better")

    def draw_ratios(self, axes, table):
        reference = self.reference()
        for library in self.libraries():
            points = [
                (size, by[library]["p50_us"] / by[reference]["p50_us"])
                for size, by in table.items()
                if by.get(library) and by.get(reference)
            ]
            axes.plot(
                [size for size, _ in points],
                [ratio for _, ratio in points],
                marker=".",
                linewidth=2.2 if library.startswith(OWN) else 1.1,
            )
        axes.set_ylabel(f"time / {reference}'s time")
        axes.set_title(f"how many times {reference}'s time")
