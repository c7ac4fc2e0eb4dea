# SPDX-License-Identifier: Apache-2.0
"""bench/pipeline.py: pipelines of virtual devices, in three ways."""

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
import pipeline  # noqa: E402

pytestmark = needs_shoal


def program(name, *arguments):
    return subprocess.run(
        [sys.executable, SOURCE / f"bench/{name}.py", *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_every_way_runs_the_same_stages(tmp_path):
    words = ["--stages", "2", "--microbatches", "2", "--places", "host:64K", "--rounds", "1"]
    words += ["--steps", "1", "--forward-ms", "1", "--backward-ms", "2", "--json"]
    result = program("pipeline", *words, "--out", tmp_path, "--shoal", SHOAL)
    assert result.returncode == 0, result.stderr
    content = json.loads(result.stdout)
    assert content == json.loads((tmp_path / "pipeline.json").read_text())
    found = [(each["schedule"], each["way"]) for each in content["summaries"]]
    assert sorted(found) == sorted((s, w) for s in pipeline.SCHEDULES for w in pipeline.WAYS)
    for each in content["summaries"]:
        assert each["work_ms"] >= 6
        assert each["theory_ms"] == pytest.approx(1.5 * each["work_ms"], rel=1e-3)
        assert each["theory_bubble"] == pytest.approx(1 / 3, rel=1e-3)
        assert each["step_ms"] >= 9 and each["over_theory"] > each["over_alone"]
        assert f"{each['way']}: step" in result.stderr
    assert not content["problems"] and {"machine", "revision", "finished"} <= set(content["plan"])
    ElementTree.parse(tmp_path / "pipeline.svg")
    assert program("report", tmp_path).returncode == 0
    page = (tmp_path / "report.html").read_text()
    assert 'id="pipelines"' in page and escape(content["text"]) in page


def rows_of(case, theory_ms, times):
    common = {name: getattr(case, name) for name in case.__dataclass_fields__}
    common |= {"work_ms": 80, "theory_ms": theory_ms, "over_alone": 1.01}
    return [
        common | {"way": way, "round": i, "step_ms": ms}
        for way, steps in times.items()
        for i, ms in enumerate(steps)
    ]


def test_the_verdict_says_what_the_rows_say():
    first = pipeline.Case(2, "host", 4096, "simple", 4)
    second = pipeline.Case(2, "1gbit", 4 << 20, "interleaved", 4)
    rows = rows_of(first, 100, {"shoal": [101, 99.9], "torch-shoal": [101], "torch-gloo": [102]})
    rows += rows_of(second, 110, {"shoal": [130], "torch-shoal": [120], "torch-gloo": [169]})
    plan = {"about": dict(pipeline.WAYS), "finished": "2000-01-01"}
    found = pipeline.Pipelines(plan, rows, {"2 stages, 1gbit, 4 MiB": "a rank failed"})
    assert found.cases() == [first, second]
    own = found.own()
    assert own[0]["over_theory"] == pytest.approx((1 - 80 / 100.45) / 0.2)
    assert own[0]["over_alone"] == pytest.approx(1.01)
    assert own[1]["gain"] == pytest.approx(0.3) and own[1]["gain_same"] < 0
    assert "1.05 times the schedule's at 1 of 2 cases" in found.text()
    assert "over Shoal at 1 of 2" in found.text()
    assert "at 1 of 1 where communication matters (+30 % to +30 %)" in found.text()
    assert found.remarks() == ["Pipelines, 2 stages, 1gbit, 4 MiB: a rank failed."]


@pytest.mark.parametrize(
    "words, text",
    [
        (["--ways", "mpi"], "--ways mpi: there are shoal"),
        (["--schedules", "1f1b"], "--schedules 1f1b: there are simple"),
        (["--stages", "1"], "--stages are at least 2"),
        (["--stages", "two"], "two: whole numbers"),
        (["--stages", "4", "--microbatches", "2"], "at least as many as stages"),
        (["--places", "host"], "host: a link and bytes"),
        (["--rounds", "0"], "--rounds and --steps are at least 1"),
    ],
)
def test_wrong_arguments_are_explained(words, text):
    result = program("pipeline", *words)
    assert result.returncode == 2 and text in result.stderr


def test_what_is_to_be_measured_is_declared(tmp_path):
    result = program("pipeline", "--declare", "--out", tmp_path, "--shoal", SHOAL)
    assert result.returncode == 0, result.stderr
    content = json.loads((tmp_path / "pipeline.json").read_text())
    assert content["text"] == "No pipeline was measured." and not content["rows"]
    assert "4 stages, 1gbit, 4 MiB" in content["plan"]["commands"]
    report = program("report", tmp_path)
    assert "not measured, or not to the end" in report.stderr
