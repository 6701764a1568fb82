"""The edges of a worker by row, and the moves between its rows and those of other workers.

Rows are those of the partition: masters, then mirrors. An algorithm computes along the edges of its
worker, as if these were all, and then combines what mirrors have received at their masters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.exchange import Exchange
from graphtheta.engine.partition.partition import MASTER, MIRROR, Partition
from graphtheta.engine.partition.relation import EDGE, Served
from graphtheta.ops.parallel.buffers import run_parts

# edges and rows that a thread takes at a time; fixed, so that results do not depend on the number
# of threads
EDGES, ROWS = 1 << 18, 1 << 16
# bounds of the rows of one kind, and a value for each of their edges to rows of one kind
Part = tuple[np.ndarray, np.ndarray]


class Lists(NamedTuple):
    """The neighbours of each row.

    Attributes:
        indptr: Bounds of the neighbours of each row, [n_rows + 1] int64.
        near: Neighbours, as rows, [n_edges] int32.
    """

    indptr: np.ndarray
    near: np.ndarray

    @property
    def bounds(self) -> np.ndarray:
        """Bounds of blocks of rows with about equally many edges."""
        n_rows = len(self.indptr) - 1
        n_edges = int(self.indptr[-1])
        cuts = np.searchsorted(self.indptr, np.arange(EDGES, n_edges, EDGES))
        return np.unique(np.concatenate(([0], cuts, np.arange(0, n_rows, ROWS), [n_rows])))

    def by_edges(self, work: Callable[[int, int], object]) -> None:
        """Call work(first row, end) on all threads for blocks of rows with about equally many
        edges.
        """
        bounds = self.bounds.tolist()
        run_parts(lambda b: work(bounds[b], bounds[b + 1]), len(bounds) - 1)


class LocalEdges:
    """The edges of a worker, by destination and by source.

    Args:
        partition: The partition.

    Attributes:
        comm: The workers.
        n_masters, n_rows: Masters, and masters and mirrors.
    """

    def __init__(self, partition: Partition):
        self.comm: Comm = partition.halo_comm
        self.n_masters = partition.n_masters
        self.n_rows = len(partition.gid)
        self._relation = partition.relations[EDGE]

    @property
    def alone(self) -> bool:
        """Whether this is the only worker, so that its rows are all nodes."""
        return self.comm.size == 1

    @cached_property
    def into(self) -> Lists:
        """Sources of the edges into each row."""
        return self._lists(
            {(b.dst_kind, b.src_kind): (b.in_indptr, b.in_src) for b in self._relation.blocks}
        )

    @cached_property
    def out(self) -> Lists:
        """Destinations of the edges out of each row."""
        return self._lists(
            {(b.src_kind, b.dst_kind): (b.out_indptr, b.out_dst) for b in self._relation.blocks}
        )

    @cached_property
    def out_stored(self) -> np.ndarray:
        """Storage positions of the edges, in the order of ``out``, [n_edges]."""
        return self._joined(
            {
                (b.src_kind, b.dst_kind): (b.out_indptr, b.start + b.out_edge)
                for b in self._relation.blocks
            }
        )[1]

    def to_sources(self, x: np.ndarray) -> None:
        """Copy master rows of x, [n_rows], to the mirrors that are sources of edges.

        Collective: all ranks.
        """
        self._to_mirrors(self._relation.sources, x)

    def to_destinations(self, x: np.ndarray) -> None:
        """Copy master rows of x, [n_rows], to the mirrors that are destinations of edges.

        Collective: all ranks.
        """
        self._to_mirrors(self._relation.destinations, x)

    def from_destinations(self, x: np.ndarray, merge: np.ufunc) -> None:
        """Combine the rows of x, [n_rows], of mirrors that are destinations with those of their
        masters.

        Collective: all ranks.
        """
        self._to_masters(self._relation.destinations, x, merge)

    def from_sources(self, x: np.ndarray, merge: np.ufunc) -> None:
        """Combine the rows of x, [n_rows], of mirrors that are sources with those of their masters.

        Collective: all ranks.
        """
        self._to_masters(self._relation.sources, x, merge)

    def anywhere(self, something: bool) -> bool:
        """Whether something was found on any worker.

        Collective: all ranks.
        """
        return bool(self.comm.all_max(np.array(something)))

    def _to_mirrors(self, served: Served, x: np.ndarray) -> None:
        halo = Exchange(self.comm, served.plan).to_mirrors({"": x[: self.n_masters]})[""]
        x[self.n_masters + served.mirrors] = halo

    def _to_masters(self, served: Served, x: np.ndarray, merge: np.ufunc) -> None:
        def combine(rows: np.ndarray, part: dict[str, np.ndarray]) -> None:
            x[rows] = merge(x[rows], part[""])

        Exchange(self.comm, served.plan).to_masters_begin(
            {"": x[self.n_masters + served.mirrors]}
        ).end(combine)

    def _lists(self, parts: dict[tuple[int, int], Part]) -> Lists:
        rows = {
            (kind, near): (ptr, rows + self.n_masters if near == MIRROR and len(rows) else rows)
            for (kind, near), (ptr, rows) in parts.items()
        }
        ptr, near = self._joined(rows)
        return Lists(ptr, near.astype(np.int32, copy=False))

    def _joined(self, parts: dict[tuple[int, int], Part]) -> Part:
        """The edges of all rows, those to masters first, from four parts by the kinds of ends."""
        if self.n_rows == self.n_masters:
            return parts[MASTER, MASTER]
        pairs = [
            _side_by_side(parts[kind, MASTER], parts[kind, MIRROR]) for kind in (MASTER, MIRROR)
        ]
        (first, values), (second, more) = pairs
        return np.concatenate((first, first[-1] + second[1:])), np.concatenate((values, more))


def _side_by_side(one: Part, two: Part) -> Part:
    """For each row its values of the first part, then those of the second."""
    ptr = one[0] + two[0]
    out = np.empty(int(ptr[-1]), np.result_type(one[1], two[1]))
    for (own, values), before in ((one, two[0][:-1]), (two, one[0][1:])):
        out[np.arange(len(values)) + np.repeat(before, np.diff(own))] = values
    return ptr, out
