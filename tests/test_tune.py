# SPDX-License-Identifier: Apache-2.0
"""`shoal tune` as its users see it. No test looks at what was faster."""

import json
import os
import re
import subprocess

import pytest
from launching import SHOAL, needs_shoal

pytestmark = needs_shoal

DEADLINE_S = 120
QUICK = ["--size-ms", "1", "--largest", "64K"]
NAMES = ["symmetric_bytes", "block_bytes", "stream_bytes", "direct_bytes"]


@pytest.fixture
def shoal(tmp_path):
    """Runs `shoal` with a cache of its own; variables in capitals are options."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SHOAL_")}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")

    def run(*arguments, code=0, **options):
        done = subprocess.run(
            [SHOAL, *map(str, arguments)], env=environment | options, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done

    return run


def files(tmp_path):
    return [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_it_measures_and_keeps_what_it_found(shoal, tmp_path):
    nothing = json.loads(shoal("tune", "--show", "--json").stdout)
    assert (nothing["rows"], nothing["in_use"]) == ([], False)
    done = shoal("tune", "-n", "2,3", *QUICK)
    for ranks in (2, 3):
        for name in ("symmetric", "block", "stream", "direct"):
            assert re.search(rf"^{ranks} ranks: {name} \S+ \(default \S+\)$", done.stderr, re.M)
    assert re.search(r"^ +2 .* measured\n +3 .* measured\nothers .* default$", done.stdout, re.M)
    shown = json.loads(shoal("tune", "--show", "--json").stdout)
    assert [row["ranks"] for row in shown["rows"]] == [2, 3]
    assert all(row[name] > 0 for row in shown["rows"] for name in NAMES)
    assert shown["in_use"]
    (path,) = files(tmp_path)
    assert str(path) == shown["path"]
    again = json.loads(shoal("tune", "-n", "4", *QUICK, "--json").stdout)
    assert [row["ranks"] for row in again["rows"]] == [2, 3, 4]
    assert again["rows"][:2] == shown["rows"]


def test_a_dry_run_writes_nothing(shoal, tmp_path):
    done = json.loads(shoal("tune", "-n", "2", *QUICK, "--dry-run", "--json").stdout)
    assert [row["ranks"] for row in done["rows"]] == [2]
    assert not done["in_use"]
    assert files(tmp_path) == []


@pytest.fixture
def kept(shoal):
    """The path of a file for two ranks, which says 1 KiB, 64 KiB, 1 MiB and 8 KiB."""
    from pathlib import Path

    shown = json.loads(shoal("tune", "--show", "--json").stdout)
    path = Path(shown["path"])
    path.parent.mkdir(parents=True)
    path.write_text(
        f"shoal-tune 1\ncpu {shown['cpu']}\ncores {shown['cores']}\n"
        "ranks 2 symmetric 1K block 64K stream 1M direct 8K\nend\n"
    )
    return path


def test_what_is_in_use_is_shown(shoal, kept):
    text = "ranks 2 symmetric 1K block 64K stream 1M direct 8K"
    assert f"thresholds       {text}, from {kept}" in shoal("info").stdout
    assert json.loads(shoal("info", "--json").stdout)["thresholds"] == f"{text}, from {kept}"
    assert "default: SHOAL_TUNE=0" in shoal("info", SHOAL_TUNE="0").stdout
    assert "in use" in shoal("tune", "--show").stdout
    assert "not used: SHOAL_TUNE=0" in shoal("tune", "--show", SHOAL_TUNE="0").stdout
    kept.unlink()
    assert f"default: `shoal tune` would make {kept}" in shoal("info").stdout


BENCH = ["bench", "allreduce", "-n", "2", "--sizes", "8K", "--iters", "5", "--no-roof"]


def test_ranks_use_it_and_say_so(shoal, kept):
    log = shoal(*BENCH, SHOAL_LOG="info").stderr
    assert "(measured): ranks 2 symmetric 1K block 64K stream 1M direct 8K" in log
    assert re.search(r"symmetric 0, staged [1-9]", log)
    log = shoal(*BENCH, SHOAL_LOG="info", SHOAL_TUNE="0").stderr
    assert "(default): ranks 2 symmetric 16K block 512K" in log
    assert re.search(r"symmetric [1-9]\d*, staged 0", log)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[:-4], "is only a part of a file"),
        (lambda text: "", "is only a part of a file"),
        (lambda text: text.replace("cpu ", "cpu Not this "), "it is of another machine"),
        (lambda text: text.replace("block", "blocks"), "line 4: "),
    ],
)
def test_a_file_that_cannot_be_used_is_named_once(shoal, kept, change, words):
    kept.write_text(change(kept.read_text()))
    warnings = [line for line in shoal(*BENCH).stderr.splitlines() if "warning" in line]
    assert len(warnings) == 1
    assert "rank 0 warning: the default thresholds are used" in warnings[0]
    assert words in warnings[0] and str(kept) in warnings[0]
    assert words in shoal("info").stdout
    assert words in shoal("tune", "--show", code=1).stderr
    assert shoal(*BENCH, SHOAL_TUNE="0").stderr == ""


def test_a_new_run_replaces_a_file_that_cannot_be_used(shoal, kept):
    kept.write_text("garbage\n")
    done = shoal("tune", "-n", "2", *QUICK)
    assert "what was measured before is lost" in done.stderr
    assert len(json.loads(shoal("tune", "--show", "--json").stdout)["rows"]) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-n", "1"], "-n 1: it takes a number from 2"),
        (["-n", "2,x"], "-n x: it takes a number from 2"),
        (["-n", "2,"], "-n : it takes a number from 2"),
        (["-n", "2,3,4,5,6,7,8,9,10"], "at most 8 numbers"),
        (["--size-ms", "0"], "--size-ms 0"),
        (["--largest", "big"], '"big" is not a number of bytes'),
        (["--shwo"], "did you mean --show?"),
        (["allreduce"], "'allreduce' is not understood"),
    ],
)
def test_wrong_arguments(shoal, arguments, words):
    assert words in shoal("tune", *arguments, code=2).stderr


def test_what_would_hide_the_measurement_is_an_error(shoal, tmp_path):
    assert "SHOAL_LOCAL=0" in shoal("tune", code=1, SHOAL_LOCAL="0").stderr
    assert "SHOAL_CHUNK_BYTES" in shoal("tune", code=1, SHOAL_CHUNK_BYTES="64K").stderr
    no_place = shoal("tune", "-n", "2", code=1, XDG_CACHE_HOME="", HOME="")
    assert "XDG_CACHE_HOME" in no_place.stderr
    full = "".join(
        f"ranks {ranks} symmetric 1K block 64K stream 1M direct 8K\n" for ranks in range(10, 18)
    )
    shown = json.loads(shoal("tune", "--show", "--json").stdout)
    (tmp_path / "cache" / "shoal").mkdir(parents=True)
    head = f"shoal-tune 1\ncpu {shown['cpu']}\ncores {shown['cores']}\n"
    open(shown["path"], "w").write(f"{head}{full}end\n")
    assert "remove it to begin anew" in shoal("tune", "-n", "2", code=1).stderr
    assert "usage: shoal tune" in shoal("tune", "--help").stdout
    assert shoal("help", "tune").stdout == shoal("tune", "--help").stdout
