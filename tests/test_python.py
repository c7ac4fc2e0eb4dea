# SPDX-License-Identifier: Apache-2.0
"""The NumPy binding on real processes: every operation against NumPy's own arithmetic."""

from __future__ import annotations

import array
import os
import re
import signal
import subprocess
import sys

import pytest
import ranks
from ports import free_port

np = pytest.importorskip("numpy")

GROUP = None


def rank_start(rank: int, size: int, store: str, timeout: float = 60) -> None:
    global GROUP
    import shoal

    GROUP = shoal.init(rank, size, store=store, timeout=timeout)
    assert (GROUP.rank, GROUP.size) == (rank, size)


def new_store() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module", params=[1, 2, 3])
def group(request):
    with ranks.Ranks(request.param, rank_start, new_store()) as started:
        yield started


def numbers(rank: int, count: int, dtype) -> np.ndarray:
    return np.random.default_rng(rank).integers(1, 4, count).astype(dtype)


DTYPES = "f8 f4 f2 i1 u1 i2 i4 i8 u2 u4 u8 c8 c16".split()


def rank_reductions(rank, size):
    for dtype in DTYPES:
        inputs = [numbers(r, 37, dtype) for r in range(size)]
        for op, combine in (("sum", np.sum), ("prod", np.prod), ("min", np.min), ("max", np.max)):
            if op in ("min", "max") and dtype.startswith("c"):
                continue
            wanted = combine(np.stack(inputs), axis=0).astype(dtype)
            values = inputs[rank].copy()
            assert GROUP.allreduce(values, op) is values
            assert (values == wanted).all()
            out = np.zeros_like(values)
            GROUP.allreduce(inputs[rank], op, out=out)
            assert (out == wanted).all()
            values = inputs[rank].copy()
            result = GROUP.reduce(values, root=size - 1, op=op)
            assert rank != size - 1 or (result == wanted).all()
        blocks = [numbers(r, 4 * size, dtype) for r in range(size)]
        total = np.sum(np.stack(blocks), axis=0).astype(dtype)
        assert (GROUP.reduce_scatter(blocks[rank]) == total[4 * rank : 4 * rank + 4]).all()
    average = GROUP.allreduce(np.full(3, float(rank)), "avg")
    assert (average == sum(range(size)) / size).all()
    scaled = GROUP.allreduce(np.ones(3), "premul_sum", factor=rank + 1)
    assert (scaled == sum(range(1, size + 1))).all()
    flags = GROUP.allreduce(np.array([rank == 0, True]), "land")
    assert flags.tolist() == [size == 1, True]
    counts = list(range(1, size + 1))
    inputs = [numbers(r, sum(counts), "f4") for r in range(size)]
    begin = sum(counts[:rank])
    wanted = np.sum(np.stack(inputs), axis=0)[begin : begin + counts[rank]]
    assert (GROUP.reduce_scatterv(inputs[rank], counts) == wanted).all()


def test_reductions(group):
    group.call(rank_reductions)


def rank_moves(rank, size):
    counts = list(range(size))
    for dtype in (*DTYPES, "?"):
        inputs = [numbers(r, 6, dtype).reshape(2, 3) for r in range(size)]
        for root in range(size):
            values = inputs[rank].copy()
            assert (GROUP.broadcast(values, root) == inputs[root]).all()
            gathered = GROUP.gather(inputs[rank], root)
            assert (gathered is None) == (rank != root)
            assert rank != root or (gathered == np.stack(inputs)).all()
            out = np.zeros((2, 3), dtype)
            GROUP.scatter(np.stack(inputs) if rank == root else None, out, root)
            assert (out == inputs[rank]).all()
            ragged = [numbers(r, counts[r], dtype) for r in range(size)]
            whole = GROUP.gatherv(ragged[rank], counts, root)
            assert rank != root or (whole == np.concatenate(ragged)).all()
            part = np.zeros(counts[rank], dtype)
            source = np.concatenate(ragged) if rank == root else None
            assert (GROUP.scatterv(source, counts, part, root) == ragged[rank]).all()
        assert (GROUP.allgather(inputs[rank]) == np.stack(inputs)).all()
        assert (GROUP.allgatherv(ragged[rank], counts) == np.concatenate(ragged)).all()
        rows = [numbers(r, 2 * size, dtype).reshape(size, 2) for r in range(size)]
        assert (GROUP.alltoall(rows[rank]) == np.stack([one[rank] for one in rows])).all()
    sent = [(rank + i) % 2 + 1 for i in range(size)]
    received = [(r + rank) % 2 + 1 for r in range(size)]
    got = GROUP.alltoallv(np.full(sum(sent), rank, "i4"), sent, received)
    assert got.tolist() == [r for r in range(size) for _ in range(received[r])]
    GROUP.barrier()


