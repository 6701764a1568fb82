"""Levels: the rows and edges that one superstep of a view runs over.

A level borrows the topology of its partition: it has lists of chosen edges where not all edges of a block take part, and
restricted move plans. No subgraph is copied.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ops.backend.edges import EdgeLists
from ...ops.backend.reference import Chunk
from ...ops.edge.aggregator import Segments
from ...ops.kernels.batch import group
from ..partition.exchange import Exchange, MovePlan
from ..partition.partition import MASTER, MIRROR, EdgeBlock, Partition

RowMap = np.ndarray | None
# by kind of row: its number in the frame or the halo (None where that is the same), and how many there are
Ends = dict[int, tuple[RowMap, int]]
NONE = np.zeros(0, np.int32)


@dataclass
class Selection:
    """Edges of one block that a pass runs over, grouped by the row that receives.

    Rows are those of the frame where the end is a master, and of the halo of its move where it is a mirror.

    Attributes:
        block: Where the edges are.
        reverse: False if messages run along the edges, True against them.
        row: Receiving row of each group, no row twice.
        ptr: Bounds of each group's edges, [n_groups + 1].
        other: Sending row of each edge, [n_edges] int32.
        n_senders: Rows that may send; ``other`` is below.
        edges: Positions of the edges within the block; None if they are all edges of the block in order.
        whole: Whether these are all edges of the block, and both ends are numbered as in the block.
        scale: How many edges each stands for; None for one.
        offset: Position of the first edge in the order of the level.
    """

    block: EdgeBlock
    reverse: bool
    row: np.ndarray
    ptr: np.ndarray
    other: np.ndarray
    n_senders: int
    edges: np.ndarray | None = None
    whole: bool = False
    scale: np.ndarray | None = None
    offset: int = 0

    @property
    def n_edges(self) -> int:
        return len(self.other)

    @property
    def kinds(self) -> tuple[int, int]:
        """Kinds of the sending and of the receiving rows."""
        b = self.block
        return (b.dst_kind, b.src_kind) if self.reverse else (b.src_kind, b.dst_kind)

    @property
    def stored(self) -> np.ndarray:
        """Storage positions of the edges."""
        start = self.block.start
        return np.arange(start, start + self.n_edges) if self.edges is None else start + self.edges.astype(np.int64)

    def chunks(self, partition: Partition, limit: int) -> Iterator[Chunk]:
        """The edges in chunks of at most ``limit``, grouped by receiving row."""
        all_stored = self.stored
        for a in range(0, self.n_edges, limit):
            b = min(a + limit, self.n_edges)
            first, last = np.searchsorted(self.ptr, (a, b - 1), side="right") - 1
            bounds = np.clip(self.ptr[first: last + 2], a, b)
            counts, row = np.diff(bounds), self.row[first: last + 1]
            some = counts > 0
            groups = Segments(row[some], (bounds[:-1] - a)[some], np.repeat(row, counts))
            stored = all_stored[a:b]
            gid = partition.edge_gid[stored]
            tie = gid + self._tie_shift(partition)
            yield Chunk(self.other[a:b], groups.of_edge, stored, slice(self.offset + a, self.offset + b), gid, tie, groups,
                        None if self.scale is None else self.scale[a:b])

    def _tie_shift(self, partition: Partition) -> int:
        # a self loop stands twice in a layer along both directions, and only one of two equal messages wins a maximum
        return partition.n_edges if self.reverse else 0

    def gid(self, partition: Partition) -> np.ndarray:
        """Global ids where compiled kernels look them up: by storage position."""
        return partition.edge_gid

    def by_receiver(self, partition: Partition) -> EdgeLists:
        """The edges grouped by receiver, for compiled kernels; made once."""
        return self._once("_by_receiver", lambda: self._lists(partition, self.ptr, self.row, self.other, NONE))

    def by_sender(self, partition: Partition) -> EdgeLists:
        """The edges grouped by sender; only walking back to senders needs them."""
        return self._once("_by_sender", lambda: self._sorted(partition))

    def _once(self, name: str, make: Any) -> EdgeLists:
        if name not in self.__dict__:
            self.__dict__[name] = make()
        return self.__dict__[name]

    def _sorted(self, partition: Partition) -> EdgeLists:
        rows, b = np.arange(self.n_senders, dtype=np.int32), self.block
        if self.whole and self.reverse:
            at = np.empty(self.n_edges, np.int32)
            at[b.out_edge] = np.arange(self.n_edges, dtype=np.int32)
            return self._lists(partition, b.in_indptr, rows, b.in_src, at)
        if self.whole:
            return self._lists(partition, b.out_indptr, rows, b.out_dst, b.out_edge)
        ptr, receiver, at = group(self.ptr, self.row, self.other, self.n_senders)
        return self._lists(partition, ptr, rows, receiver, at)

    def _lists(self, partition: Partition, ptr: np.ndarray, row: np.ndarray, other: np.ndarray, at: np.ndarray) -> EdgeLists:
        return EdgeLists(ptr, row, other, at, self.edges, self.block.start, self.offset, self._tie_shift(partition), self.scale)


@dataclass
class Pass:
    """One sweep over edges in one direction: what to compute and the moves on both ends.

    Attributes:
        selections: Edges by block, without empty ones; the core first.
        senders: Moves columns read at the sending end.
        receivers: Moves columns read at the receiving end, partial totals and their gradients.
    """

    partition: Partition
    selections: list[Any]
    senders: Exchange
    receivers: Exchange

    def chunks(self, selection: Any, limit: int) -> Iterator[Chunk]:
        return selection.chunks(self.partition, limit)


@dataclass
class Level:
    """What a superstep runs over: rows before and after it, and its passes over edges.

    Attributes:
        n_in, n_out: Frame rows needed before and after; the latter are a prefix of the former.
        direction: Of the layers it was made for.
        stored: Storage positions of the edges in the order of the level, made when first asked for.
    """

    n_in: int
    n_out: int
    passes: list[Pass]
    direction: str
    _stored: np.ndarray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        offset = 0
        for p in self.passes:
            for s in p.selections:
                s.offset = offset
                offset += s.n_edges
        self.n_edges = offset

    @property
    def stored(self) -> np.ndarray:
        if self._stored is None:
            parts = [s.stored for p in self.passes for s in p.selections]
            self._stored = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        return self._stored

    @property
    def gid(self) -> np.ndarray:
        """Global ids of the edges in the order of the level."""
        return self.passes[0].partition.edge_gid[self.stored]


def full_pass(partition: Partition, reverse: bool) -> Pass:
    """The pass over all edges; its lists are the partition's own wherever ends are numbered alike."""
    (send_plan, send_mirrors), (recv_plan, recv_mirrors) = plans(partition, reverse)
    send: Ends = {MASTER: (None, partition.n_masters), MIRROR: (halo_map(partition, send_mirrors), send_plan.n_halo)}
    receive: Ends = {MASTER: (None, partition.n_masters), MIRROR: (halo_map(partition, recv_mirrors), recv_plan.n_halo)}
    selections = [_all_of(block, reverse, send, receive) for block in partition.blocks if block.n_edges]
    return Pass(partition, selections, Exchange(partition.comm, send_plan), Exchange(partition.comm, recv_plan))


