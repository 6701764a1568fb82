"""The task ``link``: predicts whether two nodes are linked."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from graphtheta.data.graph import Graph
from graphtheta.data.typed import RELATION, TYPE, first_of_types, relation_code
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.layer import Layer
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.sampler import TimedPairs
from graphtheta.engine.strategy.positives import Positives
from graphtheta.engine.strategy.task import LinkTask, Task
from graphtheta.engine.view.hop import Layers
from graphtheta.errors import ConfigError
from graphtheta.evaluation.evaluate import Evaluator, LinkEvaluator
from graphtheta.evaluation.past import Past
from graphtheta.ops.losses.link_loss import LINK_LOSSES
from graphtheta.ops.losses.row_loss import RowLoss
from graphtheta.retrieval.evaluator import RetrievalEvaluator
from graphtheta.splits.links import TEST, VAL, link_parts, message_graph
from graphtheta.tasks.kind import GraphInfo, TaskKind
from graphtheta.tasks.link_slices import Slice, distinct_links, known_keys
from graphtheta.tasks.timed import timed_pairs

SCORED_KEYS = ("negatives", "eval_negatives", "negative_groups", "negatives_from", "link_loss", "decoder")


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
    labels, width = "labels", 0
    _graph: Graph
    _part_of: Callable[[int, int], np.ndarray]
    _known: np.ndarray
    _relation: int | None
    _types: tuple[int, ...]
    _test: np.ndarray
    _sampler: TimedPairs | None

    @classmethod
    def fits(cls, graph: Graph) -> bool:
        """A graph without labels."""
        return graph.y is None and graph.edge_y is None

    def take(self, graph: Graph) -> Graph:
        name = self.job.link_relation
        self._relation = relation_code(graph.relation_names, name, "link_relation") if name else None
        self._graph, self._part_of = graph, link_parts(graph, seed=self.job.seed, relation=self._relation)
        self._types = first_of_types(graph.node_columns[TYPE], graph.n_types, graph.name) if graph.n_types > 1 else ()
        return message_graph(graph, self._part_of)

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
            raise ConfigError(f"decoder={name} does not score targets of task={self.name}; choose from {', '.join(self.decoders)}")
        return self.decoders[0] if name == "auto" else name

    @property
    def decoder(self) -> str | Callable[[int], Layer]:
        return self.chosen_decoder

    def objective(self, graph: Graph, partition: Partition) -> Task:
        self._known = known_keys(self._graph, partition)
        def chosen(begin: int, end: int) -> np.ndarray:
            found = graph.src[begin:end] != graph.dst[begin:end]
            return found if self._relation is None else found & (graph.edge_columns[RELATION][begin:end] == self._relation)

        self._sampler = timed_pairs(self.job, partition)
        positive = distinct_links(graph, chosen, partition.halo_comm, self._sampler)
        links = positive.links(partition, self._known, self.job.negatives, self.job.seed, self.job.negative_groups, self._types)
        return link_task(self.job, partition, links)

    def evaluator(self, partition: Partition, layers: Layers, task: Task) -> Evaluator:
        comm = partition.halo_comm
        held = {split: self._held(part, comm).links(partition, self._known, self.job.eval_negatives, self.job.seed + i, types=self._types)
                for i, (split, part) in enumerate({"val": VAL, "test": TEST}.items())}
        own = np.stack((held["test"].numbers, held["test"].src, held["test"].dst))
        # rank 0 receives all predictions, of links in this order
        whole = comm.gather_rows(own.T)
        self._test = own if whole is None else np.concatenate(whole).T
        self._test = self._test[:, np.argsort(self._test[0])]
        known = self._known if self.job.rank_all else None
        del self._graph, self._part_of, self._known
        past = None if self._sampler is None else Past(partition, layers, self._sampler)
        if known is not None:
            return RetrievalEvaluator(partition, layers, task, held, known, self._types, past)
        return LinkEvaluator(partition, layers, task, held, past)

    def _held(self, part: int, comm: Comm) -> Slice:
        return distinct_links(self._graph, lambda begin, end: self._part_of(begin, end) == part, comm, self._sampler)

    def named(self, info: GraphInfo, rows: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Original ids of both ends of test links, and their scores."""
        numbers, *ends = self._test
        return info.ids(np.stack(ends, axis=1)[np.searchsorted(numbers, rows)]), out


def link_task(job: Any, partition: Partition, links: Positives) -> LinkTask:
    """The task of a job that tells links from negatives.

    Collective: all ranks of the partition.
    """
    task = LinkTask(partition, links, seed=job.seed, in_batch=job.negatives_from == "batch")
    loss = LINK_LOSSES[job.link_loss]
    task.own_loss = None if loss is None else RowLoss(loss)
    return task
