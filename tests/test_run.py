# SPDX-License-Identifier: Apache-2.0
"""`shoal run` as its users see it: real ranks, signals, deaths, hosts. Nothing may stay behind."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

SHOAL = Path(os.environ.get("SHOAL_BUILD", "build/release")).resolve() / "shoal"
DEADLINE_S = 60
pytestmark = pytest.mark.skipif(not SHOAL.exists(), reason=f"{SHOAL} is not built")


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

    def start(self, *arguments, **options):
        options = {
            "stdin": subprocess.DEVNULL,
            "cwd": self.folder,
            "env": self.environment,
        } | options
        process = subprocess.Popen(
            [SHOAL, "run", *map(str, arguments)],
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


# ---- what ranks get --------------------------------------------------------------------------


def test_ranks_get_their_environment(launch):
    code, out, err = launch.run(
        "-n",
        3,
        "--json",
        "--env",
        "EXTRA=a b",
        "--timeout-ms",
        1234,
        *launch.python("import json; print(json.dumps(dict(os.environ)))"),
    )
    assert (code, err) == (0, "")
    events = [json.loads(line) for line in out.splitlines()]
    seen = {e["rank"]: json.loads(e["text"]) for e in events if e["type"] == "output"}
    assert sorted(seen) == [0, 1, 2]
    for rank, variables in seen.items():
        assert variables["RANK"] == variables["SHOAL_RANK"] == str(rank)
        assert variables["LOCAL_RANK"] == variables["SHOAL_LOCAL_RANK"] == str(rank)
        for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "SHOAL_SIZE", "SHOAL_LOCAL_SIZE"):
            assert variables[name] == "3"
        assert variables["MASTER_ADDR"] == "127.0.0.1"
        assert 0 < int(variables["MASTER_PORT"]) < 65536
        assert re.fullmatch(r"127\.0\.0\.1:\d+", variables["SHOAL_STORE"])
        assert re.fullmatch(r"[0-9a-f]{64}", variables["SHOAL_SECRET"])
        assert variables["SHOAL_LAUNCHED_BY"] == "shoal"
        assert variables["EXTRA"] == "a b"
        assert variables["SHOAL_TIMEOUT_MS"] == "1234"
        assert int(variables["OMP_NUM_THREADS"]) >= 1
    assert len({variables["SHOAL_SECRET"] for variables in seen.values()}) == 1


def test_a_secret_is_never_used_twice_nor_shown(launch):
    program = ["sh", "-c", "echo $SHOAL_SECRET; cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]
    secrets = set()
    for _ in range(2):
        code, out, _ = launch.run("-n", 1, "--no-tag", *program)
        assert code == 0
        secret, _, commands = out.partition("\n")
        assert secret not in commands
        secrets.add(secret)
    assert len(secrets) == 2


def test_omp_num_threads_that_is_set_stays(launch):
    launch.environment["OMP_NUM_THREADS"] = "17"
    assert launch.run("-n", 2, "--no-tag", "sh", "-c", "echo $OMP_NUM_THREADS")[1] == "17\n17\n"


def test_working_directory(launch):
    (launch.folder / "there").mkdir()
    assert launch.run("-n", 1, "--no-tag", "--wdir", launch.folder / "there", "pwd")[
        1
    ].strip() == str(launch.folder / "there")
    code, _, err = launch.run("-n", 1, "--wdir", "/no/such", "pwd")
    assert code == 125
    assert "working directory /no/such" in err


# ---- output and input ------------------------------------------------------------------------


def test_lines_carry_their_rank_on_both_streams(launch):
    code, out, err = launch.run(
        "-n", 2, *launch.python("print('out', rank); print('err', rank, file=sys.stderr)")
    )
    assert code == 0
    assert sorted(out.splitlines()) == ["[0] out 0", "[1] out 1"]
    assert sorted(err.splitlines()) == ["[0] err 0", "[1] err 1"]


def test_a_last_line_without_newline_is_shown(launch):
    assert launch.run("-n", 1, "printf", "no end")[1] == "[0] no end\n"


def test_a_megabyte_of_each_rank_arrives_whole(launch):
    program = launch.python(
        "for i in range(16384): sys.stdout.write(f'{rank:02d} {i:06d} ' + 'x' * 53 + '\\n')"
    )
    code, out, _ = launch.run("-n", 4, *program)
    assert code == 0
    lines = {rank: [] for rank in range(4)}
    for line in out.splitlines():
        match = re.fullmatch(r"\[(\d)\] (\d\d) (\d{6}) x{53}", line)
        assert match, f"broken line {line!r}"
        assert int(match[1]) == int(match[2])
        lines[int(match[1])].append(int(match[3]))
    assert lines == {rank: list(range(16384)) for rank in range(4)}


def test_bytes_of_any_kind_pass_unchanged(launch):
    data = bytes(range(256)) * 4096
    (launch.folder / "data").write_bytes(data)
    process = launch.start("-n", 1, "--no-tag", "cat", "data")
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert out == data


def test_a_very_long_line_is_bounded_but_whole(launch):
    code, out, _ = launch.run("-n", 1, *launch.python("sys.stdout.write('y' * 3000000)"))
    assert code == 0
    assert out == "[0] " + "y" * 3000000 + "\n"


def test_a_slow_reader_loses_nothing(launch):
    process = launch.start(
        "-n",
        2,
        *launch.python(
            "print('z' * 999 + '\\n', end='', flush=True)\nfor i in range(4000): print('z' * 999)"
        ),
    )
    time.sleep(0.5)
    code, out, _ = launch.finish(process)
    assert code == 0
    assert out.count("\n") == 8002


def test_when_nobody_reads_the_output_the_job_ends(launch):
    process = launch.start("-n", 2, *launch.python("while True: print('again')"))
    process.stdout.read(100)
    process.stdout.close()
    assert process.wait(DEADLINE_S) == 128 + signal.SIGPIPE
    assert b"nobody reads" in process.stderr.read()


def test_stdin_goes_to_rank_0_alone(launch):
    program = launch.python("print(len(sys.stdin.buffer.read()))")
    code, out, _ = launch.run("-n", 3, *program, data=b"q" * 1000000)
    assert code == 0
    assert sorted(out.splitlines()) == ["[0] 1000000", "[1] 0", "[2] 0"]


def test_stdin_that_rank_0_does_not_read_holds_nothing_up(launch):
    assert launch.run("-n", 2, "true", data=b"q" * 1000000)[0] == 0


def test_stdin_from_a_file(launch):
    (launch.folder / "input").write_text("one\ntwo\n")
    with open(launch.folder / "input") as file:
        assert launch.run("-n", 2, "cat", stdin=file)[1] == "[0] one\n[0] two\n"


def test_json_events(launch):
    code, out, err = launch.run(
        "-n", 2, "--json", "sh", "-c", 'printf "a\\377\\"b\\n" >&2; exit $RANK'
    )
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    kinds = [event["type"] for event in events]
    assert kinds.count("start") == kinds.count("exit") == kinds.count("output") == 2
    assert {(e["rank"], e["code"]) for e in events if e["type"] == "exit"} == {(0, 0), (1, 1)}
    assert {(e["stream"], e["text"]) for e in events if e["type"] == "output"} == {
        ("stderr", 'a\ufffd"b')
    }
    assert events[-1]["type"] == "end"
    assert events[-1]["code"] == 1
    assert "rank 1" in events[-1]["text"]
    assert "rank 1" in err


# ---- exits and deaths ------------------------------------------------------------------------


def test_64_ranks_of_true(launch):
    assert launch.run("-n", 64, "/bin/true") == (0, "", "")


def test_an_early_good_exit_is_no_failure(launch):
    code, out, _ = launch.run("-n", 2, *launch.python("time.sleep(0.5 * rank); print('end')"))
    assert (code, out.count("end")) == (0, 2)


def test_exit_code_and_last_line_name_the_rank_that_failed(launch):
    code, _, err = launch.run(
        "-n",
        3,
        *launch.python("if rank == 1: os._exit(7)\ntime.sleep(600)"),
    )
    assert code == 7
    assert re.search(
        r"shoal: rank 1 on host \S+ \(pid \d+\) exited with code 7$", err.splitlines()[-1]
    )


def test_the_last_line_quotes_what_the_rank_said(launch):
    code, _, err = launch.run(
        "-n", 2, *launch.python("if rank: raise ValueError('bad data')\ntime.sleep(600)")
    )
    assert code == 1
    assert err.splitlines()[-1].endswith(
        "exited with code 1; its last line on stderr: ValueError: bad data"
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_death_by_signal(launch, number):
    code, _, err = launch.run(
        "-n",
        3,
        *launch.python(f"if rank == 2: os.kill(os.getpid(), {int(number)})\ntime.sleep(600)"),
    )
    assert code == 128 + number
    assert re.search(
        rf"rank 2 on host \S+ \(pid \d+\) was killed by {number.name}", err.splitlines()[-1]
    )


def test_a_killed_rank_is_the_cause_though_its_peers_fail_too(launch):
    program = launch.python(
        "import glob\n"
        "open(f'pid{rank}', 'w').write(str(os.getpid()))\n"
        "if rank == 3: time.sleep(600)\n"
        "while not os.path.exists('pid3') or not open('pid3').read(): time.sleep(0.01)\n"
        "peer = f'/proc/{open(\"pid3\").read()}/fd'\n"
        "while True:\n"
        "    try: os.listdir(peer)\n"
        "    except OSError: os._exit(5)\n"
        "    if not os.listdir(peer): os._exit(5)\n"
        "    time.sleep(0.001)"
    )
    process = launch.start("-n", 4, *program)
    wait_until(lambda: len(list(launch.folder.glob("pid?"))) == 4, "ranks")
    wait_until(lambda: (launch.folder / "pid3").read_text(), "pid of rank 3")
    time.sleep(0.2)
    os.kill(int((launch.folder / "pid3").read_text()), signal.SIGKILL)
    code, _, err = launch.finish(process)
    assert code == 137
    assert "rank 3" in err.splitlines()[-1]


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace(launch):
    program = launch.python(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\n"
        "if rank == 0:\n    time.sleep(0.5); sys.exit(3)\ntime.sleep(600)"
    )
    begin = time.monotonic()
    code, _, _ = launch.run("-n", 2, "--grace", 0.3, *program)
    assert code == 3
    assert time.monotonic() - begin < 30


def test_ranks_may_clean_up_within_the_grace(launch):
    program = launch.python(
        "def end(*_):\n    print('cleaned', flush=True); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\nprint('ready', flush=True)\n"
        "if rank == 0:\n    time.sleep(1); sys.exit(3)\ntime.sleep(600)"
    )
    code, out, _ = launch.run("-n", 3, *program)
    assert code == 3
    assert out.count("cleaned") == 2


def test_whole_trees_end_daemons_too(launch):
    program = launch.python(
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    time.sleep(600)\n"
        "time.sleep(0.5)\n"
        "os._exit(4 if rank == 0 else 0)"
    )
    assert launch.run("-n", 2, "--grace", 0.2, *program)[0] == 4


def test_what_good_ranks_leave_behind_ends_too(launch):
    assert launch.run("-n", 2, "sh", "-c", "sleep 600 & exit 0")[0] == 0


def test_a_stopped_rank_is_no_failure(launch):
    process = launch.start(
        "-n",
        2,
        *launch.python(
            "open(f'pid{rank}', 'w').write(str(os.getpid()))\n"
            "while not os.path.exists('go'): time.sleep(0.02)"
        ),
    )
    wait_until(
        lambda: all(
            (launch.folder / f"pid{r}").exists() and (launch.folder / f"pid{r}").read_text()
            for r in range(2)
        ),
        "ranks",
    )
    pid = int((launch.folder / "pid1").read_text())
    os.kill(pid, signal.SIGSTOP)
    time.sleep(1)
    assert process.poll() is None
    os.kill(pid, signal.SIGCONT)
    (launch.folder / "go").touch()
    assert launch.finish(process)[0] == 0


def test_job_timeout(launch):
    code, _, err = launch.run("-n", 2, "--timeout", 0.5, "sleep", 600)
    assert code == 124
    assert err.splitlines()[-1] == "shoal: the job did not end within 0.5 s (--timeout)"


def test_kill_9_of_the_launcher(launch):
    process = launch.start("-n", 3, "--grace", 0.5, "sleep", 600)
    launch.wait_for(3, "^sleep")
    process.kill()
    process.wait()
    launch.expect_nothing_left()


def test_kill_9_of_the_launcher_ends_trees(launch):
    process = launch.start(
        "-n",
        2,
        "--grace",
        0.5,
        "sh",
        "-c",
        "setsid sh -c 'trap \"\" TERM; sleep 600; sleep 600' & wait",
    )
    launch.wait_for(2, "^sleep")
    process.kill()
    process.wait()
    launch.expect_nothing_left()


@pytest.mark.parametrize("which", [0, 1], ids=["guard", "agent"])
def test_kill_9_of_an_agent(launch, which):
    process = launch.start("-n", 2, "--grace", 0.5, "sh", "-c", "setsid sleep 600 & sleep 600")
    launch.wait_for(4, "^(setsid )?sleep")
    agents = sorted(launch.wait_for(2, "run-agent"))
    os.kill(agents[which], signal.SIGKILL)
    code, _, err = launch.finish(process)
    assert code == 125
    assert "the agent on host" in err.splitlines()[-1]
    assert "ranks 0 to 1" in err.splitlines()[-1]
    assert "SIGKILL" in err.splitlines()[-1] or "137" in err.splitlines()[-1]
    launch.expect_nothing_left()


def test_an_allocation_that_fails_anywhere_is_named(launch):
    launch.environment = {"PATH": os.environ["PATH"], "SHOAL_TEST_MARK": launch.mark.split("=")[1]}
    good = 0
    for nth in range(1, 100, 1 if not os.environ.get("SHOAL_SANITIZE") else 7):
        launch.environment["SHOAL_FAIL_ALLOC"] = str(nth)
        code, _, err = launch.run("-n", 2, "true")
        assert (code == 0 and err == "") or (code == 125 and "no memory for" in err), (
            nth,
            code,
            err,
        )
        good += code == 0
    assert 0 < good < 99


# ---- signals ---------------------------------------------------------------------------------

COUNT_SIGNALS = """
def say(number, frame):
    print(signal.Signals(number).name, flush=True)
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


