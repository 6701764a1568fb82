"""Positive triples, and their negatives: the head or the tail is replaced."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graphtheta.base.rng import Purpose, key
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.relation import RELATION
from graphtheta.engine.sampling.cluster_nodes import Members
from graphtheta.engine.strategy.positives import (
    draw_others,
    edges_by_key,
    labels_of,
    sharing,
    weights_of_pairs,
)
from graphtheta.engine.view.scored_pairs import ScoredPairs
from graphtheta.tasks.triples.answers import HEAD, TAIL, Answers, AnswerTable, Triples


@dataclass(frozen=True)
class TriplePositives:
    """Positive triples at any workers, and the draws of their negatives; a kind of ``Positives``.

    Negatives replace the tail and the head in turn, with reciprocal triples the tail alone. No
    negative is a known triple.

    Attributes:
        numbers: Global numbers, ascending, [n] int64. Reciprocal triples, which make up the second
            half, have those of the triples that they belong to plus the number of triples.
        triples: The triples.
        n_links: Triples of all workers.
        negatives: Negatives per positive.
        key: Key of the draws.
        groups: Groups of positives with the same negatives; 0 if each has its own.
        query: Numbers of the queries of each triple among those of ``answers``, [n, number of
            sides] int64.
        answers: Known answers to these queries.
    """

    numbers: np.ndarray
    triples: Triples
    n_links: int
    negatives: int
    key: int
    groups: int
    query: np.ndarray
    answers: Answers

    @classmethod
    def of(
        cls,
        numbers: np.ndarray,
        triples: Triples,
        n_links: int,
        table: AnswerTable,
        n_nodes: int,
        *,
        negatives: int,
        draws: int,
        groups: int = 0,
    ) -> TriplePositives:
        """Positives of this worker.

        Args:
            numbers, triples, n_links, negatives, groups: As the attributes.
            table: The known triples: in training those of training, in evaluation all.
            n_nodes: Nodes of the graph.
            draws: Key of the draws.

        Collective: all ranks of the table.
        """
        queries, each = np.unique(triples.queries(n_nodes), return_inverse=True)
        return cls(
            numbers=numbers,
            triples=triples,
            n_links=n_links,
            negatives=negatives,
            key=draws,
            groups=groups,
            query=each.reshape(-1, len(triples.sides)),
            answers=table.answers(queries),
        )

    @property
    def src(self) -> np.ndarray:
        """Heads, [n] int64."""
        return self.triples.head

    @property
    def dst(self) -> np.ndarray:
        """Tails, [n] int64."""
        return self.triples.tail

    @property
    def cutoff(self) -> np.ndarray | None:
        """``Task.cutoffs`` of the triples, [n], or None."""
        return self.triples.cutoff

    @property
    def weight(self) -> np.ndarray | None:
        """What the triples weigh in the loss, [n] float64, or None."""
        return self.triples.weight

    def of_step(self, step: int) -> TriplePositives:
        """The same triples with the draws of a step."""
        return replace(self, key=key(self.key, Purpose.NEGATIVE, step))

    def stored(self, partition: Partition) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The stored edges that are these triples or their inverse; see ``edges_by_key``.

        Triples are the first edges of the graph, and inverse edges follow in the same order.

        Collective: all ranks of the partition.
        """
        loop = partition.edge.read(RELATION) < 0
        reciprocal = len(self.triples.sides) == 1
        total, numbers = (
            (self.n_links // 2, self.numbers[: len(self.numbers) // 2])
            if reciprocal
            else (self.n_links, self.numbers)
        )
        ptr, stored, worker = edges_by_key(
            partition, numbers, np.where(loop, -1, partition.edge_gid % max(total, 1))
        )
        if not reciprocal:
            return ptr, stored, worker
        return np.concatenate((ptr, ptr[1:] + ptr[-1])), np.tile(stored, 2), np.tile(worker, 2)

    def pairs(
        self, partition: Partition, own: np.ndarray, among: Members | None = None
    ) -> ScoredPairs:
        """Positives, each followed by its negatives; see ``Positives``."""
        n = partition.n_nodes
        k = self.negatives
        numbers = self.numbers[own]
        slots = (sharing(self.key, numbers, self.groups)[:, None] * k + np.arange(k)).ravel()
        # each step exchanges the slots that replace heads and those that replace tails
        asked = (slots + self.key % 2) % len(self.triples.sides)
        query = np.repeat(self.query[own], k, axis=0)[np.arange(len(slots)), asked]
        ends = (self.src[own], self.dst[own])
        side = np.array(self.triples.sides)[asked]
        drawn, taken = draw_others(
            draws=self.key,
            slots=slots,
            bounds=(0, n),
            among=among,
            taken=lambda at, nodes: self.answers.has(query[at], nodes),
        )
        replaced = [
            np.where(side == s, drawn, np.repeat(end, k)).reshape(-1, k)
            for s, end in zip((HEAD, TAIL), ends, strict=True)
        ]
        src, dst = (
            np.concatenate((end[:, None], x), axis=1).ravel()
            for end, x in zip(ends, replaced, strict=True)
        )
        label = labels_of(taken.reshape(-1, k))
        gid = (numbers[:, None] * (k + 1) + np.arange(k + 1)).ravel()
        relation = np.repeat(self.triples.relation[own], k + 1).astype(np.int32)
        return ScoredPairs(
            src=src,
            dst=dst,
            gid=gid,
            stored=None,
            label=label.ravel(),
            columns={RELATION: relation} | weights_of_pairs(self.weight, own, k),
        )
