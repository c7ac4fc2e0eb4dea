# SPDX-License-Identifier: Apache-2.0
"""The page: one HTML file that needs nothing else, from a report (bench/report.py).

It has no script: it opens anywhere, and prints. Each plot is there twice, for wide and for narrow
screens; values stand in the tables and under the pointer.
"""

from html import escape
from pathlib import Path

import charts
import plot
from comparison import OWN, bytes_text, is_own, spread_text, time_text

CSS = Path(__file__).resolve().parent / "page.css"
QUIET_LOAD = 0.5  # per processor; more before a measurement means that something else ran
FEW_ROUNDS = 3


def ratio_text(ratio):
    return f"{ratio:.2f}×" if ratio < 10 else f"{ratio:.1f}×" if ratio < 100 else f"{ratio:,.0f}×"


def tag(name, content, **attributes):
    words = "".join(f' {key.rstrip("_")}="{escape(str(value))}"'
                    for key, value in attributes.items() if value)  # fmt: skip
    return f"<{name}{words}>{content}</{name}>"


def command(text):
    return tag("code", escape(text), class_="command")


def table(head, rows, caption="", class_=""):
    caption = tag("p", tag("small", caption), class_="caption") if caption else ""
    head = tag("thead", tag("tr", "".join(head)))
    body = tag("tbody", "".join(rows))
    return caption + tag("div", tag("table", head + body, class_=class_), class_="scroll")


def facts(pairs):
    return tag("dl", "".join(f"<dt>{escape(name)}</dt><dd>{text}</dd>" for name, text in pairs),
               class_="facts")  # fmt: skip


def bullets(texts):
    items = "".join(tag("li", escape(text)) for text in texts)
    return tag("ul", items, class_="remarks") if texts else ""


# ---- summary ----


def strength(ratio):
    """How dark a cell is: a tenth or so, up to double, more."""
    distance = max(ratio, 1 / ratio)
    return 1 if distance < 1.2 else 2 if distance < 2 else 3


def strip(comparison):
    """A cell per size: is Shoal the fastest there, and by how much."""
    verdict, side, cells = comparison.verdict(), 16, []
    for i, size in enumerate(comparison.sizes()):
        rival = verdict.best.get(size)
        title, inside = f"{bytes_text(size)}: no result to compare", ""
        if rival:
            kind = "gain" if rival.ratio >= 1 else "loss"
            title = (
                f"{bytes_text(size)}: {rival.library} takes {ratio_text(rival.ratio)} Shoal's time"
            )
            inside = (
                f'<rect class="{kind} s{strength(rival.ratio)}" width="{side}" height="{side}"/>'
            )
        edge = f'<rect class="edge" width="{side}" height="{side}"/>'
        words = tag("title", escape(title))
        cells.append(tag("g", words + edge + inside, transform=f"translate({i * (side + 2)} 0)"))
    width, sizes = max(len(cells) * (side + 2), 120), comparison.sizes()
    return (
        f'<svg class="strip" width="{width}" height="30" viewBox="0 0 {width} 30" role="img" '
        f'aria-label="{escape(verdict.text())}">{"".join(cells)}'
        f'<text y="27">{bytes_text(sizes[0])} – {bytes_text(sizes[-1])}</text></svg>'
    )


def summary(report):
    items = []
    for comparison in report.comparisons:
        link = tag("a", escape(comparison.title()), href=f"#{comparison.name()}")
        text = tag("p", escape(comparison.verdict().text()))
        items.append(tag("li", link + text + strip(comparison)))
    if report.headline:
        link = tag("a", "training across hosts", href="#headline")
        items.append(tag("li", link + tag("p", escape(report.headline.text()))))
    if report.pipelines:
        link = tag("a", "pipelines", href="#pipelines")
        items.append(tag("li", link + tag("p", escape(report.pipelines.text()))))
    if report.training:
        link = tag("a", "training with DDP", href="#ddp")
        items.append(tag("li", link + tag("p", escape(report.training.text()))))
    if report.starts:
        link = tag("a", "start of ranks", href="#start")
        items.append(tag("li", link + tag("p", escape(report.starts.text()))))
    if report.kernels:
        link = tag("a", "arithmetic of one core", href="#kernels")
        items.append(tag("li", link + tag("p", escape(report.kernels.text()))))
    key = (
        "A square is a size, from the smallest to the largest: Shoal beside the fastest other "
        'library there. <span class="key gain"></span> Shoal is the fastest, '
        '<span class="key loss"></span> another one is; stronger from 1.2 and from 2 times on. '
        "Ratios are a library's time divided by Shoal's: below 1 Shoal is the slower one."
    )
    none = "" if items else tag("p", "There is no result.")
    return tag("section", f"<h2>In short</h2>{none}{tag('ul', ''.join(items), class_='verdicts')}"
               f"{tag('p', key, class_='dim')}", id="summary")  # fmt: skip


