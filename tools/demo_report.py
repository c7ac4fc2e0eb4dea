# SPDX-License-Identifier: Apache-2.0
"""Sums up the demo: prints accuracy and speed of both backends, and draws digits.png.

Reads the JSON files that examples/digits_ddp.py wrote, some rounds for each backend, and takes
medians over the rounds. Exits with an error if the network learned too little.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402 (after the choice of a backend without a screen)
from matplotlib.patches import Patch  # noqa: E402

ACCURACY_WANTED = 0.97
BACKENDS = {"shoal": "#0b6e99", "gloo": "#d9822b"}
# What a step is made of: label, measurement, shade.
PARTS = {
    "forward": ("forward_ms", 0.35),
    "backward": ("backward_ms", 0.6),
    "waiting for communication": ("exposed_communication_ms", 1.0),
}


def read(folder: Path, backend: str) -> dict:
    """Medians over the rounds of one backend, and the losses of the first round."""
    rounds = [json.loads(path.read_text()) for path in sorted(folder.glob(f"digits-{backend}-*"))]
    if not rounds:
        sys.exit(f"demo: no measurements of {backend} in {folder}")
    names = ("samples_per_s", "communication_ms", *(name for name, _ in PARTS.values()))
    record = {name: statistics.median(one[name] for one in rounds) for name in names}
    record["accuracy"] = min(one["accuracy"] for one in rounds)
    record["same"] = all(one["same_on_all_ranks"] for one in rounds)
    record["losses"] = rounds[0]["losses"]
    record["ranks"] = rounds[0]["ranks"]
    record["rounds"] = len(rounds)
    return record


def draw_losses(axes, records: dict[str, dict]) -> None:
    for backend, record in records.items():
        wide = backend == "shoal"
        axes.plot(
            range(1, len(record["losses"]) + 1),
            record["losses"],
            color=BACKENDS[backend],
            linewidth=3 if wide else 1,
            alpha=0.55 if wide else 1,
            label=f"{backend}: test accuracy {record['accuracy']:.4f}",
        )
    axes.set(
        title="Loss of each step (one curve on the other)",
        xlabel="step",
        ylabel="cross-entropy",
        yscale="log",
    )
    axes.legend(frameon=False)


def draw_times(axes, records: dict[str, dict]) -> None:
    """One row for each backend, cut as DistributedDataParallel's logger measures a step."""
    longest = 0.0
    for row, (backend, record) in enumerate(records.items()):
        left = 0.0
        for name, shade in PARTS.values():
            axes.barh(row, record[name], 0.55, left, color=BACKENDS[backend], alpha=shade)
            middle = (left + record[name] / 2, row)
            color = "white" if shade == 1 else "black"
            axes.annotate(f"{record[name]:.1f}", middle, ha="center", va="center", color=color)
            left += record[name]
        axes.annotate(
            f"  {record['samples_per_s']:.0f}\n  samples/s", (left, row), ha="left", va="center"
        )
        longest = max(longest, left)
    axes.set(title="Where the time of a step goes", xlabel="ms", xlim=(0, 1.25 * longest))
    axes.set_yticks(range(len(records)), list(records))
    axes.invert_yaxis()
    patches = [
        Patch(color="black", alpha=shade, label=label) for label, (_, shade) in PARTS.items()
    ]
    axes.legend(
        handles=patches, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3, frameon=False
    )


def draw(path: Path, records: dict[str, dict]) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    draw_losses(left, records)
    draw_times(right, records)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    ranks = records["shoal"]["ranks"]
    figure.suptitle(f"Handwritten digits under DistributedDataParallel on {ranks} ranks")
    figure.savefig(path, dpi=130)


def main() -> None:
    folder = Path(sys.argv[1])
    records = {backend: read(folder, backend) for backend in BACKENDS}
    print(f"{'':8}{'accuracy':>10}{'samples/s':>11}{'in communication':>20}{'waiting for it':>18}")
    for backend, record in records.items():
        print(
            f"{backend:8}{record['accuracy']:10.4f}{record['samples_per_s']:11.0f}"
            f"{record['communication_ms']:12.2f} ms/step"
            f"{record['exposed_communication_ms']:10.2f} ms/step"
        )
    ratio = records["shoal"]["samples_per_s"] / records["gloo"]["samples_per_s"]
    rounds = records["shoal"]["rounds"]
    print(
        f"shoal trains {ratio:.2f} times as fast as gloo here (medians of {rounds} rounds, in turn)"
    )
    picture = folder / "digits.png"
    draw(picture, records)
    print(f"the picture: {picture}")
    for backend, record in records.items():
        if record["accuracy"] < ACCURACY_WANTED:
            sys.exit(
                f"demo: {backend}: accuracy {record['accuracy']:.4f} is below {ACCURACY_WANTED}"
            )
        if not record["same"]:
            sys.exit(f"demo: {backend}: the ranks ended with different parameters")


if __name__ == "__main__":
    main()
