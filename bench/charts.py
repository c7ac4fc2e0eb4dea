# SPDX-License-Identifier: Apache-2.0
"""Which curves a comparison and the kernels are shown by, on a page and in files of their own."""

import plot
from comparison import OWN, bytes_text, is_own, time_text

RATIO_HEIGHT, ROOF_HEIGHT, SMALL_HEIGHT = 360, 110, 130
LEAST = 1e-3  # of a ratio that is drawn; programs print some as 0
STREAM_MEMBER = 1  # dashes of stores around the cache
FORM_FAMILIES = {
    "scalar": "other",
    "base": "gloo",
    "avx2": "openmpi",
    "avx512": "intelmpi",
    "neon": "intelmpi",
}


def size_text(size):
    return bytes_text(size).replace("iB", "").replace(" B", "").replace(" ", "")


def family(library):
    name = library.split("-")[0]
    return name if name in plot.FAMILIES else "other"


def members(libraries):
    """The place of each library within its family."""
    found, counts = {}, {}
    for library in libraries:
        found[library] = counts.get(family(library), 0)
        counts[family(library)] = found[library] + 1
    return found


def ratio_point(comparison, library, size):
    """A library's time divided by Shoal's; the range is that of its own rounds."""
    ratio = comparison.ratio(library, size)
    if ratio is None:
        return None
    summary = comparison.table[size][library]
    unit = summary["p50_us"] / ratio
    text = f"{library}, {bytes_text(summary['bytes'])}: {time_text(summary['p50_us'])} µs"
    if library != OWN:
        text += f", {ratio:.2f} times Shoal's time"
    text += f"; rounds {time_text(summary['low_us'])} to {time_text(summary['high_us'])} µs"
    return plot.Point(
        max(size, 1), ratio, summary["low_us"] / unit, summary["high_us"] / unit, text
    )


def roof_point(comparison, library, size):
    summary = comparison.table[size].get(library)
    if not summary or "ratio_roof" not in summary:
        return None
    ratio = summary["ratio_roof"]
    text = f"{library}, {bytes_text(summary['bytes'])}: {ratio:.2f} times the time of "
    text += f"{summary['roof']}, {time_text(summary['roof_us'])} µs"
    height = max(ratio, LEAST)
    return plot.Point(max(size, 1), height, height, height, text)


def curve(comparison, library, make_point):
    points = [make_point(comparison, library, size) for size in comparison.sizes()]
    return plot.Curve(library, family(library), members(comparison.libraries())[library], points)


def comparison_crosses(comparison):
    return [
        plot.Cross(max(size, 1), family(library),
                   f"{library}, {bytes_text(size)}: {comparison.problem(library, size)}")
        for size in comparison.sizes() for library in comparison.libraries()
        if not comparison.table[size][library]
    ]  # fmt: skip


def comparison_svg(comparison, form, standalone=False):
    """Times divided by Shoal's, and Shoal's own divided by the roof's. '' without any result."""
    libraries = comparison.libraries()
    ratios = plot.Panel(
        "time ÷ Shoal's time",
        [curve(comparison, library, ratio_point) for library in libraries],
        comparison_crosses(comparison),
        below="faster than Shoal",
        height=RATIO_HEIGHT,
    )
    roof = plot.Panel(
        "Shoal's time ÷ the roof's time",
        [curve(comparison, library, roof_point) for library in libraries if is_own(library)],
        height=ROOF_HEIGHT,
    )
    sizes = [max(size, 1) for size in comparison.sizes()]
    label = f"{comparison.title()}. {comparison.verdict().text()}"
    if standalone:
        label = comparison.title()
    return plot.svg([ratios, roof], form, sizes, size_text, label, standalone)


def kernel_point(row):
    if row is None:
        return None
    stores = "around the cache" if row["stream"] else "into the cache"
    text = f"{row['form']}, {row['dtype']}, {bytes_text(row['bytes'])}, stores {stores}: "
    text += f"{row['us']:.2f} µs, {row['gbps']:.1f} GB/s, {row['ratio_roof']:.2f} times the roof"
    ratio = max(row["ratio_roof"], LEAST)
    return plot.Point(row["bytes"], ratio, ratio, ratio, text)


def kernel_svg(kernels, dtype):
    curves = []
    for form in kernels.forms():
        for stream in (False, True):
            points = [
                kernel_point(kernels.row(dtype, form, size, stream)) for size in kernels.sizes()
            ]
            member = STREAM_MEMBER if stream else 0
            name = "" if stream else form
            curves.append(plot.Curve(name, FORM_FAMILIES.get(form, "other"), member, points))
    panel = plot.Panel(f"{dtype}: time ÷ the roof's time", curves, height=SMALL_HEIGHT)
    return plot.svg([panel], plot.SMALL, kernels.sizes(), size_text, panel.title)
