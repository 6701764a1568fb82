"""Numbers of nodes: their order in the node table, or the sorted order of the ids of edges."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphtheta.engine.comm.communicator import Comm
from graphtheta.importing.ingest.ids import IdDirectory, Routes, empty, exchange, hashes
from graphtheta.importing.ingest.spool import in_step
from graphtheta.importing.tables.arrow import flags

# ids that a worker collects before it drops those that it has already
COLLECTED = 1 << 20
# ids of each worker that divide the sorted ids into ranges, per worker
SAMPLES = 64


class Collected:
    """The different ids that a worker keeps, of those that are added."""

    def __init__(self, kind: Any):
        self._different = empty(kind)
        self._waiting = 0
        self._new: list[Any] = []

    def add(self, ids: Any) -> None:
        """Add ids."""
        self._new.append(ids)
        self._waiting += len(ids)
        if self._waiting > max(COLLECTED, len(self._different)):
            self.ids()

    def ids(self) -> Any:
        """All different ids, in no particular order."""
        self._different = pa.concat_arrays([self._different, *self._new]).unique()
        self._new = []
        self._waiting = 0
        return self._different


class Numbered(NamedTuple):
    """Numbered ids.

    Attributes:
        directory: Finds the numbers.
        n: Number of ids on all workers.
        begin: Number of the first id of ``ids``.
        ids: A range of the ids in the order of their numbers.
    """

    directory: IdDirectory
    n: int
    begin: int
    ids: Any


def collect(comm: Comm, blocks: Iterator[Any], kind: Any) -> Any:
    """The different ids whose hash is this worker's.

    Args:
        comm: The workers.
        blocks: Ids that this worker has read.
        kind: Their type.

    Collective: all ranks of comm.
    """
    collected = Collected(kind)
    for block in in_step(comm, blocks):
        ids = empty(kind) if block is None else block.unique()
        for part in exchange(comm, Routes(comm, hashes(ids)).ids(ids)):
            collected.add(part)
    return collected.ids()


def number_sorted(comm: Comm, ids: Any) -> Numbered:
    """Number ids in ascending order; texts by their characters.

    Args:
        comm: The workers.
        ids: Ids of this worker; each id is on one worker only.

    Collective: all ranks of comm.
    """
    ids = ids.take(pc.sort_indices(ids))
    every = SAMPLES * comm.size
    picked = ids.take(pa.array(np.linspace(0, len(ids) - 1, min(every, len(ids))).astype(np.int64)))
    samples = sorted(value for part in comm.all_gather(picked.to_pylist()) for value in part)
    limits = (
        [samples[len(samples) * q // comm.size] for q in range(1, comm.size)] if samples else []
    )
    below = [int(flags(pc.less(ids, pa.scalar(limit, ids.type))).sum()) for limit in limits]
    received = exchange(
        comm,
        [
            ids.slice(a, b - a)
            for a, b in pairwise([0, *below, *[len(ids)] * (comm.size - len(limits))])
        ],
    )
    together = pa.concat_arrays(received)
    order = pc.sort_indices(together).to_numpy()
    counts = comm.all_gather(len(together))
    begin = sum(counts[: comm.rank])
    numbers = np.empty(len(together), np.int64)
    numbers[order] = begin + np.arange(len(together))
    back = comm.all_to_all(np.split(numbers, np.cumsum([len(part) for part in received])[:-1]))
    return Numbered(
        IdDirectory(comm, ids, np.concatenate(back)),
        sum(counts),
        begin,
        together.take(pa.array(order)),
    )


def first_of_each(
    comm: Comm, blocks: Iterator[tuple[int, Any]], kind: Any
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Find ids that several rows of a table have.

    Args:
        comm: The workers.
        blocks: Number of the first row and ids, for each block of rows that this worker has read.
        kind: Type of the ids.

    Returns:
        The different ids whose hash is this worker's, the first row of each, and the rows of this
        worker that repeat an earlier one, ascending.

    Collective: all ranks of comm.
    """
    parts = [empty(kind)]
    rows = [np.empty(0, np.int64)]
    senders = [np.empty(0, np.int64)]
    for block in in_step(comm, blocks):
        begin, ids = (0, empty(kind)) if block is None else block
        routes = Routes(comm, hashes(ids))
        arrived = exchange(comm, routes.ids(ids))
        numbers = comm.all_to_all(routes.parts(begin + np.arange(len(ids))))
        parts += arrived
        rows += numbers
        senders += [np.full(len(part), q) for q, part in enumerate(numbers)]
    coded = pa.concat_arrays(parts).dictionary_encode()
    row = np.concatenate(rows)
    sender = np.concatenate(senders)
    codes = coded.indices.to_numpy()
    order = np.lexsort((row, codes))
    is_first = np.diff(codes[order], prepend=-1) > 0
    first = row[order[is_first]]
    again = order[~is_first]
    repeated = comm.all_to_all([row[again[sender[again] == q]] for q in range(comm.size)])
    return coded.dictionary, first, np.sort(np.concatenate(repeated))
