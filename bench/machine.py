# SPDX-License-Identifier: Apache-2.0
"""What a result has to say about the machine it was measured on, and how busy that machine was."""

import os
import platform
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CPU = Path("/sys/devices/system/cpu")
HUGEPAGE = Path("/sys/kernel/mm/transparent_hugepage")
# Variables of the caller's that the libraries read by themselves.
PREFIXES = ("SHOAL_", "OMPI_", "PRTE_", "PMIX_", "MPICH_", "MPIR_", "I_MPI_", "FI_", "UCX_")
PREFIXES += ("GLOO_", "TORCH_", "OMP_", "MKL_", "MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")
OWN_VARIABLES = ("SHOAL_VHOSTS", "SHOAL_BENCH_", "SHOAL_BUILD", "SHOAL_SOURCE")


def read(path):
    """The text of a file of the kernel's, or None where this kernel has no such file."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def chosen(text):
    """The word in brackets: the kernel shows a setting as 'always [madvise] never'."""
    if text is None or "[" not in text:
        return text
    return text[text.index("[") + 1 : text.index("]")]


def fields(path):
    """'name : value' lines; of those that repeat, as for each processor, the first."""
    found = {}
    for line in (read(path) or "").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def caches():
    """As the first processor sees them: 'L1d 48 KiB, L2 2 MiB, L3 300 MiB for 2 processors'."""
    texts = []
    for index in sorted((CPU / "cpu0/cache").glob("index*")):
        kind, level, size = (read(index / name) for name in ("type", "level", "size"))
        if kind == "Instruction" or not size:
            continue
        kib = int(size.rstrip("K"))
        size = f"{kib} KiB" if kib < 1024 else f"{kib / 1024:g} MiB"
        shared = bin(int((read(index / "shared_cpu_map") or "1").replace(",", ""), 16)).count("1")
        among = f" for {shared} processors" if shared > 1 else ""
        texts.append(f"L{level}{'d' if kind == 'Data' else ''} {size}{among}")
    return ", ".join(texts) or None


def topology():
    """How many processors this program may use, and how they are laid out."""
    sockets = {read(path) for path in CPU.glob("cpu[0-9]*/topology/physical_package_id")}
    siblings = {read(path) for path in CPU.glob("cpu[0-9]*/topology/thread_siblings_list")}
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1
    usable = len(os.sched_getaffinity(0))
    words = [f"{usable} usable of {os.cpu_count()} processors"]
    words += [f"{len(siblings)} cores"] if siblings else []
    words += [f"{len(sockets)} socket{'s' * (len(sockets) > 1)}"] if sockets else []
    return ", ".join([*words, f"{nodes} NUMA node{'s' * (nodes > 1)}"])


def distribution():
    for line in (read("/etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return None


def describe():
    """Everything by name, in the order in which it is shown; what can't be found is left out."""
    processor, memory = fields("/proc/cpuinfo"), fields("/proc/meminfo")
    kib = int(memory.get("MemTotal", "0 kB").split()[0])
    found = {
        "processor": processor.get("model name") or platform.machine(),
        "processors": topology(),
        "caches": caches(),
        "virtual machine": "yes" if "hypervisor" in processor.get("flags", "").split() else "no",
        "frequency governor": read(CPU / "cpu0/cpufreq/scaling_governor"),
        "memory": f"{kib / 2**20:.1f} GiB" if kib else None,
        "transparent huge pages": chosen(read(HUGEPAGE / "enabled")),
        "huge pages for shared memory": chosen(read(HUGEPAGE / "shmem_enabled")),
        "huge page defragmentation": chosen(read(HUGEPAGE / "defrag")),
        "kernel": f"{platform.system()} {platform.release()}",
        "system": distribution(),
        "C library": " ".join(platform.libc_ver()).strip(),
    }
    return {name: value for name, value in found.items() if value}


def short_text(machine):
    return f"{machine['processor']}, {machine['processors']}, {machine['kernel']}"


def revision():
    """Which state of the source is measured; None outside of a git checkout."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def environment():
    """The caller's settings of the libraries that are measured."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(PREFIXES) and not name.startswith(OWN_VARIABLES)
    }


def now():
    return time.strftime("%Y-%m-%d %H:%M:%S %z")


def processor_seconds():
    """Seconds of all processors since the start: in total, and taken away by other guests."""
    ticks = [int(word) for word in (read("/proc/stat") or "cpu 0").splitlines()[0].split()[1:9]]
    ticks += [0] * (8 - len(ticks))
    per_second = os.sysconf("SC_CLK_TCK")
    return sum(ticks) / per_second, ticks[7] / per_second


class Watch:
    """How busy the machine was from when this was made until finish()."""

    def __init__(self):
        self.started, self.load_before = now(), os.getloadavg()
        self.total_s, self.stolen_s = processor_seconds()

    def start(self):
        usable = len(os.sched_getaffinity(0))
        return {"started": self.started, "load_before": self.load_before, "processors": usable}

    def finish(self):
        """Load averages now (the measurement's own processes count), and the share of processor
        time that the hypervisor gave to others."""
        total_s, stolen_s = processor_seconds()
        share = (stolen_s - self.stolen_s) / max(total_s - self.total_s, 1e-9)
        return {"finished": now(), "load_after": os.getloadavg(), "stolen": round(share, 4)}
