# SPDX-License-Identifier: Apache-2.0
"""The PyTorch backend on 1 to 4 real processes: every method against torch's own arithmetic.

Inputs are small whole numbers, so that every result is exact in every type and can be compared
bit by bit. Functions named rank_* run on the ranks.
"""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
import ranks

torch = pytest.importorskip("torch")
from torch_ranks import UNSIGNED, new_method, rank_start, same  # noqa: E402 (needs torch)

dist = pytest.importorskip("torch.distributed")

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]
SHAPES = [(), (0,), (1,), (7,), (3, 5), (1031,)]
SIZES = [1, 2, 3, 4]


@pytest.fixture(scope="module", params=SIZES)
def group(request):
    with ranks.Ranks(request.param, rank_start, new_method()) as started:
        yield started


@pytest.fixture(scope="module")
def pair():
    with ranks.Ranks(2, rank_start, new_method()) as started:
        yield started


@pytest.fixture(scope="module")
def four():
    with ranks.Ranks(4, rank_start, new_method()) as started:
        yield started


def numbers(rank: int, shape, dtype, lowest: int = 0, highest: int = 5):
    """What a rank puts in: known to every rank."""
    generator = torch.Generator().manual_seed(100 + rank)
    values = torch.randint(lowest, highest, tuple(shape), generator=generator)
    if dtype.is_complex:
        return torch.complex(values.double(), values.double() - 1).to(dtype)
    return values.to(dtype)


def combine(op, inputs: list):
    """The reduction in torch's arithmetic, in a type that holds every result."""
    first = inputs[0]
    wide = torch.complex128 if first.dtype.is_complex else torch.float64
    if not (first.dtype.is_floating_point or first.dtype.is_complex):
        wide = torch.int64
    stack = torch.stack([one.to(wide) for one in inputs])
    if op == dist.ReduceOp.SUM:
        out = stack.sum(0)
    elif op == dist.ReduceOp.AVG:
        total = stack.sum(0)
        exact = wide != torch.int64
        out = total / len(inputs) if exact else total.div(len(inputs), rounding_mode="trunc")
    elif op == dist.ReduceOp.PRODUCT:
        out = stack.prod(0)
    elif op == dist.ReduceOp.MIN:
        out = stack.amin(0)
    elif op == dist.ReduceOp.MAX:
        out = stack.amax(0)
    else:
        out = stack[0]
        for other in stack[1:]:
            if op == dist.ReduceOp.BAND:
                out = out & other
            elif op == dist.ReduceOp.BOR:
                out = out | other
            else:
                out = out ^ other
    return out.to(first.dtype)


def strided(tensor):
    """The same values with gaps between the elements."""
    wide = torch.zeros((*tensor.shape, 2), dtype=tensor.dtype)
    wide[..., 0] = tensor
    return wide[..., 0]


# ---- reductions


def rank_allreduce(rank, size):
    op = dist.ReduceOp
    for dtype in FLOATS + INTEGERS + UNSIGNED:
        for one in (op.SUM, op.PRODUCT, op.MIN, op.MAX):
            for shape in SHAPES:
                inputs = [numbers(r, shape, dtype, 1, 4) for r in range(size)]
                tensor = inputs[rank].clone()
                dist.all_reduce(tensor, one)
                same(tensor, combine(one, inputs))
                work = dist.all_reduce(copy := inputs[rank].clone(), one, async_op=True)
                assert work.wait()
                same(copy, combine(one, inputs))


def test_allreduce(group):
    group.call(rank_allreduce)


def rank_allreduce_more(rank, size):
    op = dist.ReduceOp
    for dtype in COMPLEX:
        inputs = [numbers(r, (33,), dtype) for r in range(size)]
        tensor = inputs[rank].clone()
        dist.all_reduce(tensor)
        same(tensor, combine(op.SUM, inputs))
        tensors = [inputs[rank].clone()]
        options = dist.AllreduceOptions()
        options.reduceOp = op.PRODUCT
        dist.group.WORLD.allreduce(tensors, options).wait()
        same(tensors[0], combine(op.PRODUCT, inputs))
    for dtype in INTEGERS:
        for one in (op.BAND, op.BOR, op.BXOR):
            inputs = [numbers(r, (65,), dtype, 0, 100) for r in range(size)]
            tensor = inputs[rank].clone()
            dist.all_reduce(tensor, one)
            same(tensor, combine(one, inputs))
    flags = [numbers(r, (65,), torch.bool, 0, 2) for r in range(size)]
    for one, wanted in (
        (op.SUM, torch.stack(flags).any(0)),
        (op.MAX, torch.stack(flags).any(0)),
        (op.BOR, torch.stack(flags).any(0)),
        (op.MIN, torch.stack(flags).all(0)),
        (op.PRODUCT, torch.stack(flags).all(0)),
        (op.BAND, torch.stack(flags).all(0)),
    ):
        tensor = flags[rank].clone()
        dist.all_reduce(tensor, one)
        same(tensor, wanted)


