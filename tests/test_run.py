# SPDX-License-Identifier: Apache-2.0
"""`shoal run` on one host: environment, output, input, exits and deaths."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from launching import DEADLINE_S, needs_shoal, wait_until

pytestmark = needs_shoal


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
    program = (  # rank 1 fails when rank 0 has ended, which it would end otherwise
        'printf "a\\377\\"b\\n" >&2\n'
        "if [ $RANK = 0 ]; then echo $$ >pid; exit 0; fi\n"
        "until [ -s pid ]; do sleep 0.01; done\n"
        "while kill -0 $(cat pid) 2>&-; do sleep 0.01; done\n"
        "exit 1"
    )
    code, out, err = launch.run("-n", 2, "--json", "sh", "-c", program)
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
        "signal.signal(signal.SIGTERM, end)\nopen(f'ready{rank}', 'w').close()\n"
        "while rank == 0 and not all(os.path.exists(f'ready{i}') for i in range(3)):\n"
        "    time.sleep(0.01)\n"
        "if rank == 0: sys.exit(3)\ntime.sleep(600)"
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


def guard_and_agent(launch, process):
    """Pids: the guard is the launcher's child, the agent the guard's."""
    one, other = launch.wait_for(2, "run-agent")
    parent = int(Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[1])
    return (one, other) if parent == process.pid else (other, one)


@pytest.mark.parametrize("which", [0, 1], ids=["guard", "agent"])
def test_kill_9_of_an_agent(launch, which):
    process = launch.start("-n", 2, "--grace", 0.5, "sh", "-c", "setsid sleep 600 & sleep 600")
    launch.wait_for(4, "^(setsid )?sleep")
    os.kill(guard_and_agent(launch, process)[which], signal.SIGKILL)
    code, _, err = launch.finish(process)
    assert code == 125
    assert "the agent on host" in err.splitlines()[-1]
    assert "ranks 0 to 1" in err.splitlines()[-1]
    assert "SIGKILL" in err.splitlines()[-1] or "137" in err.splitlines()[-1]
    launch.expect_nothing_left()


def test_the_loss_of_a_guard_is_the_cause_however_late_it_is_seen(launch):
    process = launch.start("-n", 2, "--grace", 0.5, "sleep", 600)
    launch.wait_for(2, "^sleep")
    guard, _ = guard_and_agent(launch, process)
    process.send_signal(signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    wait_until(lambda: len(launch.left()) == 1, "end of all but the launcher")
    process.send_signal(signal.SIGCONT)
    code, _, err = launch.finish(process)
    assert code == 125
    assert "the agent on host" in err.splitlines()[-1]


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


def test_a_model_parallel_configuration_reaches_the_ranks(launch):
    text = '{"partitions": 2, "microbatches": 4}'
    (launch.folder / "config.json").write_text(text)
    shown = ["-n", 1, "--no-tag", "--", "printenv", "SM_HP_MP_PARAMETERS"]
    for given in (text, "config.json"):
        status, out, err = launch.run("--model-parallel", given, *shown)
        assert (status, out.strip()) == (0, text), err


def test_the_trainer_of_hugging_face_sees_a_model_parallel_job(launch):
    """It looks whether mpirun has started it; what is set stays."""
    shown = ["--", "printenv", "SM_FRAMEWORK_PARAMS"]
    given = ["--model-parallel", "{}", "-n", 1, "--no-tag"]
    status, out, err = launch.run(*given, *shown)
    assert (status, out.strip()) == (0, '{"sagemaker_mpi_enabled": true}'), err
    status, out, err = launch.run("-x", "SM_FRAMEWORK_PARAMS=own", *given, *shown)
    assert (status, out.strip()) == (0, "own"), err
    launch.environment["SM_FRAMEWORK_PARAMS"] = "mine"
    assert launch.run(*given, *shown)[1].strip() == "mine"


def test_a_model_parallel_configuration_that_is_not_there(launch):
    (launch.folder / "list.json").write_text("[2]")
    for given, wanted in (
        ("nowhere.json", "nowhere.json is neither JSON, which begins with {, nor a file"),
        ("list.json", "list.json does not have JSON, which begins with {"),
    ):
        status, _, err = launch.run("--model-parallel", given, "-n", 1, "--", "true")
        assert status == 2 and wanted in err
