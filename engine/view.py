"""GraphView: which rows and edges each superstep of a batch runs over.

A view borrows the topology of its partition: it holds lists of active rows, lists of chosen edges where not all
in-edges of a row take part, maps from partition rows to frame rows, and restricted move plans. No subgraph is copied.

Frame rows are ordered so that the nodes needed after superstep k are a prefix of those needed after superstep k - 1.
Values of different depth therefore fit together by being cut to the shorter one.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ops.aggregator import Segments
from ..ops.edges import EdgeLists
from ..ops.reference import Chunk
from ..ops.space import RowSpace
from .exchange import Exchange, MovePlan
from .partition import MASTER, EdgeBlock, Partition

if TYPE_CHECKING:
    from .pair import PairLevel

RowMap = np.ndarray | None
HIDDEN = ("y", "train", "val", "test")


@dataclass
class Selection:
    """Edges of one block that a pass runs over, grouped by the row that receives.

    Attributes:
        block: Where the edges are.
        reverse: False if messages run along the edges, True against them.
        rows: Receiving rows, ascending; None for all.
        ptr: Bounds of each row's edges, [n_rows + 1].
        edges: Chosen edges as positions within the block; None for all edges of ``rows``.
        scale: How many edges each stands for; None for one.
        offset: Position of the first edge in the order of the level.
    """

    block: EdgeBlock
    reverse: bool
    rows: np.ndarray | None
    ptr: np.ndarray
    edges: np.ndarray | None = None
    scale: np.ndarray | None = None
    offset: int = 0

    @property
    def n_edges(self) -> int:
        return int(self.ptr[-1])

    @property
    def kinds(self) -> tuple[int, int]:
        """Kinds of the sending and of the receiving rows."""
        b = self.block
        return (b.dst_kind, b.src_kind) if self.reverse else (b.src_kind, b.dst_kind)

    def positions(self, a: int, b: int, group: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Positions within the block of edges a..b, whose groups have these counts."""
        if self.edges is not None:
            return self.edges[a:b]
        if self.rows is None:
            return self.block.out_edge[a:b] if self.reverse else np.arange(a, b)
        indptr = self.block.out_indptr if self.reverse else self.block.in_indptr
        at = np.arange(a, b) + np.repeat(indptr[self.rows[group]] - self.ptr[group], counts)
        return self.block.out_edge[at] if self.reverse else at

    def chunks(self, partition: Partition, limit: int, maps: Maps) -> Iterator[Chunk]:
        """The edges in chunks of at most ``limit``, grouped by receiving row."""
        sending, receiving = self.kinds
        for a in range(0, self.n_edges, limit):
            b = min(a + limit, self.n_edges)
            first, last = np.searchsorted(self.ptr, (a, b - 1), side="right") - 1
            group = np.arange(first, last + 1)
            bounds = np.clip(self.ptr[first: last + 2], a, b)
            counts = np.diff(bounds)
            at = self.positions(a, b, group, counts)
            some = counts > 0
            row = maps.place(receiving, group if self.rows is None else self.rows[group], receiver=True)
            groups = Segments(row[some], (bounds[:-1] - a)[some], np.repeat(row, counts))
            src = maps.place(sending, self.sender(at), receiver=False)
            stored = at + self.block.start
            gid = partition.edge_gid[stored]
            # a self loop stands twice in a layer along both directions, and only one of two equal messages wins a maximum
            tie = gid + partition.n_edges if self.reverse else gid
            yield Chunk(src, groups.of_edge, stored, slice(self.offset + a, self.offset + b), gid, tie, groups,
                        None if self.scale is None else self.scale[a:b])

    def sender(self, at: np.ndarray) -> np.ndarray:
        """Sending rows of edges at these positions within the block."""
        if not self.reverse:
            return self.block.in_src[at]
        return np.searchsorted(self.block.in_indptr, at, side="right") - 1

    def all_positions(self) -> np.ndarray:
        """Positions within the block of all edges, in order."""
        group = np.arange(len(self.ptr) - 1)
        return self.positions(0, self.n_edges, group, np.diff(self.ptr))


    def lists(self, partition: Partition, maps: Maps) -> tuple[EdgeLists, EdgeLists]:
        """The edges grouped by receiver and by sender, for compiled kernels; made once."""
        known = self.__dict__.get("_lists")
        if known is None:
            known = self._grouped(partition, maps)
            self.__dict__["_lists"] = known
        return known

    def _grouped(self, partition: Partition, maps: Maps) -> tuple[EdgeLists, EdgeLists]:
        sending, receiving = self.kinds
        positions = self.all_positions()
        rows = np.arange(len(self.ptr) - 1) if self.rows is None else self.rows
        row = maps.place(receiving, rows, receiver=True).astype(np.int32)
        other = maps.place(sending, self.sender(positions), receiver=False).astype(np.int32)
        in_order = self.rows is None and self.edges is None and not self.reverse
        common = (None if in_order else positions.astype(np.int32), self.block.start, self.offset,
                  partition.n_edges if self.reverse else 0, self.scale)
        receivers = EdgeLists(self.ptr.astype(np.int64), row, other, np.zeros(0, np.int32), *common)
        order = np.argsort(other, kind="stable").astype(np.int32)
        first = np.flatnonzero(np.concatenate(([True], other[order][1:] != other[order][:-1]))) if len(order) else np.zeros(0, np.int64)
        ptr = np.append(first, len(order)).astype(np.int64)
        senders = EdgeLists(ptr, other[order][first], np.repeat(row, np.diff(self.ptr))[order], order, *common)
        return receivers, senders


