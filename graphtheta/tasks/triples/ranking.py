"""Ranks of held-out triples among all nodes, without known ones ("filtered"), for heads and tails.

Each worker scores its own nodes. Blocks of queries are the same on every worker:

    scores      queries x masters of this worker, by the model's own decoder
    targets     scores of the true answers, from the workers of these nodes
    counts      nodes that score higher, or equal, summed over the workers

Source of the filtered setting: https://papers.nips.cc/paper/5071, section 4.1. A rank is the mean
of those that a tie leaves open, "realistic" in https://arxiv.org/abs/2002.06914, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.table import Route
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.view.hop import Layers
from graphtheta.engine.view.view import GraphView
from graphtheta.errors import ConfigError
from graphtheta.ops.functions.metrics.ranking import NO_RANK, ranking_sums
from graphtheta.tasks.evaluation.evaluate import LinkEvaluator
from graphtheta.tasks.evaluation.past import Past
from graphtheta.tasks.triples.answers import (
    SIDES,
    AnswerTable,
    Triples,
    relation_of,
    side_of,
    without_reciprocal,
)
from graphtheta.tasks.triples.candidates import CandidateSweep
from graphtheta.tasks.triples.positives import TriplePositives

# pairs that a worker scores at a time
BLOCK = 1 << 21


class RankedQueries(NamedTuple):
    """Queries of a split, and their answers among the masters of this worker.

    Attributes:
        queries: Those that this worker contributes to the blocks, [q] int64, each at one worker.
        first: Number of the first of them among those of all workers.
        n_queries: Queries of all workers.
        query, row: Number of the query and master row of each known answer, by query, [m] int64.
        target: Which of these are to be ranked, [m] bool.
    """

    queries: np.ndarray
    first: int
    n_queries: int
    query: np.ndarray
    row: np.ndarray
    target: np.ndarray

    @classmethod
    def of(cls, partition: Partition, triples: Triples, table: AnswerTable) -> RankedQueries:
        """What to rank for the held-out triples that this worker contributes.

        Collective: all ranks of the partition.
        """
        comm = partition.halo_comm
        n = partition.n_nodes
        wanted_table = AnswerTable(comm, triples, n)
        answers = table.answers(wanted_table.queries)
        wanted = wanted_table.answers(wanted_table.queries)
        number = answers.keys // n
        node = answers.keys % n
        return cls.sent(partition, wanted_table.queries, number, node, wanted.has(number, node))

    @classmethod
    def sent(
        cls,
        partition: Partition,
        queries: np.ndarray,
        number: np.ndarray,
        node: np.ndarray,
        target: np.ndarray,
    ) -> RankedQueries:
        """Queries of this worker, whose answers are sent to the owners of these nodes.

        Args:
            partition: The graph.
            queries: Each at one worker, [q] int64.
            number, node: Position of the query and node of each known answer, by query, [m] int64.
            target: Which of these are to be ranked, [m] bool.

        Collective: all ranks of the partition.
        """
        comm = partition.halo_comm
        counts = comm.all_gather(len(queries))
        first = sum(counts[: comm.rank])
        rows = np.stack((first + number, node, target), axis=1)
        owner = partition.directory.owner(node)
        query, node, target = np.concatenate(comm.all_to_all(Route(owner, comm.size).parts(rows))).T
        return cls(
            queries=queries,
            first=first,
            n_queries=sum(counts),
            query=query,
            row=partition.directory.row(node),
            target=target.astype(bool),
        )

    def block(self, comm: Comm, begin: int, end: int) -> np.ndarray:
        """The queries of these numbers, on every rank.

        Collective: all ranks of comm.
        """
        mine = self.queries[max(begin - self.first, 0) : max(end - self.first, 0)]
        return np.concatenate(comm.all_gather(mine))


class Ranks(NamedTuple):
    """Ranks of some triples.

    Attributes:
        query: The query of each, [n] int64.
        rank: Its rank, from 1, [n] float64.
    """

    query: np.ndarray
    rank: np.ndarray


class TripleEvaluator(LinkEvaluator):
    """Evaluator of held-out triples: loss and metrics of labels beside fixed negatives, ranks among
    all nodes.

    Args:
        partition, layers, task: As for every evaluator.
        links: Held-out triples by split, with negatives for the loss.
        table_at: From a cutoff to all known triples of it; from None to all known triples.
        past: As for ``LinkEvaluator``; the triples of each cutoff are then ranked by themselves.

    Collective: all ranks of the partition.
    """

    def __init__(
        self,
        partition: Partition,
        layers: Layers,
        task: Task,
        links: Mapping[str, TriplePositives],
        table_at: Callable[[Any], AnswerTable],
        past: Past | None = None,
    ):
        super().__init__(partition, layers, task, links, past)
        self._ranked = dict[str, list[tuple[Any, RankedQueries]]]()
        for split, positives in links.items():
            if past is None:
                self._ranked[split] = [
                    (None, RankedQueries.of(partition, positives.triples, table_at(None)))
                ]
                continue
            of_times = [
                (time, positives.triples.some(positives.cutoff == time))
                for time in self.times[split]
            ]
            self._ranked[split] = [
                (time, RankedQueries.of(partition, triples, table_at(time)))
                for time, triples in of_times
            ]
        self._reciprocal = links["test"].triples.sides != SIDES

    def ranks(self, model: Model, split: str, scores: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """Ranks of a split, for heads and for tails; arguments as for every evaluator of links.

        Collective: all ranks of job_comm.
        """
        return np.concatenate([np.zeros(0), *(block.rank for block in self.blocks(model, split))])

    def outputs(self, model: Model) -> tuple[np.ndarray, np.ndarray]:
        numbers, scores = super().outputs(model)
        if not self._reciprocal:
            return numbers, scores
        one, other = np.split(scores, 2)
        return numbers[: len(one)], (one + other) / 2

    def by_relation(self, model: Model, split: str, relations: int) -> np.ndarray:
        """Sums of ranks by relation and side, [relations, 2, 2 + len(KS)] float64; see
        ``ranking_sums``.

        Args:
            model: The model.
            split: "val" or "test".
            relations: Number of relations, without reciprocal ones.

        Collective: all ranks of job_comm.
        """
        n = self.partition.n_nodes
        sums = np.stack([np.stack([ranking_sums(np.zeros(0)) for _ in SIDES])] * relations)
        for ranks in self.blocks(model, split):
            query = without_reciprocal(ranks.query, n, relations)
            relation = relation_of(query, n)
            side = side_of(query, n)
            for r, s in np.unique(np.stack((relation, side), axis=1), axis=0):
                sums[r, s] += ranking_sums(ranks.rank[(relation == r) & (side == s)])
        return np.asarray(self.job_comm.all_sum(sums))

    def blocks(self, model: Model, split: str) -> list[Ranks]:
        """The ranks of this worker's answers to blocks of queries.

        Raises:
            ConfigError: The model does not end with a decoder.

        Collective: all ranks of job_comm.
        """
        comm = self.partition.halo_comm
        of_blocks = list[Ranks]()

        def take(block: QueryBlock) -> None:
            ranks = rank_block(
                comm=comm,
                scores=block.scores,
                query=block.query,
                row=block.row,
                target=block.target,
            )
            of_blocks.append(Ranks(block.queries[block.query[block.target]], ranks))

        for time, ranked in self._ranked[split]:
            score_blocks(
                evaluator=self, view=self.every(time), model=model, ranked=ranked, take=take
            )
        return of_blocks


class QueryBlock(NamedTuple):
    """Some queries, the same on every rank, and their known answers among the masters of this
    worker.

    Attributes:
        begin: Number of the first query.
        queries: The queries, [q] int64.
        scores: Of the queries and this worker's masters, [q, masters].
        query, row, target: As in ``RankedQueries``, with positions in ``queries``.
    """

    begin: int
    queries: np.ndarray
    scores: np.ndarray
    query: np.ndarray
    row: np.ndarray
    target: np.ndarray


def score_blocks(
    evaluator: LinkEvaluator,
    view: GraphView,
    model: Model,
    ranked: RankedQueries,
    take: Callable[[QueryBlock], None],
) -> None:
    """Score all queries against all nodes, block by block.

    Args:
        evaluator: Runs the model once for all blocks, within a limit of memory if it has one.
        view: The view of all nodes, ``LinkEvaluator.every``.
        model: The model, which ends with a decoder of pairs.
        ranked: The queries.
        take: Called with each block, on all ranks.

    Raises:
        ConfigError: The model does not end with a decoder.

    Collective: all ranks of the partition.
    """
    partition = evaluator.partition
    comm = evaluator.partition.halo_comm
    most = int(comm.all_max(np.array(partition.n_masters)))
    size = max(1, BLOCK // max(most, 1))
    begins = iter(range(0, ranked.n_queries, size))

    def of_block(queries: np.ndarray, scores: np.ndarray) -> None:
        begin = next(begins)
        first, last = np.searchsorted(ranked.query, (begin, begin + size))
        take(
            QueryBlock(
                begin=begin,
                queries=queries,
                scores=scores,
                query=ranked.query[first:last] - begin,
                row=ranked.row[first:last],
                target=ranked.target[first:last],
            )
        )

    level = CandidateSweep(
        partition,
        (ranked.block(comm, begin, begin + size) for begin in range(0, ranked.n_queries, size)),
        of_block,
    )
    out = evaluator.run(model, replace(view, pairs=level))
    if out.value is not level.values.value:
        raise ConfigError(
            f"forward of {type(model).__name__} changes the scores of its decoder; to rank all"
            " nodes, end it with return self.decoder(graph, h), and change scores in the decoder"
        )


def rank_block(
    comm: Comm,
    scores: np.ndarray,
    query: np.ndarray,
    row: np.ndarray,
    target: np.ndarray,
    outside: np.ndarray | None = None,
) -> np.ndarray:
    """Ranks of the true answers of this worker among all nodes of all workers that are no known
    answers.

    Args:
        comm: The workers.
        scores: Of the same queries on every rank and this worker's nodes, [q, n_masters]; those of
            known answers and of nodes outside are overwritten.
        query, row: Position of each known answer of this worker, [m] int64.
        target: Those to be ranked, [m] bool.
        outside: Nodes that are no candidates, [q, n_masters] bool; None if all are.

    Returns:
        [number of targets] float64; ``NO_RANK`` if all candidates are known answers, NaN if a score
        of the query is.

    Collective: all ranks of comm.
    """
    mine = scores[query[target], row[target]]
    parts = comm.all_gather((mine, query[target]))
    true, of = (np.concatenate(x) for x in zip(*parts, strict=True))
    begin = sum(len(x) for x, _ in parts[: comm.rank])
    if outside is not None:
        scores[outside] = -np.inf
    broken = comm.all_max(np.isnan(scores).any(axis=1).astype(np.float64))
    # NaN is neither above nor level with anything
    scores[query, row] = np.nan
    if outside is not None:
        scores[outside] = np.nan
    candidates = comm.all_sum(np.count_nonzero(~np.isnan(scores), axis=1))
    counted = np.zeros((len(of), 2), np.int64)
    for i, (q, score) in enumerate(zip(of, true, strict=True)):
        counted[i] = np.count_nonzero(scores[q] > score), np.count_nonzero(scores[q] >= score)
    above, up_to = comm.all_sum(counted).T
    rank = np.where(candidates[of] > 0, 1 + (above + up_to) / 2, NO_RANK)
    rank[broken[of] > 0] = np.nan
    return rank[begin : begin + len(mine)]