class Terminal:
    """`shoal run` in a session of its own on a terminal of its own."""

    def __init__(self, launch, *arguments):
        self.text = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(launch.folder)
            os.execve(SHOAL, [SHOAL, "run", *map(str, arguments)], launch.environment)

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


# ---- wrong calls -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-n", "2", "--hots", "a", "true"], "there is no option --hots; did you mean --hosts?"),
        (["-n", "2", "--timeout-sm", "1", "true"], "did you mean --timeout-ms?"),
        (["-n", "2", "--timeout-ms", "0", "true"], 'SHOAL_TIMEOUT_MS="0" is not allowed'),
        (["-n", "0", "true"], "-n 0: it takes a number from 1"),
        (["-n", "two", "true"], "-n two: it takes a number"),
        (["true"], "how many ranks?"),
        (["-n", "2"], "which program?"),
        (["-n"], "-n needs a value"),
        (["-n", "2", "--env", "NOVALUE", "true"], "'NOVALUE' is not NAME=VALUE"),
        (["-n", "2", "--secret", "x", "true"], "there is no option --secret"),
        (["--hosts", "a:1,b", "-n", "3", "true"], "3 ranks, but the 2 hosts have 2 slots"),
        (["--hosts", "a:0", "true"], "0 slots"),
        (["--hosts", "a,a", "true"], "host 'a' stands there twice"),
        (["--hosts", "fe80::1", "true"], "write an IPv6 address in brackets"),
        (["--hosts", "-oProxyCommand=x", "true"], "is not a host name"),
        (["--hosts", "127.0.1.1,192.0.2.1", "true"], "resolves to a loopback address"),
        (["--hosts", "a", "--agent", "ssh a", "true"], "lacks {host}"),
        (["--hosts", "a", "--agent", "ssh '{host}", "true"], "' is not closed"),
        (["--hosts", "a", "--hostfile", "b", "true"], "the hosts are given twice"),
        (["--hostfile", "/no/such", "true"], "/no/such"),
    ],
)
def test_wrong_calls_are_named(launch, arguments, words):
    code, out, err = launch.run(*arguments)
    assert code in (2, 125)
    assert out == ""
    assert words in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\n# b\nb slots=x\n", "hosts:3: 'x' is not a number of slots"),
        ("a\n\na\n", "hosts:3: host 'a' stands already in line 1"),
        ("a slot=2\n", "hosts:1: 'slot=2' is not understood"),
        ("a slots=0\n", "hosts:1: 0 slots"),
        ("[::1:2\n", "hosts:1: '[::1:2' has no closing bracket"),
        ("# nobody\n", "names no host"),
    ],
)
def test_a_broken_hosts_file_is_named_with_its_line(launch, text, words):
    (launch.folder / "hosts").write_text(text)
    code, _, err = launch.run("--hostfile", "hosts", "true")
    assert code in (2, 125)
    assert words in err


