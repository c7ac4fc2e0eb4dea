# SPDX-License-Identifier: Apache-2.0
"""Links of several streams over one and two interfaces, between virtual hosts: the same bits, and a
clear error everywhere when an interface vanishes or the option is wrong."""

import os
import re
import subprocess
import sys

import pytest
from ranks import ENVIRONMENT, SHOAL

DEADLINE_S = 120
HOSTS = 3
PROGRAM = """
import array, hashlib, random
import shoal

group = shoal.init()
random.seed(group.rank)
digest = hashlib.sha256()
for count in (1, 5_003, 300_007, 1_500_001):
    values = array.array("f", (random.gauss(0, 1) for _ in range(1000))) * (count // 1000 + 1)
    values = values[:count]
    digest.update(bytes(group.allreduce(values)))
    digest.update(bytes(group.allgather(values[: count // group.size])))
print(digest.hexdigest())
group.free()
"""
CUT = """
import array, subprocess, sys
import shoal

group = shoal.init()
values = array.array("f", bytes(4 * 300_007))
try:
    for step in range(100_000):
        group.allreduce(values, out=values)
        if step == 20 and group.rank == 1:
            subprocess.run(sys.argv[1:], check=True)
except shoal.Error as error:
    print(f"rank {group.rank}: {error}", flush=True)
"""


TRAINING = """
import array, hashlib, random, sys
import shoal

group = shoal.init()
random.seed(group.rank)
values = array.array("f", (random.gauss(0, 1) for _ in range(1 << 10))) * (1 << 8)
out = array.array("f", bytes(4 * len(values)))
digests = set()
for step in range(int(sys.argv[1])):
    group.allreduce(values, out=out)
    digests.add(hashlib.sha256(out).hexdigest())
print(*digests)
group.free()
"""
PORT = 7701
LIMIT = 200  # Mbit/s of each connection
# One class for each connection, told by the port of whoever connected.
CLASSES = """
qdisc replace dev eth0 root handle 1: htb default ff
class add dev eth0 parent 1: classid 1:ff htb rate 1gbit burst 80k cburst 80k
""" + "".join(
    f"class add dev eth0 parent 1: classid 1:{i + 1:x} htb rate {LIMIT}mbit burst 80k cburst 80k\n"
    + "".join(
        f"filter add dev eth0 parent 1: protocol ip prio {prio} u32 match ip {other} {PORT} 0xffff "
        f"match ip {port} {2 * i} 0x7e flowid 1:{i + 1:x}\n"
        for prio, other, port in ((1, "sport", "dport"), (2, "dport", "sport"))
    )
    for i in range(64)
)
SHAPED = """
for host in vh0 vh1 vh2; do "$SHOAL" vhosts-exec $host -- tc -batch "$CLASSES" || exit 1; done
exec "$@"
"""


