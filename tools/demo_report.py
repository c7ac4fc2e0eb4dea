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

ACCURACY_WANTED = 0.97
BACKENDS = {"shoal": "#0b6e99", "gloo": "#d9822b"}
NUMBERS = [
    "accuracy",
    "samples_per_s",
    "forward_ms",
    "backward_ms",
    "communication_ms",
    "exposed_communication_ms",
]


def read(folder: Path, backend: str) -> dict:
    """Medians over the rounds of one backend, and the losses of the first round."""
    rounds = [json.loads(path.read_text()) for path in sorted(folder.glob(f"digits-{backend}-*"))]
    if not rounds:
        sys.exit(f"demo: no measurements of {backend} in {folder}")
    record = {name: statistics.median(one[name] for one in rounds) for name in NUMBERS}
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
    axes.set(title="Loss of each step", xlabel="step", ylabel="cross-entropy", yscale="log")
    axes.legend(frameon=False)


def draw_times(axes, records: dict[str, dict]) -> None:
    for place, (backend, record) in enumerate(records.items()):
        bottom = 0.0
        for name, label, shade in (
            ("forward_ms", "forward", 0.35),
            ("backward_ms", "backward", 0.6),
            ("exposed_communication_ms", "waiting for communication", 1.0),
        ):
            hatch = "//" if name.startswith("exposed") else None
            axes.bar(
                place, record[name], 0.5, bottom,
                color=BACKENDS[backend], alpha=shade, hatch=hatch, edgecolor="white",
            )  # fmt: skip
            middle = bottom + record[name] / 2
            axes.annotate(
                f"{label} {record[name]:.2f} ms", (place + 0.27, middle), va="center", fontsize=8
            )
            bottom += record[name]
        axes.annotate(
            f"{record['samples_per_s']:.0f} samples/s", (place, bottom), ha="center", va="bottom"
        )
    axes.set(title="Where the time of a step goes", ylabel="ms", xlim=(-0.5, 2.0))
    axes.set_xticks(range(len(records)), list(records))
    axes.margins(y=0.12)


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
    print(f"{'':16}{'accuracy':>10}{'samples/s':>11}{'communication':>20}{'of it exposed':>16}")
    for backend, record in records.items():
        print(
            f"{backend:16}{record['accuracy']:10.4f}{record['samples_per_s']:11.0f}"
            f"{record['communication_ms']:12.2f} ms/step{record['exposed_communication_ms']:8.2f} "
            "ms/step"
        )
    ratio = records["shoal"]["samples_per_s"] / records["gloo"]["samples_per_s"]
    less = records["gloo"]["communication_ms"] / max(1e-9, records["shoal"]["communication_ms"])
    rounds = records["shoal"]["rounds"]
    print(
        f"shoal / gloo: {ratio:.2f} times the samples/s, {less:.1f} times less time in "
        f"communication (medians of {rounds} rounds, in turn, on this machine)"
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
