# SPDX-License-Identifier: Apache-2.0
"""`shoal run --servers`: servers are placed, help with sums, and end with the ranks."""

import os
import re
import signal
from pathlib import Path

import pytest
from launching import needs_shoal
from ranks import ENVIRONMENT

pytestmark = needs_shoal

SUM = """
import array, pathlib
import shoal

group = shoal.init()
values = array.array("f", [group.rank + 1]) * 300_007
out = array.array("f", bytes(4 * len(values)))
try:
    group.allreduce(values, out=out)
    print(group.rank, group.size, out[0], out[-1], flush=True)
    while len(sys.argv) > 1:
        pathlib.Path(f"summed-{group.rank}").touch()
        group.allreduce(values, out=out)
except shoal.Error as error:
    print(error, flush=True)
    time.sleep(600)
group.free()
"""


@pytest.fixture
def hosts(launch, tmp_path):
    """A template of an agent for which every name is a host of its own."""
    script = tmp_path / "agent.sh"
    script.write_text(
        '#!/bin/sh\nexport SHOAL_HOST_ID="$1" SHOAL_HOSTNAME="$1"\nshift\nexec "$@"\n'
    )
    for name in ("SHOAL_BUILD", "PYTHONPATH", "OMP_NUM_THREADS"):
        launch.environment[name] = ENVIRONMENT[name]
    return ["--hosts", "left,right", "--agent", f"sh {script} {{host}}"]


@pytest.mark.parametrize(
    "servers", [["--server-hosts", "far:2,right"], ["--servers", "2"], ["--server-hosts", "far"]]
)
def test_sums_are_right_and_nothing_is_left(launch, hosts, servers):
    code, out, err = launch.run(*hosts, *servers, *launch.python(SUM))
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == ["[0] 0 2 3.0 3.0", "[1] 1 2 3.0 3.0"]


def test_ranks_that_never_ask_end_all_the_same(launch, hosts):
    code, out, err = launch.run(*hosts, "--server-hosts", "far:3", "--", "echo", "ranks only")
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == ["[0] ranks only", "[1] ranks only"]


def test_a_server_that_is_killed_is_named(launch, hosts):
    program = [*launch.python(SUM), "on"]
    process = launch.start(*hosts, "--grace", "1", "--server-hosts", "near,far", *program)
    launch.wait_for(2, r"^shoal reduce-server")
    while len(list(launch.folder.glob("summed-*"))) < 2:
        assert process.poll() is None
    victim = next(
        pid
        for pid in launch.wait_for(2, r"^shoal reduce-server")
        if b"SHOAL_SERVER=1\0" in Path(f"/proc/{pid}/environ").read_bytes()
    )
    os.kill(victim, signal.SIGKILL)
    code, out, err = launch.finish(process)
    assert code == 128 + signal.SIGKILL
    assert re.search(
        rf"server 1 on host far \(pid {victim}\) was killed by SIGKILL$", err.splitlines()[-1]
    )
    lost = r"^\[[01]\] .*server 1 \(host far\) of group 'world' is lost"
    assert len(re.findall(lost, out, re.M)) == 2


def test_wrong_arguments(launch, hosts):
    code, _, err = launch.run(*hosts, "--servers", "3", "--server-hosts", "far", "true")
    assert code == 2
    assert "--server-hosts" in err and "1 slot" in err
    code, _, err = launch.run("--sagemaker", "--servers", "3", "true")
    assert code == 2
    assert "--servers does not go with --sagemaker: every host of such a job runs this" in err
    assert "shoal reduce-server" in err
