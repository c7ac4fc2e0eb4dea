# SPDX-License-Identifier: Apache-2.0
"""Who computes on a rank: threads, of which one at a time has the turn.

Who has the turn takes tasks from the pipe, in the order that the pipe gives them, and carries them
out itself. A task that needs a value which is not there yet *suspends*: its thread takes the next
task, gives it and the turn to an idle thread, and sleeps. The pipe gives a RESUME task when the
value has come; who takes that gives the turn to the thread that sleeps, and is idle. So threads
change only where a task waits and others run meanwhile, and where none waits the main thread
carries out everything.

Threads, and not coroutines, because what waits may have the frames of autograd's engine between
itself and us.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from shoal.pipe import Kind, Pipe, Task

from .exceptions import StepUsageError


class _Cancelled(BaseException):
    """Ends a suspended task of a step that has failed."""


class Seat:
    """A thread's place: it sleeps there until it has the turn."""

    def __init__(self):
        self.turn = threading.Lock()
        self.turn.acquire()
        self.is_cancelled = False


class Executor:
    """Of one rank.

    Args:
        pipe: Where tasks come from.
        carry_out: What is done with a task other than RESUME.
    """

    def __init__(self, pipe: Pipe, carry_out: Callable[[Task], None]):
        self.pipe, self.carry_out = pipe, carry_out
        self.main = Seat()
        self.idle: list[Seat] = []
        self.suspended: set[Seat] = set()
        self.awaited: dict[int, Callable[[], None]] = {}
        self.awaited_count = 0
        self.resumed: Seat | None = None  # gets the turn once the RESUME task is done
        self.handed: Task | None = None  # is the next one, for who gets the turn
        self.failure: BaseException | None = None
        self.is_over: Callable[[], bool] | None = None  # None: no step
        self._seats = threading.local()

    def run(self, is_over: Callable[[], bool]) -> None:
        """Carries out tasks until is_over() is true after one of them. On the main thread.

        Raises:
            what a task raised, or the pipe; all other tasks are given up then.
        """
        self.is_over = is_over
        self._seats.own = self.main
        try:
            self._serve(self.main)
            if self.failure:
                failure = self.failure
                self._cancel()
                raise failure
        finally:
            self.is_over = None

    def _serve(self, seat: Seat) -> None:
        """With the turn, until the step is over or has failed."""
        while not self.failure and not self.is_over():
            task, self.handed = self.handed, None
            try:
                self._run_one(task or self.pipe.next())
            except _Cancelled:
                pass
            except BaseException as error:
                self.failure = self.failure or error
            if self.resumed:
                self.idle.append(seat)
                self._give_turn(seat, self._take_resumed())

    def _take_resumed(self) -> Seat:
        target, self.resumed = self.resumed, None
        return target

    def _run_one(self, task: Task) -> None:
        if task.kind == Kind.RESUME:
            self.awaited.pop(int.from_bytes(task.blob, "little"))()
        else:
            self.carry_out(task)

    def _give_turn(self, seat: Seat, target: Seat) -> None:
        """Until somebody gives it back. The handlers of signals run on the main thread while it
        sleeps; if one raises, whoever has the turn gives it back, since the pipe is broken."""
        target.turn.release()
        try:
            seat.turn.acquire()
        except BaseException as error:
            self.failure = self.failure or error
            self.pipe.abort(f"{type(error).__name__}: {error}")
            seat.turn.acquire()

    def _begin_thread(self) -> Seat:
        seat = Seat()

        def work() -> None:
            self._seats.own = seat
            while True:
                seat.turn.acquire()
                self._serve(seat)
                self._give_to_main(seat)

        threading.Thread(target=work, name="shoal-task", daemon=True).start()
        return seat

    def _give_to_main(self, seat: Seat) -> None:
        """The main thread, which is idle or suspended, returns from the step, or raises."""
        self.idle.append(seat)
        if self.main in self.idle:
            self.idle.remove(self.main)
        else:
            self.main.is_cancelled = True
        self.main.turn.release()

    def _cancel(self) -> None:
        for seat in list(self.suspended - {self.main}):
            seat.is_cancelled = True
            seat.turn.release()
            self.main.turn.acquire()
        self.suspended.clear()
        self.awaited.clear()
        self.main.is_cancelled = False
        self.failure = self.resumed = self.handed = None

    def when_come(
        self, values: Sequence[int], microbatch: int, function: Callable[[], None]
    ) -> None:
        """Calls a function, with the turn and in no task, once all these values are here."""
        self.awaited_count += 1
        self.awaited[self.awaited_count] = function
        number = self.awaited_count.to_bytes(8, "little")
        self.pipe.submit(Task(Kind.RESUME, self.pipe.rank, microbatch, blob=number, needs=values))

    def wait(self, values: Sequence[int], microbatch: int) -> None:
        """In a task: until all these values are here. Other tasks run meanwhile."""
        seat = self.present_seat()
        self.when_come(values, microbatch, partial(self.resume, seat))
        self.suspend(seat)

    def present_seat(self) -> Seat:
        seat = getattr(self._seats, "own", None)
        if seat is None or self.is_over is None:
            raise StepUsageError("only the code of a step can wait for other ranks")
        return seat

    def suspend(self, seat: Seat) -> None:
        """In its own thread: until somebody resumes it."""
        self.suspended.add(seat)
        target = self._next_seat()
        if target is not seat:
            self._give_turn(seat, target)
        if seat.is_cancelled:
            seat.is_cancelled = False
            raise _Cancelled

    def _next_seat(self) -> Seat:
        """Takes a task: who goes on with it. If that has failed, somebody sees to the end."""
        try:
            task = self.pipe.next()
            if task.kind == Kind.RESUME:
                self._run_one(task)
            else:
                self.handed = task
        except BaseException as error:
            self.failure = self.failure or error
        if self.resumed:
            return self._take_resumed()
        return self.idle.pop() if self.idle else self._begin_thread()

    def resume(self, seat: Seat) -> None:
        """In what when_come calls: the seat has the turn next."""
        self.suspended.remove(seat)
        self.resumed = seat
