"""Pairs of nodes that a decoder scores: edges to predict values for, links and negatives.

Pairs are edges of a relation that is made for the batch, or some of the stored edges. A pair may
be on any worker, so its ends are fetched through a separate plan. Decoders use the same superstep
code and kernels as layers over stored edges.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from graphtheta.errors import ViewError

from ..partition.exchange import Exchange
from ..partition.located import locate
from ..partition.message import Columns
from ..partition.partition import MASTER, MIRROR, Partition
from ..partition.relation import EDGE, Relation
from ..sampling.search import no_cutoffs
from .level import Level, Pass, Selection

# the relation of pairs that are not stored edges
PAIR = "pair"
# of a worker: their numbers, rows and kinds of ends are sorted as one number of 63 bits
MOST_PAIRS = (1 << 30) - 1


@dataclass
class ScoredPairs:
    """The pairs of this worker.

    Attributes:
        src, dst: Global ids of the ends, [n] int64.
        gid: Global ids of the pairs; random draws are keyed by them.
        stored: Storage positions of pairs that are stored edges; None if they are not.
        label: What to predict, [n] or [n, k].
        columns: What a decoder reads of pairs that are not stored edges, by name, [n, ...].
    """

    src: np.ndarray
    dst: np.ndarray
    gid: np.ndarray
    stored: np.ndarray | None
    label: np.ndarray
    columns: dict[str, np.ndarray] = field(default_factory=dict)

    def some(self, at: np.ndarray) -> ScoredPairs:
        """The pairs at some positions."""
        stored = None if self.stored is None else self.stored[at]
        columns = {name: x[at] for name, x in self.columns.items()}
        return ScoredPairs(
            src=self.src[at],
            dst=self.dst[at],
            gid=self.gid[at],
            stored=stored,
            label=self.label[at],
            columns=columns,
        )


@dataclass
class PairLevel(Level):
    """The level a decoder runs over; pairs are ordered by the kinds of their ends.

    Attributes:
        pairs: This worker's pairs, in their own order.
        order: Number of each pair of the level among this worker's pairs, [n_edges].
    """

    pairs: ScoredPairs
    order: np.ndarray

    @cached_property
    def label(self) -> np.ndarray:
        """What to predict, in the order of the level, [n_edges] or [n_edges, k]."""
        return self.pairs.label[self.order]

    @cached_property
    def given(self) -> dict[str, np.ndarray]:
        return {name: x[self.order] for name, x in self.pairs.columns.items()}


class PairPlan:
    """Where the ends of this worker's pairs come from.

    Attributes:
        pairs: This worker's pairs.
        needed: Mask of the masters that some pair of some worker needs, [n_masters] bool.

    Collective: all ranks of the partition.
    """

    def __init__(self, partition: Partition, pairs: ScoredPairs):
        self._partition = partition
        self.pairs = pairs
        self._ends = locate(partition, np.concatenate((pairs.src, pairs.dst)))
        self.needed = np.zeros(partition.n_masters, bool)
        self.needed[self._ends.row[~self._ends.remote]] = True
        self.needed[self._ends.plan.rows] = True

    def lowest(self, cutoff: np.ndarray) -> np.ndarray:
        """The lowest cutoff of the pairs of any worker that end at each node in ``needed``,
        ascending by master.

        Args:
            cutoff: Cutoffs of this worker's pairs, [n], of the same type on all workers.

        Collective: all ranks of the partition.
        """
        ends = self._ends
        both = np.concatenate((cutoff, cutoff))
        of_masters, halo = (
            no_cutoffs(n, cutoff.dtype) for n in (len(self.needed), ends.plan.n_halo)
        )
        np.minimum.at(of_masters, ends.row[~ends.remote], both[~ends.remote])
        np.minimum.at(halo, ends.row[ends.remote], both[ends.remote])

        def merge(rows: np.ndarray, other: Columns) -> None:
            of_masters[rows] = np.minimum(of_masters[rows], other["cutoff"])

        Exchange(self._partition.halo_comm, ends.plan).to_masters_begin({"cutoff": halo}).end(merge)
        return of_masters[self.needed]

    def check(self, outside: np.ndarray) -> None:
        """Refuse master rows that are ends of pairs and not in the view, [n]; ViewError if there
        are any.
        """
        if len(outside):
            raise ViewError(
                f"node {self._partition.masters[outside[0]]} is an end of a pair, but not in the"
                f" view of its batch ({len(outside)} such node(s) on rank"
                f" {self._partition.halo_comm.rank}); seeds() of a task must return all ends of its"
                " pairs in Seeds.nodes, and draw them from `among` if that is given"
            )

    def level(self, row_of: np.ndarray | None, n_in: int) -> PairLevel:
        """The level over a frame in which master r has row row_of[r] (None: r).

        Raises:
            ViewError: A pair has an end outside the view.
        """
        partition = self._partition
        pairs = self.pairs
        if row_of is not None:
            self.check(np.flatnonzero(self.needed & (row_of < 0)))
        remote = self._ends.remote
        row = self._ends.row.copy()
        if row_of is not None:
            row[~remote] = row_of[row[~remote]]
        src_kind, dst_kind = np.split(remote.astype(np.int8), 2)
        src, dst = np.split(row, 2)
        kind = dst_kind * 2 + src_kind
        order = _order(kind, dst)
        relation, stored = self._relation(order)
        plan = self._ends.plan if row_of is None else self._ends.plan.renumbered(row_of, n_in)
        selections = []
        at = 0
        for number, kinds in enumerate(
            ((MASTER, MASTER), (MIRROR, MASTER), (MASTER, MIRROR), (MIRROR, MIRROR))
        ):
            part = order[at : at + int(np.count_nonzero(kind == number))]
            row, first = np.unique(dst[part], return_index=True)
            edges, start = (None, at) if stored is None else (stored[at : at + len(part)], 0)
            if len(part):
                selections.append(
                    Selection(
                        kinds=kinds,
                        row=row,
                        ptr=np.append(first, len(part)),
                        other=src[part],
                        n_senders=plan.n_halo if kinds[0] == MIRROR else n_in,
                        gid=relation.gid,
                        start=start,
                        edges=edges,
                    )
                )
            at += len(part)
        exchange = Exchange(partition.halo_comm, plan)
        return PairLevel(
            n_in=n_in,
            n_out=n_in,
            passes=[
                Pass(
                    relation=relation,
                    reverse=False,
                    selections=selections,
                    senders=exchange,
                    receivers=exchange,
                )
            ],
            direction="in",
            pairs=pairs,
            order=order,
        )

    def _relation(self, order: np.ndarray) -> tuple[Relation, np.ndarray | None]:
        """The relation of the pairs in this order, and their storage positions in it; None if they
        are in order.
        """
        if self.pairs.stored is not None:
            return self._partition.relations[EDGE], self.pairs.stored[order].astype(np.int32)
        return Relation(PAIR, self.pairs.gid[order], columns=False), None


def no_pairs(partition: Partition) -> PairPlan:
    """The plan of no pairs, on which decoders run where their values do not matter.

    Collective: all ranks of the partition.
    """
    none = np.zeros(0, np.int64)
    return PairPlan(partition, ScoredPairs(none, none, none, none, np.zeros(0)))


def _order(kind: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """``np.lexsort((dst, kind))``, [n] int64: their numbers in the last bits keep equal ones in
    order.

    Raises:
        ViewError: There are too many.
    """
    if len(dst) > MOST_PAIRS:
        raise ViewError(
            f"{len(dst)} pairs of nodes on one worker are more than {MOST_PAIRS}; use more workers,"
            " or smaller batches"
        )
    bits = len(dst).bit_length()
    keys = (kind.astype(np.int64) << 31 | dst) << bits | np.arange(len(dst))
    # numpy sorts plain numbers several times as fast as it finds their order
    keys.sort()
    return np.asarray(keys & ((1 << bits) - 1))
