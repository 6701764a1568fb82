"""Evaluator of held-out links among all nodes: for each source, where its links stand in the order
of all candidates.

A candidate is a node of a type to which links of the source lead, other than the source, that no
earlier split links with it: those of training do not count, and in testing neither do those of
validation. Each worker scores its own nodes, see ``triples/ranking.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.table import Route
from graphtheta.engine.strategy.positives import Positives
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.train.metrics import measure
from graphtheta.engine.view.hop import Layers
from graphtheta.engine.view.view import GraphView
from graphtheta.ops.functions.metrics.ranking import NO_RANK
from graphtheta.ops.functions.metrics.retrieval import gains, retrieved
from graphtheta.tasks.evaluation.evaluate import LinkEvaluator, Metrics
from graphtheta.tasks.evaluation.past import Past
from graphtheta.tasks.triples.ranking import QueryBlock, RankedQueries, rank_block, score_blocks


class RetrievalEvaluator(LinkEvaluator):
    """Evaluator of held-out links beside fixed negatives, and of recall and NDCG among all
    candidates.

    Args:
        partition, layers, task: As for every evaluator.
        links: Held-out links by split, of which "val" comes before "test".
        link_keys: Sorted keys, src * n_nodes + dst, of all links of all splits and their reverse
            whose sources this worker owns.
        types: The first node of each type but the first, ascending.
        past: As for ``LinkEvaluator``; the links of a source are then those of one cutoff.

    Collective: all ranks of the partition.
    """

    def __init__(
        self,
        partition: Partition,
        layers: Layers,
        task: Task,
        links: Mapping[str, Positives],
        link_keys: np.ndarray,
        types: tuple[int, ...] = (),
        past: Past | None = None,
    ):
        super().__init__(partition, layers, task, links, past)
        later = np.zeros(0, np.int64)
        asked = {}
        for split in reversed(list(links)):
            positives = links[split]
            keys = positives.src * np.int64(partition.n_nodes) + positives.dst
            # links of later splits are not known yet
            of_split = np.unique(keys)
            until = np.union1d(link_keys[~np.isin(link_keys, later)], keys)
            groups = (
                [(None, of_split)]
                if past is None
                else [
                    (time, np.unique(keys[positives.cutoff == time])) for time in self.times[split]
                ]
            )
            asked[split] = [(time, _asked(partition, targets, until)) for time, targets in groups]
            later = np.union1d(later, np.concatenate((of_split, _reversed(partition, positives))))
        self._asked = {split: asked[split] for split in links}
        self._types = np.array(types, np.int64)

    def measured(self, model: Model) -> Iterator[tuple[str, Metrics]]:
        for split, metrics in super().measured(model):
            yield (
                split,
                metrics | measure(self.job_comm, "retrieved", *self.retrieved(model, split)),
            )

    def retrieved(self, model: Model, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Recall and NDCG of this worker's sources of a split, [n, number of places] each.

        Collective: all ranks of the partition.
        """
        nothing = retrieved(*gains(np.zeros(0), np.zeros(0, np.int64), 0))
        parts = [
            nothing,
            *(
                part
                for time, asked in self._asked[split]
                for part in self._retrieved(model, self.every(time), asked)
            ),
        ]
        recall, ndcg = (np.concatenate(x) for x in zip(*parts, strict=True))
        return recall, ndcg

    def _retrieved(
        self, model: Model, view: GraphView, asked: RankedQueries
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Recall and NDCG of this worker's sources among some, by block."""
        comm = self.partition.halo_comm
        of_blocks = []
        kind = np.searchsorted(self._types, self.partition.masters, side="right")

        def take(block: QueryBlock) -> None:
            # candidates have the types of the targets
            wanted = np.zeros((len(block.queries), len(self._types) + 1), np.int64)
            wanted[block.query[block.target], kind[block.row[block.target]]] = 1
            rank = rank_among(comm, block, comm.all_max(wanted)[:, kind] == 0)
            ranked = rank != NO_RANK
            parts = gains(rank[ranked], block.query[block.target][ranked], len(block.queries))
            counts, hits, gain = (comm.all_sum(x) for x in parts)
            numbers = block.begin + np.arange(len(counts)) - asked.first
            mine = (numbers >= 0) & (numbers < len(asked.queries)) & (counts > 0)
            of_blocks.append(retrieved(counts[mine], hits[mine], gain[mine]))

        score_blocks(evaluator=self, view=view, model=model, ranked=asked, take=take)
        return of_blocks


def rank_among(comm: Comm, block: QueryBlock, outside: np.ndarray) -> np.ndarray:
    """The rank of each target of this worker among all candidates and the other targets of its
    query, from 1, [n] float64.

    It is ``NO_RANK`` if there are no candidates but the targets.

    Args:
        comm: The workers.
        block: The scores; they are overwritten.
        outside: Nodes of this worker that are no candidates, [q, masters] bool.

    Collective: all ranks of comm.
    """
    query = block.query[block.target]
    score = block.scores[block.query, block.row][block.target]
    rank = rank_block(
        comm=comm,
        scores=block.scores,
        query=block.query,
        row=block.row,
        target=block.target,
        outside=outside,
    )
    queries, scores = (np.concatenate(comm.all_gather(x)) for x in (query, score))
    order = np.argsort(queries, kind="stable")
    queries = queries[order]
    scores = scores[order]
    for i in np.flatnonzero(rank != NO_RANK):
        others = scores[slice(*np.searchsorted(queries, (query[i], query[i] + 1)))]
        # itself is level with itself
        rank[i] += np.count_nonzero(others > score[i])
        rank[i] += (np.count_nonzero(others == score[i]) - 1) / 2
    return rank


def _reversed(partition: Partition, links: Positives) -> np.ndarray:
    """Keys dst * n_nodes + src of links, at the owners of their destinations.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    keys = links.dst * np.int64(partition.n_nodes) + links.src
    return np.concatenate(
        comm.all_to_all(Route(partition.directory.owner(links.dst), comm.size).parts(keys))
    )


def _asked(partition: Partition, own: np.ndarray, link_keys: np.ndarray) -> RankedQueries:
    """The sources of some links as queries, with what is no candidate of each and what is to be
    ranked.

    Args:
        partition: The graph.
        own: Keys src * n_nodes + dst of the links, ascending.
        link_keys: Those of all links that are known, these included, ascending.

    Collective: all ranks of the partition.
    """
    n = partition.n_nodes
    sources = np.unique(own // n)
    # a source is no candidate of its own
    keys = np.union1d(link_keys[np.isin(link_keys // n, sources)], sources * np.int64(n) + sources)
    number = np.searchsorted(sources, keys // n)
    # queries of relation 0 for the end that links go to: the numbers of the nodes
    return RankedQueries.sent(partition, sources, number, keys % n, np.isin(keys, own))
