# SPDX-License-Identifier: Apache-2.0
"""`shoal bench fuse`: steps of known models, replayed through fusion buffers."""

import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest
from launching import SHOAL, needs_shoal

DEADLINE_S = 120
SVG = "{http://www.w3.org/2000/svg}"

pytestmark = needs_shoal
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="virtual hosts need root")


def fuse(*arguments):
    return subprocess.run(
        [SHOAL, "bench", "fuse", *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


def replay(*arguments):
    result = fuse("--json", *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def assert_consistent(row):
    assert (row["lib"], row["op"]) == ("shoal", "fuse") and row["checked"]
    for name in (
        "computed", "step", "flight", "exposed", "blocking_step", "blocking_allreduce",
    ):  # fmt: skip
        assert row[f"{name}_low_ms"] <= row[f"{name}_ms"] <= row[f"{name}_high_ms"]
    assert row["step_low_ms"] >= row["computed_low_ms"] >= row["compute_ms"]
    assert 0 <= row["exposed_ms"] <= row["flight_ms"] <= row["step_high_ms"]
    assert row["hidden"] == pytest.approx(1 - row["exposed_ms"] / row["flight_ms"], abs=1e-3)
    assert row["gain"] == pytest.approx(row["blocking_step_ms"] / row["step_ms"], abs=1e-3)
    longer = max(row["computed_ms"], row["blocking_allreduce_ms"])
    assert row["over_longer"] == pytest.approx(row["step_ms"] / longer, abs=1e-3)
    assert row["elements"] * 4 <= row["bytes"] < row["elements"] * 4 + row["tensors"] * 64
    assert row["buffers"] == -(-row["bytes"] // row["buffer_bytes"])
    assert 0 <= row["joined"] < row["buffers"]


def test_a_step_of_a_known_model_is_replayed(tmp_path):
    picture = tmp_path / "step.svg"
    row = replay(
        "--model", "resnet-50", "-n", 2, "--scale", 0.05, "--compute-ms", 20, "--steps", 4,
        "--buffer", "256K", "--in-flight", 3, "--timeline", picture,
    )  # fmt: skip
    assert_consistent(row)
    assert (row["model"], row["ranks"], row["hosts"], row["tensors"]) == ("resnet-50", 2, 1, 161)
    assert (row["scale"], row["steps"], row["compute_ms"]) == (0.05, 4, 20)
    assert (row["buffer_bytes"], row["in_flight"]) == (256 << 10, 3)
    assert row["elements"] == pytest.approx(0.05 * 25557032, abs=161)
    assert row["link_bytes"] == row["link_bound_bytes"] == row["joined"] == 0
    root = ElementTree.parse(picture).getroot()
    assert root.tag == f"{SVG}svg"
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert sorted(int(title.split(",")[0].split()[1]) for title in titles) == list(
        range(row["buffers"])
    )


@needs_root
def test_the_links_of_hosts_carry_what_they_must():
    row = replay("--model", "mask-rcnn-r50", "--scale", 0.01, "--virtual-hosts", 2, "--steps", 2)
    assert_consistent(row)
    assert (row["ranks"], row["hosts"], row["link_bound_bytes"]) == (2, 2, row["bytes"])
    assert row["link_bytes"] == pytest.approx(row["link_bound_bytes"], rel=0.01)


@needs_root
def test_with_as_many_servers_as_hosts_each_link_carries_a_buffer_once():
    hosts = ["--virtual-hosts", 3, "--servers", 3]
    row = replay("--model", "mask-rcnn-r50", "--scale", 0.01, *hosts, "--steps", 2)
    assert_consistent(row)
    assert (row["ranks"], row["hosts"]) == (3, 3)
    assert row["link_bytes"] == pytest.approx(row["bytes"], rel=0.01)


def test_a_model_may_be_a_file_and_text_is_for_people(tmp_path):
    table = tmp_path / "small.txt"
    table.write_text("model small\nparameters 1200\nfrozen 0\nb 200 0\nw 10x100 1000\n")
    result = fuse("--model", table, "-n", 2, "--compute-ms", 2, "--steps", 1)
    assert result.returncode == 0, result.stderr
    assert "1 steps of small: 2 tensors" in result.stdout and "hidden behind" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "which model? --model NAME"),
        (["--model", "bert"], "no model 'bert': there are bert-large, "),
        (["--model", "gpt-2", "--buffer", "1"], "--buffer 1: it takes 4K to 1G"),
        (["--model", "gpt-2", "--in-flight", "0"], "--in-flight 0"),
        (["--model", "gpt-2", "--scale", "1.5"], "--scale 1.5: it takes a number above 0"),
        (["--model", "gpt-2", "--compute-ms", "nan"], "--compute-ms nan"),
        (["--model", "gpt-2", "--steps", "0"], "--steps"),
        (["--model", "gpt-2", "--rate", "1gbit"], "--rate goes with --virtual-hosts"),
        (["--model", "gpt-2", "allreduce"], "'allreduce' is not understood"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_are_explained(arguments, words):
    result = fuse(*arguments, "-n", 2)
    assert result.returncode == 2
    assert result.stderr.startswith("shoal bench fuse: ") and words in result.stderr


def test_a_picture_that_cannot_be_written_is_an_error(tmp_path):
    picture = tmp_path / "none" / "step.svg"
    result = fuse("--model", "resnet-50", "--scale", 0.001, "-n", 2, "--timeline", picture)
    assert result.returncode != 0
    assert f"cannot write {picture}: No such file" in result.stderr