def notices(report):
    texts = []
    remarks = report.remarks()
    if remarks:
        texts.append(f"{len(remarks)} things were not measured, or not fully: "
                     '<a href="#missing">they are named below</a>.')  # fmt: skip
    few = [c for c in report.comparisons if c.plan["rounds"] < FEW_ROUNDS]
    if few:
        texts.append(f"{len(few)} of {len(report.comparisons)} comparisons had fewer than "
                     f"{FEW_ROUNDS} rounds: they say little about speed.")  # fmt: skip
    first = report.first_plan()
    if first and first["load_before"][0] > QUIET_LOAD * first["processors"]:
        texts.append(f"The machine was not quiet: its load average was "
                     f"{first['load_before'][0]:.1f} on {first['processors']} processors before "
                     "the first measurement.")  # fmt: skip
    if len(report.machines()) > 1:
        texts.append(f"The results come from {len(report.machines())} different machines or states "
                     "of one: they are listed below.")  # fmt: skip
    if len(report.revisions()) > 1:
        texts.append("The results belong to different states of the source: "
                     + escape(", ".join(report.revisions())) + ".")  # fmt: skip
    items = "".join(tag("li", text) for text in texts)
    return tag("ul", items, class_="notice") if texts else ""


# ---- one comparison ----


def own_cells(comparison, size, own, fastest):
    """Shoal's columns; fastest is its rival at this size, or None."""
    if not own:
        reason = comparison.problem(OWN, size) or ""
        return tag("td", escape(reason.split(":")[0]), class_="none", title=reason, colspan=4)
    roof = f"{own['ratio_roof']:.2f}×" if "ratio_roof" in own else "–"
    bus = comparison.bus_gbps(size, own)
    best = "best" if not fastest or fastest.ratio >= 1 else ""
    cells = [tag("td", time_text(own["p50_us"]), class_=best), tag("td", spread_text(own))]
    return "".join([*cells, tag("td", f"{bus:.3g}"), tag("td", roof, title=own.get("roof"))])


def other_cell(comparison, library, size, fastest):
    summary = comparison.table[size][library]
    problem = comparison.problem(library, size)
    if not summary:
        return tag("td", escape((problem or "–").split(":")[0]), class_="none", title=problem)
    ratio = comparison.ratio(library, size)
    faster = ratio is not None and ratio < 1 and not is_own(library)
    kinds = ["loss"] if faster else []
    kinds += ["best"] if faster and fastest.library == library else []
    title = f"rounds {time_text(summary['low_us'])} to {time_text(summary['high_us'])} µs"
    title += f"; {problem}" if problem else ""
    text = (ratio_text(ratio) if ratio is not None else "") + "*" * bool(problem)
    small = tag("small", time_text(summary["p50_us"]))
    return tag("td", text + small, class_=" ".join(kinds), title=title)


def row_id(comparison, size):
    return f"{comparison.name()}-{size}"


def comparison_table(comparison):
    others = [library for library in comparison.libraries() if library != OWN]
    has_own = OWN in comparison.libraries()
    own_head = ["Shoal µs", "spread", "bus GB/s", "× roof"] if has_own else []
    head = [tag("th", text) for text in ("size", *own_head)]
    head += [tag("th", escape(library)) for library in others]
    rows, best = [], comparison.verdict().best
    for size, by_library in comparison.table.items():
        link = tag("a", bytes_text(size), href=f"#{row_id(comparison, size)}")
        own = by_library.get(OWN)
        cells = [own_cells(comparison, size, own, best.get(size))] if has_own else []
        cells += [other_cell(comparison, name, size, best.get(size)) for name in others]
        rows.append(tag("tr", tag("th", link) + "".join(cells)))
    caption = (
        "Others: time as a multiple of Shoal's, and below it the time in µs. Shaded: faster than "
        "Shoal. A size leads to the commands that repeat its row."
    )
    if any(comparison.problem(name, s) and by[name] for s, by in comparison.table.items()
           for name in by):  # fmt: skip
        caption += " *: not in every round."
    return table(head, rows, caption)


