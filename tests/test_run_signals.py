# SPDX-License-Identifier: Apache-2.0
"""`shoal run`, signals and terminals."""

import os
import re
import signal
import time
from pathlib import Path

import pytest
from launching import Terminal, needs_shoal, wait_until

pytestmark = needs_shoal


# ---- signals ---------------------------------------------------------------------------------

COUNT_SIGNALS = """
def say(number, frame):
    os.write(1, f"{signal.Signals(number).name}\\n".encode())  # print() may be under way
    if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): os._exit(0)
for name in ("USR1", "USR2", "INT", "TERM", "HUP", "CONT"):
    signal.signal(getattr(signal, "SIG" + name), say)
print('ready', flush=True)
while True: time.sleep(1)
"""


def start_ready(launch, *arguments, count=2):
    process = launch.start("-n", count, *arguments)
    for _ in range(count):
        assert b"ready" in process.stdout.readline()
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_that_end_are_passed_on(launch, number):
    process = start_ready(launch, *launch.python(COUNT_SIGNALS))
    process.send_signal(number)
    code, out, _ = launch.finish(process)
    assert code == 0
    assert sorted(out.splitlines()) == [f"[0] {number.name}", f"[1] {number.name}"]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_user_signals_are_passed_on(launch, number):
    process = start_ready(launch, *launch.python(COUNT_SIGNALS))
    process.send_signal(number)
    assert {process.stdout.readline() for _ in range(2)} == {
        f"[{r}] {number.name}\n".encode() for r in range(2)
    }
    process.send_signal(signal.SIGTERM)
    assert launch.finish(process)[0] == 0


def test_sigint_without_a_handler(launch):
    process = start_ready(launch, "sh", "-c", "echo ready; exec sleep 600")
    process.send_signal(signal.SIGINT)
    code, _, err = launch.finish(process)
    assert code == 130
    assert "SIGINT, which was passed on to all ranks" in err.splitlines()[-1]


def test_a_second_sigint_ends_at_once(launch):
    program = launch.python(
        "for s in (signal.SIGINT, signal.SIGTERM): signal.signal(s, signal.SIG_IGN)\n"
        "print('ready', flush=True)\nwhile True: time.sleep(1)"
    )
    process = start_ready(launch, "--grace", 600, *program)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    code, _, err = launch.finish(process)
    assert code == 130
    assert err.splitlines()[-1] == "shoal: ended by a second SIGINT"


def process_state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_stop_and_continue_from_the_terminal(launch):
    process = start_ready(launch, "sh", "-c", "echo ready; exec sleep 600")
    pids = launch.wait_for(2, "^sleep")
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: all(process_state(pid) == "T" for pid in [*pids, process.pid]), "stop")
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: all(process_state(pid) != "T" for pid in [*pids, process.pid]), "continue")
    process.send_signal(signal.SIGTERM)
    assert launch.finish(process)[0] == 143


def test_on_a_terminal_prompts_colours_and_input_work(launch):
    terminal = Terminal(
        launch,
        "-n",
        2,
        *launch.python(
            "if rank == 0:\n    print('hello', input('name? '))\nelse:\n    print('other')"
        ),
    )
    terminal.read_until(rb"\x1b\[\d+m\[0\]\x1b\[0m name\? ")
    os.write(terminal.fd, b"shoal\n")
    terminal.read_until(rb"hello shoal")
    assert terminal.finish() == 0
    assert re.search(rb"\x1b\[\d+m\[1\]\x1b\[0m other\r\n", terminal.text)


def test_on_a_terminal_control_c_ends_the_job(launch):
    terminal = Terminal(launch, "-n", 2, "sh", "-c", "echo ready; exec sleep 600")
    terminal.read_until(rb"(?s)ready.*ready")
    os.write(terminal.fd, b"\x03")
    assert terminal.finish() == 130
    assert b"was killed by SIGINT, which was passed on to all ranks" in terminal.text


def test_on_a_terminal_an_agent_cannot_ask(launch, tmp_path):
    script = tmp_path / "ask.sh"
    script.write_text(
        '#!/bin/sh\nread answer </dev/tty || { echo "nobody to ask" >&2; exit 255; }\n'
    )
    terminal = Terminal(launch, "--hosts", "far", "--agent", f"sh {script} {{host}}", "true")
    assert terminal.finish() == 125
    assert b"host far cannot be used" in terminal.text
    assert b"exited with code 255: nobody to ask" in terminal.text
