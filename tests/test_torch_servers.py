# SPDX-License-Identifier: Apache-2.0
"""Training with servers: both classes get the bits that two ranks get without, whose sums have only
one order."""

import subprocess
import sys

import pytest
from launching import needs_shoal
from ranks import ENVIRONMENT, SHOAL

pytest.importorskip("torch")
pytestmark = needs_shoal

DEADLINE_S = 120
PROGRAM = """
import hashlib
import torch
import torch.distributed as dist
import shoal.torch

torch.set_num_threads(1)
dist.init_process_group("shoal")
rank = dist.get_rank()

def made():
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4)))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)

def backward(model, step, of_rank):
    inputs = torch.randn(8, 256, generator=torch.Generator().manual_seed(10 * step + of_rank))
    model(inputs).square().mean().backward()

def digest(model):
    bits = hashlib.sha256()
    for parameter in model.parameters():
        bits.update(parameter.detach().numpy().tobytes())
    return bits.hexdigest()

def trained(wrap):
    model, optimizer = made()
    wrapped = wrap(model, bucket_cap_mb=0.5)
    for step in range(3):
        optimizer.zero_grad()
        backward(wrapped, step, rank)
        optimizer.step()
    return digest(model)

def trained_alone():
    model, optimizer = made()
    for step in range(3):
        gradients = []
        for of_rank in range(2):
            optimizer.zero_grad()
            backward(model, step, of_rank)
            gradients.append([parameter.grad.clone() for parameter in model.parameters()])
        for parameter, first, second in zip(model.parameters(), *gradients):
            parameter.grad = (first + second) / 2
        optimizer.step()
    return digest(model)

ours = trained(shoal.torch.DistributedDataParallel)
theirs = trained(torch.nn.parallel.DistributedDataParallel)
print(ours == trained_alone(), theirs == trained_alone(), flush=True)
dist.destroy_process_group()
"""


def test_servers_do_not_change_what_is_trained(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "agent.sh").write_text(
        '#!/bin/sh\nexport SHOAL_HOST_ID="$1" SHOAL_HOSTNAME="$1"\nshift\nexec "$@"\n'
    )
    result = subprocess.run(
        [
            SHOAL, "run", "--no-tag", "--hosts", "left,right", "--servers", "2",
            "--server-hosts", "far,near", "--agent", f"sh {tmp_path}/agent.sh {{host}}",
            "--", sys.executable, tmp_path / "program.py",
        ],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        env=ENVIRONMENT | {"SHOAL_REPRODUCIBLE": "1"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["True"] * 4
