"""Pipelined mini-batches: while one work item of a rank waits for messages, others compute.

A work item is a plain function that computes a view: forward, backward, sum of its gradients. It
runs as a coroutine that switches to another one wherever it waits, through ``Comm.until``.
Coroutines are greenlets, since a wait may be anywhere below the functions of a user. Each core of
the rank has a thread, which starts work items from one queue and resumes those of its own that
can continue. A core without such work computes blocks of the kernels of others
(``ops.kernels.pool``).

Two rules prevent deadlocks, whatever order ranks choose. Each work item has a channel, so no
message depends on the order. Work items start in order, so the oldest unfinished one of all ranks
has started on each rank, and at least one rank can always continue.
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
# channels per pipelined work item, so that a long work item does not keep later ones from starting
WINDOW = 4


class _WorkItem:
    """An active work item."""

    def __init__(self, number: int, channel: int, coroutine: greenlet):
        self.number = number
        self.channel = channel
        self.coroutine = coroutine
        self.ready: Callable[[], bool] = lambda: True
        self.line = "starts"
        self.over = False
        coroutine.gr_context = copy_context()
        WORK_ITEMS.add(self)

    def state(self) -> tuple[str, FrameType | None]:
        """Its name and what it waits for, and the frame it is suspended in; None while it runs."""
        return f"view {self.number} {self.line}", self.coroutine.gr_frame

    def wait(self, ready: Callable[[], bool], line: str) -> None:
        """Let other work items compute until ``ready``."""
        if not ready():
            self.ready = ready
            self.line = line
            self.coroutine.parent.switch()


class WorkQueue:
    """Runs work items of this rank, several at a time.

    Args:
        comm: All ranks; they run the same work items in the same order.
        in_flight: Largest number of active work items, at least 1; with 1 they run one after the
            other.

    Attributes:
        stalled: Seconds in which no work item could compute, because all waited for other ranks.

    Collective: all ranks of comm.
    """

    def __init__(self, comm: Comm, in_flight: int = 1):
        self.comm = comm
        self.in_flight = in_flight
        self.stalled = 0.0
        if in_flight > 1:
            comm.open_channels(WINDOW * in_flight)

    def run(self, work: Sequence[Callable[[], T]]) -> list[T]:
        """Run all work items; returns their results in order.

        Raises:
            BaseException: The error of the first failing work item; the others are stopped.

        Collective: all ranks of comm.
        """
        if self.in_flight == 1 or len(work) == 1:
            return [item() for item in work]
        self.comm.ledger.pause()
        try:
            return _QueueRun(self, work).finish()
        finally:
            self.comm.ledger.resume()


class _QueueRun(Generic[T]):
    """The work items of one call of ``WorkQueue.run``, shared by the threads that run them."""

    def __init__(self, queue: WorkQueue, work: Sequence[Callable[[], T]]):
        # numba takes longer to import than many programs to run
        from ...ops.parallel import pool

        self.queue = queue
        self.comm = queue.comm
        self.work = work
        self.window = WINDOW * queue.in_flight
        self.results: list[Any] = [None] * len(work)
        self.cores = min(queue.comm.cores, queue.in_flight)
        self._pool = pool
        self._threads = pool.threads()
        self._done = [False] * len(work)
        self._started = self._active = 0
        self._computing = self.cores
        self._waiting: list[list[_WorkItem]] = [[] for _ in range(self.cores)]
        # coroutines are reused: each maps and unmaps a stack, and UCX, a transport of MPICH,
        # never frees the 300 bytes that it stores for each mapping
        self._idle: list[list[greenlet]] = [[] for _ in range(self.cores)]
        self._lock = Lock()
        self._failures: list[tuple[int, BaseException]] = []

    def finish(self) -> list[T]:
        """Run all work items; returns their results."""
        contexts = [copy_context() for _ in range(1, self.cores)]
        others = [
            Thread(target=context.run, args=(self._work, core), name=f"core {core}", daemon=True)
            for core, context in enumerate(contexts, start=1)
        ]
        for thread in others:
            thread.start()
        self._work(0)
        self.comm.poll(
            lambda: not any(thread.is_alive() for thread in others),
            "waits for other threads of this rank",
        )
        self._pool.share_threads(1)
        if self._failures:
            raise min(self._failures, key=lambda failure: failure[0])[1]
        return self.results

    def _work(self, core: int) -> None:
        """Loop of a thread: resume work items that can continue, oldest first, or start others."""
        self._pool.set_threads(self._threads)
        mine, idle = self._waiting[core], self._idle[core]
        try:
            while not self._failures and (mine or self._started < len(self.work)):
                item = next((item for item in mine if item.ready()), None) or self._new(core)
                if item is None:
                    self._wait(core)
                else:
                    item.coroutine.switch(item)
                    if item.over:
                        mine.remove(item)
                        idle.append(item.coroutine)
        except BaseException as error:
            self._failures.append((len(self.work), error))
        self._compute(-1)
        for item in mine:
            item.coroutine.throw()
        for coroutine in (*idle, *(item.coroutine for item in mine if item.over)):
            coroutine.switch(None)

    def _new(self, core: int) -> _WorkItem | None:
        """Start the next work item, if it may start."""
        with self._lock:
            if not self._may_start():
                return None
            idle = self._idle[core]
            item = _WorkItem(
                self._started,
                1 + self._started % self.window,
                idle.pop() if idle else greenlet(self._serve),
            )
            self._started += 1
            self._active += 1
        self._waiting[core].append(item)
        return item

    def _may_start(self) -> bool:
        i = self._started
        return (
            i < len(self.work)
            and self._active < self.queue.in_flight
            and (i < self.window or self._done[i - self.window])
        )

    def _wait(self, core: int) -> None:
        """Wait until the thread has something to do."""
        mine = self._waiting[core]
        self._compute(-1)
        began = perf_counter()
        alone = self._computing == 0
        lines = "; ".join(
            f"view {item.number} {item.line}" for items in self._waiting for item in items
        )

        def ready() -> bool:
            return (
                bool(self._failures)
                or any(item.ready() for item in mine)
                or self._may_start()
                or not (mine or self._started < len(self.work))
            )

        if (
            alone
            and self.comm.size == 1
            and not any(item.ready() for items in self._waiting for item in items)
            and not ready()
        ):
            raise CommError(f"deadlock: every mini-batch of the pipeline waits: {lines}")
        self.comm.poll(ready, lines)
        if alone:
            self.queue.stalled += perf_counter() - began
        self._compute(1)

    def _compute(self, change: int) -> None:
        """Change the number of threads that compute."""
        with self._lock:
            self._computing += change
            self._pool.share_threads(self._computing)

    def _serve(self, item: _WorkItem | None) -> None:
        """Loop of a coroutine: run work items until it gets None."""
        while item is not None:
            self._serve_one(item)
            item.over = True
            # drop the reference, so that a finished work item leaves the set of active ones
            item = None
            item = getcurrent().parent.switch()

    def _serve_one(self, item: _WorkItem) -> None:
        WORK_ITEM.set(item)
        ledger = self.comm.ledger
        ledger.resume()
        try:
            self.results[item.number] = self.work[item.number]()
        except GreenletExit:
            # another work item failed
            pass
        except BaseException as error:
            self._failures.append((item.number, error))
        ledger.pause()
        with self._lock:
            self._done[item.number] = True
            self._active -= 1
