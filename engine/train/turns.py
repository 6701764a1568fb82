"""Turns: what the pipelined work items of a run do one after another on every rank."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

from ..comm.communicator import Comm

# number of the work item of the current context; None outside of work items
_NUMBER: ContextVar[int | None] = ContextVar("graphtheta_turn", default=None)


class Turns:
    """The order of the work items of a run, which are the same on every rank."""

    def __init__(self) -> None:
        self._first = 0
        self._over = set[int]()
        self._lock = Lock()

    def restart(self) -> None:
        """New work items follow, from number 0 on; none of the earlier ones is active."""
        self._first = 0
        self._over = set()

    @contextmanager
    def of(self, number: int) -> Iterator[None]:
        """Inside, work item ``number`` has its turn, for which it may ``wait``; afterwards later
        ones may have theirs.
        """
        token = _NUMBER.set(number)
        try:
            yield
        finally:
            _NUMBER.reset(token)
            with self._lock:
                self._over.add(number)
                while self._first in self._over:
                    self._over.remove(self._first)
                    self._first += 1

    def wait(self, comm: Comm) -> None:
        """Return when the turns of all earlier work items are over."""
        number = _NUMBER.get()
        if number is not None:
            comm.until(lambda: self._first >= number, "waits for the features of an earlier view")
