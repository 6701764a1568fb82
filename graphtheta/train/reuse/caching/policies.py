"""Cache policies that know the past: FIFO, LRU, LFU, CLOCK, S3-FIFO."""

from __future__ import annotations

import numpy as np

from graphtheta.engine.store.cached import CachePolicy
from graphtheta.ops.kernels.caching.frequency import lfu_hit, lfu_place, lfu_state
from graphtheta.ops.kernels.caching.index import table_of
from graphtheta.ops.kernels.caching.recency import clock_place, lru_hit, lru_place
from graphtheta.ops.kernels.caching.s3_fifo import s3_hit, s3_place


class Fifo(CachePolicy):
    """Evicts the row that was stored first: a ring of slots."""

    name = "fifo"

    def __init__(self, capacity: int):
        self._capacity = capacity
        self._next = 0

    def place(self, keys: np.ndarray) -> np.ndarray:
        begin = self._next
        self._next = (self._next + len(keys)) % self._capacity
        return ((begin + np.arange(len(keys))) % self._capacity).astype(np.int32)


class Lru(CachePolicy):
    """Evicts the row of the longest time without a use."""

    name = "lru"

    def __init__(self, capacity: int):
        ring = np.arange(capacity + 1, dtype=np.int32)
        self._before = np.roll(ring, 1)
        self._after = np.roll(ring, -1)

    def hit(self, slots: np.ndarray, keys: np.ndarray) -> None:
        lru_hit(self._before, self._after, slots)

    def place(self, keys: np.ndarray) -> np.ndarray:
        out = np.empty(len(keys), np.int32)
        lru_place(self._before, self._after, out)
        return out


class Lfu(CachePolicy):
    """Evicts the row with the fewest uses since it was stored, among these that of the longest time
    without one.
    """

    name = "lfu"

    def __init__(self, capacity: int):
        self._buckets, self._slots = lfu_state(capacity)

    def hit(self, slots: np.ndarray, keys: np.ndarray) -> None:
        lfu_hit(self._buckets, self._slots, slots)

    def place(self, keys: np.ndarray) -> np.ndarray:
        out = np.empty(len(keys), np.int32)
        lfu_place(self._buckets, self._slots, out)
        return out


class Clock(CachePolicy):
    """Evicts the next row, in a ring of slots, that was not used since the last round."""

    name = "clock"

    def __init__(self, capacity: int):
        self._used = np.zeros(capacity, bool)
        self._hand = np.zeros(1, np.int64)

    def hit(self, slots: np.ndarray, keys: np.ndarray) -> None:
        self._used[slots] = True

    def place(self, keys: np.ndarray) -> np.ndarray:
        out = np.empty(len(keys), np.int32)
        clock_place(self._used, self._hand, out)
        return out


class S3Fifo(CachePolicy):
    """New rows pass a small queue, and those used again reach the main one; see
    ``ops/kernels/caching/s3_fifo.py``.

    Args:
        capacity: Slots.
        small: Share of the small queue.
    """

    name = "s3-fifo"

    def __init__(self, capacity: int, small: float = 0.1):
        self._state = np.zeros(6, np.int64)
        self._small = np.zeros(capacity, np.int32)
        self._main = np.zeros(capacity, np.int32)
        self._uses = np.zeros(capacity, np.uint8)
        self._slot_keys = np.zeros(capacity, np.int64)
        self._most_small = max(1, round(small * capacity))
        self._ghosts = table_of(max(1, capacity - self._most_small))

    def hit(self, slots: np.ndarray, keys: np.ndarray) -> None:
        s3_hit(self._uses, slots)

    def place(self, keys: np.ndarray) -> np.ndarray:
        out = np.empty(len(keys), np.int32)
        s3_place(
            self._state,
            self._small,
            self._main,
            self._uses,
            self._slot_keys,
            *self._ghosts,
            self._most_small,
            keys,
            out,
        )
        return out
