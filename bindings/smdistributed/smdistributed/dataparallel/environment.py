# SPDX-License-Identifier: Apache-2.0
"""Who this process is, in the variables that scripts read.

torchrun and `shoal run` set them. MPI's launchers give each process a rank by names of their own,
and torch does not know those.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
# The same by Open MPI, and by Hydra (MPICH, Intel MPI).
MPI_NAMES = (
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
# SageMaker keeps it free on every host.
MASTER_PORT = "7777"


def _first_host(environment: MutableMapping[str, str]) -> str | None:
    """Where rank 0 runs; None if nothing says so."""
    if environment["LOCAL_WORLD_SIZE"] == environment["WORLD_SIZE"]:
        return "127.0.0.1"
    if "SMDATAPARALLEL_SERVER_ADDR" in environment:
        return environment["SMDATAPARALLEL_SERVER_ADDR"]
    hosts = json.loads(environment.get("SM_HOSTS", "[]"))
    return hosts[0] if hosts else None


def _complete_by_mpi(environment: MutableMapping[str, str]) -> None:
    for names in MPI_NAMES:
        if all(name in environment for name in names):
            environment.update(zip(NAMES, [environment[name] for name in names], strict=True))
            master = _first_host(environment)
            if master is not None:
                environment.setdefault("MASTER_ADDR", master)
            environment.setdefault("MASTER_PORT", MASTER_PORT)
            return


def complete(environment: MutableMapping[str, str]) -> bool:
    """Adds what scripts read and the launcher has not set: RANK, WORLD_SIZE, LOCAL_RANK,
    LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT under mpirun, and SMDATAPARALLEL_LOCAL_RANK.

    What is set stays. MASTER_ADDR is left out if the ranks are on several hosts and nothing says
    which is the first: the caller may know, or meet in another way.

    Returns:
        Whether a launcher has made this process a rank.
    """
    if not {"RANK", "WORLD_SIZE"} & environment.keys():
        _complete_by_mpi(environment)
    if "LOCAL_RANK" in environment:
        environment.setdefault("SMDATAPARALLEL_LOCAL_RANK", environment["LOCAL_RANK"])
    return "RANK" in environment and "WORLD_SIZE" in environment
