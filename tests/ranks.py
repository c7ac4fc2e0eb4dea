# SPDX-License-Identifier: Apache-2.0
"""Runs functions on several real processes at once, for the Python tests.

A Ranks object keeps its processes for many calls, because importing a framework takes seconds.
call(f) runs f(rank, size) on every rank and returns the results in rank order, or fails with the
tracebacks. Every call has a deadline, and no process outlives its object.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import traceback
from pathlib import Path

import pytest

if os.environ.get("SHOAL_SANITIZE"):
    pytest.skip("a sanitizer's library can't be loaded into Python", allow_module_level=True)

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("SHOAL_BUILD", ROOT / "build" / "release"))
SHOAL = BUILD / "shoal"
CALL_SECONDS_MAX = 120

sys.path.insert(0, str(ROOT / "bindings" / "python"))

# What programs started by the tests need to find the package and the library.
ENVIRONMENT = {
    **os.environ,
    "SHOAL_BUILD": str(BUILD),
    "PYTHONPATH": f"{ROOT / 'bindings' / 'python'}:{ROOT / 'tests'}",
    "OMP_NUM_THREADS": "1",
}


def wait_until(condition, what: str, seconds: float = 60) -> None:
    """Until condition() is true; AssertionError if it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.01)


def wait_asleep(process) -> None:
    """Until the process's main thread sleeps and has done so for a while: it waits in a call."""
    looks = 0

    def asleep() -> bool:
        nonlocal looks
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        looks = looks + 1 if state == "S" else 0
        return looks == 10

    wait_until(asleep, "a rank that sleeps")


class Failure(Exception):
    """A function failed on some ranks; `by_rank` holds what it raised there."""

    def __init__(self, by_rank: dict[int, str]):
        self.by_rank = by_rank
        super().__init__("\n".join(f"rank {rank}: {text}" for rank, text in by_rank.items()))


def _serve(rank: int, size: int, pipe) -> None:
    """In a rank's process: runs what comes down the pipe until it is closed."""
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, function(rank, size, *arguments)))
        except BaseException:
            pipe.send((False, traceback.format_exc()))


class Ranks:
    """`size` processes; function `start`, if given, runs first on each of them."""

    def __init__(self, size: int, start=None, *arguments):
        os.environ["SHOAL_BUILD"] = str(BUILD)
        os.environ["OMP_NUM_THREADS"] = "1"
        context = multiprocessing.get_context("spawn")
        self.size = size
        self.pipes = []
        self.processes = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, size, theirs), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        if start:
            self.call(start, *arguments)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def call(self, function, *arguments, ranks=None):
        """Runs function(rank, size, *arguments) everywhere, or on some ranks only."""
        ranks = range(self.size) if ranks is None else ranks
        for rank in ranks:
            self.pipes[rank].send((function, arguments))
        return self.results(ranks)

    def results(self, ranks) -> list:
        """What the ranks return, in their order; Failure if one raised, ended or hangs."""
        deadline = time.monotonic() + CALL_SECONDS_MAX
        values, failures = {}, {}
        for rank in ranks:
            try:
                if not self.pipes[rank].poll(max(0, deadline - time.monotonic())):
                    failures[rank] = f"no answer within {CALL_SECONDS_MAX} s"
                    continue
                succeeded, value = self.pipes[rank].recv()
                (values if succeeded else failures)[rank] = value
            except (EOFError, ConnectionResetError):
                failures[rank] = "the process ended"
        if failures:
            raise Failure(failures)
        return [values[rank] for rank in ranks]

    def close(self) -> None:
        """Ends the processes: kindly, then not."""
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
