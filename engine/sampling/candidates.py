"""Edges at the frontier of a view: the candidates of a sampler, and those it has chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...ops.kernels.batch import expand
from ...ops.kernels.sampling import sample
from ..partition.exchange import Exchange
from ..partition.partition import Partition
from ..partition.relation import EdgeBlock, StoredRelation

IN_ORDER = np.zeros(0, np.int32)


@dataclass
class Candidates:
    """Edges of one block into some receiving rows.

    Attributes:
        rows: Receiving rows of the block, [n_groups] int64.
        begin, end: Where the edges of each row lie in the two lists, [n_groups].
        edges: Positions within the block; empty if edge k is at position k.
        senders: Sending rows of the block.
    """

    block: EdgeBlock
    reverse: bool
    rows: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    edges: np.ndarray
    senders: np.ndarray

    @classmethod
    def into(cls, block: EdgeBlock, reverse: bool, rows: np.ndarray) -> Candidates:
        """All edges of a block into some rows; the lists are those of the block, not copied."""
        ptr, *lists = (
            (block.out_indptr, block.out_edge, block.out_dst)
            if reverse
            else (block.in_indptr, IN_ORDER, block.in_src)
        )
        # kernels are compiled for one type of rows; those of mirrors are 32 bits wide
        rows = rows.astype(np.int64, copy=False)
        return cls(block, reverse, rows, ptr[rows], ptr[rows + 1], *lists)

    @property
    def kinds(self) -> tuple[int, int]:
        """Kinds of the sending and of the receiving rows."""
        return self.block.kinds(self.reverse)

    def listed(self) -> Chosen:
        """The same edges, copied into lists of their own."""
        return self.of(*expand(self.begin, self.end, self.edges, self.senders))

    def of(self, ptr: np.ndarray, edges: np.ndarray, senders: np.ndarray) -> Chosen:
        """Other edges of the same rows."""
        return Chosen(
            block=self.block,
            reverse=self.reverse,
            rows=self.rows,
            begin=ptr[:-1],
            end=ptr[1:],
            edges=edges,
            senders=senders,
            ptr=ptr,
        )


@dataclass
class Chosen(Candidates):
    """Edges in lists of their own, one row after another.

    Attributes:
        ptr: Bounds of the rows' edges, [n_groups + 1].
        weight: Importance weight of each edge, [n_edges]; None if all are 1.
        threshold: Lowest rank of each row that is not chosen, [n_groups] uint64, all bits set for
            a row that keeps all its edges; None unless a priority asks for it.
    """

    ptr: np.ndarray
    weight: np.ndarray | None = None
    threshold: np.ndarray | None = None

    @property
    def stored(self) -> np.ndarray:
        """Storage positions of the edges, [n_edges] int64."""
        return self.block.start + self.edges.astype(np.int64)

    def listed(self) -> Chosen:
        return self

    def selected(self, times: np.ndarray) -> tuple[Chosen, np.ndarray]:
        """The edges that are chosen at least once ([n_edges] int32), and how often each is."""
        *lists, often = sample.keep(self.ptr, times, self.edges, self.senders)
        return self.of(*lists), often

    def weighted(self, weight: np.ndarray | None) -> Chosen:
        """The same edges with importance weights."""
        return replace(self, weight=weight)


@dataclass
class PassCandidates:
    """The edges of one pass that a sampler chooses from.

    Attributes:
        reverse: False if messages run along the edges, True against them.
        candidates: The edges by block.
        complete: Whether they are all stored edges into their rows, on every worker.
    """

    partition: Partition
    relation: StoredRelation
    reverse: bool
    candidates: Sequence[Candidates]
    complete: bool


@dataclass
class Frontiers(PassCandidates):
    """The candidates of several views together: those of one view after those of another, with a
    group for each receiving row.

    Attributes:
        bounds: Bounds of the views in the receiving rows, by kind of row, [views + 1].
    """

    bounds: dict[int, np.ndarray]


@dataclass
class Frontier(PassCandidates):
    """The candidates of a sampler: all edges of one pass into the rows from which a view expands,
    with a group for each row of the moves, also for rows without edges.

    Attributes:
        receivers: Moves of the receiving rows.
        rows: Receiving rows by kind, in the order of the groups.
        cutoff: For a ``Timed`` sampler the cutoff of each receiving row, by kind of row and in the
            order of the groups.
    """

    receivers: Exchange
    rows: dict[int, np.ndarray]
    cutoff: dict[int, np.ndarray] | None = None

    @property
    def alone(self) -> Frontiers:
        """The same candidates as those of one view."""
        bounds = {kind: np.array([0, len(rows)]) for kind, rows in self.rows.items()}
        return Frontiers(
            partition=self.partition,
            relation=self.relation,
            reverse=self.reverse,
            candidates=self.candidates,
            bounds=bounds,
            complete=self.complete,
        )


class Sample(NamedTuple):
    """The choice of a sampler.

    Attributes:
        chosen: The edges, by block like the candidates.
        move_rows: Rows of the frontier's moves that still have edges at mirrors, as
            ``MovePlan.subset`` expects them: positions of the sent rows, and halo rows. None if all
            may have edges.
    """

    chosen: list[Chosen]
    move_rows: tuple[np.ndarray, np.ndarray] | None = None
