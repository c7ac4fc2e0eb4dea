# SPDX-License-Identifier: Apache-2.0
"""`shoal plan` as its users see it."""

import json
import re
import subprocess
import xml.etree.ElementTree
from pathlib import Path

import pytest
from launching import SHOAL, needs_shoal

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 120
SVG = "{http://www.w3.org/2000/svg}"
MIB = 1 << 20
OPERATIONS = [
    "allreduce", "reduce", "broadcast", "allgather", "gather", "reduce_scatter", "scatter",
    "alltoall", "barrier",
]  # fmt: skip

pytestmark = needs_shoal


def run(*arguments):
    return subprocess.run(
        [SHOAL, "plan", *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


def plan(*arguments):
    result = run(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("hosts", ["1", "4", "8", "a:3,b:1,c:4"])
def test_every_operation_is_verified_and_predicted(operation, hosts):
    shown = plan(operation, "--ranks", 8, "--hosts", hosts, "--bytes", "1M", "--verify")
    assert shown["operation"] == operation
    assert shown["verified"] is True
    assert shown["ranks"] == sum(host["ranks"] for host in shown["hosts"]) == 8
    assert shown["predicted_ns"] >= 0.999 * shown["bound_ns"] > 0


def test_rounds_and_links_of_a_direct_allreduce():
    shown = plan("allreduce", "-n", 4, "-H", 4, "-b", "4M", "--algorithm", "direct")
    assert shown["algorithm"] == "direct"
    assert [row["messages"] for row in shown["rounds"]] == [12, 12]
    assert [row["network_bytes"] for row in shown["rounds"]] == [12 * MIB, 12 * MIB]
    for source, row in enumerate(shown["link_bytes"]):
        assert row == [0 if source == target else 2 * MIB for target in range(4)]


def test_two_levels_carry_the_buffer_once_per_host():
    shown = plan("allreduce", "-n", 8, "-H", 2, "-b", "64M", "--rate", "1gbit")
    assert shown["algorithm"] == "two_level"
    assert shown["link_bytes"][0][1] == shown["link_bytes"][1][0] == 64 * MIB
    assert shown["predicted_ns"] < 1.1 * shown["bound_ns"]


def test_rate_and_latency_change_the_prediction():
    slow = plan("broadcast", "-H", 2, "-b", "10M", "--rate", "100mbit", "--latency", "1us")
    fast = plan("broadcast", "-H", 2, "-b", "10M", "--rate", "1gbit", "--latency", "1us")
    far = plan("broadcast", "-H", 2, "-b", "10M", "--rate", "1gbit", "--latency", "1ms")
    assert slow["predicted_ns"] == pytest.approx(10 * fast["predicted_ns"], rel=0.01)
    # The receiver asks, and then the data come.
    assert far["predicted_ns"] - fast["predicted_ns"] == pytest.approx(2 * 999e3, rel=0.01)


def test_the_steps_of_one_rank():
    shown = plan("allreduce", "-n", 2, "-b", 64, "--rank", 1)
    assert [step["kind"] for step in shown["steps"]] == ["send", "recv", "reduce"]
    assert shown["steps"][2]["final"] is True
    assert [step["before"] for step in shown["steps"]] == [[], [2], []]
    text = run("allreduce", "-n", 2, "-b", 64, "--rank", 1).stdout
    assert "output+0 = scratch+0 input+0, final" in text


def test_a_forced_algorithm_and_segment():
    shown = plan("allreduce", "-H", 3, "-b", "3M", "-a", "ring", "--segment", "64K")
    assert shown["algorithm"] == "ring"
    assert shown["why"] == "forced"
    assert shown["segment_bytes"] == 64 * 1024
    assert len(shown["rounds"]) == 4


def test_sums_that_are_reproducible():
    assert plan("allreduce", "-n", 8, "-H", 4, "--reproducible")["algorithm"] == "direct"
    shown = plan("allreduce", "-n", 8, "-H", 4, "--dtype", "bf16", "--reproducible")
    assert shown["algorithm"] == "direct"


def test_16_bit_floats_send_sums_in_f32_and_results_in_16_bits():
    shape = ["allreduce", "-n", 16, "-H", 4, "-b", "64M", "--dtype", "bf16"]
    shown = plan(*shape, "--verify", "--rank", 0)
    direct = plan(*shape, "--algorithm", "direct")
    assert shown["algorithm"] == "two_level"
    assert shown["verified"] is True
    for source, row in enumerate(shown["link_bytes"]):
        assert all(row[target] == (32 + 16) * MIB for target in range(4) if target != source)
    assert shown["predicted_ns"] < 1.6 * shown["bound_ns"]
    assert shown["predicted_ns"] < 0.4 * direct["predicted_ns"]
    sums = [step for step in shown["steps"] if step["kind"] == "reduce" and not step["final"]]
    assert sums and all(step["at"]["buffer"] == "wide" for step in sums)


@pytest.mark.parametrize("ranks", [1, 2, 16, 20, 40, 100, 300])
def test_the_picture_is_well_formed(ranks, tmp_path):
    picture = tmp_path / "plan.svg"
    hosts = max(1, ranks // 4)
    result = run("allreduce", "-n", ranks, "-H", hosts, "-b", "64K", "--svg", picture)
    assert result.returncode == 0, result.stderr
    root = xml.etree.ElementTree.parse(picture).getroot()
    assert root.tag == SVG + "svg"
    boxes = root.findall(SVG + "rect")
    assert len(boxes) >= min(ranks, 256)
    width = float(root.get("width"))
    for box in boxes[1:]:
        assert 0 <= float(box.get("x")) <= width
        assert float(box.get("x")) + float(box.get("width")) <= width + 1


def test_host_names_are_escaped(tmp_path):
    picture = tmp_path / "plan.svg"
    hosts = "a&b:1,<c>:1"
    result = run("allreduce", "-H", hosts, "-b", "4K", "--svg", picture, "--json")
    assert result.returncode == 0, result.stderr
    assert [host["name"] for host in json.loads(result.stdout)["hosts"]] == ["a&b", "<c>"]
    texts = [text.text for text in xml.etree.ElementTree.parse(picture).iter(SVG + "text")]
    assert "a&b" in texts and "<c>" in texts


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "which operation?"),
        (["alreduce"], "did you mean 'allreduce'?"),
        (["allreduce", "reduce"], "one operation at a time"),
        (["allreduce", "--rnks", "3"], "did you mean --ranks?"),
        (["allreduce", "--ranks"], "--ranks needs a value"),
        (["allreduce", "--ranks", "0"], "a number from 1 to"),
        (["allreduce", "-n", "2", "-H", "3"], "there are only 2 ranks"),
        (["allreduce", "-n", "9", "-H", "a:2,b:2"], "9"),
        (["allreduce", "--hosts", "a:x"], "a:x"),
        (["allreduce", "--bytes", "many"], "--bytes"),
        (["allreduce", "--dtype", "f33"], "did you mean 'f32'?"),
        (["allreduce", "--segment", "1"], "--segment 1: it takes 4K to 1G, or 0"),
        (["allreduce", "-a", "rign"], "did you mean 'ring'?"),
        (["allreduce", "-a", "chain"], "for allreduce: there are direct"),
        (["reduce", "-n", "2", "--root", "2"], "rank 2 does not exist"),
        (["reduce", "-n", "2", "--rank", "5"], "rank 5 does not exist"),
        (["allreduce", "--rate", "fast"], "--rate fast"),
        (["allreduce", "--latency", "-3us"], "--latency -3us"),
    ],
)
def test_wrong_arguments_are_named(arguments, expected):
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("shoal plan: ")
    assert expected in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("page", "picture"),
    [("README.md", "plan.svg"), ("docs/coll.md", "coll-two-level.svg")],
)
def test_the_pictures_of_the_pages_are_those_of_their_commands(page, picture, tmp_path):
    text = (ROOT / page).read_text()
    words = re.search(r"shoal plan ([^`\n]*?) --svg", text).group(1).split()
    assert run(*words, "--svg", tmp_path / picture).returncode == 0
    drawn = (ROOT / "docs/pictures" / picture).read_text()
    assert picture in text
    assert (tmp_path / picture).read_text() == drawn, f"draw docs/pictures/{picture} anew"


def test_a_picture_that_cannot_be_written():
    result = run("allreduce", "-n", 2, "--svg", "/nonexistent/plan.svg")
    assert result.returncode == 1
    assert "cannot write /nonexistent/plan.svg: No such file" in result.stderr


def test_help():
    result = run("--help")
    assert result.returncode == 0
    assert "--verify" in result.stdout and "OPERATION" in result.stdout