def test_allreduce_of_complex_bits_and_bools(group):
    group.call(rank_allreduce_more)


def rank_average(rank, size):
    for dtype in FLOATS + INTEGERS:
        inputs = [numbers(r, (3, 11), dtype) * size for r in range(size)]
        tensor = inputs[rank].clone()
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        same(tensor, combine(dist.ReduceOp.AVG, inputs))
    for dtype in FLOATS:
        inputs = [numbers(r, (13,), dtype) for r in range(size)]
        for factor in (0.5, torch.tensor([2.0], dtype=dtype)):
            premul = dist._make_nccl_premul_sum(factor)
            tensor = inputs[rank].clone()
            dist.all_reduce(tensor, premul)
            scaled = [one * float(factor) for one in inputs]
            same(tensor, combine(dist.ReduceOp.SUM, scaled))


def test_average_and_premultiplied_sum(group):
    group.call(rank_average)


def rank_gaps(rank, size):
    inputs = [numbers(r, (4, 6), torch.float32) for r in range(size)]
    total = combine(dist.ReduceOp.SUM, inputs)
    tensor = strided(inputs[rank])
    dist.all_reduce(tensor)
    same(tensor.contiguous(), total)
    turned = inputs[rank].t()
    copy = turned.clone(memory_format=torch.preserve_format)
    assert not copy.is_contiguous()
    dist.all_reduce(copy, async_op=True).wait()
    same(copy.contiguous(), total.t().contiguous())
    out = strided(torch.zeros(size * 4, 6))
    dist.all_gather_single(out, strided(inputs[rank]))
    same(out.contiguous(), torch.cat(inputs))
    part = strided(torch.zeros(5))
    wide = [numbers(r, (5 * size,), torch.float32) for r in range(size)]
    dist.reduce_scatter_single(part, strided(wide[rank]))
    same(part.contiguous(), combine(dist.ReduceOp.SUM, wide)[5 * rank : 5 * rank + 5])
    seen = strided(inputs[rank])
    dist.broadcast(seen, size - 1)
    same(seen.contiguous(), inputs[size - 1])
    grown = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(strided(grown))
        dist.all_reduce(grown)
    same(grown.detach(), torch.full((3,), float(size)))
    mirrored = torch.complex(torch.ones(2), torch.ones(2)).conj()
    result = mirrored.clone()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend.allreduce([mirrored], dist.AllreduceOptions()).wait()
    same(mirrored.resolve_conj(), result.resolve_conj() * size)


def test_tensors_with_gaps(group):
    group.call(rank_gaps)


def rank_reduce(rank, size):
    for root in range(size):
        for dtype in (torch.float32, torch.int64, torch.bfloat16):
            inputs = [numbers(r, (9,), dtype) for r in range(size)]
            for make in (torch.clone, strided):
                tensor = make(inputs[rank])
                dist.reduce(tensor, root)
                total = combine(dist.ReduceOp.SUM, inputs)
                same(tensor.contiguous(), total if rank == root else inputs[rank])


def test_reduce(group):
    group.call(rank_reduce)


# ---- moves


def rank_broadcast(rank, size):
    for root in range(size):
        for dtype in FLOATS + INTEGERS + UNSIGNED + COMPLEX + [torch.bool, torch.float8_e4m3fn]:
            for shape in SHAPES:
                inputs = [numbers(r, shape, torch.float32, 0, 2).to(dtype) for r in range(size)]
                tensor = inputs[rank].clone()
                dist.broadcast(tensor, root)
                same(
                    tensor.view(torch.uint8) if tensor.dim() else tensor,
                    inputs[root].view(torch.uint8) if tensor.dim() else inputs[root],
                )


