# SPDX-License-Identifier: Apache-2.0
"""Ranks find each other under the launchers that people have, the real ones.

Each is asked to start the probe (boot_environment_test probe), which tells who it thinks it is
after it met the others, twice; and a program that makes a group of what the environment says and
sums over it. A launcher that is not installed is skipped: tools/setup test installs them.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from ports import free_port

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("SHOAL_BUILD", ROOT / "build" / "release")).resolve()
PROBE = BUILD / "tests" / "boot_environment_test"
LIBRARY = BUILD / "libshoal.so"
DEADLINE_S = 90
LINE = re.compile(r"met: rank (\d+) of (\d+), local (-?\d+) of (-?\d+), by (\w+)")

pytestmark = pytest.mark.skipif(not PROBE.exists(), reason=f"{PROBE} is not built")

# A group from the environment and a sum over it, by the C API alone.
SUM = textwrap.dedent("""
    import ctypes, sys
    shoal = ctypes.CDLL(sys.argv[1])
    shoal.shoal_last_error.restype = ctypes.c_char_p
    def check(status):
        if status != 0:
            sys.exit(shoal.shoal_last_error(None).decode())
    group = ctypes.c_void_p()
    check(shoal.shoal_group_create(None, ctypes.byref(group)))
    rank, size = shoal.shoal_group_rank(group), shoal.shoal_group_size(group)
    value = (ctypes.c_float * 5)(*[rank + 1] * 5)
    check(shoal.shoal_allreduce(value, value, ctypes.c_uint64(5), 1, 0, group, None))
    check(shoal.shoal_group_free(group))
    sys.stdout.write(f"sum: rank {rank} has {value[0]:g}.\\n")
""")


def clean_environment(**more):
    """This process's environment without what an outer launcher or test may have set."""
    prefixes = ("SHOAL_", "PMI", "OMPI_", "SLURM_", "PRTE_", "I_MPI_", "HYD", "TORCHELASTIC_")
    names = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(prefixes) and k not in names}
    if os.environ.get("SHOAL_SANITIZE"):
        # What the launchers' own library leaves allocated is not ours to free.
        suppressions = BUILD / "launchers.supp"
        suppressions.write_text("leak:libpmix\nleak:libevent\n")
        kept["LSAN_OPTIONS"] = f"suppressions={suppressions}"
    return {**kept, **more}


