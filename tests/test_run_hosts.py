# SPDX-License-Identifier: Apache-2.0
"""`shoal run` on several hosts, by agents and on SageMaker."""

import json
import os
import re
import signal
import subprocess
import time
import uuid

import pytest
from launching import DEADLINE_S, SHOAL, needs_shoal
from ports import free_port
from ranks import ENVIRONMENT

pytestmark = needs_shoal


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


def test_what_a_host_prints_in_place_of_an_agent(launch, tmp_path):
    script = tmp_path / "refuse.sh"
    script.write_text('#!/bin/sh\necho Sorry; echo "This account is closed\r"; echo; exit 1\n')
    code, out, err = launch.run("--hosts", "far", "--agent", f"sh {script} {{host}}", "true")
    assert (code, out) == (125, "")
    assert err.endswith("exited with code 1; it printed: This account is closed\n")


@pytest.mark.parametrize("hosts", ["left", "left,right"])
def test_an_agent_without_stdin(launch, tmp_path, hosts):
    script = tmp_path / "deaf.sh"
    script.write_text('#!/bin/sh\nshift\nexec "$@" </dev/null\n')
    code, out, err = launch.run(
        "--hosts", hosts, "--agent", f"sh {script} {{host}}", "echo", "started"
    )
    assert (code, out) == (125, "")
    assert re.search(
        r"host (left|right): stdin ended before the ranks were started; the agent's command",
        err.splitlines()[-1],
    )


def test_an_agent_that_is_told_to_end_before_the_start(launch, tmp_path):
    script = tmp_path / "hang.sh"
    script.write_text('#!/bin/sh\nif [ "$1" = right ]; then exec sleep 600; fi\nshift\nexec "$@"\n')
    process = launch.start(
        "--hosts", "left,right", "--agent", f"sh {script} {{host}}", "echo", "started"
    )
    os.kill(max(launch.wait_for(2, r"^\S+ run-agent")), signal.SIGTERM)
    code, out, err = launch.finish(process)
    assert (code, out) == (125, "")
    assert "host left: its agent ended before the ranks were started" in err.splitlines()[-1]


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


ALLREDUCE = SHOAL.parent / "examples" / "allreduce"
needs_example = pytest.mark.skipif(not ALLREDUCE.exists(), reason=f"{ALLREDUCE} is not built")


@needs_example
def test_ranks_on_two_hosts_make_a_group(launch, agent):
    code, out, err = launch.run("--hosts", "left:2,right:2", "--agent", agent, ALLREDUCE)
    assert (code, err) == (0, "")
    assert len({line.split(" ", 1)[1] for line in out.splitlines()}) == 1
    assert out.count("\n") == 4


# ---- SageMaker -------------------------------------------------------------------------------


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


@needs_example
def test_sagemaker_ranks_make_a_group(launch):
    job = SageMaker(launch)
    processes = [job.start(index, "-n", 2, ALLREDUCE) for index in range(2)]
    results = [launch.finish(process) for process in processes]
    assert [(code, err) for code, _, err in results] == [(0, ""), (0, "")]
    lines = [line for _, out, _ in results for line in out.splitlines()]
    assert len(lines) == 4
    assert len({line.split(" ", 1)[1] for line in lines}) == 1


def test_sagemaker_ranks_find_a_server_that_was_started_by_hand(launch):
    job = SageMaker(launch)
    launch.environment |= {name: ENVIRONMENT[name] for name in ("SHOAL_BUILD", "PYTHONPATH")}
    launch.environment["SHOAL_SECRET"] = "between us"
    program = launch.python(
        "import array, shoal\n"
        "group = shoal.init()\n"
        "values = array.array('f', [group.rank + 1]) * 100_003\n"
        "out = array.array('f', bytes(4 * len(values)))\n"
        "group.allreduce(values, out=out)\n"
        "print(out[0], out[-1])"
    )
    ranks = [
        job.start(
            index, "--env", "SHOAL_SERVERS=1", "--env", f"SHOAL_HOST_ID=host{index}", *program
        )
        for index in range(2)
    ]
    server = subprocess.run(
        [SHOAL, "reduce-server"],
        env=launch.environment
        | {"SHOAL_STORE": f"127.0.0.1:{job.ports[1]}", "SHOAL_SIZE": "2"}
        | {"SHOAL_SERVERS": "1", "SHOAL_SERVER": "0", "SHOAL_HOST_ID": "far"},
        timeout=60,
        check=False,
    )
    results = [launch.finish(process) for process in ranks]
    assert [(code, err) for code, _, err in results] == [(0, ""), (0, "")]
    assert [out.split()[1:] for _, out, _ in results] == [["3.0", "3.0"]] * 2
    assert server.returncode == 0


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
