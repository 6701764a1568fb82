"""The task ``triple``: predicts the tail of (head, relation, ?) and the head of (?, relation,
tail).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.layer import Layer
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.relation import RELATION
from graphtheta.engine.sampling.sampler import TimedPairs
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.view.hop import Layers
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.transform import duplicate_key, edges_in_memory, keep_edges
from graphtheta.graph.data.typed import relation_code
from graphtheta.graph.splits.links import MESSAGE, TEST, VAL, link_parts, message_graph
from graphtheta.models.triples import TRIPLE_DECODERS
from graphtheta.tasks.evaluation.evaluate import Evaluator
from graphtheta.tasks.evaluation.past import Past
from graphtheta.tasks.kinds.imbalance import check_weights
from graphtheta.tasks.kinds.kind import GraphInfo
from graphtheta.tasks.kinds.link import SCORED_KEYS, LinkKind, link_task
from graphtheta.tasks.kinds.timed import timed_pairs, timed_sampler
from graphtheta.tasks.triples.answers import (
    HEAD,
    TAIL,
    AnswerTable,
    Triples,
    relation_of,
    side_of,
    slice_of,
    without_reciprocal,
)
from graphtheta.tasks.triples.positives import TriplePositives
from graphtheta.tasks.triples.ranking import TripleEvaluator


class TripleKind(LinkKind):
    """Link prediction in a knowledge graph: held-out triples are ranked among all nodes, without
    known ones.

    Messages run along the training triples and their inverse, without those of the batch's targets.

    Attributes:
        relations: Names of the relations, or their codes if they have none; set by ``take``.
    """

    name = "triple"
    summary = "heads and tails of relations"
    keys = (*SCORED_KEYS, "margin", "reciprocal")
    decoders = tuple(TRIPLE_DECODERS)
    relations: tuple[Any, ...]
    _parts: np.ndarray
    _cutoffs: np.ndarray | None
    _in_several: int
    _table: AnswerTable

    @classmethod
    def fits(cls, graph: Graph) -> bool:
        """A graph of one type with relations, without labels."""
        return super().fits(graph) and RELATION in graph.edge_columns and graph.n_types <= 1

    def take(self, graph: Graph) -> Graph:
        name = graph.name or "the graph"
        if RELATION not in graph.edge_columns:
            raise DataError(
                f"{name} has no relations; give their codes with gt.Graph(...,"
                " edge_columns={'relation': codes}), or choose --task link"
            )
        if graph.n_types > 1:
            raise DataError(
                f"{name} has nodes of several types, which the task '{self.name}' cannot rank; give"
                " it with nodes of one type"
            )
        # every worker knows all answers
        graph = edges_in_memory(graph)
        check_weights(self.job, self.labels, self.width, graph.edge_columns)
        parts = self._parts_of(graph)
        # of duplicates the first of the last set is kept, so that no held-out triple is learned
        order = np.argsort(-parts, kind="stable")
        key = duplicate_key(graph, self._times(graph))[order]
        _, first, group = np.unique(key, return_index=True, return_inverse=True)
        self._in_several = int(np.count_nonzero(parts[order[first]][group] != parts[order]))
        chosen = np.sort(order[first])
        self._type_names = ()
        self._graph = graph = keep_edges(graph, chosen)
        self._parts = parts[chosen]
        self._cutoffs = self._times(graph)
        names = (
            graph.meta.get("relation_names")
            or [name for _, name, _ in graph.relations]
            or graph.categories("edge", RELATION)
        )
        self.relations = tuple(names) or tuple(range(graph.n_relations))
        messages = message_graph(graph, self._part_of)
        asked = 1 + self.job.reciprocal
        self._counts = asked * messages.n_edges, asked * (graph.n_edges - messages.n_edges)
        self._n_nodes = graph.n_nodes
        return messages.with_inverse_relations()

    @property
    def ranks_nodes(self) -> bool:
        return True

    def warning(self, graph: Graph) -> str:
        if not self._in_several:
            return ""
        return (
            f"{self._in_several:,} triples are also in a later one of the sets for training,"
            " validation and test, and only count there; if that is not meant, make the masks of"
            " edges anew"
        )

    def _parts_of(self, graph: Graph) -> np.ndarray:
        """The part of each triple, [n_edges] int8."""
        masks = {VAL: graph.edge_val, TEST: graph.edge_test}
        if all(mask is None for mask in masks.values()):
            return link_parts(graph, seed=self.job.seed)(0, graph.n_edges)
        # unlike links, triples between the ends of a held-out one stay, as in the published splits
        parts = np.full(graph.n_edges, MESSAGE, np.int8)
        for part, mask in masks.items():
            parts[mask if mask is not None else slice(0, 0)] = part
        return parts

    def _times(self, graph: Graph) -> np.ndarray | None:
        """The cutoffs of triples that are told apart by them, [n_edges]; None if the job looks at
        no times.
        """

        def column(name: str) -> np.ndarray:
            values = graph.edge_columns.get(name)
            # columns that cannot be times are refused once the graph is partitioned
            return np.zeros(graph.n_edges) if values is None or values.ndim > 1 else values

        sampler = timed_sampler(self.job)
        return (
            sampler.edge_cutoffs(column, earlier=True) if isinstance(sampler, TimedPairs) else None
        )

    def _part_of(self, begin: int, end: int) -> np.ndarray:
        return self._parts[begin:end]

    @property
    def decoder(self) -> Callable[[int], Layer]:
        """Function from the width of node values to the decoder."""
        name = self.chosen_decoder
        settings = {"margin": self.job.margin} if name in ("transe", "rotate") else {}
        return lambda width: TRIPLE_DECODERS[name](
            width, len(self.relations) * (1 + self.job.reciprocal), **settings
        )

    def _asked(self, triples: Triples) -> Triples:
        """Triples, with their reciprocal ones if the job has them."""
        return triples.with_reciprocal(len(self.relations)) if self.job.reciprocal else triples

    def _answers(self, comm: Comm, chosen: np.ndarray | None = None) -> AnswerTable:
        return AnswerTable(comm, self._asked(slice_of(self._graph, comm, chosen)), self._n_nodes)

    def _positives(
        self, numbers: np.ndarray, triples: Triples, total: int, table: AnswerTable, **draws: int
    ) -> TriplePositives:
        """Positives of this worker; see ``TriplePositives``."""
        if self.job.reciprocal:
            numbers = np.concatenate((numbers, numbers + total))
            total = 2 * total
        return TriplePositives.of(
            numbers, self._asked(triples), total, table, self._n_nodes, **draws
        )

    def objective(self, graph: Graph, partition: Partition) -> Task:
        comm = partition.halo_comm
        sampler = timed_pairs(self.job, partition)
        self._sampler = sampler
        self._types = ()
        self._leads = np.ones((1, 1), bool)
        # with triples of other splits among the known ones, the lack of negatives would tell which
        # these are
        table = self._answers(comm, self._parts == MESSAGE)
        relation = partition.edge.read(RELATION)
        stored = np.flatnonzero((relation >= 0) & (relation < len(self.relations)))
        stored = stored[np.argsort(partition.edge_gid[stored], kind="stable")]
        src, dst = (end[stored].astype(np.int64) for end in partition.edge_ends())
        total = int(comm.all_sum(np.array(len(stored))))
        read: Callable[[str], np.ndarray] = lambda name: np.asarray(
            partition.edge.exact(name, stored)
        )
        cutoff = None if sampler is None else sampler.edge_cutoffs(read, earlier=True)
        weight = (
            read(self.job.sample_weights).astype(np.float64) if self.job.sample_weights else None
        )
        triples = Triples(src, relation[stored].astype(np.int64), dst, cutoff=cutoff, weight=weight)
        positives = self._positives(
            partition.edge_gid[stored],
            triples,
            total,
            table,
            negatives=self.job.negatives,
            draws=self.job.seed,
            groups=self.job.negative_groups,
        )
        return link_task(self.job, partition, positives)

    def evaluator(self, partition: Partition, layers: Layers, task: Task) -> Evaluator:
        comm = partition.halo_comm
        positives = {}
        self._table = table = self._answers(comm)
        for i, (split, part) in enumerate({"val": VAL, "test": TEST}.items()):
            triples = slice_of(
                graph=self._graph,
                comm=comm,
                chosen=self._parts == part,
                cutoff=self._cutoffs,
                weight=self.job.sample_weights,
            )
            counts = comm.all_gather(len(triples.head))
            numbers = sum(counts[: comm.rank]) + np.arange(len(triples.head))
            positives[split] = self._positives(
                numbers,
                triples,
                sum(counts),
                table,
                negatives=self.job.eval_negatives,
                draws=self.job.seed + i,
            )
        self._test = np.stack(
            (self._graph.src, self._graph.edge_columns[RELATION], self._graph.dst)
        )[:, self._parts == TEST]
        if self._sampler is None:
            evaluator = TripleEvaluator(
                partition=partition,
                layers=layers,
                task=task,
                links=positives,
                table_at=lambda time: table,
            )
        else:
            # an answer of another time may be wrong at this one
            of_time = lambda time: self._answers(comm, self._cutoffs == time)
            evaluator = TripleEvaluator(
                partition=partition,
                layers=layers,
                task=task,
                links=positives,
                table_at=of_time,
                past=Past(partition, layers, self._sampler),
            )
        del self._graph, self._parts, self._cutoffs
        return evaluator

    def named(
        self, info: GraphInfo, rows: np.ndarray, out: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Head, relation and tail of test triples, [n, 3], and their scores; relations are codes,
        or names if ids are text.
        """
        head, relation, tail = self._test[:, rows]
        return self._ids(info.ids(np.stack((head, tail), axis=1)), relation), out

    def _ids(self, ends: np.ndarray, relation: np.ndarray) -> np.ndarray:
        kind = (
            np.array(list(map(str, self.relations)))[relation]
            if ends.dtype.kind == "U"
            else relation
        )
        return np.stack((ends[:, 0], kind, ends[:, 1]), axis=1)

    def queries(
        self, nodes: np.ndarray, relation: Any, side: int, where: Callable[[str, int], str]
    ) -> np.ndarray:
        asked = np.asarray(relation).astype(str).reshape(-1)
        if relation is None or (np.ndim(relation) and len(asked) != len(nodes)):
            raise ConfigError(
                f"relation: got {'none' if relation is None else len(asked)} for {len(nodes)} nodes"
                f" of task={self.name}; give the name or the code of one, or one for each node"
            )
        names, first, each = np.unique(asked, return_index=True, return_inverse=True)
        codes = [
            relation_code(self.relations, str(name), where("relation", i))
            for name, i in zip(names, first.tolist(), strict=True)
        ]
        relations = np.array(codes, np.int64)[each]
        if self.job.reciprocal and side == HEAD:
            relations = relations + len(self.relations)
            side = TAIL
        return (2 * relations + side) * np.int64(self._n_nodes) + nodes

    def pairs_of(
        self, src: np.ndarray, dst: np.ndarray, queries: np.ndarray
    ) -> tuple[tuple[np.ndarray, np.ndarray], dict[str, np.ndarray]]:
        triples = self._asked(Triples(src, relation_of(queries, self._n_nodes), dst))
        relation = triples.relation.astype(np.int32)
        return (triples.head, triples.tail), {RELATION: relation}

    def held_queries(self, links: Any, side: int) -> np.ndarray:
        queries = links.triples.queries(self._n_nodes).ravel()
        return np.asarray(
            queries[
                side_of(
                    without_reciprocal(queries, self._n_nodes, len(self.relations)), self._n_nodes
                )
                == side
            ]
        )

    def left_out(self, queries: np.ndarray, keep_known: bool) -> tuple[np.ndarray, np.ndarray]:
        """Position of the query and number of each known answer, none with ``keep_known``; see
        ``LinkKind``.
        """
        keys = self._table.answers(queries[:0] if keep_known else queries).keys
        return keys // self._n_nodes, keys % self._n_nodes

    def ids_of(self, info: GraphInfo, queries: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Head, relation and tail of triples, [n, 3]; see ``named`` and ``LinkKind``."""
        queries = without_reciprocal(queries, self._n_nodes, len(self.relations))
        return self._ids(super().ids_of(info, queries, nodes), relation_of(queries, self._n_nodes))
