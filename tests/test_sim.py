# SPDX-License-Identifier: Apache-2.0
"""`shoal sim` as its users see it."""

import json
import os
import subprocess
import xml.etree.ElementTree
from pathlib import Path

import pytest

SHOAL = Path(os.environ.get("SHOAL_BUILD", "build/release")).resolve() / "shoal"
DEADLINE_S = 120
SVG = "{http://www.w3.org/2000/svg}"

pytestmark = pytest.mark.skipif(not SHOAL.exists(), reason=f"{SHOAL} is not built")


def run(*arguments):
    return subprocess.run(
        [SHOAL, "sim", *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


def rows(*arguments):
    result = run(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["rows"]


def error(*arguments):
    result = run(*arguments)
    assert result.stdout == ""
    return result.returncode, result.stderr


def test_an_allreduce_on_2_to_4096_hosts():
    table = rows("allreduce")
    assert [row["hosts"] for row in table] == [2**i for i in range(1, 13)]
    for row in table:
        assert row["time_ns"] > row["bound_ns"] > 0
        assert row["every_rank"] is False


@pytest.mark.parametrize("operation", ["broadcast", "allgather", "reduce_scatter", "alltoall"])
def test_all_algorithms_of_an_operation(operation):
    table = rows(operation, "--hosts", "2,8", "--bytes", "1M", "--algorithm", "all")
    assert {row["hosts"] for row in table} == {2, 8}
    assert {row["asked"] for row in table} > {"auto", "direct"}
    for row in table:
        assert row["algorithm"] is None or row["time_ns"] >= 0.999 * row["bound_ns"]


def test_one_host_takes_the_time_of_all():
    arguments = ["allreduce", "--hosts", "16", "--bytes", "4M", "-a", "ring,direct"]
    for one, all_of_them in zip(rows(*arguments), rows(*arguments, "--every-rank"), strict=True):
        assert one["exact"] and all_of_them["every_rank"] and not one["every_rank"]
        assert one["time_ns"] == all_of_them["time_ns"]
        assert one["events"] < all_of_them["events"] / 10


def test_a_platform_file(tmp_path):
    platform = tmp_path / "cluster.txt"
    platform.write_text("hosts 8\nlink rate 1gbit latency 20us\nlink 5 rate 250mbit\n")
    (slow,) = rows("allreduce", "-p", platform, "-b", "8M", "-a", "direct")
    assert slow["hosts"] == 8 and slow["every_rank"]
    platform.write_text("hosts 8\nlink rate 1gbit latency 20us\n")
    (even,) = rows("allreduce", "-p", platform, "-b", "8M", "-a", "direct")
    assert 3.5 < slow["time_ns"] / even["time_ns"] < 4.1
    assert 1.5 < slow["bound_ns"] / even["bound_ns"] < 2.5


def test_accelerators_sum_first_and_share_at_last(tmp_path):
    platform = tmp_path / "cluster.txt"
    platform.write_text("hosts 2\naccelerators 8 rate 100GB/s\n")
    (many,) = rows("allreduce", "-p", platform)
    (one,) = rows("allreduce", "--hosts", 2)
    assert many["time_ns"] - one["time_ns"] == pytest.approx(2 * 7 / 8 * 1e8 / 100, rel=1e-3)
    assert error("broadcast", "-p", platform) == (
        2, "shoal sim: accelerators take part in allreduce only\n",
    )  # fmt: skip


def test_the_platform_is_printed_as_a_file(tmp_path):
    text = run("--rate", "40gbit", "--latency", "3us", "--ranks", 4, "--print-platform").stdout
    platform = tmp_path / "cluster.txt"
    platform.write_text(text)
    assert "link rate 40gbit latency 3us" in text and "ranks 4" in text
    assert run("-p", platform, "--print-platform").stdout == text


def test_what_cannot_be_simulated_is_a_gap():
    table = rows("allreduce", "--hosts", "2,3", "--bytes", "1M", "-a", "two_level,ring")
    assert [row["time_ns"] is None for row in table] == [True, True, False, False]
    assert table[0]["why"] == "two_level cannot do this"
    assert "two_level cannot do this" in run("allreduce", "--hosts", "2", "-a", "two_level").stdout


def test_the_plot(tmp_path):
    path = tmp_path / "a.svg"
    shown = run("allreduce", "--hosts", "2:64", "--bytes", "1M", "-a", "all", "--plot", path)
    assert shown.returncode == 0, shown.stderr
    picture = xml.etree.ElementTree.parse(path).getroot()
    assert picture.tag == f"{SVG}svg"
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert {"bound", "as chosen", "ring", "direct", "64"} <= set(texts)
    assert "two_level" not in texts
    assert len(list(picture.iter(f"{SVG}circle"))) >= 5 * 6


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "which operation? For example: shoal sim allreduce --hosts 2:64"),
        (["allreduc"], "there is no operation 'allreduc'; did you mean 'allreduce'?"),
        (["allreduce", "barrier"], "one operation at a time: 'barrier' is one too many"),
        (["allreduce", "-H", "1:x"], "--hosts 1:x: it takes numbers from 1 to 4096"),
        (["allreduce", "-H", "8:2"], "--hosts 8:2: it takes numbers from 1 to 4096"),
        (["allreduce", "-H", "8,2"], "--hosts 8,2: the numbers must rise"),
        (["allreduce", "-a", "bruck"], "no algorithm 'bruck' for allreduce: there are auto, all,"),
        (["allreduce", "--rate", "10"], "--rate 10: it takes a number above 0 with kbit, mbit"),
        (["allreduce", "-H", "4096", "-n", "2"], "4096 hosts of 2 ranks: at most 4096 ranks"),
        (["allreduce", "--speed"], "there is no option --speed"),
    ],
)
def test_wrong_arguments(arguments, expected):
    status, text = error(*arguments)
    assert status == 2
    assert text.startswith(f"shoal sim: {expected}")


def test_a_platform_file_with_an_error(tmp_path):
    platform = tmp_path / "cluster.txt"
    platform.write_text("hosts 4\n\nlink rate 25 latency 10us\n")
    status, text = error("allreduce", "-p", platform)
    assert status == 1
    assert text.startswith(f"shoal sim: {platform}:3: rate 25: it takes a number above 0 with kbit")
    status, text = error("allreduce", "-p", tmp_path / "none.txt")
    assert status == 1
    assert text.startswith("shoal sim: cannot read the platform ")


def test_help():
    text = run("--help").stdout
    assert text.startswith("usage: shoal sim OPERATION")
    assert "--platform" in text and "--plot" in text
