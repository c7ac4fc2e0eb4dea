# SPDX-License-Identifier: Apache-2.0
"""Large allreduces between hosts whose links come to differ: on virtual hosts, one of which becomes
slow while the ranks are at work."""

import os
import re
import subprocess
import sys

import pytest
from ranks import ENVIRONMENT, SHOAL

DEADLINE_S = 120
HOSTS = 4
PROGRAM = """
import array, hashlib, pathlib, random, sys
import shoal

group = shoal.init()
random.seed(group.rank)
values = array.array("f", (random.gauss(0, 1) for _ in range(300_007)))
for place in (7, 150_000, 300_000):
    values[place] = float("nan" if group.rank == 1 else "inf")
    values[place + 1] = float("inf" if group.rank == 2 else "1")
outs = [array.array("f", bytes(4 * len(values))) for _ in range(12)]
first = None
for burst in range(int(sys.argv[2])):
    # More at once than can go by shares that are known already.
    requests = [group.allreduce(values, out=out, blocking=False) for out in outs]
    for request in requests:
        request.wait()
    group.allreduce(values, out=outs[0])
    first = first or bytes(outs[0])
    assert all(bytes(out) == first for out in outs), burst
    if burst == 1 and group.rank == 0:
        pathlib.Path(sys.argv[1]).touch()
assert [outs[0][i] != outs[0][i] for i in (6, 7, 150_000, 150_002, 300_000)] == [0, 1, 1, 0, 1]
assert all(outs[0][i] == float("inf") for i in (8, 150_001, 300_001))
print(hashlib.sha256(first).hexdigest())
group.free()
"""
DYING = """
import array, os, pathlib, signal, sys, time
import shoal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
group = shoal.init()
values = array.array("f", bytes(4 * 300_007))
outs = [array.array("f", bytes(4 * len(values))) for _ in range(20)]
# The last rank takes part in the first ones only, so that the rest cannot end before it does.
outs = outs[:8] if group.rank == 3 else outs
requests = [group.allreduce(values, out=out, blocking=False) for out in outs]
folder = pathlib.Path(sys.argv[1])
(folder / f"made-{group.rank}").touch()
if group.rank == 3:
    while len(list(folder.glob("made-*"))) < group.size:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
for request in requests:
    try:
        request.wait()
    except shoal.Error as error:
        print(error, flush=True)
"""
SCRIPT = """
until [ -e "$1" ]; do sleep 0.05; done
shaper='root tbf rate 250mbit burst 81920 latency 50ms'
tc qdisc change dev vp3 $shaper
"$SHOAL" vhosts-exec vh3 -- tc qdisc change dev eth0 $shaper
"""


def in_hosts(*command, **environment):
    return subprocess.run(
        [SHOAL, "vhosts", "-n", str(HOSTS), "--rate", "1gbit", "--", *map(str, command)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=ENVIRONMENT | {"SHOAL": str(SHOAL)} | environment,
    )


@pytest.fixture(scope="module", autouse=True)
def _hosts_are_possible():
    if os.geteuid() != 0:
        pytest.skip("virtual hosts need root")
    tried = in_hosts("true")
    if tried.returncode != 0:
        pytest.skip(f"virtual hosts cannot be made here: {tried.stderr.strip()}")


def train(folder, bursts, hosts="vh0,vh1,vh2,vh3", servers="", rank_count=HOSTS, **environment):
    """What the ranks print and log while vh3's link falls to a quarter."""
    (folder / "program.py").write_text(PROGRAM)
    (folder / "script.sh").write_text(SCRIPT)
    started = folder / "started"
    command = (
        f"sh {folder}/script.sh {started} & exec {SHOAL} run --no-tag --log info"
        f" --hosts {hosts} {servers} --agent '{SHOAL} vhosts-exec {{host}} --'"
        f" -- {sys.executable} {folder}/program.py {started} {bursts}"
    )
    result = in_hosts("sh", "-c", command, **environment)
    assert result.returncode == 0, result.stderr
    sums = result.stdout.split()
    assert len(sums) == rank_count and len(set(sums)) == 1
    return result.stderr


def last_shares(log):
    """Of the hosts, in percent."""
    changes = re.findall(r"rank 0 info: group 'world': links differ.*hosts sum (.*) MB/s", log)
    assert changes, log
    shares = [int(share) for share in re.findall(r"(\d+) %", changes[-1])]
    assert len(shares) == HOSTS
    return shares


def test_shares_follow_a_link_that_slows_down(tmp_path):
    shares = last_shares(train(tmp_path, 10))
    assert shares[3] <= 12 and min(shares[:3]) >= 15


def test_shares_follow_a_host_with_several_ranks(tmp_path):
    shares = last_shares(train(tmp_path, 8, "vh0:2,vh1,vh2,vh3:2", rank_count=6))
    assert shares[3] <= 12 and min(shares[:3]) >= 15


def test_shares_follow_the_link_of_a_server(tmp_path):
    """On equal links it sums 40 %, and with a quarter of the rate best 11 %."""
    log = train(tmp_path, 8, "vh0,vh1,vh2", "--server-hosts vh3", rank_count=3)
    shares = last_shares(log)
    assert shares[3] <= 25 and min(shares[:3]) >= 20


def test_shares_stay_equal_if_asked(tmp_path):
    assert "links differ" not in train(tmp_path, 4, SHOAL_SHARES="equal")


def test_requests_that_are_held_end_with_a_rank(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(DYING)
    result = in_hosts(
        SHOAL, "run", "--no-tag", "--hosts", "vh0,vh1,vh2,vh3",
        "--agent", f"{SHOAL} vhosts-exec {{host}} --", "--", sys.executable, program, tmp_path,
    )  # fmt: skip
    assert result.returncode == 137, result.stderr
    ends = [line for line in result.stdout.splitlines() if "rank 3" in line]
    assert len(ends) >= 3 * 12  # of 20 requests each, the 12 that the last rank never made