def test_broadcast(group):
    group.call(rank_broadcast)


def rank_allgather(rank, size):
    for dtype in FLOATS + INTEGERS + COMPLEX + [torch.bool]:
        inputs = [numbers(r, (2, 5), dtype, 0, 2) for r in range(size)]
        outputs = [torch.zeros(2, 5, dtype=dtype) for _ in range(size)]
        dist.all_gather(outputs, inputs[rank])
        for got, wanted in zip(outputs, inputs, strict=True):
            same(got, wanted)
        whole = torch.zeros(size, 2, 5, dtype=dtype)
        dist.all_gather(list(whole.unbind(0)), inputs[rank], async_op=True).wait()
        same(whole, torch.stack(inputs))
        whole.zero_()
        whole[rank] = inputs[rank]
        dist.all_gather_single(whole, whole[rank])
        same(whole, torch.stack(inputs))
    uneven = [numbers(r, (r + 1, 3), torch.float32) for r in range(size)]
    outputs = [torch.zeros(r + 1, 3) for r in range(size)]
    dist.all_gather(outputs, uneven[rank])
    for got, wanted in zip(outputs, uneven, strict=True):
        same(got, wanted)
    empty = [torch.zeros(0) for _ in range(size)]
    dist.all_gather(empty, torch.zeros(0))


def test_allgather(group):
    group.call(rank_allgather)


def rank_allgather_coalesced(rank, size):
    inputs = [[numbers(r, (n,), torch.float32) for n in (3, 5)] for r in range(size)]
    outputs = [[torch.zeros(n) for n in (3, 5)] for _ in range(size)]
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    work = dist.group.WORLD.allgather_coalesced(outputs, inputs[rank])
    assert work.wait()
    for r in range(size):
        for got, wanted in zip(outputs[r], inputs[r], strict=True):
            same(got, wanted)
    wholes = [torch.zeros(size * n) for n in (3, 5)]
    dist.group.WORLD.allgather_into_tensor_coalesced(wholes, inputs[rank]).wait()
    for i, whole in enumerate(wholes):
        same(whole, torch.cat([inputs[r][i] for r in range(size)]))
    assert backend.supports_coalescing and backend.supports_splitting


def test_allgather_coalesced(group):
    group.call(rank_allgather_coalesced)


def rank_gather_scatter(rank, size):
    for root in range(size):
        for dtype in (torch.float32, torch.int8, torch.bool):
            inputs = [numbers(r, (3, 2), dtype, 0, 2) for r in range(size)]
            outputs = [torch.zeros(3, 2, dtype=dtype) for _ in range(size)]
            dist.gather(inputs[rank], outputs if rank == root else None, dst=root)
            for got, wanted in zip(outputs, inputs, strict=True):
                same(got, wanted if rank == root else torch.zeros_like(wanted))
            mine = strided(torch.zeros(3, 2, dtype=dtype))
            dist.scatter(mine, inputs if rank == root else None, src=root)
            same(mine.contiguous(), inputs[rank])


def test_gather_and_scatter(group):
    group.call(rank_gather_scatter)


def rank_reduce_scatter(rank, size):
    op = dist.ReduceOp
    for dtype in FLOATS + INTEGERS:
        inputs = [numbers(r, (size, 4), dtype) for r in range(size)]
        total = combine(op.SUM, inputs)
        out = torch.zeros(4, dtype=dtype)
        dist.reduce_scatter(out, list(inputs[rank].unbind(0)))
        same(out, total[rank])
        out.zero_()
        dist.reduce_scatter_single(out, inputs[rank].clone(), async_op=True).wait()
        same(out, total[rank])
        scaled = [one * size for one in inputs]
        dist.reduce_scatter_single(out, scaled[rank], op.AVG)
        same(out, combine(op.AVG, scaled)[rank])
    premul = dist._make_nccl_premul_sum(0.5)
    inputs = [numbers(r, (size, 4), torch.float32) for r in range(size)]
    out = torch.zeros(4)
    dist.reduce_scatter_single(out, inputs[rank].clone(), premul)
    same(out, combine(op.SUM, inputs)[rank] * 0.5)
    uneven = [[numbers(r, (i + 1,), torch.float32) for i in range(size)] for r in range(size)]
    out = torch.zeros(rank + 1)
    dist.reduce_scatter(out, uneven[rank])
    same(out, combine(op.SUM, [uneven[r][rank] for r in range(size)]))
    outs = [torch.zeros(4), torch.zeros(2)]
    both = [[numbers(r, (size * n,), torch.float32) for n in (4, 2)] for r in range(size)]
    dist.group.WORLD.reduce_scatter_tensor_coalesced(outs, both[rank]).wait()
    for i, n in enumerate((4, 2)):
        same(outs[i], combine(op.SUM, [b[i] for b in both])[n * rank : n * (rank + 1)])


