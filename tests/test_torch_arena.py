# SPDX-License-Identifier: Apache-2.0
"""The buckets of DistributedDataParallel lie in memory that the ranks of a host share.

Functions named rank_* run on the ranks.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time

import pytest
import ranks

torch = pytest.importorskip("torch")
import shoal.torch  # noqa: E402 (needs torch)
from torch_ranks import fill_the_region, lies_in_a_region, new_method, rank_start, rank_start_small  # noqa: E402 (needs torch)

dist = pytest.importorskip("torch.distributed")

WIDTH = 256  # a weight of 256 KiB: far above what is staged in any case
STEPS = 3


@pytest.fixture(scope="module")
def pair():
    with ranks.Ranks(2, rank_start, new_method()) as started:
        yield started


def model():
    torch.manual_seed(3)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 1))


def parallel(network, **options):
    return torch.nn.parallel.DistributedDataParallel(
        network, gradient_as_bucket_view=True, **options
    )


def train(trained, rank: int, steps: int = STEPS) -> list[bytes]:
    """The parameters' bytes after some steps."""
    optimizer = torch.optim.SGD(trained.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=False)
        trained(torch.randn(8, WIDTH, generator=generator)).square().mean().backward()
        optimizer.step()
    return [bytes(p.detach().numpy().tobytes()) for p in trained.parameters()]


def rank_shared_and_not(rank: int, size: int):
    """Gradients' places and the parameters after training, with the switch on and off."""
    found = {}
    for switch in ("1", "0"):
        os.environ["SHOAL_TORCH_SHARED"] = switch
        trained = parallel(model())
        parameters = train(trained, rank)
        weights = [p.grad for p in trained.parameters() if p.grad.numel() > WIDTH]
        found[switch] = ([lies_in_a_region(grad) for grad in weights], parameters)
    del os.environ["SHOAL_TORCH_SHARED"]
    return found


def test_gradients_are_shared_unless_switched_off(pair):
    first, second = pair.call(rank_shared_and_not)
    assert first["1"][0] == second["1"][0] == [True] * 4
    assert first["0"][0] == second["0"][0] == [False] * 4
    assert first["1"][1] == second["1"][1] == first["0"][1] == second["0"][1]


def rank_count(rank: int, size: int, switch: str):
    """Bytes of all gradients, and what was counted while they were summed."""
    os.environ["SHOAL_TORCH_SHARED"] = switch
    trained = parallel(model(), bucket_cap_mb=100)
    del os.environ["SHOAL_TORCH_SHARED"]
    before = shoal.torch.counters()
    trained(torch.ones(1, WIDTH)).sum().backward()
    after = shoal.torch.counters()
    assert list(after) == [name for name, _ in shoal._library.Counters._fields_[1:]]
    gradients = sum(p.grad.numel() * p.grad.element_size() for p in trained.parameters())
    return gradients, {name: after[name] - before[name] for name in after}


@pytest.mark.parametrize(("switch", "way"), [("1", "direct_bytes"), ("0", "staged_bytes")])
def test_the_counters_show_where_buckets_went(pair, switch, way):
    for gradients, counted in pair.call(rank_count, switch):
        assert (counted["operations"], counted["bytes"]) == (1, gradients)
        assert counted[way] == gradients
        assert {"operations", "requests", "bytes", way, "streamed_bytes", "sleeps"} >= {
            name for name, number in counted.items() if number
        }


def rank_counters_of_another_backend(rank: int, size: int):
    group = dist.new_group([0, 1], backend="gloo")
    with pytest.raises(ValueError, match="not shoal"):
        shoal.torch.counters(group)


def test_counters_of_another_backend(pair):
    pair.call(rank_counters_of_another_backend)


def rank_other_tensors(rank: int, size: int):
    trained = parallel(model())
    train(trained, rank, 1)
    return lies_in_a_region(torch.zeros(1 << 20)), [
        lies_in_a_region(p) for p in trained.parameters()
    ]


def test_other_tensors_are_private(pair):
    for fresh, parameters in pair.call(rank_other_tensors):
        assert not fresh
        assert not any(parameters)


def rank_sum_shared(rank: int, size: int):
    with shoal.torch.shared_memory():
        large, small = torch.full((WIDTH * WIDTH,), rank + 1.0), torch.zeros(8)
    after = torch.zeros(WIDTH * WIDTH)
    before = shoal.torch.counters()["direct_bytes"]
    dist.all_reduce(large)
    direct = shoal.torch.counters()["direct_bytes"] - before
    places = [lies_in_a_region(tensor) for tensor in (large, small, after)]
    with shoal.torch.shared_memory(dist.new_group(backend="gloo")):
        places.append(lies_in_a_region(torch.zeros(WIDTH * WIDTH)))
    return places, direct, bool((large == size * (size + 1) / 2).all())


def test_a_script_places_tensors_of_its_own(pair):
    for places, direct, right in pair.call(rank_sum_shared):
        assert places == [True, False, False, False]
        assert direct == WIDTH * WIDTH * 4
        assert right


def test_shared_memory_needs_a_group():
    with pytest.raises(ValueError, match="init_process_group"):
        shoal.torch.shared_memory()


