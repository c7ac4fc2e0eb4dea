# SPDX-License-Identifier: Apache-2.0
"""Jobs of several ranks, one after the other, each in processes of its own, of which the imports
were made before: a start of torch takes seconds.

Functions named job_* run on the ranks: job(rank, size, *arguments) as in ranks.py.
"""

from __future__ import annotations

import atexit
import importlib
import os
import pickle
import signal
import sys
import traceback

import ranks
from ports import free_port

sys.path.insert(0, str(ranks.ROOT / "bindings" / "smdistributed"))
JOB_SECONDS_MAX = 100


def _import(_rank: int, _size: int, *modules: str) -> None:
    for module in modules:
        importlib.import_module(module)
    import torch

    torch.set_num_threads(1)


def _in_fork(rank: int, size: int, port: int, function, arguments):
    """Runs the function in a child, with what a launcher would set; gives what it returns or
    raises, or the child's status if it does neither."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(JOB_SECONDS_MAX)
        os.close(reader)
        host = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
        os.environ.update({name: str(number) for name, number in host.items()})
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        try:
            answer = (True, function(rank, size, *arguments))
        except BaseException as error:
            answer = (False, (type(error).__name__, str(error), traceback.format_exc()))
        with os.fdopen(writer, "wb") as stream:
            pickle.dump(answer, stream)
        atexit._run_exitfuncs()  # groups are closed, as at the end of any program
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        data = stream.read()
    _, status = os.waitpid(child, 0)
    return pickle.loads(data) if data else (None, os.waitstatus_to_exitcode(status))


class Jobs(ranks.Ranks):
    """`size` processes that have imported these modules."""

    def __init__(self, size: int, *modules: str):
        super().__init__(size, _import, *modules)

    def outcomes(self, function, *arguments):
        """Of each rank: (True, result), (False, (type, text, traceback)) or (None, status)."""
        return self.call(_in_fork, free_port(), function, arguments)

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