def test_reduce_scatter(group):
    group.call(rank_reduce_scatter)


def rank_alltoall(rank, size):
    for dtype in (torch.float32, torch.int16, torch.complex64):
        inputs = [numbers(r, (2 * size, 3), dtype) for r in range(size)]
        out = torch.zeros(2 * size, 3, dtype=dtype)
        dist.all_to_all_single(out, inputs[rank].clone())
        same(out, torch.cat([one[2 * rank : 2 * rank + 2] for one in inputs]))
        dist.all_to_all_single(again := inputs[rank].clone(), again)
        same(again, out)
    splits = [[(r + 2 * i) % 3 for i in range(size)] for r in range(size)]
    inputs = [numbers(r, (sum(splits[r]), 2), torch.float32) for r in range(size)]
    received = [splits[r][rank] for r in range(size)]
    out = torch.zeros(sum(received), 2)
    dist.all_to_all_single(out, inputs[rank], received, splits[rank], async_op=True).wait()
    same(out, torch.cat([inputs[r].split(splits[r])[rank] for r in range(size)]))
    outs = [torch.zeros(n, 2) for n in received]
    dist.all_to_all(outs, list(inputs[rank].split(splits[rank])))
    same(torch.cat(outs), out)


def test_alltoall(group):
    group.call(rank_alltoall)


# ---- messages


