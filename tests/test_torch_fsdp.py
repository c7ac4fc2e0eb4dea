# SPDX-License-Identifier: Apache-2.0
"""FSDP's shards, gathered parameters and gradients lie in memory that the ranks of a host share.

Functions named rank_* run on the ranks; the training code in them is what a script would have.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
import ranks

torch = pytest.importorskip("torch")
import shoal.torch  # noqa: E402 (needs torch)
from torch.distributed import fsdp  # noqa: E402 (needs torch)
from torch.distributed.checkpoint import state_dict  # noqa: E402 (needs torch)
from torch.distributed.fsdp._fully_shard import _fsdp_collectives  # noqa: E402 (needs torch)
from torch_ranks import (  # noqa: E402 (needs torch)
    fill_the_region,
    lies_in_a_region,
    new_method,
    rank_start,
    rank_start_small,
)

dist = pytest.importorskip("torch.distributed")

WIDTH = 256  # a layer of 257 KiB: far above what is staged in any case
STEPS = 3
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pair():
    with ranks.Ranks(2, rank_start, new_method()) as started:
        yield started


@pytest.fixture(scope="module")
def three():
    """Three ranks do not cut the layers evenly: shards and gradients are padded."""
    with ranks.Ranks(3, rank_start, new_method()) as started:
        yield started


def network():
    torch.manual_seed(3)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 1))


def fsdp1(**options):
    each_layer = fsdp.wrap.ModuleWrapPolicy({torch.nn.Linear})
    options = {"auto_wrap_policy": each_layer, **options}
    return fsdp.FullyShardedDataParallel(network(), device_id=CPU, **options)


def fsdp2(**options):
    module = network()
    for layer in module:
        fsdp.fully_shard(layer, **options)
    return fsdp.fully_shard(module, **options)


def fsdp1_mixed():
    policy = fsdp.MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return fsdp1(mixed_precision=policy)


def fsdp2_mixed():
    policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return fsdp2(mp_policy=policy)


MODELS = {
    "fsdp1": fsdp1,
    "fsdp1 in one piece": lambda: fsdp1(auto_wrap_policy=None),
    "fsdp1, original parameters": lambda: fsdp1(use_orig_params=True),
    "fsdp1, mixed precision": fsdp1_mixed,
    "fsdp1, gathered once": lambda: fsdp1(
        sharding_strategy=fsdp.ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True
    ),
    "fsdp1, not sharded": lambda: fsdp1(sharding_strategy=fsdp.ShardingStrategy.NO_SHARD),
    "fsdp2": fsdp2,
    "fsdp2, gathered once": lambda: fsdp2(reshard_after_forward=False),
    "fsdp2, mixed precision": fsdp2_mixed,
}


def train(model, rank: int, steps: int = STEPS) -> list[float]:
    """The losses of some steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(8, WIDTH, generator=generator)).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def bits(model) -> list[bytes]:
    """This rank's shards."""
    tensors = (getattr(p, "_local_tensor", p).detach() for p in model.parameters())
    return [t.contiguous().view(torch.uint8).numpy().tobytes() for t in tensors]


def counted(function, group=None) -> dict[str, int]:
    before = shoal.torch.counters(group)
    function()
    after = shoal.torch.counters(group)
    return {name: after[name] - before[name] for name in after}


def switched(switch: str, function):
    """What the function gives with SHOAL_TORCH_SHARED so set."""
    os.environ["SHOAL_TORCH_SHARED"] = switch
    try:
        return function()
    finally:
        del os.environ["SHOAL_TORCH_SHARED"]


def rank_train(rank: int, size: int, name: str):
    """By switch: losses, shards, and what was counted."""
    found = {}

    def run():
        model = MODELS[name]()
        losses = []
        return counted(lambda: losses.extend(train(model, rank))), losses, bits(model)

    for switch in ("1", "0"):
        found[switch] = switched(switch, run)
    return found


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ranks_of", ["pair", "three"])
def test_nothing_large_is_staged_and_the_bits_are_the_same(request, ranks_of, name):
    for found in request.getfixturevalue(ranks_of).call(rank_train, name):
        shared, private = found["1"], found["0"]
        assert shared[1:] == private[1:]
        assert shared[0]["bytes"] == private[0]["bytes"] > 1 << 20
        # What is small is staged either way: the last layer, about 1 KiB.
        assert shared[0]["staged_bytes"] + shared[0]["symmetric_bytes"] < 1 << 16
        assert shared[0]["direct_bytes"] > 0.99 * shared[0]["bytes"]
        assert private[0]["direct_bytes"] == 0


