"""Several views in flight: the tasks of one rank, of which others compute while one waits for messages.

A task is a plain function that computes a view: forward, backward, reduction of its gradients. It runs in a thread of
its own and stops by itself wherever it waits, through ``Comm.until``; it then gives its place to a task that can go
on. No more tasks compute at a time than the rank has cores, and a core that finds no task takes blocks of the kernels
of others (``ops.kernels.pool``).

Two rules keep ranks from waiting for each other forever, whatever order they choose. Each task has a channel, so no
message depends on the order. And tasks start in their order, so that the oldest unfinished task of all ranks is under
way, or done, on each of them: somebody can always go on.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from threading import Condition, Semaphore, Thread
from time import perf_counter
from typing import Any, Generic, TypeVar

from graphtheta.errors import CommError

from .channel import TASK
from .comm import Comm

T = TypeVar("T")
# channels per task in flight: a task that takes long does not keep later ones from starting
WINDOW = 4


class _Stopped(BaseException):
    """Ends a task because another one failed."""


class _Task:
    """One task under way."""

    def __init__(self, run: _Run[Any], number: int):
        self.run, self.number = run, number
        self.channel = 1 + number % run.window
        self.ready: Callable[[], bool] = lambda: True
        self.line = "starts"
        self.turn = Semaphore(0)

    def wait(self, ready: Callable[[], bool], line: str) -> None:
        """Let other tasks compute until ``ready``."""
        if not ready():
            self.ready, self.line = ready, line
            self.run.give_way(self)


class TaskQueue:
    """Runs tasks of this rank, several at a time.

    Args:
        comm: All ranks; they run the same tasks in the same order.
        in_flight: How many tasks may be under way at a time, at least 1; with 1 they run one after the other.

    Attributes:
        stalled: Seconds in which no task could compute, since all waited for other ranks.

    Collective: all ranks of comm.
    """

    def __init__(self, comm: Comm, in_flight: int = 1):
        self.comm, self.in_flight = comm, in_flight
        self.stalled = 0.0
        if in_flight > 1:
            comm.open_channels(WINDOW * in_flight)

    def run(self, work: Sequence[Callable[[], T]]) -> list[T]:
        """Run all tasks; returns their results in order.

        Raises:
            BaseException: What the first failing task raised; the others are stopped.

        Collective: all ranks of comm.
        """
        if self.in_flight == 1 or len(work) == 1:
            return [task() for task in work]
        self.comm.ledger.pause()
        try:
            run = _Run(self, work)
            run.direct()
        finally:
            self.comm.ledger.resume()
        return run.results


class _Run(Generic[T]):
    """Tasks of one call of ``TaskQueue.run``. A core is given to a task, and taken back when the task waits or ends."""

    def __init__(self, queue: TaskQueue, work: Sequence[Callable[[], T]]):
        self.queue, self.comm, self.work = queue, queue.comm, work
        self.window = WINDOW * queue.in_flight
        self.results: list[Any] = [None] * len(work)
        self._done = [False] * len(work)
        self._started = 0
        self._cores = self._free = min(queue.comm.cores, queue.in_flight)
        # numba takes longer to import than many programs to run
        from ..ops.kernels import pool

        self._pool, self._threads = pool, pool.threads()
        self._waiting: list[_Task] = []
        self._live = 0
        self._changed = Condition()
        self._failures: list[tuple[int, BaseException]] = []

    # ---- the thread that gives out cores

    def direct(self) -> None:
        """Give cores to tasks that can go on until all are done."""
        try:
            while self._next():
                pass
        except BaseException as error:
            self._failures.append((len(self.work), error))
            while self._next():
                pass
        if self._failures:
            raise min(self._failures, key=lambda failure: failure[0])[1]

    def _next(self) -> bool:
        """Start or resume one task; False when none is left."""
        self._start()
        with self._changed:
            while self._live and not (self._free and self._waiting):
                self._changed.wait()
            if not self._live:
                # those under way may have ended since others were started
                return self._started < len(self.work) and not self._failures
            waiting = sorted(self._waiting, key=lambda task: task.number)
            alone = self._free == self._cores
        task = next((task for task in waiting if self._can_go_on(task)), None)
        if task is None:
            self._look_out(alone)
            return True
        with self._changed:
            self._waiting.remove(task)
            self._free -= 1
            self._pool.share_threads(self._cores - self._free)
        task.turn.release()
        return True

    def _start(self) -> None:
        """Bring tasks under way, in their order."""
        while self._live < self.queue.in_flight and self._started < len(self.work) and not self._failures:
            if self._started >= self.window and not self._done[self._started - self.window]:
                return
            task = _Task(self, self._started)
            self._started += 1
            with self._changed:
                self._live += 1
                self._waiting.append(task)
            context = copy_context()
            Thread(target=context.run, args=(self._serve, task), name=f"view {task.number}", daemon=True).start()

    def _can_go_on(self, task: _Task) -> bool:
        return bool(self._failures) or task.ready()

    def _look_out(self, alone: bool) -> None:
        """Wait until some task can go on."""
        began, live = perf_counter(), self._live
        with self._changed:
            waiting = list(self._waiting)
        lines = "; ".join(f"view {task.number} {task.line}" for task in waiting)
        if alone and self.comm.size == 1 and not any(self._can_go_on(task) for task in waiting):
            raise CommError(f"no view can go on: {lines}")
        free = self._free

        def ready() -> bool:
            return self._live != live or self._free != free or any(self._can_go_on(task) for task in waiting)

        self.comm.poll(ready, lines)
        if alone:
            self.queue.stalled += perf_counter() - began

    # ---- the threads of tasks

    def _serve(self, task: _Task) -> None:
        TASK.set(task)
        self._pool.set_threads(self._threads)
        ledger = self.comm.ledger
        task.turn.acquire()
        try:
            self._check()
            ledger.resume()
            self.results[task.number] = self.work[task.number]()
        except _Stopped:
            pass
        except BaseException as error:
            self._failures.append((task.number, error))
        ledger.pause()
        with self._changed:
            self._done[task.number] = True
            self._free += 1
            self._live -= 1
            self._pool.share_threads(self._cores - self._free)
            self._changed.notify()

    def give_way(self, task: _Task) -> None:
        """Return the core of a task; returns when the task has got one again."""
        with self._changed:
            self._waiting.append(task)
            self._free += 1
            self._pool.share_threads(self._cores - self._free)
            self._changed.notify()
        task.turn.acquire()
        self._check()

    def _check(self) -> None:
        if self._failures:
            raise _Stopped