def run(command, environment):
    """Runs to its end, in its deadline, and returns what it printed."""
    process = subprocess.Popen(
        [str(word) for word in command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        out, err = process.communicate()
        pytest.fail(f"no end within {DEADLINE_S} s\n{out}\n{err}")
    assert process.returncode == 0, f"exit status {process.returncode}\n{out}\n{err}"
    return out


def check_ranks(out, size, launcher, locals_):
    """Every rank met all others; locals_: the numbers of ranks on each host, in rank order."""
    seen = {}
    for match in LINE.finditer(out):
        rank, of, local_rank, local_size = map(int, match.groups()[:4])
        assert rank not in seen, f"rank {rank} twice\n{out}"
        seen[rank] = (of, local_rank, local_size, match[5])
    assert sorted(seen) == list(range(size)), out
    assert {value[0] for value in seen.values()} == {size}
    assert {value[3] for value in seen.values()} == {launcher}
    first = 0
    for count in locals_:
        host = [seen[rank] for rank in range(first, first + count)]
        assert {value[2] for value in host} == {count}
        assert sorted(value[1] for value in host) == list(range(count))
        first += count


def check_sums(out, size):
    sums = dict(re.findall(r"sum: rank (\d+) has (\d+)\.", out))
    assert sums == {str(rank): f"{size * (size + 1) // 2}" for rank in range(size)}, out


# ---- launchers of one host -----------------------------------------------------------------------


def mpirun(name, *folders):
    """The mpirun of a library that was installed beside this project."""
    for folder in folders:
        path = ROOT / ".venv-bench" / folder / "bin" / "mpirun"
        if path.exists():
            return path
    pytest.skip(f"{name} is not installed in .venv-bench (tools/setup test)")


def torchrun():
    path = Path(sys.executable).parent / "torchrun"
    if not path.exists():
        pytest.skip("torchrun is not installed beside this Python")
    words = [path, "--nproc-per-node", "3", "--master-port", free_port(), "--no-python"]
    return words, {}, "torchrun"


def openmpi():
    path = mpirun("Open MPI", "openmpi")
    return [path, "--allow-run-as-root", "--oversubscribe", "-n", "3"], {}, "openmpi"


def mpich():
    return [mpirun("MPICH", "mpich"), "-n", "3"], {}, "hydra"


def mpich_by_port():
    return [mpirun("MPICH", "mpich"), "-pmi-port", "-n", "3"], {}, "hydra"


def intel_mpi():
    path = mpirun("Intel MPI", "intelmpi", "impi")
    # It looks for its own parts on PATH.
    more = {"PATH": f"{path.parent}:{os.environ['PATH']}"}
    return [path, "-n", "3"], more, "hydra"


launchers = pytest.mark.parametrize(
    "launcher", [torchrun, openmpi, mpich, mpich_by_port, intel_mpi], ids=lambda f: f.__name__
)


@launchers
def test_ranks_of_one_host_find_each_other(launcher):
    words, more, name = launcher()
    out = run([*words, PROBE, "probe"], clean_environment(**more))
    check_ranks(out, 3, name, [3])


@launchers
def test_a_given_store_and_secret_are_used(launcher):
    words, more, name = launcher()
    more |= {"SHOAL_STORE": f"127.0.0.1:{free_port()}", "SHOAL_SECRET": "chosen by the user"}
    out = run([*words, PROBE, "probe"], clean_environment(**more))
    check_ranks(out, 3, name, [3])


@launchers
def test_a_group_of_all_ranks_sums(launcher):
    words, more, _ = launcher()
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY} is not built")
    if os.environ.get("SHOAL_SANITIZE"):
        pytest.skip("a library with sanitizers cannot be loaded into a plain Python")
    out = run([*words, sys.executable, "-c", SUM, LIBRARY], clean_environment(**more))
    check_sums(out, 3)


# ---- Slurm, with two nodes on this machine -------------------------------------------------------

SLURM_CONF = """
ClusterName=shoaltest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    """One controller and two node daemons, each in a mount namespace in which n1 and n2 are names
    of this machine. Each daemon has a folder of settings of its own, because PMIx's temporary files
    of two nodes must not meet."""

    def __init__(self, folder):
        self.folder = folder
        self.daemons = []
        ports = [free_port() for _ in range(3)]
        settings = SLURM_CONF.format(host=socket.gethostname(), ports=ports, folder=folder)
        (folder / "hosts").write_text(Path("/etc/hosts").read_text() + "\n127.0.0.1 n1 n2\n")
        (folder / "state").mkdir()
        for node in ("n1", "n2"):
            (folder / f"spool-{node}").mkdir()
            (folder / f"tmp-{node}").mkdir()
            (folder / f"conf-{node}").mkdir()
            (folder / f"conf-{node}" / "slurm.conf").write_text(settings)
            mpi = f"PMIxCliTmpDirBase={folder}/tmp-{node}\n"
            (folder / f"conf-{node}" / "mpi.conf").write_text(mpi)
        try:
            self.start("n1", "slurmctld", "-D")
            self.start("n1", "slurmd", "-D", "-N", "n1")
            self.start("n2", "slurmd", "-D", "-N", "n2")
            self.wait()
        except BaseException:
            self.stop()
            raise

    def environment(self, node="n1", **more):
        conf = self.folder / f"conf-{node}" / "slurm.conf"
        return clean_environment(SLURM_CONF=str(conf), **more)

    def start(self, node, program, *words):
        hosts = f'mount --bind {self.folder}/hosts /etc/hosts && exec "$@"'
        path = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin")
        with open(self.folder / f"{program}-{node}.out", "w") as out:
            self.daemons.append(
                subprocess.Popen(
                    ["unshare", "-m", "sh", "-c", hosts, "sh", path, *words],
                    env=self.environment(node),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
            )

    def wait(self):
        """Until both nodes are idle."""
        end = time.monotonic() + DEADLINE_S
        while True:
            words = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
            told = subprocess.run(
                words, env=self.environment(), capture_output=True, text=True, timeout=DEADLINE_S
            )
            if told.stdout.strip() == "2":
                return
            ended = [daemon for daemon in self.daemons if daemon.poll() is not None]
            if ended or time.monotonic() > end:
                logs = "\n".join(p.read_text()[-600:] for p in self.folder.glob("*.out"))
                pytest.fail(f"Slurm does not start here\n{logs}")
            time.sleep(0.2)

    def stop(self):
        for daemon in self.daemons:
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    for program in ("slurmctld", "slurmd", "srun", "unshare"):
        if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin") is None:
            pytest.skip(f"{program} is not installed (tools/setup test)")
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons need root here")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here")
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.stop()


def node_counts(out):
    """Ranks on each node as Slurm laid them out."""
    counts = []
    for match in sorted(LINE.finditer(out), key=lambda m: int(m[1])):
        if int(match[3]) == 0:
            counts.append(int(match[4]))
    return counts


@pytest.mark.parametrize("mpi", ["none", "pmi2", "pmix"])
def test_srun_over_two_nodes(cluster, mpi):
    words = ["srun", f"--mpi={mpi}", "-N2", "-n4", PROBE, "probe"]
    out = run(words, cluster.environment())
    counts = node_counts(out)
    assert len(counts) == 2
    assert sum(counts) == 4
    check_ranks(out, 4, "slurm", counts)


@pytest.mark.parametrize("mpi", ["none", "pmi2", "pmix"])
def test_srun_sums(cluster, mpi):
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY} is not built")
    if os.environ.get("SHOAL_SANITIZE"):
        pytest.skip("a library with sanitizers cannot be loaded into a plain Python")
    words = ["srun", f"--mpi={mpi}", "-N2", "-n4", sys.executable, "-c", SUM, LIBRARY]
    check_sums(run(words, cluster.environment()), 4)


def test_a_batch_script_is_no_rank(cluster):
    """In a batch script Slurm's variables stand, but only srun makes ranks."""
    log = cluster.folder / "batch.log"
    words = ["sbatch", "--wait", "-n4", "-o", log, "--wrap", f"{PROBE} probe && srun {PROBE} probe"]
    run(words, cluster.environment())
    lines = LINE.findall(log.read_text())
    assert lines[0] == ("0", "1", "0", "1", "none")
    assert sorted(line[0] for line in lines[1:]) == ["0", "1", "2", "3"]
    assert {line[4] for line in lines[1:]} == {"slurm"}
