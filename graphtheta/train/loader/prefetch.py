"""Batches made ahead by a thread, while the loop computes on earlier ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextvars import copy_context
from threading import Condition, Thread
from types import FrameType
from typing import Generic, TypeVar

import numpy as np

from graphtheta.engine.comm.channel import WORK_ITEM, WORK_ITEMS, active_work_items
from graphtheta.engine.comm.communicator import Comm

T = TypeVar("T")
R = TypeVar("R")


class _Making:
    """The work item of the thread: its messages have a channel of their own, so that those of the
    loop, which may train with views in flight, and of threads of other loops may come in between.

    Collective: all ranks of comm.
    """

    def __init__(self, comm: Comm):
        # ranks may drop loops that ended early at different times
        used = [item.number for item in active_work_items() if isinstance(item, _Making)]
        self.number: int = 1 + int(comm.all_max(np.array(max(used, default=0))))
        self.channel = comm.open_channels("loaders", self.number)[-1]
        self._comm = comm
        self._line = "makes batches ahead"
        WORK_ITEMS.add(self)

    def wait(self, ready: Callable[[], bool], line: str) -> None:
        self._line = line
        self._comm.poll(ready, line)

    def run_in(self, _: str, function: Callable[[], R]) -> R:
        return function()

    def state(self) -> tuple[str, FrameType | None]:
        return f"the loader {self._line}", None


class Prefetch(Generic[T]):
    """An iterator over items that a thread makes, up to ``depth`` ahead of those that were taken.

    Ranks take the same items, but their threads may have made different numbers of them when the
    loop ends early. ``close`` therefore lets each make as many as it may, on all ranks the same
    number, so that none waits for another.

    Args:
        items: Makes the items, in the thread.
        comm: All ranks, which make the items together.
        depth: Items made ahead, at least 1.

    Collective: all ranks of comm, here and in every method.
    """

    def __init__(self, items: Iterator[T], comm: Comm, depth: int):
        self._items = items
        self._comm = comm
        self._ready = deque[T]()
        self._left = depth
        self._over = self._closing = False
        self._failure: BaseException | None = None
        self._change = Condition()
        context = copy_context()
        # only the thread holds it, so its channel is free when the thread has ended
        context.run(WORK_ITEM.set, _Making(comm))
        self._thread = Thread(
            target=context.run, args=(self._make,), name="graphtheta loader", daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        self._comm.poll(lambda: bool(self._ready) or self._over, "waits for a batch made ahead")
        if not self._ready:
            if self._failure is not None:
                raise self._failure
            raise StopIteration
        item = self._ready.popleft()
        with self._change:
            self._left += 1
            self._change.notify()
        return item

    def close(self) -> None:
        """End the thread; further items are dropped."""
        with self._change:
            self._closing = True
            self._change.notify()
        self._comm.poll(lambda: not self._thread.is_alive(), "waits for batches made ahead")
        self._ready.clear()

    def _make(self) -> None:
        ledger = self._comm.ledger
        ledger.resume()
        try:
            while self._may_make():
                self._ready.append(next(self._items))
                self._comm.changed()
        except StopIteration:
            pass
        except BaseException as error:
            self._failure = error
        ledger.pause()
        self._over = True

    def _may_make(self) -> bool:
        """Wait for room; whether the next item is to be made."""
        with self._change:
            self._change.wait_for(lambda: self._left > 0 or self._closing)
            self._left -= 1
            return self._left >= 0