REPEAT_HEAD = ("library", "p50 µs", "p99 µs", "shortest µs", "p50 of the rounds, µs", "spread",
               "rounds", "calls per clock", "bus GB/s", "core s/GB", "× Shoal",
               "× roof")  # fmt: skip


def measurement_cells(comparison, library, size, summary):
    ratio = comparison.ratio(library, size)
    low, high = time_text(summary["low_us"]), time_text(summary["high_us"])
    texts = [time_text(summary["p50_us"]), time_text(summary["p99_us"]),
             time_text(summary["min_us"]), f"{low} – {high}", spread_text(summary),
             f"{summary['rounds']} of {comparison.plan['rounds']}", summary["batch"],
             f"{comparison.bus_gbps(size, summary):.3g}",
             f"{summary['cpu_s_per_gb']:.3g}" if summary["cpu_s_per_gb"] is not None else "–",
             ratio_text(ratio) if ratio is not None else "–",
             f"{summary['ratio_roof']:.2f}×" if "ratio_roof" in summary else "–"]  # fmt: skip
    return "".join(tag("td", text) for text in texts)


def measurement_rows(comparison, size):
    """Of one size: what repeats all of it, then each library's numbers and how it is started."""
    columns = len(REPEAT_HEAD)
    bytes_ = {s["bytes"] for s in comparison.table[size].values() if s}
    exact = f" ({', '.join(f'{count:,}' for count in sorted(bytes_))} bytes)" if bytes_ else ""
    whole = f"{bytes_text(size)}{exact}, all libraries by turns:"
    yield tag("tr", tag("th", whole + command(comparison.command([size])), colspan=columns),
              class_="group", id=row_id(comparison, size))  # fmt: skip
    for library, summary in comparison.table[size].items():
        if summary:
            cells = measurement_cells(comparison, library, size, summary)
        else:
            reason = comparison.problem(library, size) or "not measured"
            cells = tag("td", escape(reason), class_="none left", colspan=columns - 1)
        yield tag("tr", tag("th", escape(library)) + cells)
        start = command(comparison.start_command(library, size))
        yield tag("tr", tag("td", start, colspan=columns), class_="start")


def measurements(comparison):
    head = [tag("th", text) for text in REPEAT_HEAD]
    rows = [row for size in comparison.sizes() for row in measurement_rows(comparison, size)]
    intro = tag("p", "To be run at the root of the checkout, after <code>make bench QUICK=1</code> "
                "has installed everything once. A library's own command starts its program alone, "
                "for that size, with the same settings; it prints JSON.")  # fmt: skip
    return tag("details", "<summary>Every measurement, with the command that repeats it</summary>"
               + intro + table(head, rows, class_="repeat"))  # fmt: skip


def load_text(averages):
    return " ".join(f"{average:.2f}" for average in averages) if averages else "–"


def busy_text(plan):
    before = f"load averages {load_text(plan['load_before'])} before"
    if "finished" not in plan:
        return f"Started {plan['started']}, not finished; {before}"
    after = f"{load_text(plan['load_after'])} after"
    return f"Started {plan['started']}, finished {plan['finished']}; {before}, {after}"


def both_plots(comparison):
    plots = [charts.comparison_svg(comparison, form) for form in (plot.WIDE, plot.NARROW)]
    caption = (
        "Each library's time divided by Shoal's; the tinted half is where it is faster than Shoal. "
        "Vertical strokes, and the band of Shoal, reach from the fastest to the slowest round. "
        "✕: no result. Below: Shoal's time as a multiple of the roof, measured in the same run."
    )
    return (
        tag("figure", "".join(plots) + tag("figcaption", tag("small", caption))) if plots[0] else ""
    )


