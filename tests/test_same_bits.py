# SPDX-License-Identifier: Apache-2.0
"""The same gradients summed in every way there is: with SHOAL_REPRODUCIBLE all ranks have the same
bits, in every repetition, with and without servers, streams and shares that follow unequal links,
whichever ranks share a host, and however the gradients are cut in buckets."""

import os
import re
import subprocess
import sys

import pytest
from launching import needs_shoal
from ranks import ENVIRONMENT, SHOAL

pytestmark = needs_shoal

DEADLINE_S = 120
RANKS = 3
PROGRAM = """
import array, hashlib, random, sys
import shoal

group = shoal.init()
random.seed(group.rank)
few = array.array("f", (random.gauss(0, 1) * 10 ** random.randint(-4, 4) for _ in range(1009)))
gradients = (few * 400)[:400_003]

def summed(bucket):
    sums = array.array("f", bytes(4 * len(gradients)))
    requests = []
    for begin in range(0, len(gradients), bucket):
        end = min(begin + bucket, len(gradients))
        requests.append(group.allreduce(
            memoryview(gradients)[begin:end], out=memoryview(sums)[begin:end], blocking=False))
    for request in requests:
        request.wait()
    return hashlib.sha256(sums).hexdigest()

digests = {summed(bucket) for bucket in (7_001, 50_021, 300_007, 400_003, 400_003)}
for _ in range(int(sys.argv[1])):
    digests.add(summed(400_003))
assert len(digests) == 1, "the cut or the repetition matters"
print(digests.pop())
group.free()
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("same_bits")
    (folder / "program.py").write_text(PROGRAM)
    # An agent for which every name is a host of its own.
    (folder / "agent.sh").write_text(
        '#!/bin/sh\nexport SHOAL_HOST_ID="$1" SHOAL_HOSTNAME="$1"\nshift\nexec "$@"\n'
    )
    return folder


def run(command, **environment):
    return subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=ENVIRONMENT | {"SHOAL_REPRODUCIBLE": "1", "SHOAL_TIMEOUT_MS": "60000"} | environment,
    )


def digest_of(result):
    """What all ranks printed."""
    assert result.returncode == 0, result.stderr
    digests = result.stdout.split()
    assert len(digests) == RANKS and len(set(digests)) == 1
    return digests[0]


def summed(files, *arguments, **environment):
    agent = f"sh {files}/agent.sh {{host}}"
    program = ["--", sys.executable, files / "program.py", "1"]
    return digest_of(
        run([SHOAL, "run", "--no-tag", "--agent", agent, *arguments, *program], **environment)
    )


@pytest.fixture(scope="module")
def plain(files):
    return summed(files, "--hosts", "a,b,c")


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--hosts", "a:3"], {}),
        (["--hosts", "a:2,b"], {"SHOAL_STREAMS": "3"}),
        (["--hosts", "a,b,c", "--server-hosts", "d,e"], {}),
        (["--hosts", "a,b:2", "--server-hosts", "d:2"], {"SHOAL_STREAMS": "2"}),
    ],
    ids=["one host", "streams", "servers", "servers and streams"],
)
def test_every_way_has_the_same_bits(files, plain, arguments, environment):
    assert summed(files, *arguments, **environment) == plain


@pytest.mark.parametrize(
    "hosts",
    [["--hosts", "vh0,vh1,vh2"], ["--hosts", "vh1,vh2,vh3", "--server-hosts", "vh0"]],
    ids=["a rank's", "a server's"],
)
def test_unequal_links_have_the_same_bits(files, plain, hosts):
    """The link of vh0 is the slow one."""
    if os.geteuid() != 0:
        pytest.skip("virtual hosts need root")
    on_hosts = [SHOAL, "vhosts", "-n", "4", "--rate", "250mbit,1gbit", "--"]
    tried = run([*on_hosts, "true"])
    if tried.returncode != 0:
        pytest.skip(f"virtual hosts cannot be made here: {tried.stderr.strip()}")
    job = [SHOAL, "run", "--no-tag", "--log", "info", *hosts]
    agent = ["--agent", f"{SHOAL} vhosts-exec {{host}} --"]
    result = run([*on_hosts, *job, *agent, "--", sys.executable, files / "program.py", "30"])
    assert digest_of(result) == plain
    assert re.search("rank 0 info: group 'world': links differ", result.stderr)
