# SPDX-License-Identifier: Apache-2.0
"""bench/headline.py: one training loop across hosts, over Gloo and over Shoal."""

import importlib.util
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from html import escape
from pathlib import Path

import pytest
from launching import SHOAL, needs_shoal

SOURCE = Path(os.environ.get("SHOAL_SOURCE", Path(__file__).resolve().parent.parent))
DEADLINE_S = 120
HAS_TORCH = importlib.util.find_spec("torch") is not None

sys.path.insert(0, str(SOURCE / "bench"))
import headline  # noqa: E402

pytestmark = needs_shoal


def program(name, *arguments):
    return subprocess.run(
        [sys.executable, SOURCE / f"bench/{name}.py", *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="virtual hosts need root")
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_every_way_trains_the_same_loop_across_hosts(tmp_path):
    words = ["--models", "mask-rcnn-r50", "--hosts", "2", "--rates", "none", "--bytes", "64K"]
    words += ["--compute", "5", "--rounds", "1", "--steps", "2", "--json"]
    words += ["--libs", ",".join(headline.WAYS)]
    result = program("headline", *words, "--out", tmp_path, "--shoal", SHOAL)
    assert result.returncode == 0, result.stderr
    content = json.loads(result.stdout)
    assert content == json.loads((tmp_path / "headline.json").read_text())
    assert [each["lib"] for each in content["summaries"]] == list(headline.WAYS)
    for each in content["summaries"]:
        assert (each["model"], each["hosts"], each["rate"]) == ("mask-rcnn-r50", 2, "none")
        assert each["step_ms"] >= each["compute_ms"] == 5 and each["roof_ms"] > 0
        assert each["alone_ms"] > 0 and 0 <= each["hidden"] <= 1 and each["published"] == 4
        assert each["over_bound"] == each["step_ms"] / each["bound_ms"]
        assert f"{each['lib']}: step" in result.stderr
    assert content["summaries"][0]["gain"] == 0 and not content["problems"]
    assert {"machine", "revision", "started", "finished"} <= set(content["plan"])
    ElementTree.parse(tmp_path / "headline.svg")
    assert program("report", tmp_path).returncode == 0
    page = (tmp_path / "report.html").read_text()
    assert 'id="headline"' in page and escape(content["text"]) in page


def rows_of(case, gloo_ms, shoal_ms):
    common = {"model": case.model, "hosts": case.hosts, "rate": case.rate, "scale": 1, "bytes": 8}
    common["servers"] = case.servers
    common |= {"compute_ms": 50, "roof_ms": 60, "alone_ms": 80}
    return [
        common | {"lib": name, "round": i, "step_ms": ms}
        for name, times in (("gloo", gloo_ms), ("shoal-ddp", shoal_ms))
        for i, ms in enumerate(times)
    ]


def test_the_verdict_says_what_the_rows_say():
    first = headline.Case("bert-large", 2, "1gbit")
    second = headline.Case("mask-rcnn-r50", 8, "none", 8)
    rows = rows_of(first, [100, 110, 90], [65, 66, 100]) + rows_of(second, [100], [90])
    plan = {"about": {"gloo": "", "shoal-ddp": ""}, "finished": "2000-01-01"}
    found = headline.Headline(plan, rows, {second.name: "a rank failed"})
    assert found.cases() == [first, second]
    best = found.best(first)
    assert best["gain"] == pytest.approx(100 / 65 - 1) and best["step_ms"] == 66
    assert best["bound_ms"] == 60 and best["over_bound"] == pytest.approx(1.1)
    assert best["hidden"] == pytest.approx(1 - 16 / 80) and best["exposed"] == pytest.approx(
        16 / 66
    )
    assert "+11 % to +54 % more steps" in found.text()
    assert "more than published at 1 of 2 cases" in found.text() and found.text().endswith("at 1.")
    assert found.remarks() == [
        "Training across hosts, mask-rcnn-r50-8hosts-none-8servers: a rank failed."
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words, text",
    [
        (["--models", "bert"], "--models bert: there are bert-large"),
        (["--libs", "ucc"], "--libs ucc: there are gloo"),
        (["--libs", "shoal,gloo"], "the first is gloo"),
        (["--hosts", "1,2"], "1,2: numbers of hosts"),
        (["--servers", "-1"], "-1: numbers of servers"),
        (["--compute", "-1"], "half, equal, or milliseconds"),
        (["--bytes", "many"], "many: bytes, as in 64M"),
        (["--rounds", "0"], "--rounds and --steps are at least 1"),
    ],
)
def test_wrong_arguments_are_explained(words, text):
    result = program("headline", *words)
    assert result.returncode == 2 and text in result.stderr


def test_what_is_to_be_measured_is_declared(tmp_path):
    result = program("headline", "--declare", "--out", tmp_path, "--shoal", SHOAL)
    assert result.returncode == 0, result.stderr
    content = json.loads((tmp_path / "headline.json").read_text())
    assert content["text"] == "No training across hosts was measured." and not content["rows"]
    assert "bert-large-8hosts-1gbit" in content["plan"]["commands"]
    report = program("report", tmp_path)
    assert "not measured, or not to the end" in report.stderr


def test_what_is_rounded_has_a_roof_of_its_own_and_is_never_the_best():
    case = headline.Case("bert-large", 2, "1gbit")
    rows = rows_of(case, [100], [90])
    rows.append(rows[0] | {"lib": "shoal-overlap-bf16", "step_ms": 50, "compute_ms": 20})
    plan = {"about": {"gloo": "", "shoal-ddp": "", "shoal-overlap-bf16": ""}}
    found = headline.Headline(plan, rows, {})
    assert found.summary(case, "shoal-overlap-bf16")["bound_ms"] == 30
    assert found.best(case)["lib"] == "shoal-ddp"


def test_servers_take_what_their_ports_carry():
    for hosts, servers, share in ((4, 0, 1), (4, 4, 1 / 1.5), (4, 9, 1 / 1.5), (8, 8, 1 / 1.75)):
        assert headline.Case("m", hosts, "1gbit", servers).wire_share() == pytest.approx(share)
