# SPDX-License-Identifier: Apache-2.0
"""The PyTorch backend when ranks die, come late, disagree or never start, and when groups end.

Each test has processes of its own. Functions named rank_* run on the ranks.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from datetime import timedelta

import pytest
import ranks

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
from torch_ranks import new_method, rank_start, same  # noqa: E402 (needs torch)


def rank_shapes_differ(rank, size):
    with pytest.raises(dist.DistError) as caught:
        dist.all_reduce(torch.ones(4 + rank))
    return str(caught.value)


def test_ranks_that_disagree():
    with ranks.Ranks(2, rank_start, new_method()) as started:
        for text in started.call(rank_shapes_differ):
            assert "SHOAL_ERR_MISMATCH" in text
            assert "4" in text and "5" in text


models = []  # a rank's


def rank_wraps_a_model(rank, size):
    import shoal.torch

    models.append(shoal.torch.DistributedDataParallel(torch.nn.Linear(64, 64)))
    rank_trains()


def rank_trains():
    models[0](torch.ones(1, 64)).sum().backward()


def rank_wait_for_the_dead(rank, size):
    errors = []
    for call in (
        rank_trains,
        rank_trains,
        lambda: dist.all_reduce(torch.ones(100)),
        lambda: dist.all_reduce(torch.ones(1), async_op=True).wait(),
        lambda: dist.all_reduce(torch.ones(1), async_op=True).get_future().wait(),
        dist.barrier,
    ):
        try:
            call()
        except RuntimeError as error:
            errors.append(str(error))
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    with pytest.raises(RuntimeError):
        backend.allreduce([torch.ones(1)], dist.AllreduceOptions()).wait()
    dist.destroy_process_group()
    return errors


def test_a_killed_rank_is_named():
    with ranks.Ranks(3, rank_start, new_method(), 30) as started:
        started.call(rank_wraps_a_model)
        for rank in (0, 2):
            started.pipes[rank].send((rank_wait_for_the_dead, ()))
        started.processes[1].kill()
        for errors in started.results([0, 2]):
            assert len(errors) == 6
            for text in errors:
                assert "rank 1" in text, text


def rank_monitored(rank, size, missing):
    import shoal.torch

    if rank in missing:
        return "away"
    try:
        shoal.torch.monitored_barrier(timeout=timedelta(seconds=2))
    except dist.DistError as error:
        return str(error)
    return "passed"


def test_monitored_barrier_names_who_is_missing():
    with ranks.Ranks(4, rank_start, new_method()) as started:
        assert started.call(rank_monitored, []) == ["passed"] * 4
        zero, one, two, three = started.call(rank_monitored, [1, 3])
        assert (one, three) == ("away", "away")
        for text in (zero, two):
            assert "rank(s) 1, 3 did not come within 2000 ms" in text


def rank_late(rank, size):
    if rank == 1:
        return "away"
    with pytest.raises(dist.DistError) as caught:
        dist.all_reduce(torch.ones(4))
    return str(caught.value)


def test_a_deadline_names_who_is_late():
    with ranks.Ranks(2, rank_start, new_method(), 3) as started:
        text, _ = started.call(rank_late)
        assert "SHOAL_ERR_TIMEOUT" in text
        assert "rank 1" in text


def rank_start_too_few(rank, size, method):
    with pytest.raises(dist.DistError) as caught:
        import shoal.torch  # noqa: F401 (registers the backend)

        dist.init_process_group(
            "shoal", init_method=method, rank=rank, world_size=3, timeout=timedelta(seconds=4)
        )
    return str(caught.value)


def test_a_rank_that_never_starts():
    with tempfile.TemporaryDirectory() as folder, ranks.Ranks(2) as started:
        for text in started.call(rank_start_too_few, f"file://{folder}/store"):
            assert "2" in text and "SHOAL_ERR" in text


pending = []  # a rank's


def rank_begins_to_receive(rank, size):
    pending.append(dist.irecv(torch.zeros(3), 1 - rank))
    dist.barrier()


def rank_aborted(rank, size):
    started = time.monotonic()
    if rank == 0:
        dist.group.WORLD._get_backend(torch.device("cpu")).abort()
    with pytest.raises(dist.DistError, match="abort"):
        pending.pop().wait()
    assert time.monotonic() - started < 20
    with pytest.raises(dist.DistError, match="abort"):
        dist.all_reduce(torch.zeros(3))


def test_abort_ends_what_is_pending():
    with ranks.Ranks(2, rank_start, new_method()) as started:
        started.call(rank_begins_to_receive)  # returns when both are out of the barrier
        started.call(rank_aborted)


WAITS = {
    "blocking": lambda group: dist.all_reduce(torch.ones(4), group=group),
    "work": lambda group: dist.all_reduce(torch.ones(4), group=group, async_op=True).wait(),
    "receive": lambda group: dist.recv(torch.ones(1), 2, group=group),
    "work with a future": lambda group: wait_beside_a_future(group),
    "backward": lambda group: differentiate(group),
}


def wait_beside_a_future(group):
    work = dist.all_reduce(torch.ones(4), group=group, async_op=True)
    future = work.get_future()
    work.wait()
    return future


def differentiate(group):
    class Wait(torch.autograd.Function):
        @staticmethod
        def forward(context, tensor):
            return tensor * 2

        @staticmethod
        def backward(context, gradient):
            dist.all_reduce(gradient, group=group)
            return gradient

    Wait.apply(torch.ones(3, requires_grad=True)).sum().backward()


def rank_interrupted(rank, size, wait, folder):
    group = dist.new_group([0, 1, 2])
    (folder / f"rank {rank} calls").touch()
    try:
        if rank == 2:
            ranks.wait_until((folder / "late").exists, "the end of the others' call")
        WAITS[wait](group)
        text = "nothing"
    except KeyboardInterrupt:
        text = "KeyboardInterrupt"
    except dist.DistError as error:
        text = str(error)
    return text


@pytest.mark.parametrize("wait", list(WAITS))
def test_ctrl_c_in_a_call(wait, tmp_path):
    with ranks.Ranks(3, rank_start, new_method(), 300) as started:
        for pipe in started.pipes:
            pipe.send((rank_interrupted, (wait, tmp_path)))
        ranks.wait_until(lambda: len(list(tmp_path.iterdir())) == 3, "the calls")
        ranks.wait_asleep(started.processes[0])
        os.kill(started.processes[0].pid, signal.SIGINT)
        zero, one = started.results(range(2))
        (tmp_path / "late").touch()
        (two,) = started.results([2])
        assert zero == "KeyboardInterrupt"
        for text in (one, two):
            assert "was aborted by rank 0" in text and "was interrupted" in text, text


def rank_restart(rank, size, methods):
    for method in methods:
        pair = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(3), group=pair)
        dist.destroy_process_group()
        rank_start(rank, size, method)
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        same(tensor, torch.full((2,), float(size)))


def test_destroy_and_start_again():
    with tempfile.TemporaryDirectory() as folder:
        with ranks.Ranks(2, rank_start, f"file://{folder}/first") as started:
            methods = [new_method(), f"file://{folder}/second", new_method()]
            started.call(rank_restart, methods)


def rank_composed(rank, size, method):
    import shoal.torch  # noqa: F401 (registers the backend)

    dist.init_process_group("cpu:shoal,meta:gloo", init_method=method, rank=rank, world_size=size)
    assert dist.group.WORLD._get_backend(torch.device("cpu")).name() == "shoal"
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    same(tensor, torch.full((2,), 2.0))
    with pytest.raises(TypeError, match="pg_options"):
        dist.new_group([0, 1], backend="shoal", pg_options=object())


def test_several_backends_compose():
    with ranks.Ranks(2) as started:
        started.call(rank_composed, new_method())


def rank_debug(rank, size, method):
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    rank_start(rank, size, method)
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    same(tensor, torch.full((2,), 2.0))
    with pytest.raises(RuntimeError, match="shape"):
        dist.all_reduce(torch.ones(2 + rank))


def test_debug_mode_of_torch():
    with ranks.Ranks(2) as started:
        started.call(rank_debug, new_method())