def rank_write_in_a_child(rank: int, size: int):
    """A child of fork overwrites the gradients that it inherited; the parent trains meanwhile."""
    alone = train(parallel(model()), rank)
    trained = parallel(model())
    train(trained, rank, 0)
    trained(torch.ones(1, WIDTH)).sum().backward()
    before = [p.grad.clone() for p in trained.parameters()]
    child = os.fork()
    if child == 0:
        same = all(
            torch.equal(p.grad, b) for p, b in zip(trained.parameters(), before, strict=True)
        )
        for p in trained.parameters():
            p.grad.fill_(77)
        os._exit(0 if same else 1)
    _, status = os.waitpid(child, 0)
    kept = all(torch.equal(p.grad, b) for p, b in zip(trained.parameters(), before, strict=True))
    return status, kept, train(trained, rank) == alone


def test_a_child_has_gradients_of_its_own(pair):
    assert pair.call(rank_write_in_a_child) == [(0, True, True)] * 2


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((WIDTH,), float(index))


def rank_load_by_workers(rank: int, size: int):
    # A rank of these tests is a daemon, which multiprocessing lets have no children.
    multiprocessing.current_process()._config["daemon"] = False
    trained = parallel(model())
    loader = torch.utils.data.DataLoader(Squares(), batch_size=8, num_workers=2)
    for batch in loader:
        trained(batch).sum().backward()
    return float(next(iter(trained.parameters())).grad.sum())


def test_workers_of_a_data_loader_fork_amid(pair):
    first, second = pair.call(rank_load_by_workers)
    assert first == second


def rank_outlive(rank: int, size: int):
    """The gradients are read after the group is gone, and after a second group was made."""
    group = dist.new_group([0, 1])
    trained = parallel(model(), process_group=group)
    train(trained, rank)
    before = [p.grad.clone() for p in trained.parameters()]
    dist.destroy_process_group(group)
    again = parallel(model())
    train(again, rank)
    return all(torch.equal(p.grad, b) for p, b in zip(trained.parameters(), before, strict=True))


def test_gradients_outlive_their_group(pair):
    assert pair.call(rank_outlive) == [True, True]


def heard(function, *arguments):
    """What the function gives, and what was written to stderr meanwhile."""
    with tempfile.TemporaryFile() as written:
        kept = os.dup(2)
        os.dup2(written.fileno(), 2)
        try:
            result = function(*arguments)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        written.seek(0)
        return result, written.read().decode()


def rank_fill_the_region(rank: int, size: int):
    """Buckets find no room in a region: they lie in the usual memory, and all works."""
    held, text = fill_the_region()
    trained, said = heard(lambda: parallel(model()))
    parameters = train(trained, rank)
    del held
    os.environ["SHOAL_TORCH_SHARED"] = "0"
    same = train(parallel(model()), rank) == parameters
    return text, said, [lies_in_a_region(p.grad) for p in trained.parameters()], same


def test_a_full_region_is_no_obstacle():
    with ranks.Ranks(2, rank_start_small, new_method()) as two:
        for rank, (text, said, places, same) in enumerate(two.call(rank_fill_the_region)):
            assert "SHOAL_SHARED_BYTES" in text
            assert not all(places)
            assert same
            assert said.count("private memory") == 1, said  # once, whatever else does not fit
            assert f"shoal: rank {rank}: a tensor of" in said
            assert "SHOAL_SHARED_BYTES" in said


CHILDREN = f"""
import os, sys, torch
import torch.distributed as dist
import shoal.torch
sys.path.insert(0, {str(ranks.ROOT / "tests")!r})
import test_torch_arena as test

dist.init_process_group("shoal")
rank, size = dist.get_rank(), dist.get_world_size()
alone = test.train(test.parallel(test.model()), rank)
trained = test.parallel(test.model())
test.train(trained, rank, 0)
dist.all_reduce(torch.ones(1), async_op=True).wait()  # the binding's threads are there
work = dist.all_reduce(torch.ones(1 << 16), async_op=True)
child = os.fork()
if child == 0:
    for call in (
        lambda: dist.all_reduce(torch.ones(1 << 20)),
        lambda: dist.all_reduce(torch.ones(1), async_op=True).wait(),
        lambda: dist.barrier(),
        lambda: dist.new_group([0, 1]),
    ):
        try:
            call()
        except RuntimeError as error:
            assert "forked" in str(error), error
        else:
            raise AssertionError("a call of the child was carried out")
    for p in trained.parameters():
        p.grad = torch.full_like(p, 77)
    trained(torch.ones(1, test.WIDTH)).square()
    if rank == 0:
        dist.destroy_process_group()
    sys.exit(0)  # with all that Python does at its end
work.wait()
assert test.train(trained, rank) == alone
assert os.waitpid(child, 0)[1] == 0
assert test.train(test.parallel(test.model()), rank) == alone
dist.destroy_process_group()
"""


def test_children_that_exit_tear_nothing_down(tmp_path):
    program = tmp_path / "children.py"
    program.write_text(CHILDREN)
    done = subprocess.run(
        [ranks.SHOAL, "run", "--no-tag", "-n", "2", "--", sys.executable, program],
        env=ranks.ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")
