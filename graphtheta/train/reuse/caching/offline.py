"""Offline cache policies, which know what batches will read: static ones, by degree and by
probability, and Belady's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphtheta.engine.partition.directory import LocalDirectory
from graphtheta.engine.store.cached import CachePolicy
from graphtheta.ops.kernels.caching.future import NEVER, belady_hit, belady_place, next_uses
from graphtheta.train.reuse.caching.scout import Reader


class _Static(CachePolicy):
    """Holds rows that are chosen before training, each from its first read on, and evicts none."""

    _slots: LocalDirectory

    def place(self, keys: np.ndarray) -> np.ndarray:
        return self._slots.find(keys)


class ByDegree(_Static):
    """Holds the rows of the nodes with the largest out-degrees.

    Source: PaGraph, https://doi.org/10.1145/3419111.3421281
    """

    name = "degree"

    def __init__(self, capacity: int, scout: Reader):
        self._slots = LocalDirectory(scout.most_connected(capacity))


class ByProbability(_Static):
    """Holds the rows that most batches of a dry run of the sampler read.

    Args:
        capacity: Slots.
        scout: Runs the sampler.
        groups: Groups of batches of the dry run; 0 for an epoch.
    """

    name = "probability"

    def __init__(self, capacity: int, scout: Reader, groups: int = 0):
        read = [np.zeros(0, np.int64), *scout.dry_run(0, 0, groups or scout.groups_per_epoch)]
        keys, counts = np.unique(np.concatenate(read), return_counts=True)
        self._slots = LocalDirectory(keys[np.argsort(-counts, kind="stable")[:capacity]])


class Belady(CachePolicy):
    """Evicts the row whose next use is latest, which gives the most hits if all uses are known.

    Rows without a known use are evicted first, that of the longest time without a use before
    others.

    Args:
        capacity: Slots.
        window: Groups of batches that are known ahead, by a dry run of the sampler.
    """

    name = "belady"

    def __init__(self, capacity: int, window: int = 64):
        self.window = max(1, window)
        self._heap = np.empty(capacity, np.int32)
        self._at = np.empty(capacity, np.int32)
        self._filled = np.zeros(1, np.int64)
        # of the row in each slot: next use, last use, key
        self._when, self._last, self._own = (np.empty(capacity, np.int64) for _ in range(3))
        self._now = 0
        self.foresee(())

    def begin(self, batches: int) -> None:
        self._now += batches

    def foresee(self, batches: Sequence[np.ndarray]) -> None:
        keys = np.concatenate([np.zeros(0, np.int64), *batches])
        # as batches come in the order of time, so do the uses of a key in a stable sort
        order = np.argsort(keys, kind="stable")
        distinct, first = np.unique(keys[order], return_index=True)
        self._times = np.repeat(self._now + 1 + np.arange(len(batches)), [len(x) for x in batches])[
            order
        ].astype(np.int64)
        self._ptr = np.append(first, len(keys)).astype(np.int64)
        self._cursor = first.astype(np.int64)
        self._numbers = LocalDirectory(distinct)
        n = int(self._filled[0])
        self._when[:n] = self._next(self._own[:n], self._last[:n])
        # a falling sequence is a heap
        self._heap[:n] = np.argsort(-self._when[:n], kind="stable")
        self._at[self._heap[:n]] = np.arange(n)

    def hit(self, slots: np.ndarray, keys: np.ndarray) -> None:
        belady_hit(
            heap=self._heap,
            at=self._at,
            when=self._when,
            n=int(self._filled[0]),
            slots=slots,
            uses=self._next(keys, self._now),
        )
        self._last[slots] = self._now

    def place(self, keys: np.ndarray) -> np.ndarray:
        out = np.empty(len(keys), np.int32)
        belady_place(
            heap=self._heap,
            at=self._at,
            when=self._when,
            filled=self._filled,
            uses=self._next(keys, self._now),
            out=out,
        )
        stored = np.flatnonzero(out >= 0)
        self._own[out[stored]] = keys[stored]
        self._last[out[stored]] = self._now
        return out

    def _next(self, keys: np.ndarray, last: np.ndarray | int) -> np.ndarray:
        """Next uses; those that are not known are later than all others, the later the longer ago
        the last use.
        """
        out = np.full(len(keys), NEVER)
        next_uses(
            ptr=self._ptr,
            times=self._times,
            cursor=self._cursor,
            numbers=self._numbers.find(keys),
            now=self._now,
            out=out,
        )
        return np.where(out == NEVER, NEVER - last, out)
