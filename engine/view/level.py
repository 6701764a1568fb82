"""Levels: the rows and edges that one superstep of a view runs over.

A level borrows the topology of its partition: it has lists of chosen edges where not all edges of a
block take part, and restricted move plans. No subgraph is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...ops.edge.aggregator import Segments
from ...ops.edge.backend.edges import EdgeLists
from ...ops.edge.backend.pairs import (
    NodeCodePairs,
    pairs_of_receivers,
    pairs_of_senders,
    same_array,
)
from ...ops.edge.backend.reference import Chunk
from ...ops.kernels.batch import group
from ..partition.exchange import Exchange
from ..partition.message import as_integers
from ..partition.partition import MASTER, MIRROR, Partition
from ..partition.relation import EDGE, EdgeBlock, Relation, StoredRelation

RowMap = np.ndarray | None
# by kind of row: the row of each in the frame or the halo (None where that is equal), and the
# number of rows
Ends = dict[int, tuple[RowMap, int]]
IN_ORDER = np.zeros(0, np.int32)


@dataclass
class Selection:
    """Edges of a pass between one kind of sender and one of receiver, grouped by receiving row.

    Rows are those of the frame where the end is a master, and of the halo of its move where it is
    a mirror.

    Attributes:
        kinds: Kinds of the sending and of the receiving rows.
        row: Receiving row of each group, no row twice, [n_groups] int32.
        ptr: Bounds of each group's edges, [n_groups + 1].
        other: Sending row of each edge, [n_edges] int32.
        n_senders: Number of rows that may send; ``other`` is below it.
        gid: Global ids of the relation's edges by storage position.
        start: Storage position that ``edges`` are counted from.
        edges: Positions of the edges, [n_edges] int32; None if they are in order.
        weight: Importance weight of each edge, [n_edges]; None if all are 1.
        tie_shift: Added to global ids to break ties between equal messages.
        grouped: Returns the edges by sender as ``EdgeBlock.by_sender`` does, for all rows; None
            if no block stores them in that order.
        offset: Position of the first edge in the order of the level.
    """

    kinds: tuple[int, int]
    row: np.ndarray
    ptr: np.ndarray
    other: np.ndarray
    n_senders: int
    gid: np.ndarray
    start: int
    edges: np.ndarray | None = None
    weight: np.ndarray | None = None
    tie_shift: int = 0
    grouped: Callable[[], tuple[np.ndarray, np.ndarray, np.ndarray]] | None = None
    offset: int = 0

    @property
    def n_edges(self) -> int:
        return len(self.other)

    @property
    def stored(self) -> np.ndarray:
        """Storage positions of the edges."""
        return (
            np.arange(self.start, self.start + self.n_edges)
            if self.edges is None
            else self.start + self.edges.astype(np.int64)
        )

    def chunks(self, limit: int) -> Iterator[Chunk]:
        """The edges in chunks of at most ``limit``, grouped by receiving row."""
        all_stored = self.stored
        for a in range(0, self.n_edges, limit):
            b = min(a + limit, self.n_edges)
            first, last = np.searchsorted(self.ptr, (a, b - 1), side="right") - 1
            bounds = np.clip(self.ptr[first : last + 2], a, b)
            counts = np.diff(bounds)
            row = self.row[first : last + 1]
            some = counts > 0
            groups = Segments(row[some], (bounds[:-1] - a)[some], np.repeat(row, counts))
            stored = all_stored[a:b]
            gid = self.gid[stored]
            yield Chunk(
                src=self.other[a:b],
                dst=groups.of_edge,
                stored=stored,
                carried=slice(self.offset + a, self.offset + b),
                gid=gid,
                tie=gid + self.tie_shift,
                groups=groups,
                weight=None if self.weight is None else self.weight[a:b],
            )

    @cached_property
    def by_receiver(self) -> EdgeLists:
        """The edges grouped by receiver, for compiled kernels."""
        return self._lists(self.ptr, self.row, self.other, IN_ORDER)

    @cached_property
    def by_sender(self) -> EdgeLists:
        """The edges grouped by sender; only backpropagation to senders needs them."""
        ptr, receiver, at = (
            group(self.ptr, self.row, self.other, self.n_senders)
            if self.grouped is None
            else self.grouped()
        )
        return self._lists(ptr, np.arange(self.n_senders, dtype=np.int32), receiver, at)

    @cached_property
    def by_pair(self) -> dict[tuple[str, int, bool], tuple[np.ndarray, NodeCodePairs]]:
        """Codes and pairs by the name of the codes, their number, and whether the nodes send, as
        far as ``pairs`` made them.
        """
        return {}

    def pairs(
        self, name: str, codes: np.ndarray, at: Callable[[], np.ndarray], k: int, sending: bool
    ) -> NodeCodePairs:
        """Pairs of a node at one end and a code that have an edge; made once for each array of
        codes.

        Args:
            name: Name of the codes.
            codes: The array that they are in.
            at: Returns the code of each edge in the order of the edges, below k.
            k: Number of codes.
            sending: Whether the nodes are the senders.
        """
        of, pairs = self.by_pair.get((name, k, sending), (None, None))
        if pairs is None or not same_array(of, codes):
            pairs = (
                pairs_of_senders(self.by_receiver, self.by_sender, at(), k)
                if sending
                else pairs_of_receivers(self.by_receiver, self.n_senders, at(), k)
            )
            self.by_pair[name, k, sending] = codes, pairs
        return pairs

    def of_code(self, codes: np.ndarray, code: int) -> Selection | None:
        """The edges with a code, of all those in storage order; None if there are none."""
        at = np.flatnonzero(codes[self.stored] == code)
        if not len(at):
            return None
        edges = at if self.edges is None else self.edges[at]
        return replace(
            self,
            ptr=np.searchsorted(at, self.ptr),
            other=self.other[at],
            edges=edges.astype(np.int32),
            weight=None if self.weight is None else self.weight[at],
            grouped=None,
        )

    def _lists(
        self, ptr: np.ndarray, row: np.ndarray, other: np.ndarray, at: np.ndarray
    ) -> EdgeLists:
        return EdgeLists(
            ptr=ptr,
            row=row,
            other=other,
            at=at,
            positions=self.edges,
            start=self.start,
            offset=self.offset,
            tie_shift=self.tie_shift,
            weight=self.weight,
        )


@dataclass
class Pass:
    """One sweep over edges of a relation in one direction: what to compute and the moves on both
    ends.

    Attributes:
        reverse: False if messages run along the edges, True against them.
        selections: The edges, without empty selections; the core first.
        senders: Moves columns read at the sending end.
        receivers: Moves columns read at the receiving end, partial totals and their gradients.
    """

    relation: Relation
    reverse: bool
    selections: list[Selection]
    senders: Exchange
    receivers: Exchange

    @property
    def leaving(self) -> np.ndarray:
        """Number of edges into each halo row of the receivers, [n_halo] int64."""
        counts = np.zeros(self.receivers.plan.n_halo, np.int64)
        for s in self.selections:
            if s.kinds[1] == MIRROR:
                counts[s.row] += np.diff(s.ptr)
        return counts

    @property
    def leaving_to(self) -> np.ndarray:
        """Number of edges into mirrors by the worker that has the master, [size] int64."""
        return np.diff(np.append(0, np.cumsum(self.leaving))[self.receivers.plan.recv_ptr])


class Counts(NamedTuple):
    """The size of a level over all workers; decisions by it are the same on every worker.

    Attributes:
        rows_in, rows_out: Nodes needed before and after.
        edges: Edges of all passes.
        moved: Mirror rows at both ends of all passes; not counted for the whole graph.
    """

    rows_in: int
    rows_out: int
    edges: int
    moved: int = 0


NO_ROWS = Counts(0, 0, 0)


@dataclass
class Level:
    """What a superstep runs over: rows before and after it, and its passes over edges.

    Attributes:
        n_in, n_out: Frame rows needed before and after; the latter are a prefix of the former.
        direction: Direction of the layers that it was made for.
        counts: Its size over all workers; zeros in a dry run and for pairs.
    """

    n_in: int
    n_out: int
    passes: list[Pass]
    direction: str
    counts: Counts = field(default=NO_ROWS, kw_only=True)

    def __post_init__(self) -> None:
        offset = 0
        for p in self.passes:
            for s in p.selections:
                s.offset = offset
                offset += s.n_edges
        self.n_edges = offset

    @property
    def local_counts(self) -> tuple[int, int, int, int]:
        """This worker's part of ``counts``."""
        moved = sum(p.senders.plan.n_halo + p.receivers.plan.n_halo for p in self.passes)
        return self.n_in, self.n_out, self.n_edges, moved

    @property
    def n_leaving(self) -> int:
        """Number of this worker's edges into mirrors."""
        return sum(s.n_edges for p in self.passes for s in p.selections if s.kinds[1] == MIRROR)

    @property
    def columns(self) -> bool:
        """Whether its edges have stored values."""
        return all(p.relation.columns for p in self.passes)

    @property
    def given(self) -> dict[str, np.ndarray]:
        """Edge values that are not stored, by name, in the order of the level, [n_edges, ...]."""
        return {}

    def swept(self, decoder: Callable[[Level], Any]) -> Any:
        """The values of a decoder, which runs over this level; a level with very many edges runs it
        over parts instead.
        """
        return decoder(self)

    @cached_property
    def stored(self) -> np.ndarray:
        """Storage positions of the edges in the order of the level, [n_edges] int64."""
        return np.concatenate(
            [IN_ORDER.astype(np.int64), *(s.stored for p in self.passes for s in p.selections)]
        )

    def sent(self, x: np.ndarray) -> np.ndarray:
        """Values of the rows before it, [n_in, ...], at the edges that they send along, unrounded,
        in the order of the level.

        Collective: all ranks of the partition.
        """
        parts = [x[:0]]
        for p in self.passes:
            # a policy of stale or narrow moves changes those of the pass
            plain = Exchange(p.senders.comm, p.senders.plan)
            halo = plain.to_mirrors({"": as_integers(x)})[""].view(x.dtype)
            parts += [(x if s.kinds[0] == MASTER else halo)[s.other] for s in p.selections]
        return np.concatenate(parts)

    @cached_property
    def by_code(self) -> dict[int, Level]:
        """The levels of edges with one code, as far as ``of_code`` has made them."""
        return {}

    def of_code(self, codes: np.ndarray, code: int, share: float) -> Level:
        """The same rows with the edges of one code; made once for each code.

        Moves are not restricted: they also fill halo rows that no edge of the code reads.

        Args:
            codes: Code of each stored edge.
            code: The code.
            share: Expected share of the edges that have it, for ``counts``.
        """
        if code not in self.by_code:
            passes = [
                Pass(
                    relation=p.relation,
                    reverse=p.reverse,
                    selections=[
                        x for s in p.selections if (x := s.of_code(codes, code)) is not None
                    ],
                    senders=p.senders,
                    receivers=p.receivers,
                )
                for p in self.passes
            ]
            counts = self.counts._replace(edges=int(self.counts.edges * share))
            self.by_code[code] = Level(self.n_in, self.n_out, passes, self.direction, counts=counts)
        return self.by_code[code]

    @property
    def gid(self) -> np.ndarray:
        """Global ids of the edges in the order of the level, [n_edges] int64."""
        return np.concatenate(
            [p.relation.gid[:0] for p in self.passes]
            + [s.gid[s.stored] for p in self.passes for s in p.selections]
        )

    @property
    def tie(self) -> np.ndarray:
        """Numbers of the edges in the order of the level, [n_edges] int64: as ``gid``, but a self
        loop that is traversed in both directions has two.
        """
        shifts = [np.full(s.n_edges, s.tie_shift) for p in self.passes for s in p.selections]
        return self.gid + np.concatenate([np.zeros(0, np.int64), *shifts])


