"""Pairs of nodes that a decoder scores: edges to predict values for, links and negatives.

Pairs are placed on workers freely, so their ends are fetched through a plan of their own, made for the batch. Pairs
of one kind of ends form a selection, as edges do, and run through the same recipe on the same kernels.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from graphtheta.errors import ViewError

from ...ops.backend.edges import EdgeLists
from ...ops.backend.reference import Chunk
from ...ops.edge.aggregator import Segments
from ..partition.exchange import Exchange, MovePlan, plan_requests
from ..partition.partition import MASTER, MIRROR, Partition
from .level import Pass

_NO_GROUPS = Segments(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass
class Pairs:
    """The pairs of this worker.

    Attributes:
        src, dst: Global ids of the ends, [n] int64.
        gid: Global ids of the pairs; random draws are keyed by them.
        stored: Storage positions of the edges the pairs are; None if they are no edges.
        label: What to predict, [n] or [n, k].
    """

    src: np.ndarray
    dst: np.ndarray
    gid: np.ndarray
    stored: np.ndarray | None
    label: np.ndarray


@dataclass
class PairSelection:
    """Pairs whose sources are of one kind of row and whose destinations are of one kind, ordered by destination.

    Attributes:
        kinds: Kinds of the sources and of the destinations.
        src, dst: Rows of the ends in the frame or the halo, [n] int32.
        stored: Storage positions of the edges the pairs are, [n] int32; None if they are no edges.
        ids: Global ids of all pairs of the level, in its order.
        offset: Position of the first pair in the order of the level.
    """

    kinds: tuple[int, int]
    src: np.ndarray
    dst: np.ndarray
    stored: np.ndarray | None
    ids: np.ndarray
    offset: int

    def chunks(self, partition: Partition, limit: int) -> Iterator[Chunk]:
        """The pairs in chunks of at most ``limit``."""
        stored = np.zeros(len(self.src), np.int32) if self.stored is None else self.stored
        for a in range(0, len(self.src), limit):
            b = min(a + limit, len(self.src))
            carried = slice(self.offset + a, self.offset + b)
            gid = self.ids[carried]
            yield Chunk(self.src[a:b], self.dst[a:b], stored[a:b], carried, gid, gid, _NO_GROUPS, None)

    def by_receiver(self, partition: Partition) -> EdgeLists:
        """The pairs grouped by destination, for compiled kernels."""
        return self._grouped(self.dst, self.src, np.zeros(0, np.int32))

    def by_sender(self, partition: Partition) -> EdgeLists:
        """The pairs grouped by source."""
        order = np.argsort(self.src, kind="stable").astype(np.int32)
        return self._grouped(self.src[order], self.dst[order], order)

    def _grouped(self, near: np.ndarray, far: np.ndarray, at: np.ndarray) -> EdgeLists:
        row, first = np.unique(near, return_index=True)
        start = self.offset if self.stored is None else 0
        return EdgeLists(np.append(first, len(near)), row, far, at, self.stored, start, self.offset, 0, None)

    def gid(self, partition: Partition) -> np.ndarray:
        """Global ids where compiled kernels look them up: by storage position, or by position in the level."""
        return self.ids if self.stored is None else partition.edge_gid


@dataclass
class PairLevel:
    """The level a decoder runs over; pairs are ordered by the kinds of their ends. ``stored`` is None for pairs that are no edges."""

    n_in: int
    n_out: int
    passes: list[Pass]
    n_edges: int
    stored: np.ndarray | None
    gid: np.ndarray
    label: np.ndarray
    order: np.ndarray


class PairPlan:
    """Where the ends of this worker's pairs come from.

    Attributes:
        needed: Mask of the masters that some pair of some worker needs, [n_masters] bool.

    Collective: all ranks of the partition.
    """

    def __init__(self, partition: Partition, pairs: Pairs):
        self._partition, self._pairs = partition, pairs
        owner, rank = partition.owner, partition.comm.rank
        ends = np.unique(np.concatenate((pairs.src, pairs.dst)))
        away = ends[owner[ends] != rank]
        away = away[np.argsort(owner[away], kind="stable")]
        bounds = np.searchsorted(owner[away], np.arange(partition.comm.size + 1))
        wanted = [partition.row_of[away[a:b]] for a, b in pairwise(bounds)]
        self._plan = plan_requests(partition.comm, partition.n_masters, wanted)
        self._away = away
        self.needed = np.zeros(partition.n_masters, bool)
        self.needed[partition.row_of[ends[owner[ends] == rank]]] = True
        self.needed[self._plan.rows] = True

    def level(self, place: np.ndarray | None, n_in: int) -> PairLevel:
        """The level over a frame in which master row r stands at place[r] (None: at r)."""
        partition, pairs = self._partition, self._pairs
        if place is not None and np.any(place[self.needed] < 0):
            raise ViewError("a pair has an end outside the view; a task's pairs must lie among the nodes its batch is limited to")
        rank, n = partition.comm.rank, len(pairs.src)
        by_gid = np.argsort(self._away, kind="stable")

        def locate(end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            away = partition.owner[end] != rank
            row = partition.row_of[end].astype(np.int32)
            if place is not None:
                row[~away] = place[row[~away]]
            row[away] = by_gid[np.searchsorted(self._away, end[away], sorter=by_gid)]
            return away.astype(np.int8), row

        (src_kind, src), (dst_kind, dst) = locate(pairs.src), locate(pairs.dst)
        kind = dst_kind * 2 + src_kind
        order = np.lexsort((dst, kind))
        ids, stored = pairs.gid[order], None if pairs.stored is None else pairs.stored[order]
        selections, at = [], 0
        for number, kinds in enumerate(((MASTER, MASTER), (MIRROR, MASTER), (MASTER, MIRROR), (MIRROR, MIRROR))):
            part = order[at: at + int(np.count_nonzero(kind == number))]
            where = None if stored is None else stored[at: at + len(part)].astype(np.int32)
            selections.append(PairSelection(kinds, src[part], dst[part], where, ids, at))
            at += len(part)
        plan: MovePlan = self._plan if place is None else self._plan.renumbered(place, n_in)
        exchange = Exchange(partition.comm, plan)
        sweep = Pass(partition, selections, exchange, exchange)
        return PairLevel(n_in, n_in, [sweep], n, stored, ids, pairs.label[order], order)
