"""The level on which a decoder scores queries against all nodes of this worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from graphtheta.engine.partition.exchange import Exchange
from graphtheta.engine.partition.located import locate
from graphtheta.engine.partition.partition import MASTER, MIRROR, Partition
from graphtheta.engine.partition.relation import RELATION, Relation
from graphtheta.engine.view.level import Level, Pass, Selection
from graphtheta.engine.view.scored_pairs import PAIR, PairLevel, ScoredPairs
from graphtheta.tasks.triples.answers import HEAD, TAIL, anchor_of, relation_of, side_of


class CandidateLevel(PairLevel):
    """A level over the whole graph, with a pair of each query and each master of this worker.

    The pairs need no sorting: pairs of one kind are grouped by candidate if the tail is asked for,
    and by anchor if the head is.

    Args:
        partition: The graph.
        queries: The same on every rank, [q] int64; see ``triples/answers.py``.

    Collective: all ranks of the partition.
    """

    def __init__(self, partition: Partition, queries: np.ndarray):
        n = partition.n_nodes
        masters = partition.n_masters
        anchors = locate(partition, anchor_of(queries, n))
        relation = relation_of(queries, n).astype(np.int32)
        side = side_of(queries, n)
        every = np.arange(masters, dtype=np.int32)
        self._parts: list[np.ndarray] = []
        gid = np.arange(len(queries) * masters)
        values = [np.zeros(0, np.int32)]
        selections = []
        at = 0
        for asked, remote in ((TAIL, False), (HEAD, False), (TAIL, True), (HEAD, True)):
            chosen = np.flatnonzero((side == asked) & (anchors.remote == remote))
            chosen = chosen[np.argsort(anchors.row[chosen], kind="stable")]
            if not len(chosen) or not masters:
                continue
            anchor = anchors.row[chosen].astype(np.int32)
            kind = MIRROR if remote else MASTER
            senders = anchors.plan.n_halo if remote else masters
            if asked == TAIL:
                selection = Selection(
                    kinds=(kind, MASTER),
                    row=every,
                    ptr=np.arange(masters + 1) * len(chosen),
                    other=np.tile(anchor, masters),
                    n_senders=senders,
                    gid=gid,
                    start=at,
                )
                values.append(np.tile(relation[chosen], masters))
            else:
                row, first = np.unique(anchor, return_index=True)
                bounds = np.append(first, len(chosen)) * masters
                selection = Selection(
                    kinds=(MASTER, kind),
                    row=row,
                    ptr=bounds,
                    other=np.tile(every, len(chosen)),
                    n_senders=masters,
                    gid=gid,
                    start=at,
                )
                values.append(np.repeat(relation[chosen], masters))
            selections.append(selection)
            self._parts.append(chosen)
            at += selection.n_edges
        self._asked = side
        self._shape = (len(queries), masters)
        exchange = Exchange(partition.halo_comm, anchors.plan)
        none = np.zeros(0, np.int64)
        pairs = ScoredPairs(
            src=none,
            dst=none,
            gid=none,
            stored=None,
            label=none,
            columns={RELATION: np.concatenate(values)},
        )
        over = Pass(
            relation=Relation(PAIR, gid, columns=False),
            reverse=False,
            selections=selections,
            senders=exchange,
            receivers=exchange,
        )
        super().__init__(
            n_in=masters, n_out=masters, passes=[over], direction="in", pairs=pairs, order=gid[:at]
        )

    def table(self, scores: np.ndarray) -> np.ndarray:
        """Scores in the order of the level as [queries, masters]."""
        out = np.empty(self._shape, scores.dtype)
        at = 0
        for chosen in self._parts:
            part = scores[at : at + len(chosen) * self._shape[1]]
            at += len(part)
            out[chosen] = (
                part.reshape(self._shape[1], -1).T
                if self._asked[chosen[0]] == TAIL
                else part.reshape(len(chosen), -1)
            )
        return out


class CandidateSweep(CandidateLevel):
    """A level without pairs, over which a decoder runs block by block, so that all before it in a
    model runs once.

    Args:
        partition: The graph.
        blocks: Queries of each block, the same on every rank.
        take: Called with the queries and the scores of each block, [queries, masters].

    Attributes:
        values: What the decoder returned; a model that ranks candidates returns it as it is.

    Collective: all ranks of the partition.
    """

    values: Any = None

    def __init__(
        self,
        partition: Partition,
        blocks: Iterable[np.ndarray],
        take: Callable[[np.ndarray, np.ndarray], None],
    ):
        super().__init__(partition, np.zeros(0, np.int64))
        self._partition = partition
        self._blocks = blocks
        self._take = take

    def swept(self, decoder: Callable[[Level], Any]) -> Any:
        """Run a decoder over the blocks, and return its values of no pairs."""
        for queries in self._blocks:
            level = CandidateLevel(self._partition, queries)
            self._take(queries, level.table(decoder(level).value))
        self.values = decoder(self)
        return self.values
