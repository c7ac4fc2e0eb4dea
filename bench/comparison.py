# SPDX-License-Identifier: Apache-2.0
"""One comparison: what was to be measured (the plan), the rows, the problems; and what they say.

Everything that is shown is computed here from plan, rows and problems, which the JSON file of a
comparison holds. A row belongs to the size that was asked for ("size"), which an operation may
round up to whole elements for each rank ("bytes"). All ratios are a library's time divided by
Shoal's: below 1 the library is the faster one.
"""

import json
import os
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

import machine

BUS_FACTORS = {
    "allreduce": lambda p: 2 * (p - 1) / p,
    "allgather": lambda p: (p - 1) / p,
    "reduce_scatter": lambda p: (p - 1) / p,
    "alltoall": lambda p: (p - 1) / p,
    "gather": lambda p: (p - 1) / p,
    "scatter": lambda p: (p - 1) / p,
}
OWN = "shoal"


def is_own(library):
    """Shoal in any of its forms: these are not compared with each other."""
    return library.split("-")[0] == OWN


def bytes_text(count):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"


def sizes_text(count):
    return f"{count} size" if count == 1 else f"{count} sizes"


def time_text(time_us):
    return f"{time_us:.2f}" if time_us < 100 else f"{time_us:.0f}"


def replace_file(path, text):
    """Whoever reads the file meanwhile sees the old or the new text, never a part."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(path)


def spread_text(summary):
    return f"{summary['spread']:.0%}" if summary["rounds"] > 1 else "-"


def cpu_s_per_gb(rows):
    """Core-seconds for each GB of a rank's buffer: the ranks' mean, the rounds' median."""
    if not rows[0]["bytes"]:
        return None
    return median(row["cpu_us"] * 1e3 / (row["bytes"] * row["ranks"]) for row in rows)