def rank_train_hybrid(rank: int, size: int, version: int):
    """Sharded over pairs, replicated over two of them: what was counted in both groups."""
    mesh = torch.distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    hybrid = fsdp.ShardingStrategy.HYBRID_SHARD

    def run():
        model = (
            fsdp2(mesh=mesh) if version == 2 else fsdp1(device_mesh=mesh, sharding_strategy=hybrid)
        )
        train(model, rank, 1)
        replicated = counted(lambda: train(model, rank, 1), mesh.get_group("replicate"))
        sharded = counted(lambda: train(model, rank, 1), mesh.get_group("shard"))
        return bits(model), replicated, sharded

    return switched("1", run), switched("0", run)


def test_hybrid_sharding_in_both_groups():
    with ranks.Ranks(4, rank_start, new_method()) as four:
        for version in (1, 2):
            for shared, private in four.call(rank_train_hybrid, version):
                assert shared[0] == private[0]
                for one, other in zip(shared[1:], private[1:], strict=True):
                    assert one["direct_bytes"] > 0.99 * one["bytes"] > 1 << 18
                    assert other["direct_bytes"] == 0


def rank_find_tensors(rank: int, size: int):
    """Where the tensors of FSDP1 lie, and those of the script around it."""
    model = fsdp1()
    gathered, activations = [], []

    def look(layer, inputs, output):
        gathered.append(lies_in_a_region(layer.weight))
        activations.append(lies_in_a_region(output.expand(1 << 10, -1, -1).contiguous()))

    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear) and layer.out_features == WIDTH:
            layer.register_forward_hook(look)
    train(model, rank)
    large = [p for p in model.parameters() if p.numel() > WIDTH]
    with fsdp.FullyShardedDataParallel.summon_full_params(model):
        summoned = [lies_in_a_region(p) for p in model.parameters() if p.numel() > WIDTH]
    return {
        "shards": [lies_in_a_region(p) for p in large],
        "gathered": gathered,
        "activations": activations,
        "gradients of shards": [lies_in_a_region(p.grad) for p in large],
        "summoned": summoned,
        "of a gradient's size": [lies_in_a_region(torch.empty(WIDTH * WIDTH + WIDTH))],
    }


def test_other_tensors_are_private(pair):
    for places in pair.call(rank_find_tensors):
        assert all(places.pop("shards")) and all(places.pop("gathered"))
        assert not any(any(found) for found in places.values()), places


def shared_kib() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssShmem"))


def rank_train_long(rank: int, size: int):
    grown = []
    for make in (fsdp1, fsdp2):
        model = make()
        train(model, rank, 2)
        before = shared_kib()
        train(model, rank, 10)
        grown.append(shared_kib() - before)
    return grown


def test_steps_use_the_same_memory_again(pair):
    for grown in pair.call(rank_train_long):
        assert max(grown) < 128  # one layer's gradient has 257 KiB


def rank_accumulate(rank: int, size: int):
    """Two backward passes without communication, then one with it."""

    def run():
        model = fsdp1()
        data = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(rank))
        with model.no_sync():
            model(data).square().mean().backward()
            model(2 * data).square().mean().backward()
        model(3 * data).square().mean().backward()
        return [bytes(p.grad.numpy().tobytes()) for p in model.parameters()]

    return switched("1", run) == switched("0", run)


def test_gradients_accumulate(pair):
    assert pair.call(rank_accumulate) == [True, True]


def rank_train_in_a_full_region(rank: int, size: int, full_on: int):
    """One rank, or both, find no room: their tensors lie in the usual memory, and all works."""
    held = fill_the_region()[0] if full_on in (rank, -1) else []
    found = []
    for make in (fsdp1, fsdp2):
        losses = []
        model = make()
        counts = counted(lambda m=model, into=losses: into.extend(train(m, rank)))
        private = switched("0", lambda m=make: train(m(), rank))
        found.append((losses == private, counts))
    places = [lies_in_a_region(p) for p in fsdp1().parameters() if p.numel() > WIDTH]
    held.clear()
    return found, places


@pytest.mark.parametrize("full_on", [-1, 0])
def test_a_full_region_is_no_obstacle(full_on):
    with ranks.Ranks(2, rank_start_small, new_method()) as two:
        for rank, (found, places) in enumerate(two.call(rank_train_in_a_full_region, full_on)):
            assert any(places) == (full_on not in (rank, -1))
            for same, counts in found:
                assert same
                assert counts["direct_bytes"] == 0
                assert counts["staged_bytes"] > 1 << 20


