# SPDX-License-Identifier: Apache-2.0
"""Signals while a call of the library waits.

Python runs its handlers of signals on the main thread only, and not while that is inside a call of
C. The library asks now and then (`interrupted` in shoal.h) whether a call that waits shall end; the
question enters Python, which then runs them. One that raises, as Ctrl-C's does, ends the call.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Generator

INTERRUPTED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

_raised: list[BaseException] = []


def _handlers() -> Generator[int, None, None]:
    """Answers the library's question: 1 if a handler has raised.

    A generator, because the handlers run the moment Python code begins: a function would be left
    before its first line, while this one is resumed inside its `try`.
    """
    stop = 0
    while True:
        try:
            while True:
                yield stop
                stop = 0
        except GeneratorExit:
            return
        except BaseException as error:
            _raised.append(error)
            stop = 1


_answers = _handlers()
next(_answers)
_question = INTERRUPTED(_answers.send)


def question() -> INTERRUPTED:
    """For a group that this thread makes: its `interrupted`."""
    return _question if threading.current_thread() is threading.main_thread() else INTERRUPTED()


def reraise() -> None:
    """Raises what a handler raised during the call that has just failed on this thread."""
    if _raised and threading.current_thread() is threading.main_thread():
        raise _raised.pop()
