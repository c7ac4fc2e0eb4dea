# SPDX-License-Identifier: Apache-2.0
"""Training over Shoal gives what training over gloo gives: the examples, under their launchers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import ranks

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
        f"--master-port={ranks.free_port()}",
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


def losses(folder, launcher: list[str], script: str, *arguments: str) -> list[float]:
    path = folder / "losses.json"
    run(launcher, str(EXAMPLES / script), "--json", str(path), *arguments)
    return json.loads(path.read_text())["losses"]


def test_ddp_gives_the_losses_of_gloo(tmp_path):
    over_gloo = losses(tmp_path, by_shoal(2), "digits_ddp.py", "--backend=gloo", "--epochs=3")
    over_shoal = losses(tmp_path, by_shoal(2), "digits_ddp.py", "--epochs=3")
    again = losses(tmp_path, by_torchrun(2), "digits_ddp.py", "--epochs=3")
    assert over_shoal == over_gloo
    assert again == over_shoal
    assert over_shoal[-1] < 0.5 * over_shoal[0]


def test_ddp_on_three_ranks(tmp_path):
    over_gloo = losses(tmp_path, by_shoal(3), "digits_ddp.py", "--backend=gloo", "--epochs=2")
    over_shoal = losses(tmp_path, by_shoal(3), "digits_ddp.py", "--epochs=2")
    again = losses(tmp_path, by_shoal(3), "digits_ddp.py", "--epochs=2")
    assert over_shoal == pytest.approx(over_gloo, rel=1e-3)
    assert again == over_shoal


@pytest.mark.parametrize("version", ["1", "2"])
def test_fsdp_gives_the_losses_of_gloo(tmp_path, version):
    options = (f"--version={version}", "--epochs=3")
    over_gloo = losses(tmp_path, by_shoal(2), "digits_fsdp.py", "--backend=gloo", *options)
    over_shoal = losses(tmp_path, by_shoal(2), "digits_fsdp.py", *options)
    again = losses(tmp_path, by_torchrun(2), "digits_fsdp.py", *options)
    assert over_shoal == pytest.approx(over_gloo, rel=1e-6)
    assert again == over_shoal


def test_every_rank_ends_with_the_same_bits():
    text = run(by_shoal(4), str(EXAMPLES / "digits_ddp.py"), "--epochs=2")
    assert "the same bits on all ranks" in text


def test_the_transformer_learns(tmp_path):
    book = tmp_path / "book.txt"
    book.write_text("In the beginning was the word, and the word was short.\n" * 400)
    text = run(
        by_shoal(2),
        str(EXAMPLES / "char_transformer.py"),
        f"--text={book}",
        "--steps=100",
        "--batch=4",
        "--seconds=100",
    )
    assert "the same bits on all ranks" in text


def test_the_c_program_learns(tmp_path):
    program = ranks.BUILD / "examples" / "digits"
    if not program.exists():
        pytest.skip("the examples were not built")
    from sklearn.datasets import load_digits

    data = load_digits()
    path = tmp_path / "digits.csv"
    rows = zip(data.data.astype(int), data.target, strict=True)
    path.write_text("".join(f"{','.join(map(str, row))},{digit}\n" for row, digit in rows))
    text = run([str(ranks.SHOAL), "run", "-n", "3", "--"], str(program), str(path))
    assert "the same bits on all 3 ranks" in text


HOOKS = """
import torch, torch.distributed as dist, shoal.torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
dist.init_process_group("shoal")
for hook, state in (
    (default_hooks.bf16_compress_hook, None),
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
