"""The task ``link``: predicts whether two nodes are linked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.layer import Layer
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.sampler import TimedPairs
from graphtheta.engine.strategy.positives import Positives
from graphtheta.engine.strategy.task import SUPERVISED, LinkTask, Task
from graphtheta.engine.view.hop import Layers
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.typed import RELATION, TYPE, first_of_types, relation_code
from graphtheta.graph.splits.links import TEST, VAL, link_parts, message_graph
from graphtheta.models.decoder import HadamardDecoder
from graphtheta.ops.functions.losses.link_loss import LINK_LOSSES, adversarial_loss
from graphtheta.ops.functions.losses.row_loss import RowLoss
from graphtheta.tasks.evaluation.evaluate import Evaluator, LinkEvaluator
from graphtheta.tasks.evaluation.past import Past
from graphtheta.tasks.kinds.imbalance import check_total, check_weights
from graphtheta.tasks.kinds.kind import GraphInfo, TaskKind
from graphtheta.tasks.kinds.link_slices import Slice, distinct_links, known_keys
from graphtheta.tasks.kinds.pair_counts import PairCounts
from graphtheta.tasks.kinds.timed import timed_pairs
from graphtheta.tasks.retrieval.evaluator import RetrievalEvaluator
from graphtheta.tasks.triples.answers import TAIL, anchor_of, side_of
from graphtheta.tasks.triples.ranking import BLOCK

SCORED_KEYS = (
    "negatives",
    "eval_negatives",
    "negative_groups",
    "negatives_from",
    "link_loss",
    "adversarial_temperature",
    "decoder",
    "sample_weights",
)


class LinkKind(TaskKind):
    """Link prediction: some links are held out, and ranked among negative samples of the same type.

    With a relation, only its edges are links. No negative is an edge of any relation, and along a
    held-out link no message passes in any.
    """

    name = "link"
    summary = "links"
    keys: ClassVar[tuple[str, ...]] = (*SCORED_KEYS, "link_relation", "rank_all")
    # the first is chosen by decoder=auto
    decoders: ClassVar[tuple[str, ...]] = ("dot", "hadamard")
    label_kinds = ("ranks", "labels", "retrieved")
    of_pairs = True
    # a score is a product of values, and has no gradient where decay has drawn them to 0
    weight_decay = 0.0
    labels = "labels"
    width = 0
    # messages run along the first, the second are held out
    _counts: tuple[int, int]
    _graph: Graph
    _part_of: Callable[[int, int], np.ndarray]
    _link_keys: np.ndarray
    _relation: int | None
    _types: tuple[int, ...]
    _type_names: tuple[str, ...]
    _leads: np.ndarray
    _n_nodes: int
    _test: np.ndarray
    _sampler: TimedPairs | None

    @classmethod
    def fits(cls, graph: Graph) -> bool:
        """A graph without labels."""
        return graph.y is None and graph.edge_y is None

    def take(self, graph: Graph) -> Graph:
        name = self.job.link_relation
        self._relation = (
            relation_code(graph.relation_names, name, "link_relation") if name else None
        )
        check_weights(self.job, self.labels, self.width, graph.edge_columns)
        self._graph = graph
        self._type_names = graph.node_types
        self._part_of = link_parts(graph, seed=self.job.seed, relation=self._relation)
        self._types = ()
        if graph.n_types > 1:
            codes = np.asarray(graph.node_columns[TYPE])
            self._types = first_of_types(codes, graph.name)
            # types are numbered in the order of the nodes, which need not be that of their codes
            order = codes[[0, *self._types]].tolist()
            self._type_names = tuple(graph.node_types[code] for code in order if graph.node_types)
        messages = message_graph(graph, self._part_of)
        self._counts = messages.n_edges, graph.n_edges - messages.n_edges
        self._n_nodes = graph.n_nodes
        return messages

    def scored(self) -> PairCounts:
        links, evaluated = self._counts
        batch = supervised(links) if self.job.strategy == "global" else self.in_batch(links)
        ranked = min(BLOCK, evaluated * self._n_nodes) if self.ranks_nodes else 0
        return PairCounts(
            batch * (1 + self.job.negatives), evaluated * (1 + self.job.eval_negatives), ranked
        )

    @property
    def ranks_nodes(self) -> bool:
        """Whether evaluation ranks all nodes."""
        return bool(self.job.rank_all)

    @property
    def measured(self) -> tuple[str, ...]:
        return self.label_kinds if self.job.rank_all else ("ranks", "labels")

    @property
    def chosen_decoder(self) -> str:
        """Name of the decoder.

        Raises:
            ConfigError: The job asks for one of another task.
        """
        name = str(self.job.decoder)
        if name not in ("auto", *self.decoders):
            raise ConfigError(
                f"decoder={name} does not score targets of task={self.name}; choose from"
                f" {', '.join(self.decoders)}"
            )
        return self.decoders[0] if name == "auto" else name

    @property
    def decoder(self) -> str | Callable[[int], Layer]:
        if self.chosen_decoder == "hadamard" and self.job.link_loss == "softmax":
            return lambda width: HadamardDecoder(width, hidden=(width,), last_bias=False)
        return self.chosen_decoder

    def objective(self, graph: Graph, partition: Partition) -> Task:
        self._link_keys = known_keys(self._graph, partition)

        def chosen(begin: int, end: int) -> np.ndarray:
            mask = graph.src[begin:end] != graph.dst[begin:end]
            return (
                mask
                if self._relation is None
                else mask & (graph.edge_columns[RELATION][begin:end] == self._relation)
            )

        self._sampler = timed_pairs(self.job, partition)
        positive = distinct_links(
            graph=graph,
            chosen=chosen,
            comm=partition.halo_comm,
            sampler=self._sampler,
            weight=self.job.sample_weights,
        )
        links = positive.links(
            partition=partition,
            link_keys=self._link_keys,
            negatives=self.job.negatives,
            draws=self.job.seed,
            groups=self.job.negative_groups,
            types=self._types,
        )
        self._leads = np.zeros((len(self._types) + 1,) * 2, bool)
        self._add_types(links)
        return link_task(self.job, partition, links)

    def evaluator(self, partition: Partition, layers: Layers, task: Task) -> Evaluator:
        comm = partition.halo_comm
        positives = {
            split: (
                self._links_of(part, comm).links(
                    partition,
                    self._link_keys,
                    self.job.eval_negatives,
                    self.job.seed + i,
                    types=self._types,
                )
            )
            for i, (split, part) in enumerate({"val": VAL, "test": TEST}.items())
        }
        for links in positives.values():
            self._add_types(links)
        self._leads = comm.all_max(self._leads.astype(np.int8)) > 0
        own = np.stack((positives["test"].numbers, positives["test"].src, positives["test"].dst))
        # rank 0 receives all predictions, of links in this order
        whole = comm.gather_rows(own.T)
        self._test = own if whole is None else np.concatenate(whole).T
        self._test = self._test[:, np.argsort(self._test[0])]
        del self._graph, self._part_of
        past = None if self._sampler is None else Past(partition, layers, self._sampler)
        if self.job.rank_all:
            return RetrievalEvaluator(
                partition=partition,
                layers=layers,
                task=task,
                links=positives,
                link_keys=self._link_keys,
                types=self._types,
                past=past,
            )
        return LinkEvaluator(
            partition=partition, layers=layers, task=task, links=positives, past=past
        )

    def _links_of(self, part: int, comm: Comm) -> Slice:
        chosen = lambda begin, end: self._part_of(begin, end) == part
        return distinct_links(
            graph=self._graph,
            chosen=chosen,
            comm=comm,
            sampler=self._sampler,
            weight=self.job.sample_weights,
        )

    def named(
        self, info: GraphInfo, rows: np.ndarray, out: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Original ids of both ends of test links, and their scores."""
        numbers, *ends = self._test
        return info.ids(np.stack(ends, axis=1)[np.searchsorted(numbers, rows)]), out

    def _add_types(self, links: Positives) -> None:
        """Note from which types to which some links of this worker lead."""
        self._leads[self.types_of(links.src), self.types_of(links.dst)] = True

    def types_of(self, nodes: np.ndarray) -> np.ndarray:
        """Codes of the types of nodes, [n] int64; 0 for all in a graph of one type."""
        return np.searchsorted(self._types, nodes, side="right")

    def leads(self, side: int) -> np.ndarray:
        """Whether nodes of a type, the row, have links with those of another one, the column, [T,
        T] bool.

        Args:
            side: ``TAIL`` if rows are sources, ``HEAD`` if they are the other ends; see
                ``triples/answers.py``.
        """
        return self._leads if side == TAIL else self._leads.T

    def queries(
        self, nodes: np.ndarray, relation: Any, side: int, where: Callable[[str, int], str]
    ) -> np.ndarray:
        """Numbers of the queries for one side of some nodes, [n] int64, see ``triples/answers.py``;
        links have relation 0.

        Args:
            nodes: Numbers of the nodes, [n] int64.
            relation: Name or code of their relation, or one for each.
            side: ``TAIL`` or ``HEAD``.
            where: Names a field and the number of its item in messages.

        Raises:
            ConfigError: There is no such relation.
        """
        if relation is not None:
            raise ConfigError(
                f"{where('relation', 0)}: links of task={self.name} are asked for without a"
                " relation; drop it"
            )
        return side * np.int64(self._n_nodes) + nodes

    def held_queries(self, links: Any, side: int) -> np.ndarray:
        """Numbers of the queries of held-out links of this worker, [n] int64."""
        return side * np.int64(self._n_nodes) + (links.src if side == TAIL else links.dst)

    def left_out(self, queries: np.ndarray, keep_known: bool) -> tuple[np.ndarray, np.ndarray]:
        """Position of the query and number of each node that is no answer: the node itself, and
        unless ``keep_known`` what is linked to it.

        Args:
            queries: Of nodes of this worker and one side, ascending, [q] int64.
            keep_known: Whether known links may be answers.

        Collective: all ranks of the partition.
        """
        n = np.int64(self._n_nodes)
        nodes = queries % n
        keys = nodes * n + nodes
        if not keep_known:
            keys = np.union1d(keys, self._link_keys[np.isin(self._link_keys // n, nodes)])
        return np.searchsorted(nodes, keys // n), keys % n

    def full_ids(self, info: GraphInfo, ids: Any, side: int) -> Any:
        """Original ids of ends of links, with the name of their type if it is missing and only
        nodes of one type are such ends.

        Args:
            info: Original ids of the whole graph.
            ids: Those of the ends, [n].
            side: ``TAIL`` for sources, ``HEAD`` for the other ends.
        """
        types = np.flatnonzero(self.leads(side).any(axis=1))
        texts = np.asarray(ids)
        if (
            len(types) != 1
            or len(self._type_names) < 2
            or texts.dtype.kind not in "iuU"
            or info.ids(np.zeros(0, np.int64)).dtype.kind != "U"
        ):
            return ids
        name = self._type_names[types[0]]
        return np.array(
            [
                text if text.partition(":")[0] in self._type_names else f"{name}:{text}"
                for text in map(str, texts.tolist())
            ],
            np.str_,
        )

    def pairs_of(
        self, src: np.ndarray, dst: np.ndarray, queries: np.ndarray
    ) -> tuple[tuple[np.ndarray, np.ndarray], dict[str, np.ndarray]]:
        """The ends of the pairs that a decoder scores for links, and its columns; each link once,
        or all of them as often as a triple is asked about.

        Args:
            src, dst: Numbers of the ends of links, [n] int64 each.
            queries: What ``queries`` returns for their sources, [n] int64.
        """
        return (src, dst), {}

    def ids_of(self, info: GraphInfo, queries: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Original ids of the ends of links, [n, 2]: the answers ``nodes`` to queries."""
        side = side_of(queries, self._n_nodes)
        ends = (anchor_of(queries, self._n_nodes), nodes)
        return info.ids(
            np.stack([np.where(side == TAIL, a, b) for a, b in (ends, ends[::-1])], axis=1)
        )


def supervised(links: int) -> int:
    """The most links that a global batch supervises; so many are hardly ever drawn."""
    return min(links, int(SUPERVISED * links + 5 * (SUPERVISED * links) ** 0.5) + 1)


def link_task(job: Any, partition: Partition, links: Positives) -> LinkTask:
    """The task of a job that tells links from negatives.

    Raises:
        DataError: All links weigh 0; on all ranks together.

    Collective: all ranks of the partition.
    """
    if links.weight is not None and links.n_links:
        check_total(float(partition.halo_comm.all_sum(np.array(links.weight.sum()))))
    task = LinkTask(partition, links, seed=job.seed, in_batch=job.negatives_from == "batch")
    loss = LINK_LOSSES[job.link_loss]
    if loss is adversarial_loss:
        loss = partial(loss, temperature=job.adversarial_temperature)
    task.own_loss = None if loss is None else RowLoss(loss)
    return task
