# SPDX-License-Identifier: Apache-2.0
"""bench/service.py against a real service: what it writes in the database is read by it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from services import needs_service

SOURCE = Path(os.environ.get("SHOAL_SOURCE", Path(__file__).resolve().parent.parent))
DEADLINE_S = 120


@needs_service
def test_copies_of_a_finished_job_are_listed_and_found():
    result = subprocess.run(
        [sys.executable, str(SOURCE / "bench/service.py"), "many", "--finished", "30"],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    line = re.search(r"^many: 30 jobs: (\d+) MiB; (.*)$", result.stdout, re.MULTILINE)
    assert line, result.stdout
    assert int(line[1]) < 100
    assert line[2].count(" ms") == 5
