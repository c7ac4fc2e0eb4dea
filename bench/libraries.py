# SPDX-License-Identifier: Apache-2.0
"""How each library's measuring program is started: here, or on virtual hosts.

A library is a family (whose program it is) and settings, which are environment variables or
options of its launcher. Each start is an argument list and the environment that it needs on top of
ours; only Gloo needs one per rank, the others have launchers.
"""

import json
import os
import platform
import shlex
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_SHOAL = ROOT / "build/release/shoal"
ENVIRONMENTS = Path(os.environ.get("SHOAL_BENCH_ENVIRONMENTS", ROOT / ".venv-bench"))


@dataclass(frozen=True)
class Library:
    name: str
    family: str
    about: str
    options: tuple[str, ...] = ()  # of the launcher, or of shoal bench
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self):
        return ({"options": " ".join(self.options)} if self.options else {}) | self.environment


def intel(number):
    return Library(
        f"intelmpi-{number}",
        "intelmpi",
        f"Intel MPI, I_MPI_ADJUST_ALLREDUCE={number} (shared-memory form)",
        environment={"I_MPI_ADJUST_ALLREDUCE": str(number)},
    )


LIBRARIES = {
    library.name: library
    for library in [
        Library("shoal", "shoal", "Shoal, private buffers"),
        Library("shoal-shared", "shoal", "Shoal, buffers from shoal_alloc", ("--memory", "shared")),
        Library("shoal-f32", "shoal", "Shoal, as many bytes of f32", ("--dtype", "f32")),
        Library("gloo", "gloo", "Gloo through torch.distributed"),
        # With more ranks than cores mpirun wants to be told that this is meant: either by slots,
        # and then ranks spin, or by OVERSUBSCRIBE, and then they yield.
        Library("openmpi", "openmpi", "Open MPI, defaults, a slot for each rank"),
        Library(
            "openmpi-yield",
            "openmpi",
            "Open MPI, OVERSUBSCRIBE and yield when idle",
            ("--map-by", "slot:OVERSUBSCRIBE", "--mca", "mpi_yield_when_idle", "1"),
        ),
        Library(
            "openmpi-xhc",
            "openmpi",
            "Open MPI, xhc collectives",
            ("--mca", "coll_xhc_priority", "40"),
        ),
        Library("mpich", "mpich", "MPICH, defaults"),
        Library("intelmpi", "intelmpi", "Intel MPI, defaults"),
        Library("deepspeed-shm", "deepspeed", "DeepSpeed's shared-memory allreduce, in place"),
        intel(10),
        intel(11),
        intel(12),
    ]
}
# intelmpi-10 and so on set allreduce's algorithm alone.
ALLREDUCE_ONLY = {"intelmpi-10", "intelmpi-11", "intelmpi-12", "deepspeed-shm"}
IN_PLACE_ONLY = {"deepspeed-shm"}


@dataclass(frozen=True)
class Place:
    """Where ranks run: here (hosts empty), or in blocks on virtual hosts."""

    ranks: int
    hosts: tuple[str, ...]
    shoal: str  # path of the command
    port: int  # a free one, for libraries that need to be told
    torch: bool = False  # Shoal through torch.distributed too

    def slots(self, host_index):
        count, rest = divmod(self.ranks, len(self.hosts))
        return count + (host_index < rest)

    def host_list(self):
        return ",".join(f"{host}:{self.slots(i)}" for i, host in enumerate(self.hosts))

    def inside(self, host):
        """Words that start what follows in a host."""
        return [self.shoal, "vhosts-exec", host, "--"]


@dataclass(frozen=True)
class Start:
    argv: list[str]
    environment: dict[str, str]


def crowded(place):
    return not place.hosts and place.ranks > len(os.sched_getaffinity(0))


def start_shoal(library, place, measurement):
    if place.torch:
        return start_torch(library, place, measurement)
    argv = [place.shoal, "run", "--no-tag", "-n", str(place.ranks)]
    if place.hosts:
        argv += [
            "--hosts",
            place.host_list(),
            "--agent",
            f"'{place.shoal}' vhosts-exec {{host}} --",
        ]
    argv += ["--", place.shoal, "bench", *measurement, "--json", "--label", library.name]
    return [Start([*argv, *library.options], library.environment)]


def start_torch(library, place, measurement):
    python, program = ROOT / ".venv/bin/python", ROOT / "bench/peers/torch_bench.py"
    argv = [str(python), str(program), library.name, *measurement, "--backend", library.family]
    argv += library.options
    found = {}
    if library.family == "deepspeed":
        found = {"SHOAL_BENCH_DEEPSPEED": str(ENVIRONMENTS / "deepspeed")}
    if library.family == "shoal":
        build = Path(place.shoal).parent
        found = {"SHOAL_BUILD": str(build), "PYTHONPATH": str(ROOT / "bindings/python")}
    hosts = [host for i, host in enumerate(place.hosts) for _ in range(place.slots(i))]
    starts = []
    for rank in range(place.ranks):
        environment = {
            "RANK": str(rank),
            "WORLD_SIZE": str(place.ranks),
            "MASTER_ADDR": place.hosts[0] if hosts else "127.0.0.1",
            "MASTER_PORT": str(place.port),
            "GLOO_SOCKET_IFNAME": "eth0" if hosts else "lo",
        }
        prefix = place.inside(hosts[rank]) if hosts else []
        starts.append(Start(prefix + argv, environment | found | library.environment))
    return starts


