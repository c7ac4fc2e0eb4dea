# SPDX-License-Identifier: Apache-2.0
"""`shoal sim training` as its users see it."""

import json
import subprocess
import xml.etree.ElementTree

import pytest
from launching import SHOAL, needs_shoal

DEADLINE_S = 120
REFERENCES = ["gpt-10b", "gpt-30b", "gpt-60b"]
TRAINING = """
hosts 2
accelerators 4 rate 100GB/s
local 0ns
link rate 400gbit latency 0ns
send 0ns 0ns
receive 0ns 0ns
copy 1000TB/s
reduce 1000TB/s
peak 1tflops
layout 2 2 2
microbatches 4
model {tree}
"""
TREE = """model m
h 0 0 1000000 0 0
h.0 4000000 1000000 1000000 1000000 2000000
h.1 4000000 1000000 1000000 1000000 2000000
h.2 4000000 1000000 1000000 1000000 2000000
h.3 4000000 1000000 1000000 1000000 2000000
"""

pytestmark = needs_shoal


def run(*arguments):
    return subprocess.run(
        [SHOAL, "sim", "training", *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


def training(*arguments):
    result = run(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def write(tmp_path):
    """Writes a training's file, with one text in place of another."""
    tree = tmp_path / "tree.txt"
    tree.write_text(TREE)

    def make(old="", new=""):
        path = tmp_path / "training.txt"
        path.write_text(TRAINING.format(tree=tree).replace(old, new))
        return path

    return make


def test_gpt_3_on_the_published_hardware():
    made = training("gpt-175b")
    assert made["hosts"] * made["accelerators_per_host"] == 960
    assert made["published_samples_per_s"] == 32
    assert 16 < made["samples_per_s"] < 64
    assert made["memory"]["bytes"] < made["memory"]["limit"] == 40 * 2**30
    assert sum(made["parts_ns"].values()) == pytest.approx(made["step_ns"], rel=1e-6)
    # what is done again aside: 6 operations for each parameter and token, and the attention's
    done = made["tflops_without_work_done_again"] * 960 / made["samples_per_s"]
    assert done == pytest.approx(6 * 175e9 * 2048 / 1e12, rel=0.05)


@pytest.mark.parametrize("name", REFERENCES)
def test_reference_configurations_fit(name):
    made = training(name)
    assert made["memory"]["bytes"] < made["memory"]["limit"]
    assert 0.2 * 312 < made["tflops"] < made["achieved"] * 312


@pytest.mark.parametrize(("hosts", "copies", "published"), [(48, 4, 153), (96, 8, 149)])
def test_gpt_3_on_selene_as_published(hosts, copies, published):
    layout = f"{copies},12,8"
    made = training("gpt-175b-selene", "-H", hosts, "-l", layout, "-m", 1536 // copies)
    assert made["tflops"] == pytest.approx(published, rel=0.05)


def test_without_communication_a_step_is_the_schedule_s(write):
    path = write("layout 2 2 2", "layout 2 2 2\nsums 0 0")
    path.write_text(path.read_text().replace("400gbit", "1000000tbit"))
    made = training(path)
    # 2 layers on a stage, half of each on a rank: 3 ms; 4 microbatches and 1 of the bubble
    assert made["step_ns"] == pytest.approx(15e6, rel=0.02)
    assert made["parts_ns"]["work"] == 12e6
    assert made["parts_ns"]["bubble"] == pytest.approx(3e6, rel=0.01)
    assert made["samples_per_s"] == pytest.approx(8 / 15e-3, rel=0.02)
    # 2 layers of 4 MB in 2 slices, 4 times; half of 2 MB of 2 microbatches
    assert made["memory"]["state"] == 16_000_000
    assert made["memory"]["activations"] == 2_000_000


def test_sums_within_layers_take_their_bytes_time(write):
    without = training(write("layout 2 2 2", "layout 2 2 2\nsums 0 0"))
    made = training(write())
    # 1 MB among 2 at 100 GB/s: 10 us; 2 layers, 4 sums each, 4 microbatches
    assert made["parts_ns"]["sums_within_layers"] == pytest.approx(8 * 4 * 10e3, rel=0.05)
    assert made["step_ns"] > without["step_ns"]


def test_gradients_that_no_work_hides(write):
    fast = training(write())
    slow = training(write("400gbit", "1gbit"))
    # 4 MB of each of 4 ranks of a host: 32 Mbyte over 125 MB/s in each direction
    assert slow["parts_ns"]["gradients"] > 100 * fast["parts_ns"]["gradients"]
    shared = training(write("microbatches 4", "microbatches 4\nstate 2 6"))
    assert shared["memory"]["state"] == fast["memory"]["state"] / 2
    assert shared["memory"]["shared_state"] == 6 * 4_000_000 / 2
    assert shared["parts_ns"]["parameters"] > 0 == fast["parts_ns"]["parameters"]


@pytest.mark.parametrize("kind", ["simple", "interleaved", "interleaved-1f1b", "zero-bubble-v"])
def test_every_schedule(write, kind):
    made = training(write(), "--pipeline", kind)
    assert made["pipeline"] == kind
    assert sum(made["parts_ns"].values()) == pytest.approx(made["step_ns"], rel=1e-6)


def test_text_and_picture(tmp_path, write):
    picture = tmp_path / "a.svg"
    result = run(write(), "--timeline", picture)
    assert result.returncode == 0, result.stderr
    assert "m on 2 hosts of 4 accelerators: 2 copies x 2 stages x 2 slices" in result.stdout
    assert "sums within layers" in result.stdout
    assert xml.etree.ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_help():
    assert "shoal sim training gpt-175b" in run("--help").stdout


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("peak 1tflops", "peak 1", ":10: peak 1: it takes a number above 0 with tflops"),
        ("layout 2 2 2", "layout 2 2", ":11: expected: layout COPIES STAGES SLICES"),
        ("layout 2 2 2", "layou 2 2 2", ":11: there is no 'layou'; did you mean 'layout'?"),
        ("hosts 2", "peak 2tflops", ":10: 'peak' stands already in line 2"),
        ("link rate", "link speed", ":5: expected: link rate RATE latency TIME"),
        ("microbatches 4", "activations some", ":12: expected: activations sliced, or"),
        ("peak 1tflops", "", ": there is no 'peak' in it; expected: peak NUMBERtflops"),
        ("layout 2 2 2", "layout 2 2 4", "16 accelerators, but 2 hosts of 4 are 8"),
        ("layout 2 2 2", "layout 1 1 8", "the 8 slices of a layer lie on different hosts"),
        ("layout 2 2 2", "layout 1 8 1", "m has too few modules for 8 chunks"),
        ("hosts 2", "hosts 2\nlink 1 rate 1gbit", "a training is simulated on equal links"),
        ("microbatches 4", "chunks 2", "only interleaved-1f1b has several"),
    ],
)
def test_wrong_files(write, old, new, expected):
    result = run(write(old, new))
    assert result.returncode in (1, 2) and result.stdout == ""
    assert result.stderr.startswith("shoal sim training: ") and expected in result.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "which training? For example: shoal sim training gpt-175b"),
        (["gpt-3"], "there is no model 'gpt-3': there are gpt-10b, gpt-175b-selene, gpt-175b"),
        (["gpt-175b", "--layout", "20,6"], "--layout 20,6: it takes copies, stages and slices"),
        (["gpt-175b", "--achieved", "2"], "--achieved 2: it takes a number above 0, up to 1"),
        (["gpt-175b", "-H", "60"], "960 accelerators, but 60 hosts of 8 are 480"),
    ],
)
def test_wrong_arguments(arguments, expected):
    result = run(*arguments)
    assert result.returncode == 2 and expected in result.stderr
