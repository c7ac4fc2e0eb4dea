# SPDX-License-Identifier: Apache-2.0
"""`shoal sim` as its users see it."""

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest
from launching import SHOAL, needs_shoal

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 120
SVG = "{http://www.w3.org/2000/svg}"

pytestmark = needs_shoal


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


def test_100_mb_stay_near_the_bound_on_any_number_of_hosts():
    table = rows("allreduce")
    table += rows("allreduce", "--hosts", "3,6,7,24,33,100,129,255,300,768")
    worst = max(table, key=lambda row: row["time_ns"] / row["bound_ns"])
    assert worst["time_ns"] < 1.15 * worst["bound_ns"], worst


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
    (slow,) = rows("allreduce", "-p", platform, "-b", "8M", "-a", "direct", "--shares", "equal")
    assert slow["hosts"] == 8 and slow["every_rank"] and not slow["follows_links"]
    platform.write_text("hosts 8\nlink rate 1gbit latency 20us\n")
    (even,) = rows("allreduce", "-p", platform, "-b", "8M", "-a", "direct")
    assert 3.5 < slow["time_ns"] / even["time_ns"] < 4.1
    assert 1.5 < slow["bound_ns"] / even["bound_ns"] < 2.5


def test_large_allreduces_follow_unequal_links(tmp_path):
    platform = tmp_path / "cluster.txt"
    platform.write_text("hosts 4\nlink rate 1gbit latency 20us\nlink 0 rate 250mbit\n")
    for algorithm in ("direct", "ring", "auto"):
        words = ["allreduce", "-p", platform, "-b", "4M", "-a", algorithm]
        (equal,) = rows(*words, "--shares", "equal")
        (shares,) = rows(*words)
        assert shares["follows_links"] and shares["time_ns"] < 1.05 * shares["bound_ns"]
        assert 1.4 < equal["time_ns"] / shares["time_ns"] < 1.5
    (short,) = rows("allreduce", "-p", platform, "-b", "512K")
    assert not short["follows_links"]


def test_hosts_that_share_too_few_cores_choose_as_the_library_does(tmp_path):
    platform = tmp_path / "cluster.txt"
    for cores, algorithm in (("cores 2 shared", "halving_doubling"), ("cores 8 shared", "direct"),
                             ("cores 2", "direct")):  # fmt: skip
        platform.write_text(f"hosts 8\nlink rate 1gbit latency 20us\n{cores}\n")
        (row,) = rows("allreduce", "-p", platform, "-b", "64K")
        assert row["algorithm"] == algorithm, cores


def test_servers_bring_the_time_down(tmp_path):
    words = ["allreduce", "--bytes", "16M", "--hosts", "8"]
    without, half, full = (rows(*words, "--servers", n)[0] for n in (0, 4, "all"))
    assert [row["servers"] for row in (without, half, full)] == [0, 4, 8]
    assert 1.6 < without["time_ns"] / full["time_ns"] <= 1.75
    assert without["bound_ns"] / full["bound_ns"] == pytest.approx(1.75, rel=0.01)
    assert full["time_ns"] < half["time_ns"] < without["time_ns"]
    assert rows("allreduce", "--bytes", "64K", "--hosts", "8", "--servers", 4)[0]["servers"] == 0
    (pairs,) = rows(*words, "--servers", "all", "--ranks", 2)
    assert pairs["algorithm"] == "two_level" and pairs["servers"] == 8
    assert pairs["time_ns"] < 1.15 * full["time_ns"]
    platform = tmp_path / "cluster.txt"
    platform.write_text("hosts 8\nservers 8\nlink 9 rate 5gbit\n")
    (slow,) = rows("allreduce", "--bytes", "16M", "-p", platform)
    assert slow["servers"] == 8 and slow["follows_links"]
    assert full["time_ns"] < slow["time_ns"] < 1.15 * full["time_ns"]
    (equal,) = rows("allreduce", "--bytes", "16M", "-p", platform, "--shares", "equal")
    assert equal["time_ns"] > 1.5 * full["time_ns"]


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


