# SPDX-License-Identifier: Apache-2.0
"""Who computes on a rank: many threads, of which one runs at a time.

The main thread takes tasks from the pipe, in the order that the pipe gives them, and hands each to
a thread of its own. A task that needs a value which is not there yet *suspends*: its thread sleeps,
and the main thread takes the next task. The pipe gives a RESUME task when the value has come.

Threads, and not coroutines, because what waits may have the frames of autograd's engine between
itself and us.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from shoal.pipe import Kind, Pipe, Task

from .exceptions import StepUsageError


class _Cancelled(BaseException):
    """Ends a suspended task of a step that has failed."""


class Worker(threading.Thread):
    """Carries out one task after the other, whenever it is its turn."""

    def __init__(self, executor: Executor):
        super().__init__(name="shoal-task", daemon=True)
        self.executor = executor
        self.turn = threading.Semaphore(0)
        self.job: Callable[[], None] | None = None
        self.is_cancelled = False
        self.start()

    def run(self) -> None:
        while True:
            self.turn.acquire()
            job, self.job = self.job, None
            try:
                job()
            except _Cancelled:
                pass
            except BaseException as error:
                self.executor.failure = self.executor.failure or error
            self.executor.idle.append(self)
            self.executor.give_back()

    def suspend(self) -> None:
        self.executor.give_back()
        self.turn.acquire()
        if self.is_cancelled:
            raise _Cancelled


class Executor:
    """Of one rank.

    Args:
        pipe: Where tasks come from.
        carry_out: What is done with a task other than RESUME, in a thread of its own.
    """

    def __init__(self, pipe: Pipe, carry_out: Callable[[Task], None]):
        self.pipe, self.carry_out = pipe, carry_out
        self.idle: list[Worker] = []
        self.suspended: set[Worker] = set()
        self.awaited: dict[int, Callable[[], None]] = {}
        self.awaited_count = 0
        self.failure: BaseException | None = None
        self._main_turn = threading.Semaphore(0)

    def give_back(self) -> None:
        """From a task's thread to the main one."""
        self._main_turn.release()

    def _hand_to(self, worker: Worker) -> None:
        worker.turn.release()
        self._main_turn.acquire()

    def run(self, is_over: Callable[[], bool]) -> None:
        """Carries out tasks until is_over() is true after one of them.

        Raises:
            what a task raised, or the pipe; all other tasks are given up then.
        """
        while not is_over():
            try:
                self._run_one(self.pipe.next())
            except BaseException as error:
                self.failure = self.failure or error
            if self.failure:
                failure, self.failure = self.failure, None
                self._cancel()
                raise failure

    def _run_one(self, task: Task) -> None:
        if task.kind == Kind.RESUME:
            self.awaited.pop(int.from_bytes(task.blob, "little"))()
            return
        worker = self.idle.pop() if self.idle else Worker(self)
        worker.job = lambda: self.carry_out(task)
        self._hand_to(worker)

    def _cancel(self) -> None:
        for worker in list(self.suspended):
            worker.is_cancelled = True
            self._hand_to(worker)
            worker.is_cancelled = False
        self.suspended.clear()
        self.awaited.clear()
        self.failure = None

    def when_come(
        self, values: Sequence[int], microbatch: int, function: Callable[[], None]
    ) -> None:
        """Calls a function on the main thread, once all these values are here."""
        self.awaited_count += 1
        self.awaited[self.awaited_count] = function
        number = self.awaited_count.to_bytes(8, "little")
        self.pipe.submit(Task(Kind.RESUME, self.pipe.rank, microbatch, blob=number, needs=values))

    def wait(self, values: Sequence[int], microbatch: int) -> None:
        """In a task: until all these values are here. Other tasks run meanwhile."""
        worker = self.present_worker()
        self.when_come(values, microbatch, lambda: self.resume(worker))
        self.suspend(worker)

    def present_worker(self) -> Worker:
        worker = threading.current_thread()
        if not isinstance(worker, Worker):
            raise StepUsageError("only the code of a step can wait for other ranks")
        return worker

    def suspend(self, worker: Worker) -> None:
        """In its own thread: until somebody resumes it."""
        self.suspended.add(worker)
        worker.suspend()

    def resume(self, worker: Worker) -> None:
        """On the main thread."""
        self.suspended.remove(worker)
        self._hand_to(worker)
