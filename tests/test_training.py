# SPDX-License-Identifier: Apache-2.0
"""Training over Shoal gives what training over gloo gives: the examples, under their launchers."""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys

import pytest
import ranks
from ports import free_port

pytest.importorskip("torch")
pytest.importorskip("sklearn")

EXAMPLES = ranks.ROOT / "examples"
RUN_SECONDS_MAX = 200


def by_shoal(size: int) -> list[str]:
    return [str(ranks.SHOAL), "run", "-n", str(size), "--", sys.executable]


def by_torchrun(size: int) -> list[str]:
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nproc-per-node={size}",
        "--master-addr=127.0.0.1",
        f"--master-port={free_port()}",
    ]


def run(launcher: list[str], *arguments: str) -> str:
    """Runs a program on some ranks; returns what it printed."""
    done = subprocess.run(
        [*launcher, *arguments],
        env=ranks.ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    text = done.stdout.decode(errors="replace")
    assert done.returncode == 0, text
    return text


def rank_example(rank: int, size: int, port: int, script: str, *arguments: str) -> str:
    """Runs an example as if a launcher had started it, in a process that has torch already."""
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    sys.argv = [script, *arguments]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    return printed.getvalue()


def losses(group: ranks.Ranks, folder, script: str, *arguments: str) -> list[float]:
    path = folder / "losses.json"
    path.unlink(missing_ok=True)
    group.call(rank_example, free_port(), script, f"--json={path}", *arguments)
    return json.loads(path.read_text())["losses"]


def rank_find_examples(rank: int, size: int) -> None:
    sys.path.insert(0, str(EXAMPLES))


@pytest.fixture(scope="module", params=[2, 3])
def group(request):
    with ranks.Ranks(request.param, rank_find_examples) as started:
        yield started


def close_to(group: ranks.Ranks, wanted: list[float]):
    """Two ranks have only one order of summation; with more, gloo's is another."""
    return pytest.approx(wanted, rel=1e-6 if group.size == 2 else 1e-2)


def test_ddp_gives_the_losses_of_gloo(group, tmp_path):
    over_gloo = losses(group, tmp_path, "digits_ddp.py", "--backend=gloo", "--epochs=2")
    over_shoal = losses(group, tmp_path, "digits_ddp.py", "--epochs=2")
    again = losses(group, tmp_path, "digits_ddp.py", "--epochs=2")
    fused = losses(group, tmp_path, "digits_ddp.py", "--epochs=2", "--fused")
    assert over_shoal == close_to(group, over_gloo)
    assert again == over_shoal
    assert fused == close_to(group, over_gloo)
    assert over_shoal[-1] < 0.5 * over_shoal[0]


@pytest.mark.parametrize("version", ["1", "2"])
def test_fsdp_gives_the_losses_of_gloo(group, tmp_path, version):
    options = (f"--version={version}", "--epochs=2")
    over_gloo = losses(group, tmp_path, "digits_fsdp.py", "--backend=gloo", *options)
    over_shoal = losses(group, tmp_path, "digits_fsdp.py", *options)
    again = losses(group, tmp_path, "digits_fsdp.py", *options)
    assert over_shoal == close_to(group, over_gloo)
    assert again == over_shoal


def test_every_rank_ends_with_the_same_bits(group):
    text, *_ = group.call(rank_example, free_port(), "digits_ddp.py", "--epochs=1")
    assert "the same bits on all ranks" in text


def test_the_transformer_learns(group, tmp_path):
    book = tmp_path / "book.txt"
    book.write_text("In the beginning was the word, and the word was short.\n" * 400)
    options = (f"--text={book}", "--steps=100", "--batch=4", "--seconds=100")
    text, *_ = group.call(rank_example, free_port(), "char_transformer.py", *options)
    assert "the same bits on all ranks" in text


def test_launchers_start_the_same_training(tmp_path):
    found = []
    for launcher in (by_shoal(2), by_torchrun(2)):
        path = tmp_path / "losses.json"
        run(launcher, str(EXAMPLES / "digits_ddp.py"), "--json", str(path), "--epochs=1")
        found.append(json.loads(path.read_text())["losses"])
    assert found[0] == found[1]


@pytest.mark.parametrize("compression", ["none", "int8"])
def test_the_c_program_learns(tmp_path, compression):
    program = ranks.BUILD / "examples" / "digits"
    if not program.exists():
        pytest.skip("the examples were not built")
    from sklearn.datasets import load_digits

    data = load_digits()
    path = tmp_path / "digits.csv"
    rows = zip(data.data.astype(int), data.target, strict=True)
    path.write_text("".join(f"{','.join(map(str, row))},{digit}\n" for row, digit in rows))
    text = run([str(ranks.SHOAL), "run", "-n", "3", "--"], str(program), str(path), compression)
    assert "the same bits on all 3 ranks" in text


HOOKS = """
import torch, torch.distributed as dist, shoal.torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
dist.init_process_group("shoal")
for hook, state in (
    (default_hooks.fp16_compress_hook, None),
    (default_hooks.allreduce_hook, None),
    (powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, 1, 2)),
):
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(64, 64), bucket_cap_mb=0.01)
    model.register_comm_hook(state, hook)
    inputs = torch.randn(8, 64, generator=torch.Generator().manual_seed(dist.get_rank()))
    for _ in range(4):
        model.zero_grad()
        model(inputs).square().mean().backward()
    gradient = model.module.weight.grad
    all_of_them = [torch.zeros_like(gradient) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, gradient)
    assert all(torch.equal(gradient, one) for one in all_of_them)
    assert gradient.abs().sum() > 0
model = DistributedDataParallel(torch.nn.Linear(4, 4))
with model.join():
    for _ in range(2 + dist.get_rank()):
        model(torch.ones(1, 4)).sum().backward()
dist.destroy_process_group()
print("hooks ran")
"""


def test_communication_hooks(tmp_path):
    script = tmp_path / "hooks.py"
    script.write_text(HOOKS)
    assert run(by_shoal(2), str(script)).count("hooks ran") == 2


NO_DESTROY = """
import torch, torch.distributed as dist, shoal.torch
dist.init_process_group("shoal")
tensor = torch.ones(100000)
dist.all_reduce(tensor, async_op=True).get_future().wait()
print("all there" if tensor[0] == dist.get_world_size() else "wrong")
"""


@pytest.mark.parametrize("launcher", [by_shoal, by_torchrun])
def test_a_script_that_does_not_destroy_its_group(tmp_path, launcher):
    script = tmp_path / "script.py"
    script.write_text(NO_DESTROY)
    assert run(launcher(2), str(script)).count("all there") == 2