def results(comparison):
    """Verdict, plot, table and every measurement; only where something was measured."""
    plan = comparison.plan
    rounds = f"{plan['rounds']} round{'s' * (plan['rounds'] > 1)}"
    return [
        tag("p", escape(comparison.verdict().text()), class_="verdict"),
        tag("p", escape(f"{rounds}, {plan['size_ms']} ms per size and round. {busy_text(plan)}."),
            class_="dim"),
        both_plots(comparison),
        comparison_table(comparison),
    ]  # fmt: skip


def comparison_section(comparison):
    parts = [
        tag("h2", escape(comparison.title())),
        *(results(comparison) if comparison.rows else []),
        bullets(comparison.remarks()),
        "<h3>The whole comparison again</h3>",
        command(comparison.command(comparison.sizes())),
        measurements(comparison) if comparison.rows else "",
    ]
    return tag("section", "".join(parts), class_="comparison", id=comparison.name())


# ---- kernels ----

STORES = {False: "into the cache", True: "around the cache"}


def kernel_cell(row):
    if not row:
        return tag("td", "–", class_="none")
    return tag("td", f"{row['ratio_roof']:.2f}×<small>{row['gbps']:.1f}</small>",
               title=f"{row['us']:.2f} µs, {row['gelems']:.2f} elements per ns")  # fmt: skip


