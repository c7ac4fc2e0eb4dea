# SPDX-License-Identifier: Apache-2.0
"""`shoal bench`, `shoal vhosts` and bench/run.py as their users see them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launching import SHOAL, needs_shoal

SOURCE = Path(os.environ.get("SHOAL_SOURCE", Path(__file__).resolve().parent.parent))
DEADLINE_S = 120
OPERATIONS = [
    "allreduce", "allgather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather",
    "scatter", "barrier",
]  # fmt: skip

pytestmark = needs_shoal
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="virtual hosts need root")


def run(*arguments):
    return subprocess.run(
        [SHOAL, *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


def bench_rows(*arguments):
    result = run("bench", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_is_measured_and_checked(operation):
    rows = bench_rows(operation, "-n", 3, "--sizes", "100,40K", "--size-ms", 2)
    assert len(rows) == (1 if operation == "barrier" else 2)
    for row in rows:
        assert (row["lib"], row["op"], row["ranks"], row["hosts"]) == ("shoal", operation, 3, 1)
        assert row["checked"] and row["iters"] >= 5 and row["batch"] >= 1
        assert 0 < row["min_us"] <= row["p50_us"] <= row["p99_us"]
        assert row["roof_us"] > 0 and row["ratio_roof"] > 0 and row["roof"]
        assert row["cpu_us"] > 0


def test_kernels_are_measured_in_every_form():
    rows = bench_rows(
        "kernel", "--sizes", "4K,1M", "--dtype", "f32,u8", "--inputs", 3, "--size-ms", 1
    )
    forms = {row["form"] for row in rows}
    assert {"scalar", "base"} <= forms <= {"scalar", "base", "avx2", "avx512", "neon"}
    for form in forms:
        found = [(r["dtype"], r["bytes"], r["stream"]) for r in rows if r["form"] == form]
        sizes = [(4096, False), (1 << 20, False), (1 << 20, True)]
        assert found == [(dtype, *size) for dtype in ("f32", "u8") for size in sizes]
    for row in rows:
        assert (row["op"], row["inputs"]) == ("sum", 3)
        assert row["us"] > 0 and row["gbps"] > 0 and row["roof_us"] > 0
        assert row["ratio_roof"] == pytest.approx(row["us"] / row["roof_us"], rel=0.05, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--isa", "sse9"], "--isa sse9"),
        (["--dtype", "f31"], "--dtype f31"),
        (["--op", "bxor"], "bxor has no meaning on f32"),
        (["--op", "premul_sum"], "--op premul_sum"),
        (["--inputs", "0"], "--inputs"),
        (["--sizes", "x"], "sizes 'x'"),
        (["allreduce"], "'allreduce' is not understood"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_of_kernel(arguments, expected):
    result = run("bench", "kernel", *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("shoal bench kernel: ") and expected in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dtype", "bf16", "--op", "max"],
        ["--dtype", "f64", "--op", "avg"],
        ["--dtype", "bool", "--op", "lor"],
        ["--dtype", "complex64"],
        ["--dtype", "u8", "--op", "bxor", "--in-place"],
        ["--memory", "shared", "--no-roof"],
    ],
    ids=" ".join,
)
def test_dtypes_and_forms(arguments):
    (row,) = bench_rows("allreduce", "-n", 2, "--sizes", "10K", "--size-ms", 2, *arguments)
    assert row["checked"]
    assert ("roof_us" in row) == ("--no-roof" not in arguments)
    assert row["in_place"] == ("--in-place" in arguments)


def test_the_table_has_a_line_per_size():
    result = run("bench", "allreduce", "-n", 2, "--sizes", "8:32", "--size-ms", 2)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if not line.startswith("#")]
    assert [int(line.split()[0]) for line in lines] == [8, 16, 32]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "which operation"),
        (["allredoce"], "allreduce"),
        (["allreduce", "--sizes", "8:x"], "8:64M"),
        (["allreduce", "--dtype", "float"], "f32"),
        (["allreduce", "--op", "mean"], "avg"),
        (["allreduce", "--op", "max", "--dtype", "complex64"], "complex64"),
        (["allreduce", "--memory", "fast"], "shared"),
        (["allreduce", "--rate", "1gbit"], "--virtual-hosts"),
        (["allreduce", "--virtual-hosts", "2", "--rate", "fast"], "1gbit"),
        (["allreduce", "--virtual-hosts", "0"], "1 to 250"),
        (["allreduce", "--size", "8"], "--sizes"),
        (["allreduce", "allgather"], "allgather"),
        (["alltoall", "--in-place"], "in place"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_arguments_are_explained(arguments, words):
    result = run("bench", *arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_help():
    for command in ("bench", "vhosts", "vhosts-exec"):
        result = run(command, "--help")
        assert result.returncode == 0
        assert result.stdout.startswith(f"usage: shoal {command}")


# ---- virtual hosts ----


@needs_root
def test_bench_on_virtual_hosts():
    rows = bench_rows(
        "allreduce", "--virtual-hosts", 3, "--rate", "1gbit", "--sizes", "8,64K", "--size-ms", 2
    )
    assert [row["hosts"] for row in rows] == [3, 3]
    assert all(row["checked"] and row["pingpong_us"] > 0 for row in rows)
    assert all(row["roof"].startswith("sockets") for row in rows)


@needs_root
def test_several_ranks_per_virtual_host():
    (row,) = bench_rows(
        "allgather", "--virtual-hosts", 2, "-n", 5, "--sizes", "10K", "--size-ms", 2
    )
    assert (row["ranks"], row["hosts"]) == (5, 2)


@needs_root
def test_programs_in_hosts():
    script = f"""
        {SHOAL} vhosts-exec vh1 -- hostname
        {SHOAL} vhosts-exec vh0 'echo "$((6 * 7))"'
        {SHOAL} vhosts-exec vh0 -- sh -c 'exit 7'; echo $?
        {SHOAL} vhosts-exec vh0 -- sh -c 'kill -9 $$'; echo $?
        {SHOAL} vhosts-exec vh9 -- true; echo $?
        exit 5
    """
    result = run("vhosts", "-n", 2, "--rate", "none", "--", "sh", "-c", script)
    assert result.returncode == 5
    assert result.stdout.split() == ["vh1", "42", "7", "137", "255"]
    assert "there is no virtual host 'vh9'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["vhosts", "true"], "-n N"),
        (["vhosts", "-n", "2"], "which command"),
        (["vhosts", "-n", "2000", "true"], "250"),
        (["vhosts", "-n", "2", "--rate", "fast", "true"], "1gbit"),
        (["vhosts", "-n", "2", "--rate", "1gbit,fast", "true"], "'fast'"),
        (["vhosts-exec", "vh0"], "--help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_arguments_of_virtual_hosts(arguments, words):
    result = run(*arguments)
    assert result.returncode == 2
    assert words in result.stderr


def test_exec_outside_of_virtual_hosts():
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SHOAL_VHOSTS")}
    result = subprocess.run(
        [SHOAL, "vhosts-exec", "vh0", "--", "true"],
        env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert result.returncode == 255
    assert "shoal vhosts" in result.stderr


# ---- the comparison ----


def compare(tmp_path, *arguments):
    command = [sys.executable, SOURCE / "bench/run.py", "--shoal", SHOAL, "--out", tmp_path]
    command += ["--rounds", "2", "--size-ms", "2", "--sizes", "8,1K", "--name", "result"]
    return subprocess.run(
        [*map(str, command), *arguments],
        capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False,
    )  # fmt: skip


def build_peers():
    if (SOURCE / ".venv-bench/openmpi").exists():
        subprocess.run([SOURCE / "bench/peers/setup"], timeout=DEADLINE_S, check=True)


def test_a_peer_finds_its_library_beside_itself(tmp_path):
    build_peers()
    program = SOURCE / ".venv-bench/mpich/bin/mpi_bench"
    if not program.exists():
        pytest.skip("MPICH is not installed")
    (tmp_path / "bin").mkdir()
    shutil.copy(program, tmp_path / "bin")
    (tmp_path / "lib").symlink_to(program.parent.parent / "lib")
    result = subprocess.run(["ldd", tmp_path / "bin/mpi_bench"], capture_output=True, text=True,
                            timeout=DEADLINE_S, check=True)  # fmt: skip
    assert f"=> {tmp_path}/bin/../lib/libmpi" in result.stdout


def test_comparison_writes_its_results(tmp_path):
    build_peers()
    result = compare(tmp_path, "--libs", "shoal,shoal-shared,gloo,openmpi,mpich")
    assert result.returncode == 0, result.stderr
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["problems"] == []
    assert [each["size"] for each in content["sizes"]] == [8, 1024]
    for each in content["sizes"]:
        assert all(found["rounds"] == 2 for found in each["libraries"].values())
        assert each["libraries"]["shoal"]["ratio_roof"] > 0
        assert all(found["cpu_s_per_gb"] > 0 for found in each["libraries"].values())
    table = (tmp_path / "result.md").read_text()
    assert "| 1 KiB |" in table and "shoal us" in table
    assert "Core-seconds for each GB of a rank's buffer at 1 KiB: shoal " in table


def test_the_op_of_deepspeed_sums_in_place_and_leaves_nothing(tmp_path):
    build_peers()
    if not (SOURCE / ".venv-bench/deepspeed/deepspeed_shm_comm.so").exists():
        pytest.skip("DeepSpeed's op is not built")
    result = compare(tmp_path, "--in-place", "--libs", "shoal,deepspeed-shm")
    assert result.returncode == 0, result.stderr
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["problems"] == [] and content["plan"]["missing"] == []
    assert not list(Path("/dev/shm").glob("deepspeed_allreduce_buffer_*"))
    result = compare(tmp_path, "--libs", "shoal,deepspeed-shm", "--declare")
    assert "without deepspeed-shm: it works in place only" in result.stderr


@needs_root
def test_every_library_runs_on_all_virtual_hosts(tmp_path):
    build_peers()
    result = compare(
        tmp_path, "--virtual-hosts", "3", "--ranks", "4", "--rounds", "1",
        "--libs", "shoal,gloo,openmpi,mpich,intelmpi",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["problems"] == []
    libraries = {"shoal", "gloo", "openmpi", "mpich", "intelmpi"}
    libraries -= {each["lib"] for each in content["plan"]["missing"]}
    assert {(row["lib"], row["hosts"]) for row in content["rows"]} == {
        (lib, 3) for lib in libraries
    }


def test_a_library_that_does_not_finish_is_recorded(tmp_path):
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\nSHOAL_TEST_MARK={tmp_path} exec sleep 600\n")
    slow.chmod(0o755)
    result = compare(tmp_path, "--libs", "shoal", "--timeout", "1", "--shoal", str(slow))
    assert result.returncode == 0, result.stderr
    content = json.loads((tmp_path / "result.json").read_text())
    (problem,) = content["problems"]
    assert (problem["lib"], problem["problem"]) == ("shoal", "timeout of 1 s")
    assert "timeout" in (tmp_path / "result.md").read_text()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                assert str(tmp_path).encode() not in (entry / "environ").read_bytes()
            except OSError:
                continue


def test_wrong_arguments_of_the_comparison(tmp_path):
    for arguments, words in (
        (["--libs", "shoal,fastest"], "fastest"),
        (["--sizes", "big"], "8:64M"),
        (["--shoal", "/nowhere/shoal"], "/nowhere/shoal"),
    ):
        result = compare(tmp_path, *arguments)
        assert result.returncode != 0
        assert words in result.stderr


def test_start_is_measured():
    rows = bench_rows("start", "-n", "2,5", "--rounds", 2)
    assert [row["ranks"] for row in rows] == [2, 5]
    for row in rows:
        assert 0 < row["arrive_ms"] < row["launch_ms"] <= row["launch_ms_high"]
        assert row["create_ms"] > 0 and row["subset_ms"] > 0 and row["subset_sum_ms"] > 0
        assert 0 < row["shared_bytes"] <= row["shared_sum_bytes"] <= row["mapped_bytes"]
        assert row["private_bytes"] > 0 and row["descriptors"] > 2 * row["ranks"]
        assert row["threads"] == 1