def passes_of(partition: Partition, direction: str) -> list[tuple[StoredRelation, bool]]:
    """The relations of a layer's passes, and whether messages run against the edges."""
    return [
        (partition.relations[EDGE], reverse)
        for reverse in {"in": (False,), "out": (True,), "both": (False, True)}[direction]
    ]


def full_pass(partition: Partition, relation: StoredRelation, reverse: bool) -> Pass:
    """The pass over all edges of a relation; its lists are the blocks' own wherever ends are
    numbered alike.
    """
    (send_plan, send_mirrors), (recv_plan, recv_mirrors) = relation.served(reverse)
    send: Ends = {
        MASTER: (None, partition.n_masters),
        MIRROR: (halo_map(partition, send_mirrors), send_plan.n_halo),
    }
    receive: Ends = {
        MASTER: (None, partition.n_masters),
        MIRROR: (halo_map(partition, recv_mirrors), recv_plan.n_halo),
    }
    selections = [
        _all_of(relation=relation, block=block, reverse=reverse, send=send, receive=receive)
        for block in relation.blocks
        if block.n_edges
    ]
    return Pass(
        relation=relation,
        reverse=reverse,
        selections=selections,
        senders=Exchange(partition.halo_comm, send_plan),
        receivers=Exchange(partition.halo_comm, recv_plan),
    )


