"""Several views in flight: the tasks of one rank, of which others compute while one waits for messages.

A task is a plain function that computes a view: forward, backward, reduction of its gradients. It runs as a coroutine
that switches to another one wherever it waits, through ``Comm.until``: a greenlet, since a wait may be anywhere below
the functions of a user. Each core of the rank has a thread, which takes tasks from one queue and goes on with
whichever of its tasks can; a core that finds nothing to do takes blocks of the kernels of others
(``ops.kernels.pool``).

Two rules keep ranks from waiting for each other forever, whatever order they choose. Each task has a channel, so no
message depends on the order. And tasks start in their order, so that the oldest unfinished task of all ranks is under
way, or done, on each of them: somebody can always go on.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from threading import Lock, Thread
from time import perf_counter
from types import FrameType
from typing import Any, Generic, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

from graphtheta.errors import CommError

from ..comm.call_site import INTERNAL_MODULES
from ..comm.channel import WORK_ITEM, WORK_ITEMS
from ..comm.communicator import Comm

INTERNAL_MODULES.add(__name__)

T = TypeVar("T")
# channels per task in flight: a task that takes long does not keep later ones from starting
WINDOW = 4


class _Task:
    """One task under way."""

    def __init__(self, number: int, channel: int, coroutine: greenlet):
        self.number, self.channel, self.coroutine = number, channel, coroutine
        self.ready: Callable[[], bool] = lambda: True
        self.line = "starts"
        self.over = False
        coroutine.gr_context = copy_context()
        WORK_ITEMS.add(self)

    def state(self) -> tuple[str, FrameType | None]:
        """What it is and waits for, and where, unless it runs."""
        return f"view {self.number} {self.line}", self.coroutine.gr_frame

    def wait(self, ready: Callable[[], bool], line: str) -> None:
        """Let other tasks compute until ``ready``."""
        if not ready():
            self.ready, self.line = ready, line
            self.coroutine.parent.switch()


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
            return _Run(self, work).finish()
        finally:
            self.comm.ledger.resume()


class _Run(Generic[T]):
    """Tasks of one call of ``TaskQueue.run``, shared by the threads that run them."""

    def __init__(self, queue: TaskQueue, work: Sequence[Callable[[], T]]):
        # numba takes longer to import than many programs to run
        from ...ops.kernels import pool

        self.queue, self.comm, self.work = queue, queue.comm, work
        self.window = WINDOW * queue.in_flight
        self.results: list[Any] = [None] * len(work)
        self.cores = min(queue.comm.cores, queue.in_flight)
        self._pool, self._threads = pool, pool.threads()
        self._done = [False] * len(work)
        self._started = self._live = 0
        self._computing = self.cores
        self._waiting: list[list[_Task]] = [[] for _ in range(self.cores)]
        # coroutines of tasks that are over serve the next ones: each has a stack that is mapped and unmapped, of which UCX, which
        # carries the messages of MPICH, keeps 300 bytes of notes for ever
        self._idle: list[list[greenlet]] = [[] for _ in range(self.cores)]
        self._lock = Lock()
        self._failures: list[tuple[int, BaseException]] = []

    def finish(self) -> list[T]:
        """Run all tasks; returns their results."""
        contexts = [copy_context() for _ in range(1, self.cores)]
        others = [Thread(target=context.run, args=(self._work, core), name=f"core {core}", daemon=True)
                  for core, context in enumerate(contexts, start=1)]
        for thread in others:
            thread.start()
        self._work(0)
        self.comm.poll(lambda: not any(thread.is_alive() for thread in others), "waits for other threads of this rank")
        self._pool.share_threads(1)
        if self._failures:
            raise min(self._failures, key=lambda failure: failure[0])[1]
        return self.results

    def _work(self, core: int) -> None:
        """Of one thread: go on with tasks that can, oldest first, or start new ones."""
        self._pool.set_threads(self._threads)
        mine, idle = self._waiting[core], self._idle[core]
        try:
            while not self._failures and (mine or self._started < len(self.work)):
                task = next((task for task in mine if task.ready()), None) or self._new(core)
                if task is None:
                    self._look_out(core)
                else:
                    task.coroutine.switch(task)
                    if task.over:
                        mine.remove(task)
                        idle.append(task.coroutine)
        except BaseException as error:
            self._failures.append((len(self.work), error))
        self._compute(-1)
        for task in mine:
            task.coroutine.throw()
        for coroutine in (*idle, *(task.coroutine for task in mine if task.over)):
            coroutine.switch(None)

    def _new(self, core: int) -> _Task | None:
        """Start the next task, if it may."""
        with self._lock:
            if not self._may_start():
                return None
            idle = self._idle[core]
            task = _Task(self._started, 1 + self._started % self.window, idle.pop() if idle else greenlet(self._serve))
            self._started += 1
            self._live += 1
        self._waiting[core].append(task)
        return task

    def _may_start(self) -> bool:
        i = self._started
        return i < len(self.work) and self._live < self.queue.in_flight and (i < self.window or self._done[i - self.window])

    def _look_out(self, core: int) -> None:
        """Wait until the thread has something to do."""
        mine = self._waiting[core]
        self._compute(-1)
        began, alone = perf_counter(), self._computing == 0
        lines = "; ".join(f"view {task.number} {task.line}" for tasks in self._waiting for task in tasks)

        def ready() -> bool:
            return bool(self._failures) or any(task.ready() for task in mine) or self._may_start() or not (
                mine or self._started < len(self.work))

        if alone and self.comm.size == 1 and not any(task.ready() for tasks in self._waiting for task in tasks) and not ready():
            raise CommError(f"deadlock: every mini-batch in flight waits: {lines}")
        self.comm.poll(ready, lines)
        if alone:
            self.queue.stalled += perf_counter() - began
        self._compute(1)

    def _compute(self, change: int) -> None:
        """One thread more or less that computes."""
        with self._lock:
            self._computing += change
            self._pool.share_threads(self._computing)

    def _serve(self, task: _Task | None) -> None:
        """Of a coroutine: tasks, one after another, until it is given none."""
        while task is not None:
            self._serve_one(task)
            task.over = True
            # one that is over is not under way
            task = None
            task = getcurrent().parent.switch()

    def _serve_one(self, task: _Task) -> None:
        WORK_ITEM.set(task)
        ledger = self.comm.ledger
        ledger.resume()
        try:
            self.results[task.number] = self.work[task.number]()
        except GreenletExit:
            # another task failed
            pass
        except BaseException as error:
            self._failures.append((task.number, error))
        ledger.pause()
        with self._lock:
            self._done[task.number] = True
            self._live -= 1
