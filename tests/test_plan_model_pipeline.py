# SPDX-License-Identifier: Apache-2.0
"""`shoal plan-model --stages` as its users see it: schedules side by side, and their picture."""

import itertools
import json
import subprocess
import xml.etree.ElementTree

import pytest
from launching import SHOAL, needs_shoal

DEADLINE_S = 120
SVG = "{http://www.w3.org/2000/svg}"
MS = 1_000_000
KINDS = [
    "simple", "interleaved", "1f1b", "interleaved-1f1b", "zero-bubble", "zero-bubble-v",
]  # fmt: skip

pytestmark = needs_shoal


def run(*arguments):
    return subprocess.run(
        [SHOAL, "plan-model", *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


def pipelines(*arguments):
    result = run(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_schedules_side_by_side():
    shown = pipelines("--stages", 4, "--microbatches", 8)
    rows = {(row["schedule"], row["active_microbatches"]): row for row in shown["schedules"]}
    assert set(rows) == {(kind, 0) for kind in KINDS} | {("zero-bubble", 7)}
    for kind in ("simple", "interleaved", "1f1b"):
        assert rows[kind, 0]["step_ns"] == (8 + 3) * 30 * MS
        assert rows[kind, 0]["bubble"] == pytest.approx(3 / 11, abs=1e-6)
    assert rows["interleaved-1f1b", 0]["step_ns"] == (8 * 30 + 3 * 15) * MS
    assert rows["zero-bubble", 0]["step_ns"] == (8 * 30 + 3 * 10) * MS
    assert rows["zero-bubble-v", 0]["step_ns"] == (8 * 30 + 3 * 5) * MS
    assert rows["zero-bubble", 7]["period_ns"] == 8 * 30 * MS
    peaks = [rows[kind, 0]["peak_microbatches"] for kind in KINDS]
    assert peaks == [8, 6, 4, 5.5, 4, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_one_schedule_shows_every_operation(kind):
    shown = pipelines("-s", 3, "-m", 5, "-p", kind, "--activation", "10M", "--output", "1M",
                      "--rate", "10gbit", "--latency", "50us")  # fmt: skip
    (row,) = shown["schedules"]
    assert row["peak_bytes"] == row["peak_microbatches"] * (10 << 20)
    for stage in row["per_stage"]:
        operations = stage["operations"]
        forwards = [each for each in operations if each["work"] == "forward"]
        assert len(forwards) == 5 * row["chunks"] // 3
        assert all(
            before["end_ns"] <= after["start_ns"]
            for before, after in itertools.pairwise(operations)
        )
        assert stage["busy_ns"] == sum(each["end_ns"] - each["start_ns"] for each in operations)
    # The first output: a stage's share of the forward, 1 MiB at 1.25 bytes per ns, the latency.
    first = row["per_stage"][1]["operations"][0]["start_ns"]
    assert first == 10 * MS * 3 // row["chunks"] + 838861 + 50_000


def test_unequal_stages_and_what_the_table_says():
    result = run("--stages", 3, "--microbatches", 4, "--pipeline", "1f1b", "--forward-ms",
                 "10,20,10", "--backward-ms", "20", "--active-microbatches", 2)  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[2].split() == ["schedule", "step", "bubble", "period", "keeps", "bytes"]
    assert lines[3].startswith("1f1b, 2 active")
    stages = [line.split() for line in lines[6:]]
    assert [stage[0] for stage in stages] == ["0", "1", "2"]
    assert [stage[5] for stage in stages] == ["120", "160", "120"]  # ms busy
    assert [stage[9] for stage in stages] == ["2", "2", "1"]


def test_the_picture_has_every_operation(tmp_path):
    path = tmp_path / "timeline.svg"
    result = run("--stages", 4, "--microbatches", 8, "--timeline", path)
    assert result.returncode == 0, result.stderr
    root = xml.etree.ElementTree.parse(path).getroot()
    titles = [title.text for title in root.iter(f"{SVG}title")]
    whole, chunked, halves = 3 * 64, 128, 2 * 96
    assert len(titles) == whole + chunked + halves + 2 * 96
    assert "weight gradient of microbatch 7, chunk 0: 260.000 to 270.000 ms" in titles
    width = float(root.get("width"))
    for rect in root.iter(f"{SVG}rect"):
        if rect.get("x"):
            assert 0 <= float(rect.get("x"))
            assert float(rect.get("x")) + float(rect.get("width")) <= width


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "which model"),
        (["--stages", "0"], "a number from 1 to 1024"),
        (["--stages", "4", "--pipeline", "1f1"], "did you mean '1f1b'"),
        (["--stages", "4", "--pipeline", "gpipe!"], "interleaved-1f1b, zero-bubble"),
        (["--stages", "4", "--microbatches", "x"], "--microbatches x"),
        (["--stages", "4", "--forward-ms", "1,2"], "4 stages need as many times"),
        (["--stages", "2", "--forward-ms", "1,2,3"], "only 2 stages"),
        (["--stages", "2", "--forward-ms", "fast"], "milliseconds"),
        (["--stages", "2", "--backward-ms", "-3"], "milliseconds"),
        (["--stages", "2", "--weight-share", "2"], "from 0 to 1"),
        (["--stages", "2", "-p", "1f1b", "--chunks", "2"], "--chunks is for interleaved-1f1b"),
        (["--stages", "2", "-p", "simple", "--active-microbatches", "2"], "no such limit"),
        (["--stages", "2", "--rate", "25"], "--rate"),
        (["--stages", "1024", "-m", "65536"], "at most 4194304"),
        (["--stages", "64", "-m", "64", "--timeline", "/nowhere/a.svg"], "too many to be seen"),
        (["--stages", "2", "--timeline", "/nowhere/a.svg"], "cannot write /nowhere/a.svg"),
    ],
)
def test_what_is_wrong_is_said(arguments, words):
    result = run(*arguments)
    assert result.returncode != 0
    assert result.stdout == ""
    assert words in result.stderr


def test_help_names_every_option():
    result = run("--stages", 2, "--help")
    assert result.returncode == 0
    for option in ("--pipeline", "--microbatches", "--active-microbatches", "--timeline"):
        assert option in result.stdout


def test_transfers_that_block():
    arguments = ["-s", 2, "-m", 4, "-p", "simple", "--forward-ms", 10, "--backward-ms", 10,
                 "--output", 1_000_000, "--rate", "1gbit"]  # fmt: skip
    (hidden,) = pipelines(*arguments)["schedules"]
    (blocking,) = pipelines(*arguments, "--blocking-transfers")["schedules"]
    # 8 ms for an output: a link is free when the next one is there, so one on each way counts;
    # blocking, each stage sends four times.
    assert hidden["step_ns"] == (10 + 8 + 4 * 10 + 4 * 10 + 8 + 10) * MS
    assert blocking["step_ns"] == (4 * 18 + 10 + 4 * 18 + 10) * MS
    for stage, other in zip(hidden["per_stage"], blocking["per_stage"], strict=True):
        assert stage["busy_ns"] == other["busy_ns"] == 80 * MS