def test_moves(group):
    group.call(rank_moves)


def rank_requests(rank, size):
    import shoal

    right, left = (rank + 1) % size, (rank - 1) % size
    got = np.zeros(5)
    receive = GROUP.recv(got, left, tag=4, blocking=False)
    GROUP.send(np.full(5, float(rank)), right, tag=4)
    info = receive.wait()
    assert (info.source, info.tag, info.bytes) == (left, 4, 40)
    assert (got == left).all()
    many = [np.full(10, float(rank + i)) for i in range(20)]
    requests = [GROUP.allreduce(one, blocking=False) for one in many]
    for i, request in enumerate(requests):
        assert (request.wait() == sum(range(size)) + i * size).all()
        assert request.test()
    late = GROUP.recv(got, shoal.ANY_SOURCE, shoal.ANY_TAG, blocking=False)
    with pytest.raises(shoal.Error) as caught:
        late.wait(0.05)
    assert caught.value.status == shoal.Status.TIMEOUT
    GROUP.barrier()
    GROUP.send(np.ones(5), right, tag=9)
    assert late.wait().tag == 9


def test_requests(group):
    group.call(rank_requests)


def rank_groups(rank, size):
    odd = GROUP.split(rank % 2, key=-rank)
    members = [r for r in range(size) if r % 2 == rank % 2]
    assert odd.size == len(members)
    assert odd.rank == members[::-1].index(rank)
    assert odd.allreduce(np.array([rank]))[0] == sum(members)
    odd.free()
    assert GROUP.split(-1) is None
    if rank < 2:
        first = GROUP.subset(list(range(min(size, 2)))[::-1], "first")
        assert first.rank == first.size - 1 - rank
        first.barrier()
        first.free()
    assert (GROUP.local_rank, GROUP.local_size) == (rank, size)
    assert (GROUP.host, GROUP.host_count) == (0, 1)
    shared = GROUP.empty((3, 4), "f4")
    shared[:] = rank
    GROUP.allreduce(shared)
    assert (shared == sum(range(size))).all()
    assert GROUP.empty(0).size == 0
    GROUP.set_timeout(30)
    GROUP.health()


def test_groups_and_memory(group):
    group.call(rank_groups)


def rank_counters(rank, size):
    import shoal

    before = GROUP.counters()
    GROUP.allreduce(np.ones(1000))
    GROUP.allreduce(np.ones(2), blocking=False).wait()
    after = GROUP.counters()
    done = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    done.pop("sleeps", None)
    assert set(after) == {name for name, _ in shoal._library.Counters._fields_[1:]}
    if size == 1:
        return done == {"operations": 2, "requests": 1, "bytes": 8016}
    return done == {
        "operations": 2, "requests": 1, "bytes": 8016, "symmetric_bytes": 8000, "inline_bytes": 16
    }  # fmt: skip


def test_counters(group):
    assert all(group.call(rank_counters))


def test_counters_are_those_of_the_header():
    from shoal._library import Counters

    header = (ranks.ROOT / "include" / "shoal.h").read_text()
    body = re.search(r"struct shoal_counters \{(.*?)\n\};", header, re.DOTALL)[1]
    members = re.findall(r"^    (?:size_t|uint64_t) ([^;]+);", body, re.MULTILINE)
    assert [name for line in members for name in line.split(", ")] == [
        name for name, _ in Counters._fields_
    ]


def rank_errors(rank, size):
    import shoal

    with pytest.raises(ValueError, match="no op named 'mean'"):
        GROUP.allreduce(np.ones(2), "mean")
    with pytest.raises(TypeError, match="object"):
        GROUP.allreduce(np.array([None]))
    with pytest.raises(ValueError, match="contiguous"):
        GROUP.allreduce(np.ones((4, 4))[:, 1])
    with pytest.raises(ValueError, match="read-only"):
        GROUP.allreduce(np.frombuffer(b"abcd", np.uint8))
    with pytest.raises(ValueError, match="do not fit"):
        GROUP.allgather(np.ones(2), out=np.ones(2 * size + 1))
    with pytest.raises(shoal.Error) as caught:
        GROUP.allreduce(np.ones(2), "band")
    assert caught.value.status == shoal.Status.UNSUPPORTED
    assert "band" in str(caught.value) and "f64" in str(caught.value)
    with pytest.raises(shoal.Error) as caught:
        GROUP.broadcast(np.ones(2), root=size)
    assert caught.value.status == shoal.Status.ARGUMENT
    plain = array.array("d", [rank, 1.0])
    GROUP.allreduce(plain)
    assert plain.tolist() == [sum(range(size)), size]


def test_errors(group):
    group.call(rank_errors)


