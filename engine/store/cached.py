"""Row caches: rows of wide columns that are costly to read, from a disk or from another worker.

A read of some rows finds those that the cache holds, and reads the others, which the cache then
may keep. A policy decides which rows it keeps, in which slots; it sees slots and keys only. Rows
never change, so the results of a read do not depend on the cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar

import numpy as np

from ...ops.rows.by_number import assembled
from ...ops.rows.row_list import RowList
from .column import Coded, Column, Decoding, Read, coded, listed_rows
from .slots import Slots


class CachePolicy(ABC):
    """Decides which rows a cache of ``capacity`` slots, at least one, holds. One thread at a time
    calls it.
    """

    name: ClassVar[str]
    # how many groups of batches ahead ``foresee`` has to know; 0 if it is not called
    window: int = 0

    def begin(self, batches: int) -> None:  # noqa: B027 (most policies need no time)
        """A read for so many batches begins."""

    # fifo and static policies do not need it
    def hit(self, slots: np.ndarray, keys: np.ndarray) -> None:  # noqa: B027
        """Rows were found.

        Args:
            slots: Their slots, [n] int32.
            keys: Their keys, [n] int64, none twice.
        """

    @abstractmethod
    def place(self, keys: np.ndarray) -> np.ndarray:
        """Slots for rows that were not found, [n] int32; -1 for those not to keep.

        The row that a slot holds is evicted. A slot may occur several times: the last row stays.

        Args:
            keys: Their keys, [n] int64, none twice.
        """

    # called only if ``window`` is above 0
    def foresee(self, batches: Sequence[np.ndarray]) -> None:  # noqa: B027
        """The next batches are known.

        Args:
            batches: Keys of the rows that each reads, [n] int64, none twice in a batch.
        """


@dataclass
class CacheCounts:
    """Rows that were looked up in a cache: those it held, and those it did not."""

    hits: int = 0
    misses: int = 0


@dataclass(frozen=True)
class CachedRows:
    """What a cache holds of some rows.

    Attributes:
        at, rest: Positions of the rows found and of the others, [n_found] and [n_rest] int64.
        rows: Copies of the rows found, [n_found, ...] by name.
    """

    at: np.ndarray
    rest: np.ndarray
    rows: dict[str, np.ndarray]

    def joined(self, rest: Mapping[str, Any]) -> dict[str, Any]:
        """All rows in their order.

        Args:
            rest: The rows that were not found, in the order of ``rest``, by name.
        """
        return assembled(len(self.at) + len(self.rest), [(self.rest, rest), (self.at, self.rows)])


class RowCache:
    """Rows of some columns by key.

    Args:
        capacity: Largest number of rows.
        policy: Decides which rows it holds; None if the capacity is 0.
        slots: Hold the rows, ``capacity`` of them.

    Attributes:
        counts: Rows looked up so far.
    """

    def __init__(self, capacity: int, policy: CachePolicy | None, slots: Slots):
        # numba takes longer to import than many programs to run
        from ...ops.kernels.caching.index import table_of

        self.policy = policy
        self.counts = CacheCounts()
        self.slots = slots
        self._slot_keys, self._table, self._shift = table_of(capacity)
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it holds."""
        return self._slot_keys.nbytes + self._table.nbytes + self.slots.nbytes

    def look_up(self, keys: np.ndarray, batches: int = 1) -> CachedRows:
        """The rows that it holds; the others are to be read and given to ``store``.

        Args:
            keys: [n] int64, none twice.
            batches: Number of batches that the rows are read for.
        """
        with self._lock:
            slots = self._find(keys, batches)
            at = np.flatnonzero(slots >= 0)
            return CachedRows(at, np.flatnonzero(slots < 0), self.slots.read(slots[at]))

    def find(self, keys: np.ndarray, batches: int = 1) -> np.ndarray:
        """Slots of some rows, [n] int32, -1 for those it does not hold, which are to be read and
        offered; arguments as for ``look_up``.
        """
        with self._lock:
            slots = self._find(keys, batches)
            self.counts.misses += int((slots < 0).sum())
            return slots

    def store(self, keys: np.ndarray, rows: Mapping[str, Any]) -> None:
        """Count rows that ``look_up`` did not find, and offer them; arguments as for ``offer``."""
        with self._lock:
            self.counts.misses += len(keys)
        self.offer(keys, rows)

    def offer(self, keys: np.ndarray, rows: Mapping[str, Any]) -> None:
        """Rows that were not found, which the cache may hold from now on.

        Args:
            keys: [n] int64, none twice.
            rows: [n, ...] by name.
        """
        from ...ops.kernels.caching.index import assign

        with self._lock:
            if self.policy is None or not len(keys):
                return
            # a read that began later may have stored some of them
            new = np.flatnonzero((self._slots_of(keys) < 0) & self.slots.fit(rows, len(keys)))
            place = self.policy.place(keys[new])
            stays = np.empty(len(new), bool)
            assign(
                slot_keys=self._slot_keys,
                table=self._table,
                shift=self._shift,
                keys=keys[new],
                slots=place,
                last=stays,
            )
            self.slots.write(place[stays], rows, new[stays])

    def _find(self, keys: np.ndarray, batches: int) -> np.ndarray:
        if self.policy is not None:
            self.policy.begin(batches)
        slots = self._slots_of(keys)
        at = np.flatnonzero(slots >= 0)
        if self.policy is not None and len(at):
            self.policy.hit(slots[at], keys[at])
        self.counts.hits += len(at)
        return slots

    def _slots_of(self, keys: np.ndarray) -> np.ndarray:
        from ...ops.kernels.lookup import find

        slots = np.empty(len(keys), np.int32)
        find(
            ids=self._slot_keys,
            slots=self._table,
            shift=self._shift,
            wanted=keys,
            out=slots,
            first=0,
            last=len(keys),
        )
        return slots

    def foresee(self, batches: Sequence[np.ndarray]) -> None:
        """The next batches are known; see ``CachePolicy.foresee``."""
        if self.policy is not None:
            with self._lock:
                self.policy.foresee(batches)