def start_openmpi(library, place, measurement):
    prefix = ENVIRONMENTS / "openmpi"
    argv = [str(prefix / "bin/mpirun"), "-n", str(place.ranks), *library.options]
    if place.hosts:
        argv += ["--prtemca", "plm_ssh_agent", f"{place.shoal} vhosts-exec"]
        argv += ["--host", place.host_list(), "--bind-to", "none"]
    elif crowded(place):
        argv += ["--host", f"localhost:{place.ranks}", "--bind-to", "none"]
    argv += [str(prefix / "bin/mpi_bench"), library.name, *measurement]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return [Start(argv, root | library.environment)]


def hydra_options(place):
    remote = str(ROOT / "bench/peers/vhosts-rsh")
    return ["-launcher", "rsh", "-launcher-exec", remote] if place.hosts else []


def start_mpich(library, place, measurement):
    prefix = ENVIRONMENTS / "mpich"
    argv = [str(prefix / "bin/mpiexec"), *hydra_options(place)]
    argv += ["-hosts", place.host_list()] if place.hosts else []
    argv += ["-n", str(place.ranks), str(prefix / "bin/mpi_bench"), library.name, *measurement]
    return [Start(argv, {"SHOAL_BENCH_COMMAND": place.shoal} | library.environment)]


def intelmpi_ranks(place, program):
    """Host by host: in a list of hosts Intel's mpiexec takes no notice of the ranks per host, and
    fills each host with as many as it has cores."""
    if not place.hosts:
        return ["-n", str(place.ranks), *program]
    words = []
    for index, host in enumerate(place.hosts):
        words += [":"] if index else []
        words += ["-host", host, "-n", str(place.slots(index)), *program]
    return words


def start_intelmpi(library, place, measurement):
    prefix = ENVIRONMENTS / "intelmpi"
    environment = {
        "PATH": f"{prefix / 'bin'}:{os.environ['PATH']}",
        "I_MPI_ROOT": str(prefix),
        "FI_PROVIDER_PATH": str(prefix / "lib"),
        "LD_LIBRARY_PATH": str(prefix / "lib"),
        "SHOAL_BENCH_COMMAND": place.shoal,
    }
    if place.hosts:
        environment["FI_PROVIDER"] = "tcp"
    argv = [str(prefix / "bin/mpiexec.hydra"), *hydra_options(place)]
    program = [str(prefix / "bin/mpi_bench"), library.name, *measurement]
    argv += intelmpi_ranks(place, program)
    return [Start(argv, environment | library.environment)]


STARTERS = {
    "shoal": start_shoal,
    "gloo": start_torch,
    "deepspeed": start_torch,
    "openmpi": start_openmpi,
    "mpich": start_mpich,
    "intelmpi": start_intelmpi,
}


def starts(library, place, measurement):
    """The processes to start for one measurement: words such as allreduce --sizes 8:64."""
    note = ["--note", json.dumps(library.settings)]
    return STARTERS[library.family](library, place, [*measurement, *note])


def shell_word(text):
    """Paths within the checkout become relative to its root, where commands are meant to be run."""
    path = os.environ.get("PATH", "")
    if path and text.endswith(f":{path}"):
        return shell_word(text.removesuffix(path)) + '"$PATH"'
    return shlex.quote(text.replace(f"{ROOT}/", ""))


def shell_line(start):
    words = [f"{name}={shell_word(value)}" for name, value in start.environment.items()]
    return " ".join([*words, *map(shell_word, start.argv)])


def command_text(library, place, rate, measurement):
    """One line for a shell that repeats one measurement of one library, as it is started here."""
    lines = [shell_line(start) for start in STARTERS[library.family](library, place, measurement)]
    text = lines[0] if len(lines) == 1 else f"({' & '.join(lines)} & wait)"
    if not place.hosts:
        return text
    outside = [place.shoal, "vhosts", "-n", str(len(place.hosts)), "--rate", rate]
    return " ".join(map(shell_word, [*outside, "--", "sh", "-c", text]))


def missing(library):
    """What keeps a library from being measured here; None if nothing does."""
    if library.family == "gloo":
        python = ROOT / ".venv/bin/python"
        return None if python.exists() else f"{python} is missing: tools/setup bench"
    if library.family == "deepspeed":
        path = ENVIRONMENTS / "deepspeed/deepspeed_shm_comm.so"
        return None if path.exists() else f"{path} is missing: bench/peers/setup, or its log there"
    if library.family == "intelmpi" and platform.machine() != "x86_64":
        return "Intel MPI exists for x86-64 only"
    if library.family != "shoal":
        program = ENVIRONMENTS / library.family / "bin/mpi_bench"
        return None if program.exists() else f"{program} is missing: bench/peers/setup"
    return None
