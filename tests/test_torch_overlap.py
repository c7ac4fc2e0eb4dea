# SPDX-License-Identifier: Apache-2.0
"""shoal.torch.OverlappedOptimizer: what a loop learns with it is what torch's class learns.

Functions named rank_* run on the ranks. Two ranks have only one order of summation, so parameters
have the same bits.
"""

from __future__ import annotations

import itertools

import pytest
import ranks

torch = pytest.importorskip("torch")
import shoal.torch  # noqa: E402 (needs torch)
from torch_ranks import new_method, rank_start  # noqa: E402 (needs torch)

dist = pytest.importorskip("torch.distributed")
from torch.nn.parallel import DistributedDataParallel as TorchDDP  # noqa: E402

DDP = shoal.torch.DistributedDataParallel
WIDTH, STEPS = 64, 5
OPTIONS = {"gradient_as_bucket_view": True, "bucket_cap_mb": 4 / 1024}


@pytest.fixture(scope="module")
def pair():
    with ranks.Ranks(2, rank_start, new_method()) as started:
        yield started


def mlp():
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.BatchNorm1d(WIDTH), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, WIDTH))


class Attention(torch.nn.Module):
    """torch's attention takes the weight of a module that it does not enter; the last layer's is
    that of the first one; a list of parameters is never entered."""

    def __init__(self):
        super().__init__()
        self.scales = torch.nn.ParameterList(torch.ones(WIDTH) for _ in range(2))
        self.first, self.last = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.attention = torch.nn.MultiheadAttention(WIDTH, 4)
        self.last.weight = self.first.weight

    def forward(self, inputs):
        inputs = self.first(inputs * self.scales[0]) * self.scales[1]
        return self.last(self.attention(inputs, inputs, inputs)[0])


def samples(rank):
    generator = torch.Generator().manual_seed(rank)
    while True:
        yield torch.randn(8, WIDTH, generator=generator)


def loop_of(kind, network, make_optimizer, rank):
    """A model, its optimizer, and one for a scheduler."""
    torch.manual_seed(10 + rank)
    model = kind(network(), **(OPTIONS if kind is DDP else {}))
    optimizer = make_optimizer(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    return model, optimizer, scheduler


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    first, *others = parameters
    return torch.optim.AdamW([{"params": [first], "lr": 0.01}, {"params": others}], lr=0.002)


def train(model, optimizer, scheduler, batches):
    for step, inputs in enumerate(batches):
        optimizer.zero_grad()
        if step == 2:
            with model.no_sync():
                model(inputs.flip(0)).square().mean().backward()
        model(inputs).square().mean().backward()
        if step != 3:
            optimizer.step()
        scheduler.step()


def rank_learns(rank, size, network, make_optimizer):
    results = []
    for kind in (TorchDDP, DDP):
        model, optimizer, scheduler = loop_of(kind, network, make_optimizer, rank)
        if kind is DDP:
            optimizer = shoal.torch.OverlappedOptimizer(optimizer, model)
        train(model, optimizer, scheduler, itertools.islice(samples(rank), STEPS))
        results.append((model.state_dict(), optimizer.state_dict()["state"]))
    (wanted, wanted_state), (found, found_state) = results
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name
    for number, values in wanted_state.items():
        for name, value in values.items():
            assert torch.equal(found_state[number][name], value), (number, name)


@pytest.mark.parametrize("network", [mlp, Attention])
@pytest.mark.parametrize("make_optimizer", [sgd, adam])
def test_it_learns_what_torch_learns(pair, network, make_optimizer):
    pair.call(rank_learns, network, make_optimizer)


def rank_returns(rank, size):
    """Rank 0's backward pass ends before rank 1's begins: it waits for no results."""
    model, optimizer, _ = loop_of(DDP, mlp, sgd, rank)
    optimizer = shoal.torch.OverlappedOptimizer(optimizer, model)
    store = dist.distributed_c10d._get_default_store()
    for step, inputs in enumerate(itertools.islice(samples(rank), 3)):
        loss = model(inputs).mean()
        if step > 0 and rank == 1:
            store.wait([f"step {step}"])
        loss.backward()
        if step > 0 and rank == 0:
            store.set(f"step {step}", "")
        assert all(parameter.grad is None for parameter in model.parameters())
        optimizer.step()
    optimizer.synchronize()
    assert not optimizer.due


def test_backward_waits_for_no_results(pair):
    pair.call(rank_returns)


def rank_reads(rank, size):
    """Updates that are due are there for whoever looks."""
    model, optimizer, _ = loop_of(DDP, mlp, lambda p: torch.optim.SGD(p, lr=1.0), rank)
    optimizer = shoal.torch.OverlappedOptimizer(optimizer, model)
    for inputs in itertools.islice(samples(0), 2):
        before = {name: each.clone() for name, each in model.module.state_dict().items()}
        model(inputs).sum().backward()
        optimizer.step()
        after = model.module.state_dict()
        assert all(
            not torch.equal(before[name], after[name])
            for name, _ in model.module.named_parameters()
        )
    model(inputs).sum().backward()
    optimizer.step()
    last = model.module[3]
    biases = last.bias.detach().clone()
    model.eval()
    with torch.no_grad():
        model(inputs)
    assert torch.equal(last.bias, biases - 8)


def test_updates_are_seen_by_those_who_look(pair):
    pair.call(rank_reads)


def rank_refused(rank, size):
    def refused(text, action):
        with pytest.raises(ValueError, match=text):
            action()

    def wrap(kind=DDP, parameters=None, **options):
        model = kind(mlp(), **options)
        optimizer = sgd(parameters or model.parameters())
        return shoal.torch.OverlappedOptimizer(optimizer, model), model

    refused("overlap in a shoal.torch.Distributed", lambda: wrap(TorchDDP))
    refused("gradient_as_bucket_view=True", wrap)
    refused("find_unused_parameters", lambda: wrap(find_unused_parameters=True, **OPTIONS))
    refused("that the model does not sum", lambda: wrap(DDP, mlp().parameters(), **OPTIONS))
    _, model = wrap(**OPTIONS)
    with model.join():
        refused("not for a model whose updates overlap", lambda: model(torch.ones(8, WIDTH)))


def test_models_that_it_is_not_for(pair):
    pair.call(rank_refused)


def rank_elsewhere(rank, size):
    """Over a group of another backend it is the optimizer alone."""
    group = dist.new_group(backend="gloo")
    model = DDP(mlp(), process_group=group)
    optimizer = shoal.torch.OverlappedOptimizer(sgd(model.parameters()), model)
    before = model.module[0].weight.detach().clone()
    model(torch.ones(8, WIDTH) * torch.arange(8.0)[:, None]).square().sum().backward()
    optimizer.step()
    assert not torch.equal(model.module[0].weight, before)


def test_a_group_of_another_backend(pair):
    pair.call(rank_elsewhere)
