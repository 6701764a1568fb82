"""A pool of threads that run blocks of rows.

Kernels release the interpreter lock. A thread that has finished a block takes the next one, so
uneven blocks leave no thread idle. Results do not depend on which thread runs which block.

An operation is offered to idle threads, and one that no thread has begun when the caller is done is
withdrawn. So a short operation never waits for a thread to wake up.

All threads share the same idle ones, unless a thread chooses others: those of a stage of the
pipeline have some of their own, on the same processors.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from threading import Lock, Thread, local

import numba

# seconds of work below which an operation is not divided: to wake a thread, and to take turns with
# it at the interpreter lock, was measured to take 30 to 50 us of both
WORTH = 8e-5


class _Offer:
    """An operation that some more threads may take part in."""

    def __init__(self, work: Callable[[int], object], places: int):
        self.work = work
        # popping is atomic under the interpreter lock: a place is taken or withdrawn, not both
        self._places = list(range(places, 0, -1))
        self._ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def accept(self) -> None:
        """Take part, if there is a place left."""
        place = self._take()
        if not place:
            return
        error: BaseException | None = None
        try:
            self.work(place)
        except BaseException as raised:
            error = raised
        self._ended.put(error)

    def withdraw(self, offered: int) -> BaseException | None:
        """Close the places that are left and wait for the others; returns an exception of one of
        them.
        """
        while self._take():
            offered -= 1
        errors = [self._ended.get() for _ in range(offered)]
        # a thread that has not woken up yet would keep its arrays alive
        del self.work
        return next((e for e in errors if e is not None), None)

    def _take(self) -> int:
        """A place, or 0 if none is left."""
        with suppress(IndexError):
            return self._places.pop()
        return 0


class Helpers:
    """Idle threads that wait for offers of the threads that share them. They run on the processors
    of the thread that first offers something.

    Args:
        threads: Threads that kernels may use, with the one that calls them; 0 for as many as Numba
            would use.
    """

    def __init__(self, threads: int = 0) -> None:
        self.threads = threads
        self.computing = 1
        self._offers: SimpleQueue[_Offer | None] = SimpleQueue()
        self._lock = Lock()
        self._started = 0

    def share(self, computing: int) -> None:
        """Set how many threads call kernels at present; their kernels share the remaining cores."""
        self.computing = max(computing, 1)

    def offer(self, offer: _Offer, places: int) -> None:
        """Offer an operation to some threads."""
        if self._started < places:
            self._start(places)
        for _ in range(places):
            self._offers.put(offer)

    def close(self) -> None:
        """End the threads."""
        with self._lock:
            for _ in range(self._started):
                self._offers.put(None)
            self._started = 0

    def _start(self, n: int) -> None:
        with self._lock:
            while self._started < n:
                Thread(target=self._serve, name=f"graphtheta_{self._started}", daemon=True).start()
                self._started += 1

    def _serve(self) -> None:
        use_helpers(self)
        while (offer := self._offers.get()) is not None:
            offer.accept()
            # an offer keeps arrays alive
            del offer


class _Chosen(local):
    """What was chosen for kernels called from a thread: how many threads, 0 if nothing was, and
    which helpers, None for those that all share.
    """

    n = 0
    helpers: Helpers | None = None


# Numba has such a number too, but starts threads of its own when it is asked
_CHOSEN = _Chosen()
_SHARED = Helpers()


def helpers() -> Helpers:
    """The helpers of this thread."""
    return _CHOSEN.helpers or _SHARED


def use_helpers(chosen: Helpers) -> None:
    """Choose the helpers for kernels called from this thread."""
    _CHOSEN.helpers = chosen


def threads() -> int:
    """Threads that kernels called from this thread may use."""
    most = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    return _CHOSEN.n or helpers().threads or most


def set_threads(n: int) -> None:
    """Choose the number of threads for kernels called from this thread; 0 takes it back."""
    _CHOSEN.n = n


def _renew() -> None:
    global _SHARED
    _SHARED = Helpers()
    _CHOSEN.helpers = None


if hasattr(os, "register_at_fork"):
    # a forked process has none of the threads
    os.register_at_fork(after_in_child=_renew)


def run_threads(work: Callable[[int], object], most: int) -> None:
    """Call ``work`` on this thread, and on up to ``most`` - 1 idle threads at the same time; it
    divides the work itself.

    Args:
        work: Its argument is 0 on this thread, and 1, 2 ... on others.
    """
    idle = helpers()
    places = min(threads() - idle.computing + 1, most) - 1 if most > 1 else 0
    if places <= 0:
        work(0)
        return
    offer = _Offer(work, places)
    idle.offer(offer, places)
    try:
        work(0)
    finally:
        error = offer.withdraw(places)
    if error is not None:
        raise error


def run_blocks(block: Callable[[int], object], n: int, seconds: float = WORTH) -> None:
    """Call block(0) ... block(n - 1), each once, on this thread and idle threads of the pool.

    Args:
        block: Its argument is the number of the block.
        n: Number of blocks.
        seconds: What all take on one thread, roughly; with less than ``WORTH`` other threads are
            left alone.
    """
    if n <= 1 or seconds < WORTH:
        for b in range(n):
            block(b)
        return
    # next() of a count is atomic under the interpreter lock; turns from both ends, as in
    # ``turn.next_turn``
    admitted = count()
    ends = (count(), count(1))

    def work(place: int) -> None:
        side = place % 2
        while next(admitted) < n:
            b = next(ends[side])
            block(n - b if side else b)

    run_threads(work, n)
