"""Pipelined mini-batches: while one work item of a rank waits for messages, others compute.

A work item is a context manager. Entering it makes a view, and returns a function that computes the
view: forward, backward, sum of its gradients. It runs as a coroutine that switches to another one
wherever it waits, through ``Comm.until``. Coroutines are greenlets, since a wait may be anywhere
below the functions of a user. Each core of the rank has a thread, which starts work items from one
queue and resumes those of its own that can continue. A core without such work computes blocks of
the kernels of others (``ops.kernels.pool``).

Stages of work items may have threads of their own (``stages.py``). A work item is then entered on a
thread of the first stage and waits there while threads of the others do their parts, each as a
coroutine in the same channel.

Two rules prevent deadlocks, whatever order ranks choose. Each work item has a channel, so no
message depends on the order. Work items start in order, so the oldest unfinished one of all ranks
has started on each rank, and at least one rank can always continue. A stage takes all work items
that come to it, so none of them keeps an older one out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import partial
from threading import Lock
from time import perf_counter
from types import FrameType
from typing import Any, Generic, TypeAlias, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

from graphtheta.base.binding import bind
from graphtheta.errors import CommError

from ..comm.call_site import INTERNAL_MODULES
from ..comm.channel import WORK_ITEM, WORK_ITEMS
from ..comm.communicator import Comm
from .stages import COMPUTE, SAMPLING, STAGES, StageThreads

INTERNAL_MODULES.add(__name__)

T = TypeVar("T")
R = TypeVar("R")
# entering it prepares; what it returns is called in the stage that computes, before it is left
Work: TypeAlias = AbstractContextManager[Callable[[], T]]
# channels per pipelined work item, so that a long work item does not keep later ones from starting
WINDOW = 4


class _Team:
    """Threads that take the same stages.

    Args:
        n: Number of threads.
        helpers: Take part in their kernels (``ops.kernels.pool``).
        bound: The stages and processors; None for all stages, on any processor.
    """

    def __init__(self, n: int, helpers: Any, bound: StageThreads | None = None):
        self.helpers = helpers
        self.bound = bound
        self.stages = STAGES if bound is None else bound.stages
        # work items start here
        self.is_first = SAMPLING in self.stages
        # parts of work items that no thread has begun
        self.parts: list[_Part] = []
        self.computing = n
        helpers.share(n)
        self.threads = [_Thread(self, i) for i in range(n)]


class _Thread:
    """A thread that runs parts of work items."""

    def __init__(self, team: _Team, number: int):
        self.team = team
        name = "core" if team.bound is None else team.bound.name
        self.name = f"{name} {number}"
        self.parts: list[_Part] = []
        # coroutines are reused: each maps and unmaps a stack, and UCX, a transport of MPICH,
        # never frees the 300 bytes that it stores for each mapping
        self.idle: list[greenlet] = []


class _Part:
    """What one thread does of an active work item: all of it, or a stage.

    Args:
        item: The work item.
        team: Whose threads may run it.
        function: What is to be done.
        is_whole: Whether the work item is over with it; otherwise another part waits for it.

    Attributes:
        coroutine: Runs it; None until a thread begins.
        result, error: What became of it, if it is over.
    """

    def __init__(
        self, item: _WorkItem, team: _Team, function: Callable[[], Any], is_whole: bool = False
    ):
        self.item = item
        self.team = team
        self.function = function
        self.is_whole = is_whole
        self.context = copy_context()
        self.coroutine: greenlet | None = None
        self.ready: Callable[[], bool] = lambda: True
        self.line = "starts"
        self.over = False
        self.result: Any = None
        self.error: BaseException | None = None

    def wait(self, ready: Callable[[], bool], line: str) -> None:
        """Let other parts compute until ``ready``; called by the coroutine itself."""
        if not ready():
            self.ready = ready
            self.line = line
            getcurrent().parent.switch()


class _WorkItem:
    """An active work item.

    Attributes:
        part: The part that runs, or waits for something else than another part; None at the end.
    """

    def __init__(self, run: Pipeline[Any], number: int, channel: int):
        self.number = number
        self.channel = channel
        self._run = run
        self.part: _Part | None = _Part(
            self, run.first, partial(_whole, run.work[number]), is_whole=True
        )
        WORK_ITEMS.add(self)

    def state(self) -> tuple[str, FrameType | None]:
        """Its name and what it waits for, and the frame it is suspended in; None while it runs."""
        part = self.part
        if part is None:
            return f"view {self.number} ends", None
        frame = None if part.coroutine is None else part.coroutine.gr_frame
        return f"view {self.number} {part.line}", frame

    def wait(self, ready: Callable[[], bool], line: str) -> None:
        """Let other work items compute until ``ready``."""
        assert self.part is not None
        self.part.wait(ready, line)

    def run_in(self, stage: str, function: Callable[[], R]) -> R:
        """Run a function on a thread of a stage; meanwhile this one runs other work items."""
        caller = self.part
        team = self._run.team_of[stage]
        assert caller is not None
        if team is caller.team:
            return function()
        if team.is_first:
            # its threads may have ended, and nobody would run the part
            raise CommError(f"a work item asks for {stage} after its first stage")
        part = _Part(self, team, function)
        ledger = self._run.comm.ledger
        ledger.pause()
        self.part = part
        team.parts.append(part)
        caller.wait(lambda: part.over, f"waits for its {stage}")
        self.part = caller
        ledger.resume()
        if part.error is not None:
            raise part.error
        result: R = part.result
        return result


def in_stage(stage: str, function: Callable[[], T]) -> T:
    """Run a function on a thread of a stage of the pipeline, if stages have threads of their own;
    returns its result.

    Args:
        stage: One of ``STAGES``.
        function: Runs in the channel of the current work item, and with a copy of its context
            variables.
    """
    item = WORK_ITEM.get()
    return function() if item is None else item.run_in(stage, function)


def _whole(item: Work[T]) -> T:
    """Run a work item."""
    with item as compute:
        return in_stage(COMPUTE, compute)


class Pipeline(Generic[T]):
    """Some work items, shared by the threads that run them.

    Args:
        work: The work items.
        comm: All ranks; they run the same work items in the same order.
        in_flight: Largest number of active work items.
        channels: Numbers of the channels they take in turn, at least ``in_flight``.
        stages: The threads of each stage; empty for threads that take whatever can continue.

    Attributes:
        stalled: Seconds in which no work item could compute, because all waited for other ranks.
    """

    def __init__(
        self,
        work: Sequence[Work[T]],
        comm: Comm,
        in_flight: int,
        channels: Sequence[int],
        stages: Sequence[StageThreads],
    ):
        # numba takes longer to import than many programs to run
        from ...ops.parallel import pool

        self.comm = comm
        self.work = work
        self.stalled = 0.0
        self._in_flight = in_flight
        self._channels = channels
        self._stages = stages
        self.results: list[Any] = [None] * len(work)
        self._pool = pool
        self._threads = pool.threads()
        self._teams = [
            _Team(min(len(bound.processors), in_flight), pool.Helpers(), bound) for bound in stages
        ] or [_Team(min(comm.cores, in_flight), pool.helpers())]
        self.team_of = {stage: team for team in self._teams for stage in team.stages}
        self.first = self.team_of[SAMPLING]
        self._done = [False] * len(work)
        self._started = self._active = 0
        self._left = len(work)
        self._computing = sum(team.computing for team in self._teams)
        # how often a thread has ended to wait
        self._resumed = 0
        self._lock = Lock()
        self._failures: list[tuple[int, BaseException]] = []

    def finish(self) -> list[T]:
        """Run all work items; returns their results."""
        threads = [thread for team in self._teams for thread in team.threads]
        # the thread that called is bound to no processor, so it takes no stage
        mine = None if self._stages else threads.pop(0)
        ended = [
            self.comm.start_thread(partial(self._work, thread), thread.name) for thread in threads
        ]
        if mine is not None:
            self._work(mine)
        self.comm.poll(
            lambda: all(has_ended() for has_ended in ended),
            "waits for other threads of this rank",
        )
        for team in self._teams:
            team.helpers.share(1)
            if team.bound is not None:
                team.helpers.close()
        if self._failures:
            raise min(self._failures, key=lambda failure: failure[0])[1]
        return self.results

    def _work(self, thread: _Thread) -> None:
        """Loop of a thread: resume parts that can continue, oldest first, or begin others."""
        parts = thread.parts
        try:
            self._enter(thread.team)
            while not self._failures and (parts or self._may_come(thread.team)):
                part = next((part for part in parts if part.ready()), None) or self._new(thread)
                if part is None:
                    self._wait(thread)
                else:
                    part.coroutine.switch(part)  # type: ignore[union-attr]
                    if part.over:
                        parts.remove(part)
                        thread.idle.append(part.coroutine)
                    self.comm.changed()
        except BaseException as error:
            self._failures.append((len(self.work), error))
        self._compute(thread.team, -1)
        for part in parts:
            part.coroutine.throw()  # type: ignore[union-attr]
        for coroutine in (*thread.idle, *(part.coroutine for part in parts if part.over)):
            coroutine.switch(None)
        # contexts of coroutines lead back here
        thread.idle.clear()
        parts.clear()

    def _enter(self, team: _Team) -> None:
        """Begin to be a thread of a team."""
        if team.bound is None:
            self._pool.set_threads(self._threads)
        else:
            bind(team.bound.processors)
            self._pool.set_threads(len(team.bound.processors))
            self._pool.use_helpers(team.helpers)

    def _new(self, thread: _Thread) -> _Part | None:
        """Begin the oldest part that no thread of the team has begun, or the next work item, if it
        may start.
        """
        team = thread.team
        with self._lock:
            if team.parts:
                part = min(team.parts, key=lambda part: part.item.number)
                team.parts.remove(part)
            elif team.is_first and self._may_start():
                part = self._next_part()
            else:
                return None
        part.coroutine = thread.idle.pop() if thread.idle else greenlet(self._serve)
        part.coroutine.gr_context = part.context
        thread.parts.append(part)
        return part

    def _next_part(self) -> _Part:
        """The part of the next work item with which it begins."""
        number = self._started
        self._started += 1
        self._active += 1
        item = _WorkItem(self, number, self._channels[number % len(self._channels)])
        assert item.part is not None
        return item.part

    def _may_start(self) -> bool:
        i = self._started
        return (
            i < len(self.work)
            and self._active < self._in_flight
            and (i < len(self._channels) or self._done[i - len(self._channels)])
        )

    def _may_come(self, team: _Team) -> bool:
        """Whether further parts may come to a team."""
        return self._started < len(self.work) if team.is_first else self._left > 0

    def _wait(self, thread: _Thread) -> None:
        """Wait until the thread has something to do."""
        team = thread.team
        self._compute(team, -1)
        began = perf_counter()
        alone = not self._computing
        lines = self._lines()

        def ready() -> bool:
            return (
                bool(self._failures)
                or any(part.ready() for part in thread.parts)
                or bool(team.parts)
                or (team.is_first and self._may_start())
                or not (thread.parts or self._may_come(team))
                or self._is_stuck()
            )

        self.comm.poll(ready, lines)
        if alone:
            self.stalled += perf_counter() - began
        self._compute(team, 1)

    def _is_stuck(self) -> bool:
        """Whether all work items of a single rank wait for each other; then that is the error."""
        resumed = self._resumed
        if (
            self.comm.size > 1
            or self._computing > 0
            or any(part.ready() for part in self._parts())
            or any(team.parts for team in self._teams)
            or self._may_start()
            or resumed != self._resumed
        ):
            return False
        error = CommError(f"deadlock: every mini-batch of the pipeline waits: {self._lines()}")
        self._failures.append((len(self.work), error))
        return True

    def _parts(self) -> list[_Part]:
        """The parts that threads have begun."""
        return [part for team in self._teams for each in team.threads for part in each.parts]

    def _lines(self) -> str:
        """What the active work items wait for."""
        return "; ".join(
            f"view {part.item.number} {part.line}"
            for part in self._parts()
            if part is part.item.part
        )

    def _compute(self, team: _Team, change: int) -> None:
        """Change the number of threads of a team that compute."""
        with self._lock:
            team.computing += change
            self._computing += change
            self._resumed += change > 0
            team.helpers.share(team.computing)

    def _serve(self, part: _Part | None) -> None:
        """Loop of a coroutine: run parts of work items until it gets None."""
        while part is not None:
            self._serve_one(part)
            part.over = True
            # drop the reference, so that a finished work item leaves the set of active ones
            part = None
            part = getcurrent().parent.switch()

    def _serve_one(self, part: _Part) -> None:
        item = part.item
        WORK_ITEM.set(item)
        ledger = self.comm.ledger
        ledger.resume()
        try:
            part.result = part.function()
        except GreenletExit:
            # another work item failed
            pass
        except BaseException as error:
            part.error = error
        ledger.pause()
        if not part.is_whole:
            return
        item.part = None
        if part.error is not None:
            self._failures.append((item.number, part.error))
        self.results[item.number] = part.result
        with self._lock:
            self._done[item.number] = True
            self._active -= 1
            self._left -= 1