def in_hosts(program, *arguments, options=(), rate="none", before=(), **environment):
    """Runs a program on each host, with options of `shoal run`."""
    hosts = ",".join(f"vh{i}" for i in range(HOSTS))
    agent = f"{SHOAL} vhosts-exec {{host}} --"
    return subprocess.run(
        [
            SHOAL, "vhosts", "-n", str(HOSTS), "--links", "2", "--rate", rate, "--", *before,
            SHOAL, "run", "--no-tag", "--hosts", hosts, "--agent", agent, *options, "--",
            sys.executable, program, *arguments,
        ],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        env=ENVIRONMENT | {"SHOAL_TIMEOUT_MS": "60000"} | environment,
    )  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _hosts_are_possible():
    if os.geteuid() != 0:
        pytest.skip("virtual hosts need root")
    tried = subprocess.run(
        [SHOAL, "vhosts", "-n", "1", "--", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        pytest.skip(f"virtual hosts cannot be made here: {tried.stderr.strip()}")


def test_streams_and_interfaces_keep_the_bits(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    digests = set()
    for environment in (
        {"SHOAL_STREAMS": "1"},
        {"SHOAL_STREAMS": "4"},
        {"SHOAL_INTERFACE": "eth0,eth1"},
        {"SHOAL_INTERFACE": "eth0,eth1", "SHOAL_STREAMS": "4"},
    ):
        result = in_hosts(program, **environment)
        assert result.returncode == 0, result.stderr
        lines = result.stdout.split()
        assert len(lines) == HOSTS
        digests |= set(lines)
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("interface", "command"),
    [
        ("eth1", "ip link set eth1 down"),
        ("eth1", "ip addr flush dev eth1"),
        ("eth0", "ip link set eth0 down"),
    ],
)
def test_an_interface_that_vanishes_is_named_on_every_rank(tmp_path, interface, command):
    program = tmp_path / "program.py"
    program.write_text(CUT)
    result = in_hosts(program, *command.split(), SHOAL_INTERFACE="eth0,eth1")
    assert result.returncode == 0, result.stderr
    lines = sorted(result.stdout.splitlines())
    assert len(lines) == HOSTS
    for rank, line in enumerate(lines):
        assert line.startswith(f"rank {rank}: ")
        assert f"interface {interface} " in line and "of host vh1 is gone or down" in line


def test_the_launcher_need_not_have_the_interfaces(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import shoal; print(shoal.init().rank)")
    result = in_hosts(program, options=["--interface", "eth0,eth1"])
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == HOSTS


ALONE = """
import os, signal, socket, subprocess
import shoal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
if socket.gethostname() == "vh1":
    subprocess.run("ip link add eth7 type veth peer name other; ip link set eth7 up; "
                   "ip addr add 10.99.0.1/24 dev eth7", shell=True, check=True)
try:
    shoal.init()
except shoal.Error as error:
    print(socket.gethostname(), error, flush=True)
"""


def test_an_interface_of_one_host_alone(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(ALONE)
    result = in_hosts(program, SHOAL_INTERFACE="eth7")
    lines = sorted(result.stdout.splitlines())
    assert len(lines) == HOSTS, result.stderr
    for line in lines:
        assert "SHOAL_INTERFACE=eth7: no interface or address here fits" in line
    assert "rank 0 (host vh0) cannot come" in lines[1] or "rank 2 (host vh2)" in lines[1]


def test_wrong_options_are_told(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for environment, expected in (
        ({"SHOAL_INTERFACE": "eth0,eth7"}, ("SHOAL_INTERFACE=eth7", "eth1 10.78.1.")),
        ({"SHOAL_INTERFACE": "eth0,eth1", "SHOAL_STREAMS": "1"}, ("SHOAL_STREAMS=1",)),
        ({"SHOAL_STREAMS": "9"}, ("SHOAL_STREAMS", "1 to 8")),
    ):
        result = in_hosts(program, **environment)
        assert result.returncode != 0
        for text in expected:
            assert text in result.stderr


def train(tmp_path, steps, **options):
    """The numbers of connections that are logged, and the one digest of all sums."""
    program = tmp_path / "program.py"
    program.write_text(TRAINING)
    result = in_hosts(program, str(steps), SHOAL_LOG="info", **options)
    assert result.returncode == 0, result.stderr
    digests = result.stdout.split()
    assert len(digests) == HOSTS and len(set(digests)) == 1
    return re.findall(r"rank 0 info: .*large messages go over (\d)", result.stderr), digests[0]


def test_streams_are_as_many_as_carry_more(tmp_path):
    classes = tmp_path / "classes"
    classes.write_text(CLASSES)
    limited, sums = train(
        tmp_path,
        100,
        before=("sh", "-c", SHAPED, "sh"),
        SHOAL=str(SHOAL),
        CLASSES=str(classes),
        SHOAL_PORT=str(PORT),
    )
    assert limited[:1] == ["2"]
    alone, sums_alone = train(tmp_path, 120, rate="1gbit")
    assert alone == ["1"]
    assert sums == sums_alone
