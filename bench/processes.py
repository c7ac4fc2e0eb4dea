# SPDX-License-Identifier: Apache-2.0
"""Runs one library's measurement within a deadline and leaves no process of it behind."""

import ctypes
import json
import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 5.0


def adopt_orphans():
    """Processes whose parent died become our children, so that all can be found and ended."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def children():
    path = f"/proc/self/task/{os.getpid()}/children"
    with open(path) as file:
        return [int(word) for word in file.read().split()]


def end_strays():
    """Kills and reaps what is left of a measurement, generation by generation."""
    deadline = time.monotonic() + 2 * GRACE_S
    while (pids := children()) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def end_kindly(processes):
    """SIGTERM, so that launchers end their ranks; SIGKILL for those that stay."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + GRACE_S
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
    for process in processes:
        process.kill()
        process.wait()


def read_rows(file):
    file.seek(0)
    rows = []
    for line in file.read().decode(errors="replace").splitlines():
        if line.startswith("{"):
            with suppress(json.JSONDecodeError):
                rows.append(json.loads(line))
    return rows


def read_tail(file, lines=4):
    """The last lines that are no rows."""
    file.seek(0)
    text = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    text = [line for line in text if line.strip("-") and not line.startswith("{")]
    return " | ".join(dict.fromkeys(text[-lines:]))


def wait_all(processes, deadline):
    """'' when all ended well, else 'timeout' or 'failed: ' and how the first ended that did not."""
    while time.monotonic() < deadline:
        codes = [process.poll() for process in processes]
        failures = [code for code in codes if code]
        if failures:
            return f"failed: exit status {failures[0]}"
        if all(code == 0 for code in codes):
            return ""
        time.sleep(0.01)
    return "timeout"


def run(starts, timeout_s):
    """Rows printed, and '' or what went wrong. Rows before a failure are kept.

    Each run has a folder of its own for temporary files: Open MPI's sessions are named by host and
    process id, which are the same on the virtual hosts of two comparisons at once.
    """
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as errors,
    ):
        processes = []
        try:
            for start in starts:
                processes.append(
                    subprocess.Popen(
                        start.argv,
                        env=os.environ | {"TMPDIR": folder} | start.environment,
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=errors,
                        start_new_session=True,
                    )
                )
            problem = wait_all(processes, time.monotonic() + timeout_s)
        finally:
            end_kindly(processes)
            end_strays()
        # Open MPI's mpirun says on its output what went wrong.
        said = read_tail(errors) or read_tail(out)
        if problem.startswith("failed") and said:
            problem += f": {said}"
        return read_rows(out), problem
