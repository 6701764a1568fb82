"""Features of nodes by their ids, fetched from the workers that own the nodes.

A worker of independent mode computes views of nodes that others own. It asks each owner once for
the rows of all nodes it needs, by their master rows there; the owner answers with all wide columns
in one message, in the order of the request, so a reply has no ids. Rows of sparse columns have
their lengths in this message, and their entries in a second one. Columns that have a narrower form,
such as codes of 8 bits, are sent and cached in it.

The rows that several views need are fetched once for all of them. Rows that a cache holds are not
asked for. A relay may fetch rows for all workers of a machine together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from math import prod
from threading import Lock
from typing import Any, Protocol

import numpy as np
import scipy

from graphtheta.base.sparse import is_sparse

from ...ops.rows.by_number import assembled
from ...ops.rows.row_list import take_rows
from ..comm.communicator import Comm
from ..partition.exchange import pointers
from ..partition.partition import Partition
from ..partition.table import Route
from ..store.cached import RowCache
from .scatter import Move
from .scheduler import in_stage
from .stages import FEATURES

# of a row at its owner; of the length of a sparse row; of the column of one of its entries
REQUEST, LENGTH, INDEX = np.dtype(np.int32), np.dtype(np.int32), np.dtype(np.int32)


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


class Relay(Protocol):
    """Fetches rows of other machines once for all workers of a machine."""

    def rows(
        self,
        fetch: Callable[[np.ndarray, np.ndarray], dict[str, Any]],
        owner: np.ndarray,
        row: np.ndarray,
        batches: int,
    ) -> dict[str, Any]:
        """The wide columns of some nodes, none twice, [n, ...] by name.

        Args:
            fetch: Fetches rows from their owners; arguments and result are like these. Collective.
            owner, row: Owners of the nodes and rows there, [n] int32.
            batches: Number of batches that the rows are read for.

        Collective: all ranks of the partition, in the same order of calls.
        """


class Features:
    """The wide node columns of a partition, by global id.

    Args:
        partition: This worker's part of the graph.
        cache: Holds rows by global id; None for none.
        own: Whether the cache also holds rows of this worker's masters, which is of use if they are
            not in its memory.
        relay: Fetches what the cache does not hold; None to ask the owners.

    Attributes:
        turns: The turns in which work items fetch, if there is a relay.
    """

    def __init__(
        self,
        partition: Partition,
        cache: RowCache | None = None,
        own: bool = False,
        relay: Relay | None = None,
    ):
        self._partition = partition
        self._coded = {name: partition.node.coded(name) for name in partition.node.wide()}
        self._cache = cache
        self._own = own
        self._relay = relay
        self.turns = Turns()

    def fetch(self, ids: Sequence[np.ndarray]) -> list[dict[str, Any]]:
        """The wide columns of the nodes of some views.

        Args:
            ids: Global ids of the nodes of each view, [n] int64, none twice in a view. Workers may
                give different numbers of views.

        Returns:
            For each view, rows [n, ...] by name: arrays, or CSR rows of sparse columns.

        Raises:
            PartitionError: An id is not that of a node.

        Collective: all ranks of the partition.
        """
        return in_stage(FEATURES, partial(self._fetch, ids)) if self._coded else [{} for _ in ids]

    def _fetch(self, ids: Sequence[np.ndarray]) -> list[dict[str, Any]]:
        """As ``fetch``, if there are wide columns.

        Collective: all ranks of the partition.
        """
        if self._relay is not None:
            self.turns.wait(self._partition.halo_comm)
        if len(ids) == 1:
            return [self._decoded(self._cached(ids[0], 1))]
        together, at = np.unique(np.concatenate([np.zeros(0, np.int64), *ids]), return_inverse=True)
        rows = self._cached(together, len(ids))
        bounds = np.cumsum([len(x) for x in ids])
        return [
            self._decoded({name: take_rows(x, of_view) for name, x in rows.items()})
            for of_view in np.split(at, bounds)[:-1]
        ]

    def _decoded(self, rows: dict[str, Any]) -> dict[str, Any]:
        """The values of rows in their narrower form."""
        return {name: self._coded[name].decode(x) for name, x in rows.items()}

    def _cached(self, ids: np.ndarray, batches: int) -> dict[str, Any]:
        """The wide columns of some nodes, none twice, for so many batches.

        Collective: all ranks of the partition.
        """
        if self._cache is None:
            return self._rows(*self._partition.directory.locate(ids), batches)
        cached = self._cache.look_up(ids, batches)
        ids = ids[cached.rest]
        owner, row = self._partition.directory.locate(ids)
        rest = self._rows(owner, row, batches)
        at = (
            np.arange(len(ids))
            if self._own
            else np.flatnonzero(owner != self._partition.halo_comm.rank)
        )
        self._cache.store(
            ids[at],
            rest if len(at) == len(ids) else {name: take_rows(x, at) for name, x in rest.items()},
        )
        return cached.joined(rest)

    def _rows(self, owner: np.ndarray, row: np.ndarray, batches: int) -> dict[str, Any]:
        """The wide columns of some nodes, none twice, that the cache does not hold.

        Collective: all ranks of the partition.
        """
        return (
            self._owned(owner, row)
            if self._relay is None
            else self._relay.rows(self._owned, owner, row, batches)
        )

    def _owned(self, owner: np.ndarray, row: np.ndarray) -> dict[str, Any]:
        """Rows from their owners; arguments and result are those of ``Relay.rows``.

        Collective: all ranks of the partition.
        """
        comm = self._partition.halo_comm
        # own rows are not copied into messages
        is_local = owner == comm.rank
        others = np.flatnonzero(~is_local)
        local_rows = self._read_begin(row[is_local])
        route = Route(owner[others], comm.size)
        requested = comm.all_to_all(route.parts(row[others]))
        ptr = pointers([len(part) for part in requested])
        rows = np.concatenate(requested)
        read = {name: column.end() for name, column in self._read_begin(rows).items()}
        received = replied(comm, read, ptr, route.bounds)
        return assembled(
            len(owner),
            [
                (others[route.order], received),
                (np.flatnonzero(is_local), {name: x.end() for name, x in local_rows.items()}),
            ],
        )

    def _read_begin(self, rows: np.ndarray) -> dict[str, Any]:
        return {name: each.column.read_begin(rows) for name, each in self._coded.items()}


def replied(
    comm: Comm, rows: Mapping[str, Any], ptr: np.ndarray, bounds: np.ndarray
) -> dict[str, Any]:
    """What workers answer each other.

    Args:
        comm: The workers.
        rows: The rows that this worker sends, [n, ...] by name, those for one worker after those
            for another.
        ptr: Bounds of the rows for each worker, [size + 1].
        bounds: Bounds of the rows that this worker gets from each, [size + 1].

    Returns:
        The rows that this worker gets.

    Collective: all ranks of comm.
    """
    sparse = {name: x for name, x in rows.items() if is_sparse(x)}
    first = {
        name: np.diff(x.indptr).astype(LENGTH) if name in sparse else x for name, x in rows.items()
    }
    received: dict[str, Any] = Move(comm, first, ptr, bounds).end().columns
    for name, x in sparse.items():
        entries = {"at": x.indices.astype(INDEX), "value": x.data}
        ends = pointers(received[name])
        entries_of = Move(comm, entries, x.indptr[ptr], ends[bounds]).end().columns
        received[name] = scipy.sparse.csr_array(
            (entries_of["value"], entries_of["at"], ends), (int(bounds[-1]), x.shape[1])
        )
    return received


def row_bytes(partition: Partition, rows: np.ndarray | None) -> np.ndarray:
    """Bytes of the wide columns of some masters in replies, [n] int64.

    Args:
        partition: This worker's part of the graph.
        rows: Master rows, [n]; None for all.
    """
    store = partition.node
    total = np.zeros(store.n_rows if rows is None else len(rows), np.int64)
    for name in store.wide():
        column = store.coded(name).column
        if column.sparse:
            total += LENGTH.itemsize + np.diff(column.read_begin(rows).end().indptr) * (
                INDEX.itemsize + column.dtype.itemsize
            )
        else:
            total += prod(column.shape[1:]) * column.dtype.itemsize
    return total


def request_bytes(partition: Partition, n: int) -> int:
    """Bytes of the requests for the wide columns of n nodes."""
    return n * REQUEST.itemsize if partition.node.wide() else 0
