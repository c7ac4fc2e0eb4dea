# SPDX-License-Identifier: Apache-2.0
"""Jobs of several ranks, one after the other, each in processes of its own, which come from one
that has made the imports: a start of torch takes seconds.

Functions named job_* run on the ranks: job(rank, size, *arguments) as in ranks.py.
"""

from __future__ import annotations

import atexit
import copy
import importlib
import os
import pickle
import select
import signal
import sys
import traceback

import ranks
from ports import free_port

sys.path.insert(0, str(ranks.ROOT / "bindings" / "smdistributed"))
JOB_SECONDS_MAX = 100
LAST_SECONDS_MAX = 1


def _import(_rank: int, _size: int, *modules: str) -> None:
    for module in modules:
        importlib.import_module(module)
    import torch

    torch.set_num_threads(1)


def _fork(rank: int, size: int, port: int, all_answered: tuple[int, int], function, arguments):
    """A child that runs the function, with what a launcher would set; what it returns or raises
    can be read from the descriptor. It ends when all have answered, or a little later: the last
    call of all must not fail on one rank because another one has ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(JOB_SECONDS_MAX)
        os.close(reader)
        os.close(all_answered[1])
        host = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
        os.environ.update({name: str(number) for name, number in host.items()})
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        try:
            answer = (True, function(rank, size, *arguments))
        except BaseException as error:
            answer = (False, (type(error).__name__, str(error), traceback.format_exc()))
        with os.fdopen(writer, "wb") as stream:
            pickle.dump(answer, stream)
        if answer[0]:
            select.select([all_answered[0]], [], [], LAST_SECONDS_MAX)
        atexit._run_exitfuncs()  # groups are left, as at the end of any program
        os._exit(0)
    os.close(writer)
    return child, reader


def _run_forks(_rank: int, _size: int, size: int, port: int, function, arguments):
    """What the ranks' children give, or the status of one that gives nothing."""
    all_answered = os.pipe()
    children = [_fork(rank, size, port, all_answered, function, arguments) for rank in range(size)]
    answers = []
    for _, reader in children:
        with os.fdopen(reader, "rb") as stream:
            answers.append(stream.read())
    for end in all_answered:
        os.close(end)
    outcomes = []
    for (child, _), data in zip(children, answers, strict=True):
        _, status = os.waitpid(child, 0)
        outcomes.append(pickle.loads(data) if data else (None, os.waitstatus_to_exitcode(status)))
    return outcomes


class Jobs(ranks.Ranks):
    """A process that has imported these modules, for jobs of `size` ranks."""

    def __init__(self, size: int, *modules: str):
        super().__init__(1, _import, *modules)
        self.job_size = size

    def of(self, size: int) -> Jobs:
        """The same process, for jobs of another size."""
        other = copy.copy(self)
        other.job_size = size
        return other

    def outcomes(self, function, *arguments):
        """Of each rank: (True, result), (False, (type, text, traceback)) or (None, status)."""
        (found,) = self.call(_run_forks, self.job_size, free_port(), function, arguments)
        return found

    def run(self, function, *arguments):
        """What the job returns on each rank; none may fail."""
        outcomes = self.outcomes(function, *arguments)
        texts = [what[2] if ok is False else what for ok, what in outcomes if ok is not True]
        assert not texts, "\n".join(str(text) for text in texts)
        return [result for _, result in outcomes]

    def errors(self, function, *arguments):
        """Type and text of what each rank raises: all of them must, or have ended."""
        outcomes = self.outcomes(function, *arguments)
        assert not any(ok for ok, _ in outcomes), outcomes
        return [what[:2] if ok is False else ("ended", str(what)) for ok, what in outcomes]
