# SPDX-License-Identifier: Apache-2.0
"""Runs `shoal run` for tests, and sees that it leaves nothing behind."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

SHOAL = Path(os.environ.get("SHOAL_BUILD", "build/release")).resolve() / "shoal"
DEADLINE_S = 60
needs_shoal = pytest.mark.skipif(not SHOAL.exists(), reason=f"{SHOAL} is not built")


def marked_processes(mark):
    """Processes whose environment holds the mark, without zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if mark.encode() in (entry / "environ").read_bytes():
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                found.append((int(entry.name), command))
    return found


def wait_until(condition, what):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"no {what} within {DEADLINE_S} s"
        time.sleep(0.02)


class Launch:
    """Runs `shoal run` in an environment with a mark of its own, and looks for what is left."""

    def __init__(self, folder):
        self.folder = folder
        self.mark = f"SHOAL_TEST_MARK={uuid.uuid4()}"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("SHOAL_")}
        self.environment.pop("OMP_NUM_THREADS", None)
        name, value = self.mark.split("=")
        self.environment[name] = value
        self.started = []
        self.before = []  # words in front of the command, which run it somewhere else

    def start(self, *arguments, **options):
        options = {
            "stdin": subprocess.DEVNULL,
            "cwd": self.folder,
            "env": self.environment,
        } | options
        process = subprocess.Popen(
            [*self.before, SHOAL, "run", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )
        self.started.append(process)
        return process

    def finish(self, process, data=None):
        out, err = process.communicate(data, timeout=DEADLINE_S)
        return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")

    def run(self, *arguments, data=None, **options):
        if data is not None:
            options["stdin"] = subprocess.PIPE
        return self.finish(self.start(*arguments, **options), data)

    def python(self, code):
        """A program of the ranks: its path."""
        path = self.folder / f"program{len(list(self.folder.glob('program*')))}.py"
        path.write_text(f"import os, signal, sys, time\nrank = int(os.environ['RANK'])\n{code}\n")
        return [sys.executable, path]

    def left(self):
        return marked_processes(self.mark)

    def expect_nothing_left(self):
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.left(), "end of all processes")
        assert self.left() == []

    def wait_for(self, count, pattern):
        """Pids of the processes whose command matches, when there are `count`."""

        def find():
            return [pid for pid, command in self.left() if re.search(pattern, command)]

        wait_until(lambda: len(find()) == count, f"{count} processes that match {pattern}")
        return find()


class Terminal:
    """`shoal run` in a session of its own on a terminal of its own."""

    def __init__(self, launch, *arguments):
        self.text = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(launch.folder)
            command = [*launch.before, SHOAL, "run", *map(str, arguments)]
            os.execvpe(command[0], command, launch.environment)

    def read_until(self, pattern):
        end = time.monotonic() + DEADLINE_S
        while not re.search(pattern, self.text):
            assert time.monotonic() < end, f"no {pattern} in {self.text}"
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.fd, 4096)
                except OSError:
                    break
        assert re.search(pattern, self.text), self.text

    def finish(self):
        with contextlib.suppress(OSError):
            while part := os.read(self.fd, 4096):
                self.text += part
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def launch(tmp_path):
    it = Launch(tmp_path)
    yield it
    try:
        it.expect_nothing_left()
    finally:
        for pid, _ in it.left():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for process in it.started:
            process.communicate()


@pytest.fixture
def agent(tmp_path):
    """A template of an agent that runs here: every host name is a host."""
    script = tmp_path / "agent.sh"
    script.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    return f"sh {script} {{host}}"