@dataclass
class Maps:
    """From partition rows to frame rows (masters) and halo rows (mirrors); None where they are equal."""

    masters: RowMap
    sender_halo: RowMap
    receiver_halo: RowMap

    def place(self, kind: int, rows: np.ndarray, receiver: bool) -> np.ndarray:
        """Frame or halo rows of partition rows of one kind."""
        lookup = self.masters if kind == MASTER else self.receiver_halo if receiver else self.sender_halo
        return rows if lookup is None else lookup[rows]


@dataclass
class Pass:
    """One sweep over edges in one direction: what to compute and the moves on both ends.

    Attributes:
        selections: Edges by block; the core first.
        senders: Moves columns read at the sending end.
        receivers: Moves columns read at the receiving end, partial totals and their gradients.
    """

    partition: Partition
    selections: list[Any]
    maps: Maps
    senders: Exchange
    receivers: Exchange

    def chunks(self, selection: Any, limit: int) -> Iterator[Chunk]:
        return selection.chunks(self.partition, limit, self.maps)


@dataclass
class Level:
    """One superstep: rows before and after it, and its passes over edges.

    Attributes:
        n_in, n_out: Frame rows needed before and after; the latter are a prefix of the former.
        stored: Storage positions of the edges in the order of the level, made when first asked for.
    """

    n_in: int
    n_out: int
    passes: list[Pass]
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
            parts = [s.all_positions() + s.block.start for p in self.passes for s in p.selections]
            self._stored = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        return self._stored

    @property
    def gid(self) -> np.ndarray:
        """Global ids of the edges in the order of the level."""
        return self.passes[0].partition.edge_gid[self.stored]


@dataclass
class GraphView:
    """One batch.

    Attributes:
        partition: The partition it looks at.
        levels: One per superstep, first to last.
        rows: Master rows in frame order; None for all, in order.
        space: Row space of the frame.
        pairs: The level of node pairs a decoder runs over, for edge and link tasks.
        node, edge: Columns that replace those of the partition inside this view (frame order; storage order).
    """

    partition: Partition
    levels: list[Level]
    rows: np.ndarray | None
    space: RowSpace
    pairs: PairLevel | None = None
    node: dict[str, np.ndarray] = field(default_factory=dict)
    edge: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def n_targets(self) -> int:
        """Frame rows after the last superstep."""
        return self.levels[-1].n_out if self.levels else self.space.n

    def node_column(self, name: str, n: int) -> Any:
        """A column of the masters for the first n frame rows; KeyError if there is none."""
        if name in self.node:
            return self.node[name][:n]
        column = self.partition.node[name]
        if self.rows is None:
            return column if n == self.space.n else column[:n]
        return column[self.rows[:n]]

    def edge_column(self, name: str) -> np.ndarray:
        """A stored edge column, in storage order; KeyError if there is none."""
        return self.edge[name] if name in self.edge else self.partition.edge[name]

    def edge_names(self) -> list[str]:
        """Stored edge values that gather may read; targets and masks are not among them."""
        return [n for n in {**self.partition.edge, **self.edge} if n not in HIDDEN]


def full_pass(partition: Partition, reverse: bool) -> Pass:
    """The pass over all edges."""
    selections = []
    for block in partition.blocks:
        selections.append(Selection(block, reverse, None, block.out_indptr if reverse else block.in_indptr))
    senders, receivers = plans(partition, reverse)
    maps = Maps(None, halo_map(partition, senders[1]), halo_map(partition, receivers[1]))
    return Pass(partition, selections, maps, Exchange(partition.comm, senders[0]), Exchange(partition.comm, receivers[0]))


def plans(partition: Partition, reverse: bool) -> tuple[tuple[MovePlan, np.ndarray], tuple[MovePlan, np.ndarray]]:
    """Plan and mirror rows of the sending ends and of the receiving ends."""
    src, dst = (partition.src_plan, partition.src_mirrors), (partition.dst_plan, partition.dst_mirrors)
    return (dst, src) if reverse else (src, dst)


def halo_map(partition: Partition, mirrors: np.ndarray) -> np.ndarray:
    """Halo row of each mirror row a plan serves; undefined for others."""
    lookup = np.full(partition.n_mirrors, -1, np.int32)
    lookup[mirrors] = np.arange(len(mirrors))
    return lookup


def directions(direction: str) -> tuple[bool, ...]:
    """Passes of a layer's direction, as values of ``reverse``."""
    return {"in": (False,), "out": (True,), "both": (False, True)}[direction]


def global_view(partition: Partition, layers: list[str]) -> GraphView:
    """The view in which all is active; ``layers`` are the directions of the supersteps."""
    n = partition.n_masters
    made = {d: Level(n, n, [full_pass(partition, reverse) for reverse in directions(d)]) for d in set(layers)}
    return GraphView(partition, [made[d] for d in layers], None, RowSpace(partition.masters))