def rank_messages(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    wanted = numbers(left, (17,), torch.float32)
    got = torch.zeros(17)
    sent = dist.isend(numbers(rank, (17,), torch.float32), right)
    dist.recv(got, left)
    sent.wait()
    same(got, wanted)
    first, second = torch.zeros(3), strided(torch.zeros(3, 2))
    works = [
        dist.isend(torch.full((3,), float(rank)), right, tag=7),
        dist.isend(torch.full((3, 2), rank + 0.5), right, tag=8),
        dist.irecv(second, left, tag=8),
        dist.irecv(first, left, tag=7),
    ]
    for work in works:
        work.wait()
    same(first, torch.full((3,), float(left)))
    same(second.contiguous(), torch.full((3, 2), left + 0.5))


def test_messages(four):
    four.call(rank_messages)


def rank_tags(rank, size):
    import shoal.torch

    for tag in (-1, 2**31 - 1):  # the last one is monitored_barrier's
        for call in (dist.isend, dist.irecv):
            with pytest.raises(ValueError, match=f"tag is {tag}; tags are 0 to 2147483646"):
                call(torch.zeros(0, dtype=torch.uint8), 1 - rank, tag=tag)
        with pytest.raises(ValueError, match="tags are"):
            dist.recv(torch.zeros(0), tag=tag)
    got = torch.zeros(1)
    receive = dist.irecv(got, 1 - rank, tag=2**31 - 2)
    shoal.torch.monitored_barrier()
    dist.send(torch.full((1,), float(rank)), 1 - rank, tag=2**31 - 2)
    receive.wait()
    same(got, torch.full((1,), float(1 - rank)))


def test_tags(pair):
    pair.call(rank_tags)


def rank_any_source(rank, size):
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            got = torch.zeros(2, dtype=torch.int64)
            source = dist.recv(got)
            same(got, torch.tensor([source, source + 10]))
            seen.add(source)
        assert seen == set(range(1, size))
    else:
        dist.send(torch.tensor([rank, rank + 10]), 0)


def test_receive_from_any_source(four):
    four.call(rank_any_source)


def rank_dropped(rank, size):
    for i in range(20):
        if rank == 0:
            dist.isend(torch.full((1000,), float(i)), 1, tag=3)
        elif rank == 1:
            got = torch.zeros(1000)
            dist.recv(got, 0, tag=3)
            same(got, torch.full((1000,), float(i)))


def test_a_send_that_nobody_waits_for(pair):
    pair.call(rank_dropped)


def rank_batch(rank, size):
    tensors = {r: torch.zeros(50) for r in range(size) if r != rank}
    mine = torch.full((50,), float(rank))
    ops = [dist.P2POp(dist.irecv, tensors[r], r) for r in tensors]
    ops += [dist.P2POp(dist.isend, mine, r) for r in tensors]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    for r, got in tensors.items():
        same(got, torch.full((50,), float(r)))


def test_batch_of_messages(four):
    four.call(rank_batch)


def rank_wait_with_timeout(rank, size):
    got = torch.zeros(4)
    if rank == 0:
        work = dist.irecv(got, 1)
        with pytest.raises(dist.DistError, match="not done within 50 ms"):
            work.wait(timedelta(milliseconds=50))
        dist.send(torch.ones(1), 1)
        work.wait()
        same(got, torch.full((4,), 5.0))
    else:
        dist.recv(torch.zeros(1), 0)
        dist.send(torch.full((4,), 5.0), 0)


def test_wait_with_a_timeout_leaves_the_work_going(pair):
    pair.call(rank_wait_with_timeout)


# ---- works and futures


def rank_futures(rank, size):
    tensor = torch.full((1000,), float(rank))
    work = dist.all_reduce(tensor, async_op=True)
    chained = work.get_future().then(lambda future: future.value()[0] * 2)
    total = float(sum(range(size)))
    same(chained.wait(), torch.full((1000,), 2 * total))
    assert work.is_completed() and work.is_success()
    assert work.get_future().done()
    same(work.result()[0], torch.full((1000,), total))
    many = [torch.full((64,), float(rank + i)) for i in range(50)]
    futures = [dist.all_reduce(one, async_op=True).get_future() for one in many]
    for i, future in enumerate(torch.futures.collect_all(futures).wait()):
        same(future.value()[0], torch.full((64,), total + i * size))
    done = dist.all_reduce(torch.ones(1), async_op=True)
    done.wait()
    same(done.get_future().value()[0], torch.full((1,), float(size)))
    gathered = [torch.zeros(2) for _ in range(size)]
    future = dist.all_gather(gathered, torch.full((2,), float(rank)), async_op=True).get_future()
    assert [one[0].item() for one in future.wait()] == [float(r) for r in range(size)]
    polled = dist.barrier(async_op=True)
    while not polled.is_completed():
        pass
    assert polled.wait()


def test_works_and_futures(group):
    group.call(rank_futures)


def rank_group_facts(rank, size):
    pg = dist.group.WORLD
    backend = pg._get_backend(torch.device("cpu"))
    assert dist.get_backend() == "shoal"
    assert backend.name() == "shoal"
    assert (pg.rank(), pg.size()) == (rank, size)
    before = backend._get_sequence_number_for_group()
    dist.barrier()
    dist.all_reduce(torch.ones(1))
    assert backend._get_sequence_number_for_group() == before + 2
    pg.set_timeout(timedelta(seconds=30))
    pg._enable_collectives_timing()
    work = dist.all_reduce(torch.ones(1), async_op=True)
    late = dist.all_reduce(torch.ones(1), async_op=True)
    pg._wait_for_pending_works()
    assert late.is_completed() and work.is_completed()
    assert work._get_duration() > 0
    with pytest.raises(NotImplementedError, match="registerOnCompletionHook"):
        pg._register_on_completion_hook(print)
    memory = backend.allocate_tensor(1000, dtype=torch.float32, device=torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    memory.fill_(rank)
    dist.all_reduce(memory)
    same(memory, torch.full((1000,), float(sum(range(size)))))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(10))
        dist.all_reduce(torch.ones(10), async_op=True).get_future().wait()
    named = [event for event in profile.events() if event.name == "shoal:all_reduce"]
    assert len(named) == 2


def test_facts_of_the_group(group):
    group.call(rank_group_facts)


def rank_objects(rank, size):
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert objects == [{"rank": r, "text": "x" * r} for r in range(size)]
    listed = [rank, "a"] if rank == 0 else [None, None]
    dist.broadcast_object_list(listed, 0)
    assert listed == [0, "a"]
    gathered = [None] * size if rank == size - 1 else None
    dist.gather_object((rank,), gathered, dst=size - 1)
    assert gathered is None or gathered == [(r,) for r in range(size)]
    out = [None]
    dist.scatter_object_list(out, [f"for {r}" for r in range(size)] if rank == 0 else None, 0)
    assert out == [f"for {rank}"]


def test_objects(group):
    group.call(rank_objects)


def rank_coalescing(rank, size):
    from torch.distributed.distributed_c10d import _coalescing_manager

    tensors = [torch.full((n,), float(rank + n)) for n in (1, 3, 0, 100)]
    wanted = [torch.full((n,), float(sum(range(size)) + n * size)) for n in (1, 3, 0, 100)]
    with _coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for got, right in zip(tensors, wanted, strict=True):
        same(got, right)
    outs = [torch.zeros(size * n) for n in (2, 5)]
    with _coalescing_manager(async_ops=True) as manager:
        for n, out in zip((2, 5), outs, strict=True):
            dist.all_gather_single(out, torch.full((n,), float(rank)))
    manager.wait()
    same(outs[1], torch.arange(size).repeat_interleave(5).float())
    parts = [torch.zeros(2), torch.zeros(3)]
    with _coalescing_manager():
        for part in parts:
            dist.reduce_scatter_single(part, torch.ones(size * len(part)))
    same(parts[1], torch.full((3,), float(size)))
    mixed = [torch.ones(2), torch.ones(2, dtype=torch.int64), torch.ones(1, dtype=torch.int64)]
    dist.group.WORLD.allreduce_coalesced(mixed).wait()
    for tensor in mixed:
        assert (tensor == size).all()
    later = torch.full((3,), float(rank))
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.broadcast(later, 0)
    manager.wait()
    same(later, torch.zeros(3))


def test_coalescing(group):
    group.call(rank_coalescing)


# ---- sub-groups


def rank_subgroups(rank, size):
    for first in range(size):
        for second in range(first + 1, size):
            pg = dist.new_group([first, second])
            if rank in (first, second):
                tensor = torch.full((10,), float(rank))
                dist.all_reduce(tensor, group=pg)
                same(tensor, torch.full((10,), float(first + second)))
                assert pg.size() == 2
    alone = dist.new_group([rank], use_local_synchronization=True)
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=alone)
    same(tensor, torch.ones(3))
    twins = [dist.new_group(list(range(size))) for _ in range(2)]
    tensors = [torch.full((5,), float(rank + i)) for i in range(2)]
    works = [dist.all_reduce(tensors[i], group=twins[i], async_op=True) for i in (0, 1)]
    for i, work in enumerate(works):
        work.wait()
        same(tensors[i], torch.full((5,), float(sum(range(size)) + i * size)))
    dist.destroy_process_group(twins[0])
    again = dist.new_group(list(range(size)), timeout=timedelta(seconds=20))
    dist.all_reduce(tensors[0].fill_(1), group=again)
    same(tensors[0], torch.full((5,), float(size)))
    halves, _ = dist.new_subgroups(2)
    neighbour = torch.zeros(1)
    partner = rank ^ 1
    dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, torch.full((1,), float(rank)), partner, group=halves),
            dist.P2POp(dist.irecv, neighbour, partner, group=halves),
        ]
    )[-1].wait()
    assert neighbour.item() == partner
    dist.barrier(group=halves)