def test_programs_that_cannot_run(launch):
    (launch.folder / "data").write_text("no program")
    (launch.folder / "script").write_text("echo no shebang\n")
    (launch.folder / "script").chmod(0o755)
    host = socket.gethostname()
    code, _, err = launch.run("-n", 2, "no-such-program")
    assert (code, f"host {host}: there is no program no-such-program in PATH" in err) == (127, True)
    code, _, err = launch.run("-n", 2, "./missing")
    assert (code, "missing cannot be executed: No such file or directory" in err) == (127, True)
    code, _, err = launch.run("-n", 2, "./data")
    assert (code, "data cannot be executed: Permission denied" in err) == (126, True)
    code, _, err = launch.run("-n", 2, "/tmp")
    assert (code, "/tmp cannot be executed: Is a directory" in err) == (126, True)
    code, _, err = launch.run("-n", 2, "./script")
    assert (code, "is it a script without a #! line?" in err) == (126, True)


def test_a_port_in_use_is_named(launch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = launch.run("-n", 1, "--store-port", port, "true")
        assert code == 125
        assert str(port) in err
        assert "in use" in err
        code, _, err = launch.run("-n", 1, "--master-port", port, "true")
        assert code == 125
        assert f"port {port}" in err
        assert "in use" in err


# ---- other hosts -----------------------------------------------------------------------------


def test_ranks_are_placed_host_by_host(launch, agent):
    program = launch.python(
        "e = os.environ; print(e['RANK'], e['LOCAL_RANK'], e['WORLD_SIZE'], e['LOCAL_WORLD_SIZE'])"
    )
    code, out, err = launch.run("--hosts", "left:2,right:3", "-n", 4, "--agent", agent, *program)
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == ["[0] 0 0 4 2", "[1] 1 1 4 2", "[2] 2 0 4 2", "[3] 3 1 4 2"]


def test_this_host_and_another(launch, agent):
    (launch.folder / "hosts").write_text("localhost slots=1 # here\nother:1\n")
    program = launch.python("e = os.environ; print(e['MASTER_ADDR'], e['SHOAL_STORE'])")
    code, out, err = launch.run("--hostfile", "hosts", "--agent", agent, *program)
    assert (code, err) == (0, "")
    addresses = dict(line.split(" ", 1) for line in out.splitlines())
    masters = {text.split()[0] for text in addresses.values()}
    assert len(masters) == 1
    assert addresses["[0]"].split()[1].startswith("127.0.0.1:")


def test_the_environment_travels_but_not_the_login(launch, tmp_path):
    script = tmp_path / "clean.sh"
    script.write_text('#!/bin/sh\nshift\nexec env -i HOME=/there "$@"\n')
    launch.environment |= {"MY_SETTING": "kept", "HOME": "/here"}
    code, out, _ = launch.run(
        "--hosts",
        "far",
        "--agent",
        f"sh {script} {{host}}",
        "--no-tag",
        "--env",
        "MINE=1",
        "/bin/sh",
        "-c",
        "echo $MY_SETTING $HOME $MINE",
    )
    assert (code, out) == (0, "kept /there 1\n")


def test_a_failure_on_another_host_names_it(launch, agent):
    code, _, err = launch.run(
        "--hosts",
        "left,right",
        "--agent",
        agent,
        *launch.python("if rank == 1: os._exit(9)\ntime.sleep(600)"),
    )
    assert code == 9
    assert re.search(r"rank 1 on host right \(pid \d+\) exited with code 9", err.splitlines()[-1])


def test_a_missing_program_on_one_host_starts_nothing(launch, agent):
    code, out, err = launch.run("--hosts", "left,right", "--agent", agent, "no-such-program")
    assert (code, out) == (127, "")
    assert re.search(r"host (left|right): there is no program no-such-program", err)


def test_a_host_that_cannot_be_reached(launch, tmp_path):
    script = tmp_path / "refuse.sh"
    script.write_text(
        '#!/bin/sh\necho "connect to host $1 port 22: No route to host" >&2; exit 255\n'
    )
    code, out, err = launch.run(
        "--hosts", "left,right", "--agent", f"sh {script} {{host}}", "echo", "started"
    )
    assert (code, out) == (125, "")
    assert re.search(
        r"host (left|right) cannot be used: .* exited with code 255: "
        r"connect to host \1 port 22: No route",
        err.splitlines()[-1],
    )


def test_shoal_is_missing_there(launch, agent):
    code, _, err = launch.run(
        "--hosts", "left", "--agent", agent, "--remote-shoal", "/no/such/shoal", "true"
    )
    assert code == 125
    assert (
        "is shoal there as /no/such/shoal? (--remote-shoal names its path)" in err.splitlines()[-1]
    )


def test_an_agent_command_that_is_missing(launch):
    code, _, err = launch.run("--hosts", "left", "--agent", "no-such-agent {host}", "true")
    assert code == 125
    assert "host left: the agent's command: no-such-agent: No such file" in err


def test_an_agent_that_does_not_answer(launch, tmp_path):
    script = tmp_path / "hang.sh"
    script.write_text('#!/bin/sh\nif [ "$1" = right ]; then sleep 600; fi\nshift\nexec "$@"\n')
    code, out, err = launch.run(
        "--hosts",
        "left,right",
        "--agent",
        f"sh {script} {{host}}",
        "--start-timeout",
        1,
        "echo",
        "started",
    )
    assert (code, out) == (125, "")
    assert "no answer from host right within 1.0 s (--start-timeout)" in err.splitlines()[-1]


def test_a_login_shell_that_talks_does_no_harm(launch, tmp_path):
    script = tmp_path / "talk.sh"
    script.write_text(
        '#!/bin/sh\nshift\necho "Welcome to this host"; echo "be nice" >&2\nexec "$@"\n'
    )
    code, out, err = launch.run(
        "--hosts", "far", "--agent", f"sh {script} {{host}}", "echo", "hello"
    )
    assert (code, out, err) == (0, "[0] hello\n", "shoal: host far: be nice\n")


def test_kill_9_of_an_agent_on_another_host(launch, agent):
    process = launch.start("--hosts", "left,right", "--agent", agent, "--grace", 0.5, "sleep", 600)
    launch.wait_for(2, "^sleep")
    os.kill(max(launch.wait_for(4, "run-agent")), signal.SIGKILL)
    code, _, err = launch.finish(process)
    assert code == 125
    assert re.search(r"the agent on host (left|right) \(rank [01]\) is lost", err.splitlines()[-1])
    launch.expect_nothing_left()


def test_a_killed_launcher_ends_ranks_on_other_hosts(launch, agent):
    process = launch.start("--hosts", "left,right", "--agent", agent, "--grace", 0.5, "sleep", 600)
    launch.wait_for(2, "^sleep")
    process.kill()
    process.wait()
    launch.expect_nothing_left()


def test_an_interface_that_is_not_there(launch, agent):
    code, _, err = launch.run(
        "--hosts", "left,right", "--agent", agent, "--interface", "nosuch0", "true"
    )
    assert code in (2, 125)
    assert "no interface or address here fits 'nosuch0'" in err


@pytest.fixture
def namespaces():
    """Two network namespaces on a bridge in a third: names of the third and of the two."""
    if (
        os.geteuid() != 0
        or subprocess.run(["ip", "netns"], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs root and iproute2 for network namespaces")
    tag = uuid.uuid4().hex[:6]
    head, hosts = f"sh{tag}", [f"sa{tag}", f"sb{tag}"]

    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    try:
        for name in [head, *hosts]:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", head, "link", "add", "bridge0", "type", "bridge")
        ip("-n", head, "addr", "add", "10.99.7.1/24", "dev", "bridge0")
        ip("-n", head, "link", "set", "bridge0", "up")
        for i, name in enumerate(hosts):
            ip(
                "-n",
                head,
                "link",
                "add",
                f"v{i}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                name,
            )
            ip("-n", head, "link", "set", f"v{i}", "master", "bridge0", "up")
            ip("-n", name, "addr", "add", f"10.99.7.{i + 2}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
    else:
        yield head, hosts
    finally:
        for name in [head, *hosts]:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


CONNECT = """
import socket
host, port = os.environ['SHOAL_STORE'].rsplit(':', 1)
socket.create_connection((host, int(port)), 10).close()
address = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))
if rank == 0:
    server = socket.create_server(('', address[1]))
    server.accept()
else:
    for _ in range(100):
        try: socket.create_connection(address, 1).close(); break
        except OSError: time.sleep(0.1)
    else: raise SystemExit('no connection')
print(host, address[0])
"""


def test_hosts_behind_ip_netns_exec(launch, namespaces):
    head, hosts = namespaces
    process = subprocess.run(
        [
            "ip",
            "netns",
            "exec",
            head,
            SHOAL,
            "run",
            "--hosts",
            ",".join(hosts),
            "--agent",
            "ip netns exec {host}",
            *map(str, launch.python(CONNECT)),
        ],
        env=launch.environment,
        cwd=launch.folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert sorted(process.stdout.splitlines()) == [
        "[0] 10.99.7.1 10.99.7.2",
        "[1] 10.99.7.1 10.99.7.2",
    ]


def test_a_host_without_a_way_to_the_launcher(launch, namespaces):
    head, hosts = namespaces
    subprocess.run(["ip", "-n", hosts[1], "link", "set", "eth0", "down"], check=True)
    process = subprocess.run(
        [
            "ip",
            "netns",
            "exec",
            head,
            SHOAL,
            "run",
            "--hosts",
            ",".join(hosts),
            "--agent",
            "ip netns exec {host}",
            "echo",
            "started",
        ],
        env=launch.environment,
        cwd=launch.folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (process.returncode, process.stdout) == (125, "")
    assert (
        f"host {hosts[1]}: it does not reach this host: tried 10.99.7.1"
        in process.stderr.splitlines()[-1]
    )


# ---- SageMaker -------------------------------------------------------------------------------


def free_port():
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


class SageMaker:
    """Two launchers of one job, each with a resourceconfig.json that calls it another host."""

    def __init__(self, launch):
        self.launch = launch
        self.ports = ["--store-port", free_port(), "--master-port", free_port()]
        launch.environment["TRAINING_JOB_NAME"] = launch.mark

    def start(self, index, *arguments):
        hosts = ["127.0.0.1", "127.0.0.2"]
        path = self.launch.folder / f"resourceconfig{index}.json"
        config = {"current_host": hosts[index], "hosts": hosts, "network_interface_name": "lo"}
        path.write_text(json.dumps(config))
        return self.launch.start(
            "--sagemaker", "--resource-config", path, *self.ports, "--grace", 0.5, *arguments
        )


def test_sagemaker_hosts_make_one_job(launch):
    job = SageMaker(launch)
    program = launch.python(
        "e = os.environ\n"
        "host, port = e['SHOAL_STORE'].rsplit(':', 1)\n"
        "import socket\n"
        "socket.create_connection((host, int(port)), 10).close()\n"
        "print(e['RANK'], e['LOCAL_RANK'], e['WORLD_SIZE'], e['LOCAL_WORLD_SIZE'],"
        " e['MASTER_ADDR'], e['SHOAL_INTERFACE'], e['SHOAL_SECRET'])"
    )
    second = job.start(1, "-n", 2, *program)
    time.sleep(0.3)  # the first comes later
    first = job.start(0, "-n", 2, *program)
    results = [launch.finish(process) for process in (first, second)]
    assert [(code, err) for code, _, err in results] == [(0, ""), (0, "")]
    lines = [sorted(line.split() for line in out.splitlines()) for _, out, _ in results]
    assert [line[1:7] for line in lines[0]] == [
        [str(rank), str(rank), "4", "2", "127.0.0.1", "lo"] for rank in range(2)
    ]
    assert [line[1:7] for line in lines[1]] == [
        [str(rank + 2), str(rank), "4", "2", "127.0.0.1", "lo"] for rank in range(2)
    ]
    assert len({line[7] for line in lines[0] + lines[1]}) == 1


@pytest.mark.parametrize("failing", [0, 1])
def test_sagemaker_a_failure_ends_all_hosts(launch, failing):
    job = SageMaker(launch)
    program = launch.python(
        f"if rank == {failing}:\n    time.sleep(0.5); sys.exit(9)\ntime.sleep(600)"
    )
    processes = [job.start(index, *program) for index in range(2)]
    for code, _, err in map(launch.finish, processes):
        assert code == 9
        assert re.search(
            rf"rank {failing} on host 127.0.0.{failing + 1} \(pid \d+\) exited with code 9",
            err.splitlines()[-1],
        )


def test_sagemaker_the_first_host_waits_for_the_others(launch):
    job = SageMaker(launch)
    program = launch.python("time.sleep(1.5 * rank)\nprint('end')")
    first, second = (job.start(index, *program) for index in range(2))
    assert launch.finish(second)[:2] == (0, "[1] end\n")
    assert launch.finish(first)[:2] == (0, "[0] end\n")


def test_sagemaker_a_killed_launcher_ends_the_others(launch):
    job = SageMaker(launch)
    first, second = (job.start(index, "sleep", 600) for index in range(2))
    launch.wait_for(2, "^sleep")
    time.sleep(0.5)
    first.kill()
    first.wait()
    code, _, err = launch.finish(second)
    assert code == 125
    assert "the launcher of the first host does not answer" in err.splitlines()[-1]


def test_sagemaker_sigterm_while_waiting_for_others(launch):
    job = SageMaker(launch)
    program = launch.python("if rank: time.sleep(600)\nprint('end', flush=True)")
    first, second = (job.start(index, *program) for index in range(2))
    assert first.stdout.readline() == b"[0] end\n"
    time.sleep(0.5)
    assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    assert launch.finish(first)[0] == 0
    assert launch.finish(second)[0] == 125


def test_sagemaker_a_first_host_that_never_comes(launch):
    job = SageMaker(launch)
    code, out, err = launch.finish(job.start(1, "--start-timeout", 1, "echo", "started"))
    assert (code, out) == (125, "")
    assert "the launcher of the first host does not answer" in err.splitlines()[-1]
    assert f"127.0.0.1:{job.ports[1]}" in err.splitlines()[-1]


def test_sagemaker_broken_configurations(launch):
    code, _, err = launch.run("--sagemaker", "--resource-config", "/no/such.json", "true")
    assert (code, "/no/such.json" in err) == (125, True)
    (launch.folder / "broken.json").write_text('{"hosts": [}')
    code, _, err = launch.run("--sagemaker", "--resource-config", "broken.json", "true")
    assert (code, "broken.json" in err) == (125, True)
    code, _, err = launch.run("--sagemaker", "--hosts", "a", "true")
    assert (code, "leave --hosts" in err) == (2, True)


# ---- the command itself ----------------------------------------------------------------------


def shoal(*arguments):
    return subprocess.run(
        [SHOAL, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def test_version_and_help():
    assert re.fullmatch(r"shoal \d+\.\d+\.\d+\n", shoal("--version").stdout)
    assert "usage: shoal COMMAND" in shoal("--help").stdout
    for name in ("run", "info"):
        page = shoal("help", name)
        assert page.returncode == 0
        assert page.stdout == shoal(name, "--help").stdout
        assert f"usage: shoal {name}" in page.stdout
    assert "torchrun sets 1" in shoal("help", "run").stdout


def test_unknown_command():
    result = shoal("rnu")
    assert result.returncode == 2
    assert "did you mean 'run'?" in result.stderr


def test_info():
    text = shoal("info").stdout
    for word in (
        "version",
        "compiler",
        "isa",
        "host identity",
        "cores granted",
        "memory",
        "openssl",
    ):
        assert re.search(rf"^{word} +\S", text, re.MULTILINE), word
    facts = json.loads(shoal("info", "--json").stdout)
    assert facts["version"] == shoal("--version").stdout.split()[1]
    environment = os.environ | {"SHOAL_TIMEOUT_MS": "777", "SHOAL_SECRET": "hush"}
    shown = subprocess.run(
        [SHOAL, "info", "--options"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    ).stdout
    assert re.search(r"^SHOAL_TIMEOUT_MS +777 +environment +300000$", shown, re.MULTILINE)
    assert "hush" not in shown
    assert re.search(r"^SHOAL_REPRODUCIBLE +0 +default", shown, re.MULTILINE)


def test_info_names_a_variable_with_a_typo():
    result = subprocess.run(
        [SHOAL, "info", "--options"],
        env=os.environ | {"SHOAL_TIMOUT_MS": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert result.returncode == 1
    assert "SHOAL_TIMEOUT_MS" in result.stderr


def test_the_page_of_options_is_up_to_date():
    page = Path(__file__).resolve().parent.parent / "docs" / "options.md"
    assert page.read_text() == shoal("info", "--options", "--markdown").stdout, (
        "run tools/make-options-doc"
    )