def step(*arguments):
    result = run("--model", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_a_step_of_training_hides_its_communication():
    shown = step("resnet-50", "--compute", "400ms", "--hosts", "2,8", "--rate", "25gbit")
    assert shown["parameters"] == 25557032
    for row in shown["rows"]:
        assert row["bound_ns"] == 400e6
        assert row["time_ns"] < 1.02 * row["bound_ns"]
        assert row["hidden"] > 0.9
    assert shown["rows"][0]["alone_ns"] < shown["rows"][1]["alone_ns"] < 400e6


def test_a_step_on_a_slow_link_takes_as_long_as_its_communication():
    shown = step("gpt-2", "--compute", "50ms", "--hosts", "4", "--rate", "1gbit")
    (row,) = shown["rows"]
    assert row["bound_ns"] > 1.5 * 4 * shown["parameters"] / 0.125
    assert row["bound_ns"] < row["alone_ns"] < row["time_ns"] < row["alone_ns"] + 50e6


def test_the_next_forward_pass_begins_with_what_is_there():
    (row,) = step("bert-large", "--compute", "1s", "--hosts", "4", "--rate", "25gbit")["rows"]
    assert row["bound_ns"] <= row["overlapped_ns"] < row["time_ns"] < row["overlapped_ns"] + 1e9 / 3
    (served,) = step("resnet-50", "--compute", "50ms", "--hosts", "4", "--servers", "all")["rows"]
    (alone,) = step("resnet-50", "--compute", "50ms", "--hosts", "4")["rows"]
    assert served["servers"] == 4 and served["alone_ns"] < 0.75 * alone["alone_ns"]


def test_smaller_buffers_leave_less_for_the_end():
    times = [
        step("resnet-50", "--compute", "400ms", "--hosts", "2", "--buffer", size)["rows"][0]
        for size in ("4M", "64M", "100M")
    ]
    assert times[0]["time_ns"] < times[1]["time_ns"] < times[2]["time_ns"]


def test_a_model_of_ones_own(tmp_path):
    table = tmp_path / "tiny.txt"
    table.write_text("model tiny\nparameters 1000006\nb 6 1\nw 1000x1000 9\n")
    assert step(table, "--hosts", "2")["model"] == "tiny"
    table.write_text("model tiny\nparameters 6\nw 2y3 9\n")
    status, text = error("--model", table)
    assert status == 1
    assert text == f"shoal sim: {table}:3: expected a shape as 1024x4096, not '2y3'\n"


def write_runs(path, factor):
    """Lines as `shoal bench --json` prints them, of times that were simulated."""
    lines = []
    for hosts in (2, 4):
        for count in (1 << 14, 1 << 18, 1 << 21):
            shape = ["--hosts", hosts, "--bytes", 4 * count, "--rate", "2gbit", "--latency", "30us"]
            (row,) = rows("allreduce", *shape, "-a", "direct")
            lines.append({
                "op": "allreduce", "dtype": "f32", "ranks": hosts, "hosts": hosts,
                "bytes": 4 * count, "count": count, "p50_us": factor * row["time_ns"] / 1e3,
                "settings": {"algorithm": "direct"},
            })  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_calibration_finds_the_links_that_were_measured(tmp_path):
    runs, fitted = tmp_path / "runs.jsonl", tmp_path / "fitted.txt"
    write_runs(runs, factor=1)
    shown = run("--calibrate", runs)
    assert shown.returncode == 0, shown.stderr
    fitted.write_text(shown.stdout)
    rate = re.search(r"^link rate ([\d.]+)gbit", shown.stdout, re.MULTILINE)
    assert float(rate[1]) == pytest.approx(2, rel=0.03)
    compared = run("--compare", runs, "--platform", fitted).stdout
    ratios = [float(line.split()[-1]) for line in compared.splitlines() if "allreduce" in line]
    assert len(ratios) == 6
    assert all(0.97 < ratio < 1.03 for ratio in ratios)


@pytest.mark.skipif(not shutil.which("smpirun"), reason="SimGrid is not installed")
def test_peers_on_the_same_platform(tmp_path):
    platform = tmp_path / "cluster.txt"
    platform.write_text("hosts 4\nlink rate 10gbit latency 50us\nlink 3 rate 5gbit\n"
                        "switch 2 rate 20gbit latency 5us\n")  # fmt: skip
    words = ["peers", "--bytes", "8000000", "--out", tmp_path, "--hosts"]
    for arguments in (["2,4"], ["4", "--platform", platform]):
        result = subprocess.run(
            [sys.executable, ROOT / "bench/simulated.py", *words, *arguments],
            env={**os.environ, "SHOAL_BUILD": str(SHOAL.parent)}, timeout=DEADLINE_S,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        for row in json.loads((tmp_path / "peers.json").read_text()):
            assert all(seconds >= 0.99 * row["bound_s"] for seconds in row["seconds"].values())
            assert row["seconds"]["shoal"] <= 1.01 * row["seconds"]["Open MPI"]
        xml.etree.ElementTree.parse(tmp_path / "peers.svg")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ": there is no run in it"),
        ("{}\n", ":1: expected a line of `shoal bench --json` between two hosts or more"),
        ("\n{oops}\n", ":2: line 1, column 2: "),
        ('{"op": "allreduce", "p50_us": "fast"}\n', ":1: line 1, column 31: a number is expected"),
    ],
)
def test_runs_with_an_error(tmp_path, text, expected):
    runs = tmp_path / "runs.jsonl"
    runs.write_text(text)
    status, shown = error("--calibrate", runs)
    assert status == 1
    assert shown.startswith(f"shoal sim: {runs}{expected}")