def test_subgroups(four):
    four.call(rank_subgroups)


def count_sockets() -> int:
    links = (
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}")
    )
    return sum(link.startswith("socket:") for link in links)


def rank_no_new_sockets(rank, size):
    dist.barrier()
    before = count_sockets()
    pgs = [dist.new_group([0, 1]) for _ in range(5)]
    for pg in pgs:
        dist.all_reduce(torch.ones(10), group=pg)
    assert count_sockets() == before


def test_subgroups_open_no_socket(pair):
    pair.call(rank_no_new_sockets)


# ---- what stands on top


def rank_functional(rank, size):
    import torch.distributed._functional_collectives as functional
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    everyone = list(range(size))
    total = float(sum(everyone))
    mine = torch.full((size, 2), float(rank))
    same(functional.all_reduce(mine, "sum", everyone) + 0, torch.full((size, 2), total))
    gathered = functional.all_gather_tensor(mine, 0, everyone) + 0
    same(gathered, torch.arange(size).float().repeat_interleave(2 * size).view(-1, 2))
    part = functional.reduce_scatter_tensor(mine, "sum", 0, everyone) + 0
    same(part, torch.full((1, 2), total))
    turned = functional.all_to_all_single(mine, None, None, everyone) + 0
    same(turned, torch.arange(size).float().repeat_interleave(2).view(size, 2))
    both = functional.all_reduce_coalesced([mine, mine + 1], "sum", everyone)
    same(both[1] + 0, torch.full((size, 2), total + size))

    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(12.0).view(6, 2)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    same(rows.full_tensor(), whole)
    same((rows @ rows.redistribute(mesh, [Replicate()]).t()).full_tensor(), whole @ whole.t())
    same(rows.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    same(rows.sum().full_tensor(), whole.sum())


def test_functional_collectives_and_dtensor(group):
    group.call(rank_functional)


def rank_sharded_in_shared_memory(rank, size):
    from torch.distributed.fsdp import fully_shard

    gradients = []
    for shared in (False, True):
        torch.manual_seed(1)
        model = fully_shard(torch.nn.Linear(50, 30))
        model.set_allocate_memory_from_process_group_for_comm(shared)
        for step in range(3):
            model(torch.full((4, 50), float(rank + step))).square().sum().backward()
        gradients.append(model.weight.grad.full_tensor())
    same(gradients[1], gradients[0])
    assert gradients[0].abs().sum() > 0


def test_fsdp_in_memory_of_the_group(group):
    group.call(rank_sharded_in_shared_memory)


def rank_checkpoint(rank, size, folder):
    import torch.distributed.checkpoint as checkpoint

    state = {"mine": torch.full((5,), 3.0), "step": 7}
    checkpoint.save(state, checkpoint_id=folder)
    found = {"mine": torch.zeros(5), "step": 0}
    checkpoint.load(found, checkpoint_id=folder)
    same(found["mine"], state["mine"])
    assert found["step"] == 7


def test_distributed_checkpoint(pair, tmp_path):
    pair.call(rank_checkpoint, str(tmp_path / "saved"))


# ---- errors that leave the group whole


def _use(backend, method):
    """Calls a method, or reads a property."""
    attribute = getattr(backend, method)
    return attribute() if callable(attribute) else attribute


def rank_errors(rank, size):
    def fails(text, call, kind=Exception):
        with pytest.raises(kind, match=text):
            call()

    fp8 = torch.ones(4).to(torch.float8_e4m3fn)
    pg = dist.group.WORLD
    backend = pg._get_backend(torch.device("cpu"))
    fails("no arithmetic on Float8", lambda: dist.all_reduce(fp8), ValueError)
    fails(
        "band.*f32|f32.*band",
        lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND),
        ValueError,
    )
    maximum = dist.AllreduceOptions()
    maximum.reduceOp = dist.ReduceOp.MAX
    fails(
        "complex64",
        lambda: pg.allreduce([torch.ones(2, dtype=torch.complex64)], maximum).wait(),
        ValueError,
    )
    sparse = torch.eye(3).to_sparse()
    fails("dense tensors", lambda: backend.allreduce([sparse], dist.AllreduceOptions()), ValueError)
    quantised = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)
    fails("quantised", lambda: backend.allreduce([quantised], dist.AllreduceOptions()), ValueError)
    fails(
        "on meta",
        lambda: backend.allreduce([torch.ones(2, device="meta")], dist.AllreduceOptions()),
        ValueError,
    )
    fails("takes one tensor, got 2", lambda: pg.allreduce([torch.ones(1), torch.ones(1)]).wait())
    if size > 1:
        fails("has 3", lambda: dist.all_gather_single(torch.zeros(3), torch.zeros(2)))
        short = [torch.zeros(3) for _ in range(size)]
        fails("its place in the list", lambda: dist.all_gather(short, torch.zeros(2)))
        fails(
            "the first dimension is",
            lambda: dist.all_to_all_single(torch.zeros(4), torch.zeros(4), [1] * size, [5] * size),
        )
    wrong = size + 3
    fails(str(wrong), lambda: pg.send([torch.ones(1)], wrong, 0).wait())
    for method in ("suspend", "resume", "memory_stats"):
        fails("shoal does not support", lambda name=method: _use(backend, name))
    fails("shoal does not support shrink", lambda: backend.shrink([0]))
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    same(tensor, torch.full((2,), float(size)))


def test_errors_of_a_call(group):
    group.call(rank_errors)