def rank_write_in_a_child(rank: int, size: int, name: str):
    """A child of fork finds the shards and overwrites them; the parent trains meanwhile."""
    alone = MODELS[name]()
    train(alone, rank, 2 * STEPS)
    model = MODELS[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    children, before = [], []
    for step in range(2 * STEPS):
        if step == STEPS:
            before = bits(model)
            child = os.fork()
            if child == 0:
                same = bits(model) == before
                with torch.no_grad():
                    for p in model.parameters():
                        getattr(p, "_local_tensor", p).fill_(77)
                os._exit(0 if same else 1)
            children.append(os.waitpid(child, 0)[1])
        optimizer.zero_grad()
        model(torch.randn(8, WIDTH, generator=generator)).square().mean().backward()
        optimizer.step()
    return children, bits(model) == bits(alone)


@pytest.mark.parametrize("name", ["fsdp1", "fsdp2"])
def test_a_child_has_shards_of_its_own(pair, name):
    assert pair.call(rank_write_in_a_child, name) == [([0], True)] * 2


def rank_outlive(rank: int, size: int):
    """Shards and gradients are read after their group is gone and another model was trained."""
    group = dist.new_group(list(range(size)))
    model = fsdp1(process_group=group)
    train(model, rank)
    before, gradients = bits(model), [p.grad.clone() for p in model.parameters()]
    dist.destroy_process_group(group)
    train(fsdp1(), rank)
    kept = zip(model.parameters(), gradients, strict=True)
    return bits(model) == before and all(torch.equal(p.grad, g) for p, g in kept)


def test_shards_outlive_their_group(pair):
    assert pair.call(rank_outlive) == [True, True]


def rank_meet_again(rank: int, size: int, method: str):
    """A shard in memory of a job's first default group is gathered by its second one."""
    shard = next(fsdp1(auto_wrap_policy=None).parameters()).detach()
    copy = shard.clone()
    dist.destroy_process_group()
    rank_start(rank, size, method)
    outputs = [torch.empty(size * shard.numel()) for _ in range(2)]
    dist.all_gather_into_tensor(outputs[0], shard)
    dist.all_gather_into_tensor(outputs[1], copy)
    return lies_in_a_region(shard), torch.equal(*outputs), shoal.torch.counters()["direct_bytes"]


def test_shards_outlive_the_default_group():
    with ranks.Ranks(2, rank_start, new_method()) as two:
        assert two.call(rank_meet_again, new_method()) == [(True, True, 0)] * 2


def rank_save_and_load(rank: int, size: int, version: int):
    """A checkpoint by torch.save, of all or of the shards, gives the same model."""
    make = fsdp1 if version == 1 else fsdp2
    model, other = make(), make()
    train(model, rank)
    for whole in (True, False):
        options = state_dict.StateDictOptions(full_state_dict=whole)
        saved = io.BytesIO()
        torch.save(state_dict.get_model_state_dict(model, options=options), saved)
        saved.seek(0)
        train(other, rank, 1)
        loaded = torch.load(saved, weights_only=False)
        state_dict.set_model_state_dict(other, loaded, options=options)
        assert bits(other) == bits(model)
    return train(model, rank) == train(other, rank)


@pytest.mark.parametrize("version", [1, 2])
def test_a_checkpoint_is_saved_and_loaded(pair, version):
    assert pair.call(rank_save_and_load, version) == [True, True]


class OwnAllGather(_fsdp_collectives.DefaultAllGather):
    """What a script may bring along."""


def rank_choose(rank: int, size: int):
    """Whether something went directly, by what a script has set for FSDP2."""

    def counted_with(choose) -> bool:
        model = fsdp2()
        for module in model.modules():
            if isinstance(module, fsdp.FSDPModule):
                choose(module)
        return counted(lambda: train(model, rank, 1))["direct_bytes"] > 0

    def own(module):
        module.set_custom_all_gather(OwnAllGather())
        module.set_custom_reduce_scatter(_fsdp_collectives.DefaultReduceScatter())

    return [
        counted_with(lambda m: m.set_allocate_memory_from_process_group_for_comm(True)),
        counted_with(lambda m: m.set_allocate_memory_from_process_group_for_comm(False)),
        counted_with(own),
    ]


def test_the_choice_of_a_script_stays(pair):
    assert pair.call(rank_choose) == [[True, False, False]] * 2


@pytest.mark.parametrize("first", ["shoal.torch", "torch.distributed.fsdp"])
def test_the_order_of_imports_does_not_matter(first):
    second = {"shoal.torch", "torch.distributed.fsdp"}.difference([first]).pop()
    program = f"""
import sys
import {first}
if "{first}" == "shoal.torch":
    assert "torch.distributed.fsdp" not in sys.modules
import {second}
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
assert hasattr(FSDPParamGroup.__init__, "__wrapped__")
assert not hasattr(FSDPParamGroup.__init__.__wrapped__, "__wrapped__")
"""
    subprocess.run([sys.executable, "-c", program], env=ranks.ENVIRONMENT, check=True, timeout=120)


def test_an_fsdp_with_other_insides_is_left_alone(monkeypatch):
    import shoal.torch.fsdp

    monkeypatch.delattr(shoal.torch.fsdp._flat_param.FlatParamHandle, "shard")
    monkeypatch.setattr(shoal.torch.fsdp._fsdp_param_group, "FSDPParamGroup", type("", (), {}))
    with pytest.warns(UserWarning, match="private memory"):
        shoal.torch._place_fsdp()