def _all_of(
    relation: StoredRelation, block: EdgeBlock, reverse: bool, send: Ends, receive: Ends
) -> Selection:
    """All edges of a block."""
    indptr, ends, edges = (
        (block.out_indptr, block.out_dst, block.out_edge)
        if reverse
        else (block.in_indptr, block.in_src, None)
    )
    kinds = block.kinds(reverse)
    row, ptr = receiving(None, indptr, *receive[kinds[1]])
    lookup, n_senders = send[kinds[0]]
    whole = lookup is None and receive[kinds[1]][0] is None
    return Selection(
        kinds=kinds,
        row=row,
        ptr=ptr,
        other=ends if lookup is None else lookup[ends],
        n_senders=n_senders,
        gid=relation.gid,
        start=block.start,
        edges=edges,
        tie_shift=tie_shift(relation, reverse),
        grouped=(lambda: block.by_sender(reverse)) if whole else None,
    )


def tie_shift(relation: StoredRelation, reverse: bool) -> int:
    """What is added to global ids to break ties between equal messages."""
    # in direction 'both' a self loop has two equal messages, of which only one wins a maximum
    return relation.n_edges if reverse else 0


def receiving(
    rows: np.ndarray | None, ptr: np.ndarray, lookup: RowMap, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Groups of edges by their rows in the frame or the halo.

    Args:
        rows: Receiving rows of a block; None for all, in order.
        ptr: Bounds of their edges.
        lookup: Row of each in the frame or the halo, below 0 for a row without edges that is in
            neither; None if equal.
        n: Number of rows of the frame or the halo.

    Returns:
        Row of each group, int32, and its bounds.
    """
    if lookup is None:
        return np.arange(n, dtype=np.int32) if rows is None else rows.astype(np.int32), ptr
    row = lookup if rows is None else lookup[rows]
    some = np.flatnonzero(row >= 0)
    return (row, ptr) if len(some) == len(row) else (row[some], np.append(ptr[some], ptr[-1]))


def halo_map(partition: Partition, mirrors: np.ndarray) -> RowMap:
    """Halo row of each mirror row a plan serves, undefined for others; None if it serves all."""
    if len(mirrors) == partition.n_mirrors:
        return None
    lookup = np.full(partition.n_mirrors, -1, np.int32)
    lookup[mirrors] = np.arange(len(mirrors))
    return lookup