def _all_of(block: EdgeBlock, reverse: bool, send: Ends, receive: Ends) -> Selection:
    """All edges of a block."""
    indptr, ends, edges = (block.out_indptr, block.out_dst, block.out_edge) if reverse else (block.in_indptr, block.in_src, None)
    kinds = (block.dst_kind, block.src_kind) if reverse else (block.src_kind, block.dst_kind)
    row, ptr = receiving(None, indptr, *receive[kinds[1]])
    lookup, n_senders = send[kinds[0]]
    whole = lookup is None and receive[kinds[1]][0] is None
    return Selection(block, reverse, row, ptr, ends if lookup is None else lookup[ends], n_senders, edges, whole)


def receiving(rows: np.ndarray | None, ptr: np.ndarray, lookup: RowMap, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Groups of edges by their rows in the frame or the halo.

    Args:
        rows: Receiving rows of a block; None for all, in order.
        ptr: Bounds of their edges.
        lookup: Row in the frame or the halo of each, below 0 for a row that is in neither and has no edges; None if equal.
        n: Number of rows of the frame or the halo.

    Returns:
        Row of each group, int32, and its bounds.
    """
    if lookup is None:
        return np.arange(n, dtype=np.int32) if rows is None else rows.astype(np.int32), ptr
    row = lookup if rows is None else lookup[rows]
    some = np.flatnonzero(row >= 0)
    return (row, ptr) if len(some) == len(row) else (row[some], np.append(ptr[some], ptr[-1]))


def plans(partition: Partition, reverse: bool) -> tuple[tuple[MovePlan, np.ndarray], tuple[MovePlan, np.ndarray]]:
    """Plan and mirror rows of the sending ends and of the receiving ends."""
    src, dst = (partition.src_plan, partition.src_mirrors), (partition.dst_plan, partition.dst_mirrors)
    return (dst, src) if reverse else (src, dst)


def halo_map(partition: Partition, mirrors: np.ndarray) -> RowMap:
    """Halo row of each mirror row a plan serves, undefined for others; None if it serves all."""
    if len(mirrors) == partition.n_mirrors:
        return None
    lookup = np.full(partition.n_mirrors, -1, np.int32)
    lookup[mirrors] = np.arange(len(mirrors))
    return lookup


def directions(direction: str) -> tuple[bool, ...]:
    """Passes of a layer's direction, as values of ``reverse``."""
    return {"in": (False,), "out": (True,), "both": (False, True)}[direction]