def test_the_picture_of_the_page_is_that_of_its_command(tmp_path):
    page = (ROOT / "docs/sim.md").read_text()
    words = re.search(r"shoal sim (allreduce [^`\n]*?) --plot sim.svg", page)[1].split()
    assert run(*words, "--plot", tmp_path / "sim.svg").returncode == 0
    drawn = (ROOT / "docs/pictures/sim.svg").read_text()
    assert (tmp_path / "sim.svg").read_text() == drawn, "draw docs/pictures/sim.svg anew"


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
        (["allreduce", "-H", "4096", "-n", "2"], "4096 hosts of 2 ranks and 0 servers: at most 4"),
        (["allreduce", "--servers", "-1"], "--servers -1: it takes a number from 0 to 4095"),
        (["allreduce", "--shares", "even"], "--shares even: it takes auto or equal"),
        (["allreduce", "--model", "gpt-2"], "--model is a step of training: 'allreduce' is one"),
        (["--model", "gpt-3"], "there is no model 'gpt-3': there are bert-large, gpt-2-xl, gpt-2,"),
        (["--model", "gpt-2", "--buffer", "1"], "--buffer: it takes 65536 bytes or more"),
        (["--model", "gpt-2", "--compute", "1"], "--compute 1: it takes a number of at least 0"),
        (["allreduce", "--segment", "1"], "--segment 1: it takes 4K to 1G, or 0"),
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
    platform.write_text("hosts 4\nservers 2\nlink 6 rate 1gbit\n")
    status, text = error("allreduce", "-p", platform)
    assert status == 1
    assert text.startswith(f"shoal sim: {platform}:3: the link of host 6 has a rate of its own")
    status, text = error("allreduce", "-p", tmp_path / "none.txt")
    assert status == 1
    assert text.startswith("shoal sim: cannot read the platform ")


def test_help():
    text = run("--help").stdout
    assert text.startswith("usage: shoal sim OPERATION")
    assert "--platform" in text and "--plot" in text
