# SPDX-License-Identifier: Apache-2.0
"""smddprun and smddpmprun.

    mpirun -np 16 --host a:8,b:8 ... smddprun python train.py   one in front of each process
    smddprun -n 8 python train.py                               starts the ranks itself

SageMaker's toolkit writes the first line. There each command is one rank already: it adds the
variables that the script reads and becomes the script. In the second, `shoal run` starts the ranks,
each again by this command. In Python and not in `shoal`, because all they do is to translate names
of another library, which come and go with this distribution.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from typing import NoReturn

from . import environment

EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=name,
        usage=f"{name} [OPTION...] PROGRAM [ARGUMENT...]",
        description="Runs PROGRAM as one rank, where mpirun, torchrun or shoal run has started "
        "this command; otherwise starts it as many ranks, through shoal run.",
        epilog=f"For more options: shoal run OPTION... -- {name} PROGRAM [ARGUMENT...]",
        allow_abbrev=False,
    )
    parser.add_argument("-n", "--ranks", metavar="N", help="number of ranks")
    parser.add_argument("-H", "--hosts", metavar="LIST", help="hosts with their slots: a:8,b:8")
    parser.add_argument("program", metavar="PROGRAM", nargs=argparse.REMAINDER)
    return parser


def _without_mpi4py(words: list[str]) -> list[str]:
    """The toolkit starts scripts by `python -m mpi4py`, so that one that fails ends the others. For
    those that don't use MPI the launcher sees to that; so mpi4py need not be installed."""
    if importlib.util.find_spec("mpi4py") is not None:
        return words
    for at in range(1, len(words) - 1):
        if words[at : at + 2] == ["-m", "mpi4py"]:
            return words[:at] + words[at + 2 :]
        if not words[at].startswith("-"):
            break
    return words


def _execute(name: str, words: list[str]) -> NoReturn:
    try:
        os.execvp(words[0], words)
    except OSError as error:
        print(f"{name}: {words[0]}: {error.strerror}", file=sys.stderr)
        is_missing = isinstance(error, FileNotFoundError)
        sys.exit(EXIT_NOT_FOUND if is_missing else EXIT_NOT_EXECUTABLE)


def _launcher() -> str:
    """`shoal`: what is installed beside this command, else what is on PATH."""
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "shoal")
    return beside if os.path.exists(beside) else shutil.which("shoal") or "shoal"


def _run(parser: argparse.ArgumentParser) -> NoReturn:
    arguments = parser.parse_args()
    program = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    if not program:
        parser.error("which program?")
    if not environment.complete(os.environ):
        _launch(parser, arguments, program)
    if arguments.ranks or arguments.hosts:
        parser.error("a launcher has started the ranks already: leave --ranks and --hosts out")
    if "MASTER_ADDR" not in os.environ:
        parser.error(
            "the ranks are on several hosts, and nothing says where rank 0 is; for example: "
            f"mpirun -x MASTER_ADDR=HOST ... {parser.prog} PROGRAM"
        )
    _execute(parser.prog, _without_mpi4py(program))


def _launch(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, program: list[str]
) -> NoReturn:
    options = []
    if arguments.ranks:
        options += ["--ranks", arguments.ranks]
    if arguments.hosts:
        options += ["--hosts", arguments.hosts]
    if not options:
        parser.error("how many ranks? give -n N or --hosts")
    command = [_launcher(), "run", *options, "--", os.path.abspath(sys.argv[0]), *program]
    _execute(parser.prog, command)


def smddprun() -> NoReturn:
    """For scripts of the data parallel library."""
    _run(_parser("smddprun"))


def smddpmprun() -> NoReturn:
    """For those of the model parallel library that take its collectives where the instance type
    has them: here every machine has."""
    parser = _parser("smddpmprun")
    parser.add_argument("-i", "--instance", metavar="TYPE", help="an instance type; any will do")
    parser.add_argument("--allow-bypass", action="store_true", help="accepted; nothing to bypass")
    _run(parser)