def summarize(rows):
    """Rows of one library and size, one per round: medians, and how far the rounds are apart."""
    times = [row["p50_us"] for row in rows]
    summary = {
        "p50_us": median(times),
        "p99_us": median(row["p99_us"] for row in rows),
        "min_us": min(row["min_us"] for row in rows),
        "low_us": min(times),
        "high_us": max(times),
        "spread": (max(times) - min(times)) / median(times),
        "cpu_s_per_gb": cpu_s_per_gb(rows),
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


@dataclass(frozen=True)
class Rival:
    """A library at one size, beside Shoal."""

    library: str
    size: int
    ratio: float
    within_spread: bool  # their rounds overlap, so that the order is not certain


@dataclass(frozen=True)
class Verdict:
    """Shoal against the fastest other library at each size."""

    best: dict[int, Rival]  # the fastest other one; only sizes where both have a result
    lost: list[int]  # sizes where others have a result and Shoal has none
    alone: list[int]  # sizes where Shoal has a result and no other has

    @property
    def size_count(self):
        return len(self.best) + len(self.lost)

    @property
    def losses(self):
        return [rival for rival in self.best.values() if rival.ratio < 1]

    @property
    def fastest_count(self):
        return len(self.best) - len(self.losses)

    @property
    def slowest(self):
        return min(self.best.values(), key=lambda rival: rival.ratio, default=None)

    def text(self):
        if not self.size_count:
            return "There is no size at which Shoal and another library can be compared."
        text = f"Shoal is the fastest at {self.fastest_count} of {sizes_text(self.size_count)}"
        slowest = self.slowest
        if slowest:
            where = f"at {bytes_text(slowest.size)} against {slowest.library}"
            word = "slowest" if slowest.ratio < 1 else "closest"
            text += f"; {word} ratio {slowest.ratio:.2f} {where}"
        close = sum(rival.within_spread for rival in self.losses)
        if close:
            text += f"; {close} of its {len(self.losses)} losses within the spread of the rounds"
        if self.lost:
            text += f"; no result of its own at {sizes_text(len(self.lost))}"
        if self.alone:
            text += f"; no other library has a result at {sizes_text(len(self.alone))}"
        return text + "."

    def content(self):
        return {
            "text": self.text(),
            "sizes": self.size_count,
            "fastest_at": self.fastest_count,
            "slowest": vars(self.slowest) if self.slowest else None,
            "fastest_other": {size: vars(rival) for size, rival in self.best.items()},
            "shoal_without_result": self.lost,
            "others_without_result": self.alone,
        }


def read_result(path, kind, last, program):
    """The `kind` in a file that bench/PROGRAM.py wrote, made of its plan, rows and `last`. Raises
    OSError, or ValueError where the file is no such."""
    content = json.loads(Path(path).read_text())
    try:
        found = kind(content["plan"], content["rows"], content[last])
        found.content()
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not written by this bench/{program}.py: {error!r}") from error
    return found


class Comparison:
    """Plan, rows and problems of all libraries, in the order in which they are shown."""

    def __init__(self, plan, rows=(), problems=()):
        self.plan = plan
        self.rows = list(rows)  # as printed by the programs, with "lib", "round" and "size"
        self.problems = list(problems)  # lib, sizes, round, problem

    @classmethod
    def read(cls, path):
        """Raises OSError or ValueError where the file is no comparison's."""
        return read_result(path, cls, "problems", "run")

    def add(self, library, round_number, sizes, rows):
        """Rows come in the order of the sizes; fewer when the program did not get to all."""
        for size, row in zip(sizes, rows, strict=False):
            self.rows.append(row | {"lib": library, "round": round_number, "size": size})
        self.__dict__.pop("table", None)

    def add_problem(self, library, sizes, round_number, text):
        self.problems.append(
            {"lib": library, "sizes": sizes, "round": round_number, "problem": text}
        )

    # ---- what is measured ----

    def libraries(self):
        return self.plan["libraries"]

    def others(self):
        return [library for library in self.libraries() if not is_own(library)]

    def sizes(self):
        return self.plan["sizes"]

    def usual_name(self):
        plan = self.plan
        hosts = f"-{plan['virtual_hosts']}hosts" if plan["virtual_hosts"] else ""
        hosts += "-unshaped" if hosts and plan["rate"] == "none" else ""
        form = "-in-place" * plan["in_place"] + "-torch" * plan["torch"]
        return f"{plan['op']}-{plan['dtype']}-{plan['ranks']}ranks{hosts}{form}"

    def name(self):
        """Of its files, and on the page."""
        return self.plan["name"] or self.usual_name()

    def title(self):
        plan = self.plan
        links = "with unshaped links" if plan["rate"] == "none" else f"at {plan['rate']}"
        hosts = plan["virtual_hosts"]
        where = f"{hosts} virtual hosts {links}" if hosts else "one host"
        form = ", in place" * plan["in_place"] + ", through torch.distributed" * plan["torch"]
        return f"{plan['op']} {plan['dtype']}, {plan['ranks']} ranks, {where}{form}"

    def order(self):
        """Key that sorts comparisons: one host first, few ranks first, the usual form first."""
        plan = self.plan
        operations = [*BUS_FACTORS, plan["op"]]
        unusual = plan["dtype"] != "f32", plan["in_place"], plan["torch"]
        return (
            plan["virtual_hosts"],
            operations.index(plan["op"]),
            plan["ranks"],
            unusual,
            self.name(),
        )

    def command(self, sizes):
        """What repeats the comparison, or a row of it, for all libraries; to be run at the root of
        the checkout. The results go where they replace nothing."""
        plan = self.plan
        words = ["bench/run.py", "--op", plan["op"], "--dtype", plan["dtype"]]
        words += ["--in-place"] * plan["in_place"] + ["--torch"] * plan["torch"]
        if plan["virtual_hosts"]:
            words += ["--virtual-hosts", str(plan["virtual_hosts"]), "--rate", plan["rate"]]
        words += ["--ranks", str(plan["ranks"]), "--sizes", ",".join(map(str, sizes))]
        words += ["--libs", ",".join(self.libraries())]
        words += ["--rounds", str(plan["rounds"]), "--group", str(plan["group"])]
        words += ["--size-ms", str(plan["size_ms"]), "--timeout", f"{plan['timeout_s']:g}"]
        words += ["--shoal", plan["shoal"]] if plan["shoal"] else []
        words += ["--name", plan["name"]] if plan["name"] else []
        return shlex.join([*words, "--out", "out/again"])

    def start_command(self, library, size):
        """Starts one library's program as it was started, for one size."""
        return self.plan["commands"][library].replace("--sizes SIZE", f"--sizes {size}")

    # ---- what came out ----

    def summary(self, library, size):
        rows = [row for row in self.rows if row["lib"] == library and row["size"] == size]
        return summarize(rows) if rows else None

    @cached_property
    def table(self):
        """By size and library: the summary, or None."""
        return {
            size: {library: self.summary(library, size) for library in self.libraries()}
            for size in self.sizes()
        }

    def versions(self):
        return {row["lib"]: row["version"] for row in self.rows}

    def bus_gbps(self, size, summary):
        factor = BUS_FACTORS.get(self.plan["op"], lambda p: 1.0)(self.plan["ranks"])
        return summary["bytes"] / summary["p50_us"] / 1e3 * factor

    def ratio(self, library, size):
        """The library's time divided by Shoal's, or None."""
        theirs, own = self.table[size].get(library), self.table[size].get(OWN)
        return theirs["p50_us"] / own["p50_us"] if theirs and own else None

    def rival(self, library, size):
        theirs, own = self.table[size][library], self.table[size][OWN]
        overlap = theirs["low_us"] <= own["high_us"] and own["low_us"] <= theirs["high_us"]
        return Rival(library, size, self.ratio(library, size), overlap)

    def verdict(self):
        best, lost, alone = {}, [], []
        for size, by_library in self.table.items():
            measured = [library for library in self.others() if by_library[library]]
            own = by_library.get(OWN)
            if measured and own:
                rivals = [self.rival(library, size) for library in measured]
                best[size] = min(rivals, key=lambda rival: rival.ratio)
            elif measured:
                lost.append(size)
            elif own:
                alone.append(size)
        return Verdict(best, lost, alone)

    def problem(self, library, size):
        """Why there is no result, or not one of every round; None when all went well."""
        for problem in self.problems:
            if problem["lib"] == library and size in problem["sizes"]:
                return problem["problem"]
        summary = self.table[size].get(library)
        rounds = summary["rounds"] if summary else 0
        if rounds < self.plan["rounds"]:
            return f"not measured in {self.plan['rounds'] - rounds} of {self.plan['rounds']} rounds"
        return None

    def remarks(self):
        """One sentence for each thing that was to be measured and was not, or not fully."""
        plan = self.plan
        remarks = [f"Nothing was measured: {plan['obstacle']}."] if plan.get("obstacle") else []
        remarks += [f"Without {each['lib']}: {each['reason']}." for each in plan["missing"]]
        for problem in self.problems:
            sizes = ", ".join(map(bytes_text, problem["sizes"]))
            left = f"; no result for {sizes}" if sizes else ", after its last result"
            of = f"round {problem['round'] + 1} of {plan['rounds']}"
            remarks.append(f"{problem['lib']}, {of}: {problem['problem']}{left}.")
        if not plan.get("obstacle") and "started" not in plan:
            remarks.append("It was not started.")
        elif not plan.get("obstacle") and "finished" not in plan:
            empty = [size for size, found in self.table.items() if not any(found.values())]
            sizes = ", ".join(map(bytes_text, empty)) or "none"
            remarks.append(f"It did not run to its end; sizes without any result: {sizes}.")
        return remarks

    def content(self):
        return {
            "name": self.name(),
            "title": self.title(),
            "command": self.command(self.sizes()),
            "plan": self.plan,
            "versions": self.versions(),
            "verdict": self.verdict().content(),
            "remarks": self.remarks(),
            "sizes": [self.size_content(size) for size in self.sizes()],
            "problems": self.problems,
            "rows": self.rows,
        }

    def size_content(self, size):
        """One row of the table: each library's summary with what repeats it, or what went wrong."""
        by_library = {
            library: {
                **(summary or {}),
                "ratio": self.ratio(library, size),
                "problem": self.problem(library, size),
                "command": self.start_command(library, size),
            }
            for library, summary in self.table[size].items()
        }
        return {"size": size, "command": self.command([size]), "libraries": by_library}

    # ---- text ----

    def problem_text(self, library, size):
        return (self.problem(library, size) or "-").split(":")[0]

    def cells(self, size, by_library):
        """Bytes, own columns, then one per peer: time, and how many times shoal's it is."""
        own = by_library.get(OWN)
        cells = [bytes_text(size)]
        if own:
            bus = self.bus_gbps(size, own)
            roof = f"{own['ratio_roof']:.2f}" if "ratio_roof" in own else "-"
            cells += [time_text(own["p50_us"]), spread_text(own), f"{bus:.3f}", roof]
        elif OWN in self.libraries():
            cells += [self.problem_text(OWN, size), "-", "-", "-"]
        for library in self.libraries():
            if library == OWN:
                continue
            peer = by_library[library]
            if peer is None:
                cells.append(self.problem_text(library, size))
                continue
            ratio = f" (x{self.ratio(library, size):.2f})" if own else ""
            cells.append(time_text(peer["p50_us"]) + ratio)
        return cells

    def header(self):
        own = ["shoal us", "spread", "bus GB/s", "x roof"] if OWN in self.libraries() else []
        return ["bytes", *own, *(library for library in self.libraries() if library != OWN)]

    def cpu_text(self):
        """What the largest size costs the processors, a sentence; '' if nothing was measured."""
        for size, by_library in reversed(self.table.items()):
            costs = {name: found["cpu_s_per_gb"] for name, found in by_library.items() if found}
            if size and costs:
                texts = ", ".join(f"{name} {cost:.2f}" for name, cost in costs.items())
                head = f"Core-seconds for each GB of a rank's buffer at {bytes_text(size)}"
                return f"{head}: {texts}."
        return ""

    def table_text(self):
        """A Markdown table that is aligned for a terminal too."""
        lines = [self.header()]
        lines += [self.cells(size, by_library) for size, by_library in self.table.items()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        texts = [
            "| " + " | ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) + " |"
            for line in lines
        ]
        texts.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
        return "\n".join(texts)

    def markdown(self):
        plan = self.plan
        lines = [f"# {self.title()}", "", self.verdict().text(), ""]
        lines += [f"Command: `{self.command(self.sizes())}`", ""]
        lines += [f"{machine.short_text(plan['machine'])}, {plan.get('started', 'not started')}."]
        lines += [
            "",
            "Times are medians in us of the slowest rank, then of "
            f"the rounds ({plan['rounds']}), in which the libraries take turns; in brackets, "
            "how many times Shoal's time. spread: (largest - smallest round) / median. x roof: "
            "time / roof of the same run.",
            "",
            self.table_text(),
            "",
            *([self.cpu_text(), ""] if self.cpu_text() else []),
            "Versions: " + ", ".join(f"{name} {v}" for name, v in self.versions().items()) + ".",
            "",
            *(f"- {remark}" for remark in self.remarks()),
        ]
        return "\n".join(lines).rstrip() + "\n"