def kernel_table(kernels):
    forms = kernels.forms()
    head = [tag("th", "dtype"), tag("th", "bytes"), tag("th", "stores", class_="left")]
    head += [tag("th", text) for text in (*forms, "roof µs")]
    rows = []
    for dtype in kernels.dtypes():
        for size in kernels.sizes():
            for stream in (False, True):
                found = [kernels.row(dtype, form, size, stream) for form in forms]
                if not any(found):
                    continue
                roofs = sorted(row["roof_us"] for row in found if row)
                cells = [
                    tag("th", dtype),
                    tag("td", bytes_text(size)),
                    tag("td", STORES[stream], class_="left"),
                ]
                cells += [kernel_cell(row) for row in found]
                cells += [tag("td", time_text(roofs[len(roofs) // 2]))]  # fmt: skip
                rows.append(tag("tr", "".join(cells)))
    caption = "Time as a multiple of the roof's, and below it GB/s loaded and stored."
    return table(head, rows, caption)


def kernel_commands(kernels):
    head = [tag("th", text) for text in ("form", "dtype", "bytes")]
    head += [tag("th", "stores", class_="left"), tag("th", "µs"), tag("th", "× roof")]
    head += [tag("th", "command", class_="left")]
    rows = [
        tag("tr", tag("th", row["form"]) + tag("td", row["dtype"])
            + tag("td", bytes_text(row["bytes"]))
            + tag("td", STORES[row["stream"]], class_="left")
            + tag("td", time_text(row["us"])) + tag("td", f"{row['ratio_roof']:.2f}×")
            + tag("td", command(kernels.row_command(row)), class_="left wrap"))
        for row in kernels.rows
    ]  # fmt: skip
    return tag("details", "<summary>Every measurement, with the command that repeats it</summary>"
               + table(head, rows, class_="repeat"))  # fmt: skip


def kernel_section(kernels):
    about = (
        "The loops that sum arrays, on one core, in every form that the processor has, beside the "
        "roof: a copy that loads and stores as many bytes between as much memory, by memcpy or "
        "around the cache, whichever is faster. At 1× a kernel costs no more than moving its bytes."
    )
    plots = "".join(charts.kernel_svg(kernels, dtype) for dtype in kernels.dtypes())
    caption = "Time divided by the roof's, over bytes of a buffer. Dashed: stores around the cache."
    parts = [
        "<h2>Arithmetic of one core</h2>",
        tag("p", escape(kernels.text()), class_="verdict"),
        tag("p", about),
        tag("p", escape(busy_text(kernels.plan) + "."), class_="dim") if kernels.rows else "",
        tag("figure", tag("div", plots, class_="small-plots")
            + tag("figcaption", tag("small", caption))) if plots else "",
        kernel_table(kernels) if kernels.rows else "",
        bullets(kernels.remarks()),
        "<h3>All of it again</h3>",
        command(kernels.plan["command"]),
        kernel_commands(kernels) if kernels.rows else "",
    ]  # fmt: skip
    return tag("section", "".join(parts), class_="comparison", id="kernels")


# ---- start and memory ----

START_TIMES = (("launch_ms", "launch"), ("create_ms", "create"), ("split_ms", "split"),
               ("subset_ms", "new group"), ("subset_sum_ms", "and its first sum"))  # fmt: skip
START_COSTS = (("shared_bytes", "shared"), ("shared_sum_bytes", "shared, 1 MiB summed"),
               ("private_bytes", "own"), ("page_table_bytes", "page tables"),
               ("descriptors", "descriptors"), ("threads", "threads"))  # fmt: skip


def start_cell(row, name):
    if name not in row:
        return tag("td", "–", class_="none")
    if name.endswith("_bytes"):
        return tag("td", f"{row[name] / 1024:,.0f}", title=f"{row[name]:,.0f} bytes")
    if not name.endswith("_ms"):
        return tag("td", f"{row[name]:.0f}")
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return tag("td", f"{row[name]:,.4g}", title=f"starts {low:,.4g} to {high:,.4g} ms")


def start_table(starts, columns, caption):
    head = [tag("th", text) for text in ("ranks", "library", *(text for _, text in columns))]
    rows = [
        tag("tr", tag("th", ranks) + tag("td", escape(row["lib"]), class_="left")
            + "".join(start_cell(row, name) for name, _ in columns))
        for ranks in starts.numbers() for row in starts.rows if row["ranks"] == ranks
    ]  # fmt: skip
    return table(head, rows, caption)


def command_facts(plan):
    """For each library, what it is and what starts it alone."""
    return facts(
        (escape(name), tag("small", escape(plan["about"][name])) + command(text))
        for name, text in plan["commands"].items()
    )


def start_section(starts):
    about = (
        "All ranks of a start are on one host; the last one counts for times, the largest for "
        "bytes, the median of the starts is shown. launch: from the start of the launcher until "
        "every rank has its group. create: a group of all by processes that run already; for "
        "torch.distributed the first one, and neither Python's start nor its imports count."
    )
    tables = [
        start_table(starts, START_TIMES, "Milliseconds."),
        start_table(starts, START_COSTS,
                    "For each rank, more than without a group: KiB, descriptors and threads."),
    ]  # fmt: skip
    parts = [
        "<h2>Start of ranks, and what a group costs</h2>",
        tag("p", escape(starts.text()), class_="verdict"),
        tag("p", about),
        tag("p", escape(busy_text(starts.plan) + "."), class_="dim") if starts.rows else "",
        *(tables if starts.rows else []),
        bullets(starts.remarks()),
        "<h3>All of it again</h3>",
        command(starts.plan["command"]),
        command_facts(starts.plan),
    ]
    return tag("section", "".join(parts), class_="comparison", id="start")


# ---- training ----

TRAINING_HEAD = ("library", "step", "without communication", "added by it", "of Gloo's",
                 "samples/s", "rounds", "last loss")  # fmt: skip


def training_cell(summary, name):
    low, high = summary[f"{name}_low"], summary[f"{name}_high"]
    return tag("td", f"{summary[name]:,.1f}", title=f"rounds {low:,.1f} to {high:,.1f}")


def training_row(summary):
    share = summary["share"]
    cells = [training_cell(summary, name) for name in ("step_ms", "plain_ms", "overhead_ms")]
    cells += [tag("td", f"{share:.2f}" if share is not None else "–")]
    cells += [training_cell(summary, "samples_s"), tag("td", summary["rounds"])]
    cells += [tag("td", f"{summary['last_loss']:.6f}")]
    return tag("tr", tag("th", escape(summary["lib"])) + "".join(cells))


def training_table(training):
    plan = training.plan
    head = [tag("th", text) for text in TRAINING_HEAD]
    rows = [training_row(training.summary(name)) for name in training.libraries()]
    caption = (
        f"Milliseconds; {plan['ranks']} ranks, {training.rows[0]['parameters']:,} parameters, "
        f"{plan['batch']} samples of each rank in a step, {plan['steps']} steps of each kind in "
        "a round. Below the pointer: the fastest and the slowest round."
    )
    return table(head, rows, caption)


def training_section(training):
    about = (
        "A wide MLP learns under torch's DistributedDataParallel. Steps with and without "
        "communication (no_sync) go by turns, and begin at the same moment on all ranks; the "
        "slowest rank counts. What communication adds is the median of the differences within a "
        "pair. At the end all ranks' parameters have the same bits, or it counts as failed; the "
        "libraries' losses are compared with each other."
    )
    parts = [
        "<h2>Training with DDP</h2>",
        tag("p", escape(training.text()), class_="verdict"),
        tag("p", about),
        tag("p", escape(busy_text(training.plan) + "."), class_="dim") if training.rows else "",
        training_table(training) if training.rows else "",
        bullets(training.remarks()),
        "<h3>All of it again</h3>",
        command(training.plan["command"]),
        command_facts(training.plan),
    ]
    return tag("section", "".join(parts), class_="comparison", id="ddp")


# ---- training across hosts ----

HEADLINE_HEAD = ("case", "way", "step", "computing", "roof", "alone", "faster than Gloo",
                 "published", "× bound", "hidden", "rounds")  # fmt: skip


def headline_row(case, summary):
    low, high = summary["step_ms_low"], summary["step_ms_high"]
    gain, wanted = summary["gain"], summary["published"]
    cells = [
        tag("td", escape(summary["lib"]), class_="left"),
        tag("td", f"{summary['step_ms']:,.1f}", title=f"rounds {low:,.1f} to {high:,.1f}"),
    ]
    cells += [tag("td", f"{summary[f'{name}_ms']:,.1f}") for name in ("compute", "roof", "alone")]
    cells += [
        tag("td", f"{100 * gain:+.0f} %" if gain is not None else "–"),
        tag("td", f"{wanted:+d} %" if wanted is not None else "–"),
        tag("td", f"{summary['over_bound']:.2f}"),
        tag("td", f"{100 * summary['hidden']:.0f} %"),
        tag("td", summary["rounds"]),
    ]
    return tag("tr", tag("th", escape(case.text())) + "".join(cells))


def headline_table(headline):
    head = [tag("th", text) for text in HEADLINE_HEAD]
    rows = [
        headline_row(case, summary)
        for case in headline.cases() for name in headline.libraries()
        if (summary := headline.summary(case, name))
    ]  # fmt: skip
    scales = ", ".join(dict.fromkeys(f"{row['model']} {row['scale']:.3g}" for row in headline.rows))
    caption = (
        "Milliseconds. roof: raw sockets that move the bytes of an allreduce of all gradients; "
        "alone: a step of no computing; bound: the longer one of computing and roof; hidden: the "
        f"share of the time alone that is not in the step. Each tensor's size is scaled: {scales}."
    )
    return table(head, rows, caption)


def headline_section(headline):
    about = (
        "One training loop, with the gradients of known models in the order in which they become "
        "ready, on virtual hosts of one rank each. Computing is waiting, as for an accelerator; "
        "a third of it is the forward pass. All ways run in the same processes by turns, in blocks "
        "of steps, and every gradient is checked at the end. Dashes in the plot: what was "
        "published for SageMaker's library over PyTorch's DistributedDataParallel on so many nodes."
    )
    plan, picture = headline.plan, headline.picture()
    parts = [
        "<h2>Training across hosts</h2>",
        tag("p", escape(headline.text()), class_="verdict"),
        tag("p", about),
        tag("p", escape(f"--compute {plan['compute']}, {plan['rounds']} rounds of {plan['steps']} "
                        f"steps. {busy_text(plan)}."), class_="dim") if headline.rows else "",
        tag("figure", picture) if picture else "",
        headline_table(headline) if headline.rows else "",
        bullets(headline.remarks()),
        "<h3>All of it again</h3>",
        command(plan["command"]),
        facts((escape(name), escape(text)) for name, text in plan["about"].items()),
        tag("details", "<summary>Each case alone, without its roof</summary>"
            + facts((escape(name), command(text)) for name, text in plan["commands"].items())),
    ]  # fmt: skip
    return tag("section", "".join(parts), class_="comparison", id="headline")


# ---- pipelines ----

PIPELINE_HEAD = ("case", "way", "step", "theory", "bubble", "schedule's", "× schedule's",
                 "faster than over Gloo", "rounds")  # fmt: skip


def pipeline_row(summary, case):
    gain = summary["gain"]
    cells = [
        tag("td", escape(summary["way"]), class_="left"),
        tag("td", f"{summary['step_ms']:,.1f}",
            title=f"rounds {summary['step_ms_low']:,.1f} to {summary['step_ms_high']:,.1f}"),
        tag("td", f"{summary['theory_ms']:,.1f}"),
        tag("td", f"{100 * summary['bubble']:.2f} %"),
        tag("td", f"{100 * summary['theory_bubble']:.2f} %"),
        tag("td", f"{summary['over_theory']:.3f}"),
        tag("td", f"{100 * gain:+.0f} %" if gain is not None else "–"),
        tag("td", summary["rounds"]),
    ]  # fmt: skip
    return tag("tr", tag("th", escape(case.text())) + "".join(cells))


def pipeline_table(pipelines):
    rows = [
        pipeline_row(summary, case)
        for case in pipelines.cases() for way in pipelines.plan["about"]
        if (summary := pipelines.summary(case, way))
    ]  # fmt: skip
    caption = (
        "Milliseconds of a step. Theory: the same schedule in virtual time, on links of that rate "
        "(one host: no time). Bubble: the share of a step in which a stage does not compute."
    )
    return table([tag("th", text) for text in PIPELINE_HEAD], rows, caption)


def pipeline_section(pipelines):
    about = (
        "Steps of a pipeline whose stages wait a fixed time, as for an accelerator, and hand on "
        "activations and gradients as they are; what arrives is checked in a last step. All ways "
        "run in the same processes by turns, in blocks of steps. Bars: more steps than over Gloo "
        "are made in the same time; below them the number of microbatches."
    )
    plan, picture = pipelines.plan, pipelines.picture()
    times = f"Forward {plan['forward_ms']:g} ms, backward {plan['backward_ms']:g} ms, "
    times += f"{plan['rounds']:g} rounds of {plan['steps']:g} steps. "
    parts = [
        "<h2>Pipelines</h2>",
        tag("p", escape(pipelines.text()), class_="verdict"),
        tag("p", about),
        tag("p", escape(f"{times}{busy_text(plan)}."), class_="dim") if pipelines.rows else "",
        tag("figure", picture) if picture else "",
        pipeline_table(pipelines) if pipelines.rows else "",
        bullets(pipelines.remarks()),
        "<h3>All of it again</h3>",
        command(plan["command"]),
        facts((escape(name), escape(text)) for name, text in plan["about"].items()),
        tag("details", "<summary>Each place alone</summary>"
            + facts((escape(name), command(text)) for name, text in plan["commands"].items())),
    ]  # fmt: skip
    return tag("section", "".join(parts), class_="comparison", id="pipelines")


# ---- what stands behind the numbers ----


def reading():
    return tag("section", """<h2>How to read it</h2>
<p>For each size, every rank writes its input anew, all meet in a barrier, then the clock runs
around the operation; the slowest rank counts, and the whole output is checked. A time is the median
of such calls, then of the rounds, in which the libraries take turns within the same minute.</p>
<dl class="facts">
<dt>spread</dt><dd>slowest minus fastest round, divided by the median: differences below it mean
little</dd>
<dt>bus GB/s</dt><dd>bytes that cross a rank's link in a bandwidth-optimal algorithm, per second, as
in nccl-tests</dd>
<dt>× roof</dt><dd>Shoal's time divided by that of raw memory copies, flags or sockets which move
the bytes that any algorithm must move, between the same processes in the same run</dd>
<dt>shoal-shared</dt><dd>Shoal with buffers from shoal_alloc, which local ranks share; in the
summary it counts neither as Shoal nor as another library</dd>
<dt>shoal-f32</dt><dd>Shoal on as many bytes of f32: half as many elements as of a 16-bit type,
which in the same time has twice the elements per second</dd>
</dl><p>The protocol in full is in <code>docs/bench.md</code>.</p>""", id="reading")  # fmt: skip


def settings_text(settings):
    words = [
        f"{name}={value}" for name, value in settings.items() if name not in ("about", "options")
    ]
    words += [settings["options"]] if settings.get("options") else []
    return tag("code", escape(" ".join(words))) if words else "none"


def libraries_section(report):
    head = [tag("th", text, class_="left") for text in ("library", "version", "what", "settings")]
    rows = [
        tag("tr", tag("th", escape(name)) + tag("td", escape(version or "no result"), class_="left")
            + tag("td", escape(settings["about"]), class_="left wrap")
            + tag("td", settings_text(settings), class_="left wrap"))
        for name, (version, settings) in report.libraries().items()
    ]  # fmt: skip
    environment = [f"{name}={value}" for name, value in report.environment().items()]
    inherited = command(" ".join(environment)) if environment else tag("p", "None was set.")
    return tag("section", "<h2>Libraries and settings</h2>" + table(head, rows)
               + "<h3>Variables of the caller that they read</h3>" + inherited,
               id="libraries")  # fmt: skip


WHEN_HEAD = ("", "source", "started", "finished", "load before", "load after", "taken by others")


def when_row(name, plan):
    """When one measurement ran, and how busy the machine was."""
    stolen = f"{plan['stolen']:.1%}" if "stolen" in plan else "–"
    end = plan["finished"][11:19] if "finished" in plan else "–"
    texts = [plan["revision"] or "unknown", plan.get("started", "–"), end]
    texts += [load_text(plan.get("load_before")), load_text(plan.get("load_after")), stolen]
    cells = "".join(tag("td", escape(text), class_="left") for text in texts)
    return tag("tr", tag("th", escape(name)) + cells)


def machine_section(report):
    machines = [facts((name, escape(text)) for name, text in machine.items())
                for machine in report.machines()]  # fmt: skip
    head = [tag("th", text, class_="left") for text in WHEN_HEAD]
    rows = [when_row(name, plan) for name, plan in report.named_plans()]
    caption = (
        "Load averages of 1, 5 and 15 minutes; those after a measurement count its own processes. "
        "Taken by others: processor time that the hypervisor gave to other guests."
    )
    parts = ["<h2>Machine</h2>", *machines, table(head, rows, caption)]
    return tag("section", "".join(parts), id="machine")


def missing_section(report):
    remarks = report.remarks()
    text = bullets(remarks) if remarks else tag("p", "Everything that was to be measured was.")
    return tag(
        "section", f"<h2>What failed, ran out of time or is missing</h2>{text}", id="missing"
    )


def header(report):
    pairs = [("measured", report.when())] if report.when() else []
    machines = report.machines()
    if machines:
        first = machines[0]
        system = ", ".join(first[name] for name in ("system", "kernel") if name in first)
        pairs += [("on", f"{first['processor']}, {first['processors']}"), ("under", system)]
    pairs += [("source", ", ".join(report.revisions()))] if report.revisions() else []
    pairs += [("again", "make bench at the root of the checkout; the command of each row is below")]
    links = [("summary", "In short"), ("reading", "How to read it")]
    links += [(each.name(), each.title()) for each in report.comparisons]
    links += [("headline", "Training across hosts")] if report.headline else []
    links += [("pipelines", "Pipelines")] if report.pipelines else []
    links += [("ddp", "Training with DDP")] if report.training else []
    links += [("start", "Start of ranks")] if report.starts else []
    links += [("kernels", "Arithmetic of one core")] if report.kernels else []
    links += [("libraries", "Libraries"), ("machine", "Machine"), ("missing", "What is missing")]
    nav = "".join(tag("a", escape(text), href=f"#{target}") + " " for target, text in links)
    return tag("header", "<h1>Shoal beside other libraries</h1>"
               + facts((name, escape(text)) for name, text in pairs) + tag("nav", nav))  # fmt: skip


def page(report):
    sections = [header(report), notices(report), summary(report), reading()]
    sections += [comparison_section(comparison) for comparison in report.comparisons]
    sections += [headline_section(report.headline)] if report.headline else []
    sections += [pipeline_section(report.pipelines)] if report.pipelines else []
    sections += [training_section(report.training)] if report.training else []
    sections += [start_section(report.starts)] if report.starts else []
    sections += [kernel_section(report.kernels)] if report.kernels else []
    sections += [libraries_section(report), machine_section(report), missing_section(report)]
    style = plot.style() + CSS.read_text()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>Shoal beside other libraries</title>\n<style>{style}</style>\n</head>\n<body>\n"
        + "\n".join(section for section in sections if section)
        + "\n</body>\n</html>\n"
    )
