"""Tables distributed over the workers.

A worker holds its share of a table only. Look-ups are collective; a worker takes part even without
keys.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from graphtheta.base.rng import Purpose, bits, key

from ..comm.communicator import Comm

Home = Callable[[np.ndarray], np.ndarray]
_HOMES = key(0, Purpose.PLACEMENT)


class Route:
    """Splits items by worker, and puts the answers back in the order of the items.

    Args:
        worker: Worker to which each item is sent, [n] int.
        size: Number of workers.

    Attributes:
        order: Number of the item at each position of the order by worker, [n] int64.
        bounds: Bounds of the items of each worker, in their order by worker, [size + 1].
    """

    def __init__(self, worker: np.ndarray, size: int):
        # 16 bits are sorted by radix
        self.order = np.argsort(
            worker.astype(np.int16) if size <= np.iinfo(np.int16).max else worker, kind="stable"
        )
        self.bounds = np.searchsorted(worker[self.order], np.arange(size + 1))

    def parts(self, x: np.ndarray) -> list[np.ndarray]:
        """The rows of x, [n, ...], by worker."""
        ordered = x[self.order]
        return [ordered[a:b] for a, b in pairwise(self.bounds)]

    def positions(self) -> np.ndarray | None:
        """Position of each item in the order by worker, [n] int64; None if that is the order of the
        items.
        """
        place = np.arange(len(self.order))
        if np.array_equal(self.order, place):
            return None
        at = np.empty_like(place)
        at[self.order] = place
        return at

    def back(self, answers: list[np.ndarray]) -> np.ndarray:
        """The answers of all workers in the order of the items, [n, ...]."""
        joined = np.concatenate(answers)
        out = np.empty_like(joined)
        out[self.order] = joined
        return out


def home_of(comm: Comm) -> Home:
    """The function from keys to workers by hash."""
    return lambda keys: (bits(_HOMES, keys) % np.uint64(comm.size)).astype(np.int32)


def occurrences_of(comm: Comm, keys: np.ndarray) -> np.ndarray:
    """How often each key occurs over all workers, [n] int64.

    Args:
        comm: The workers.
        keys: Of this worker, [n] int64.

    Collective: all ranks of comm.
    """
    different, at, counts = np.unique(keys, return_inverse=True, return_counts=True)
    route = Route(home_of(comm)(different), comm.size)
    received, parts = (comm.all_to_all(route.parts(x)) for x in (different, counts))
    at_home, where = np.unique(np.concatenate(received), return_inverse=True)
    total = np.zeros(len(at_home), np.int64)
    np.add.at(total, where, np.concatenate(parts))
    bounds = np.cumsum([0, *map(len, received)])
    return route.back(comm.all_to_all([total[where[a:b]] for a, b in pairwise(bounds)]))[at]


class DistributedTable:
    """Integers by key. Each entry is stored at the home of its key, a worker.

    Args:
        comm: The workers.
        keys: Keys of the entries that this worker contributes, [n] int64; no key twice.
        values: Their values, [n] or [n, k] int.
        home: Function from keys to their homes, the same on every rank; by default a hash.

    Collective: all ranks of comm.
    """

    def __init__(self, comm: Comm, keys: np.ndarray, values: np.ndarray, home: Home | None = None):
        self._comm = comm
        self._home = home or home_of(comm)
        route = Route(self._home(keys), comm.size)
        entries, rows = (np.concatenate(comm.all_to_all(route.parts(x))) for x in (keys, values))
        order = np.argsort(entries, kind="stable")
        self._keys = entries[order]
        self._values = rows[order]

    def look_up(self, keys: np.ndarray) -> np.ndarray:
        """Values of some keys, [n] or [n, k]; -1 where a key has no entry. One round trip.

        Collective: all ranks of comm.
        """
        route = Route(self._home(keys), self._comm.size)
        requested = self._comm.all_to_all(route.parts(keys))
        return route.back(self._comm.all_to_all([self._find(part) for part in requested]))

    def _find(self, keys: np.ndarray) -> np.ndarray:
        out = np.full((len(keys), *self._values.shape[1:]), -1, self._values.dtype)
        if len(self._keys):
            at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            present = self._keys[at] == keys
            out[present] = self._values[at[present]]
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of this worker's entries."""
        return self._keys.nbytes + self._values.nbytes
