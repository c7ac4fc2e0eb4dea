# SPDX-License-Identifier: Apache-2.0
"""shoal.torch.DistributedDataParallel with compressed fusion buffers.

Functions named rank_* run on the ranks.
"""

from __future__ import annotations

import copy
import hashlib

import pytest
import ranks

torch = pytest.importorskip("torch")
import shoal.torch  # noqa: E402 (needs torch)
from torch_ranks import new_method, rank_start  # noqa: E402 (needs torch)

dist = pytest.importorskip("torch.distributed")

DDP = shoal.torch.DistributedDataParallel
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
WIDTH, STEPS = 32, 50
SMALL_BUFFERS = {"bucket_cap_mb": 4 / 1024}  # several in each model here
EVERY = pytest.mark.parametrize("compression", ["bf16", "fp16", "int8"])


@pytest.fixture(scope="module")
def pair():
    with ranks.Ranks(2, rank_start, new_method()) as started:
        yield started


class Branches(torch.nn.Module):
    """Passes use some of the branches."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, 2 * WIDTH, dtype=dtype)
        self.branches = torch.nn.ModuleList(
            torch.nn.Linear(2 * WIDTH, 1, dtype=dtype) for _ in range(3)
        )

    def forward(self, inputs, which=(0, 1, 2)):
        inputs = self.first(inputs).tanh()
        return sum(self.branches[i](inputs) for i in which)


def made(**options):
    torch.manual_seed(1)
    return DDP(Branches(), **SMALL_BUFFERS, **options)


def batches(rank):
    """Something to learn; other samples on each rank."""
    generator = torch.Generator().manual_seed(rank)
    weights = torch.linspace(-1, 1, WIDTH)
    while True:
        inputs = torch.randn(16, WIDTH, generator=generator)
        yield inputs, (inputs * weights).sum(1, keepdim=True).tanh()


def train(model, rank, which=(0, 1, 2), steps=STEPS):
    """Steps with what is left to learn at the end."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
    losses = []
    for _, (inputs, wanted) in zip(range(steps), batches(rank), strict=False):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs, which), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    mean = torch.stack(losses[-10:]).mean()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    return mean.item()


def digest(model):
    """Of the bits of all parameters; the same on all ranks."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    digests = [None] * dist.get_world_size()
    dist.all_gather_object(digests, found.hexdigest())
    assert len(set(digests)) == 1
    return digests[0]


def rank_trains(rank, size, compression):
    plain = train(made(), rank)
    models = [made(compression=compression, gradient_as_bucket_view=i == 1) for i in range(2)]
    losses = [train(model, rank) for model in models]
    assert abs(losses[0] - plain) < 0.05 * plain
    assert losses[0] == losses[1] and digest(models[0]) == digest(models[1])
    (counted,) = models[0].fuse_counters()
    least = 0.25 if compression == "int8" else 0.5
    assert least <= counted["wire_bytes"] / counted["bytes"] < 1.25 * least


@EVERY
def test_training_as_without(pair, compression):
    pair.call(rank_trains, compression)


def rounded(gradients, dtype):
    """What two ranks make of theirs: rounded there, summed in float32, the mean rounded."""
    for gradient in gradients:
        gradient.copy_(gradient.to(dtype))
        dist.all_reduce(gradient)
        gradient.copy_((gradient / 2).to(dtype))


def rank_no_sync(rank, size, compression):
    """Two passes are rounded together."""
    model = made(compression=compression)
    plain = copy.deepcopy(model.module)
    (first, _), (second, _), *_ = (next(batches(rank + 2 * i)) for i in range(2))
    with model.no_sync():
        model(first).mean().backward()
    model(second).mean().backward()
    for inputs in (first, second):
        plain(inputs).mean().backward()
    wanted = [each.grad for each in plain.parameters() if each.grad is not None]
    rounded(wanted, TYPES[compression])
    found = [each.grad for each in model.parameters() if each.grad is not None]
    assert all(torch.equal(*each) for each in zip(found, wanted, strict=False))


@pytest.mark.parametrize("compression", TYPES)
def test_no_sync(pair, compression):
    pair.call(rank_no_sync, compression)


def rank_unused(rank, size, compression, how):
    """Which parameters were used is not rounded."""
    model = made(compression=compression, **how)
    train(model, rank, [0] if "static_graph" in how else [rank], steps=3)
    unused = [1, 2] if "static_graph" in how else [2]
    for i, branch in enumerate(model.module.branches):
        assert (branch.weight.grad is None) == (i in unused)
    digest(model)


@EVERY
@pytest.mark.parametrize("how", [{"find_unused_parameters": True}, {"static_graph": True}])
def test_unused_parameters(pair, compression, how):
    pair.call(rank_unused, compression, how)


def rank_join(rank, size):
    """Rank 1 runs out of data after the first batch."""
    model = made(compression="bf16")
    with model.join():
        for _, (inputs, _) in zip(range(3 - 2 * rank), batches(rank), strict=False):
            model(inputs).mean().backward()
    digest(model)


def test_join(pair):
    pair.call(rank_join)


def rank_refused(rank, size):
    with pytest.raises(ValueError, match=r"compression='zip' is none of bf16, fp16, int8"):
        made(compression="zip")
    with pytest.raises(ValueError, match=r"those of first\.weight are summed in float64"):
        DDP(Branches(torch.float64), compression="bf16")
    model = made(compression="bf16")
    with pytest.raises(ValueError, match=r"compression='bf16' .*a communication hook"):
        model.register_comm_hook(None, lambda state, bucket: None)
    assert model.fused
    with pytest.raises(ValueError, match=r"compression='bf16' .*backend"):
        made(compression="bf16", process_group=dist.new_group(backend="gloo"))


def test_what_is_refused(pair):
    pair.call(rank_refused)


def rank_differs(rank, size):
    model = made(compression=["bf16", "fp16"][rank])
    with pytest.raises(RuntimeError, match=r"the compression is f16 on rank 1.*but bf16 on rank 0"):
        model(next(batches(rank))[0])
    dist.barrier()


def test_ranks_that_differ(pair):
    pair.call(rank_differs)