def rank_lost(rank, size):
    import shoal

    with pytest.raises(shoal.Error) as caught:
        GROUP.allreduce(np.ones(1000))
    assert "rank 1" in str(caught.value)
    return caught.value.status.name


def test_a_killed_rank_is_named():
    with ranks.Ranks(3, rank_start, new_store(), 30) as started:
        for rank in (0, 2):
            started.pipes[rank].send((rank_lost, ()))
        started.processes[1].kill()
        assert started.results([0, 2]) == ["PEER_LOST"] * 2


WAITS = {
    "blocking": lambda group: group.allreduce(np.ones(4)),
    "request": lambda group: group.allreduce(np.ones(4), blocking=False).wait(),
    "receive": lambda group: group.recv(np.ones(1), 2),
    "split": lambda group: group.split(0),
}


def rank_interrupted(rank, size, wait, folder):
    import shoal

    group = GROUP.split(0)
    (folder / f"rank {rank} calls").touch()
    try:
        while rank == 2:  # it does not come
            group.health()
        WAITS[wait](group)
        text = "nothing"
    except KeyboardInterrupt:
        text = "KeyboardInterrupt"
    except shoal.Error as error:
        text = str(error)
    group.free()
    GROUP.barrier()
    return text


@pytest.mark.parametrize("wait", list(WAITS))
def test_ctrl_c_in_a_call(wait, tmp_path):
    with ranks.Ranks(3, rank_start, new_store(), 300) as started:
        for pipe in started.pipes:
            pipe.send((rank_interrupted, (wait, tmp_path)))
        ranks.wait_until(lambda: len(list(tmp_path.iterdir())) == 3, "the calls")
        ranks.wait_asleep(started.processes[0])
        os.kill(started.processes[0].pid, signal.SIGINT)
        zero, *others = started.results(range(3))
        assert zero == "KeyboardInterrupt"
        for text in others:
            assert "was aborted by rank 0" in text and "was interrupted" in text, text


def rank_signalled(rank, size, folder):
    came = folder / "the handler ran"
    signal.signal(signal.SIGUSR1, lambda *_: came.touch())
    (folder / f"rank {rank} calls").touch()
    if rank == 1:
        ranks.wait_until(came.exists, "the signal's handler")
    assert GROUP.allreduce(np.ones(4)).tolist() == [2.0] * 4


def test_a_handler_that_does_not_raise_runs_in_a_call(tmp_path):
    with ranks.Ranks(2, rank_start, new_store(), 300) as started:
        for pipe in started.pipes:
            pipe.send((rank_signalled, (tmp_path,)))
        ranks.wait_until(lambda: len(list(tmp_path.iterdir())) == 2, "the calls")
        ranks.wait_asleep(started.processes[0])
        os.kill(started.processes[0].pid, signal.SIGUSR1)
        started.results(range(2))


def rank_by_unique_id(rank, size, unique_id):
    import shoal

    with shoal.init(rank, size, unique_id=unique_id) as group:
        assert group.allreduce(np.array([rank]))[0] == sum(range(size))


def make_unique_id(rank, size):
    import shoal

    return shoal.unique_id()


def test_a_group_by_unique_id():
    with ranks.Ranks(2) as started:
        (unique_id,) = started.call(make_unique_id, ranks=[0])
        assert len(unique_id) == 128
        started.call(rank_by_unique_id, unique_id)


@pytest.mark.parametrize("size", [1, 4])
def test_the_example_of_the_readme(size):
    for program in (
        [sys.executable, str(ranks.ROOT / "examples" / "allreduce.py")],
        [str(ranks.BUILD / "examples" / "allreduce")],
    ):
        done = subprocess.run(
            [str(ranks.SHOAL), "run", "-n", str(size), "--", *program],
            env=ranks.ENVIRONMENT,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        text = done.stdout.decode()
        assert text.count(f"{size}") >= size
        assert f"{sum(range(size))}" in text


def test_alone_without_a_launcher():
    environment = {name: value for name, value in ranks.ENVIRONMENT.items() if name != "RANK"}
    done = subprocess.run(
        [sys.executable, str(ranks.ROOT / "examples" / "allreduce.py")],
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.decode().startswith("rank 0 of 1:"), done.stderr.decode()


def test_a_missing_library_is_explained(tmp_path):
    source = ranks.ROOT / "bindings" / "python" / "shoal"
    (tmp_path / "shoal").mkdir()
    for file in source.glob("*.py"):
        (tmp_path / "shoal" / file.name).write_text(file.read_text())
    environment = {**ranks.ENVIRONMENT, "PYTHONPATH": str(tmp_path), "SHOAL_BUILD": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", "import shoal"], env=environment, capture_output=True, check=False
    )
    text = done.stderr.decode()
    assert "libshoal.so was not found" in text and "/nowhere/libshoal.so" in text