class CachedColumn:
    """A column whose rows a cache may hold, by row number. A read of all rows does not use it.

    Args:
        name: Name of the column in the cache.
        column: Column that is costly to read.

    Attributes:
        cache: A cache of rows of this column alone, in their narrower form; None for none.
    """

    def __init__(self, name: str, column: Column):
        self.name = name
        self.column = column
        self.cache: RowCache | None = None
        self.shape: tuple[int, ...] = column.shape
        self.dtype: np.dtype = column.dtype
        self.sparse: bool = column.sparse

    @property
    def coded(self) -> Coded:
        """The narrower form of the column."""
        return coded(self.column)

    @property
    def nbytes(self) -> int:
        return self.column.nbytes + (0 if self.cache is None else self.cache.nbytes)

    def read_begin(self, rows: np.ndarray | None) -> Read:
        if self.cache is None or rows is None:
            return self.column.read_begin(rows)
        return Decoding(
            _CachedRead(self.name, self.coded.column, self.cache, rows), self.coded.decode
        )

    def listed(self, rows: np.ndarray) -> RowList | None:
        return listed_rows(self.column, rows) if self.cache is None else None


class _CachedRead:
    """A started read of the rows that the cache did not hold."""

    def __init__(self, name: str, column: Column, cache: RowCache, rows: np.ndarray):
        keys = rows.astype(np.int64, copy=False)
        self._name = name
        self._cache = cache
        self._cached = cache.look_up(keys)
        self._keys = keys[self._cached.rest]
        self._rest = column.read_begin(rows[self._cached.rest])

    def end(self) -> Any:
        rows = {self._name: self._rest.end()}
        self._cache.store(self._keys, rows)
        return self._cached.joined(rows)[self._name]
