# SPDX-License-Identifier: Apache-2.0
"""The picture of docs/compression.md shows what its tables say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_picture_is_that_of_the_tables():
    drawn = subprocess.run(
        [sys.executable, ROOT / "bench/compression_plot.py"],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    kept = (ROOT / "docs/pictures/compression.svg").read_text()
    assert drawn == kept, "draw docs/pictures/compression.svg anew: bench/compression_plot.py"
