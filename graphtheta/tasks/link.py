"""The task ``link``: predicts whether two nodes are linked."""
from __future__ import annotations

import numpy as np

from graphtheta.data.graph import Graph
from graphtheta.data.split import distinct_pairs, link_split
from graphtheta.data.transform import pair_key
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.train.evaluate import Evaluator, LinkEvaluator
from graphtheta.engine.view.hop import Layers
from graphtheta.engine.view.links import Links
from graphtheta.engine.view.task import LinkTask, Task
from graphtheta.tasks.kind import GraphInfo, TaskKind


class LinkKind(TaskKind):
    """Link prediction: some links are held out, and ranked among negative samples."""

    name = "link"
    summary = "links"
    keys = ("negatives", "eval_negatives", "decoder")
    label_kinds = ("ranks", "labels")
    of_pairs = True
    labels, width = "labels", 0
    _known: np.ndarray
    _held: dict[str, np.ndarray]

    @classmethod
    def fits(cls, graph: Graph) -> bool:
        """A graph without labels."""
        return graph.y is None and graph.edge_y is None

    def take(self, graph: Graph) -> Graph:
        src, dst = np.concatenate((graph.src, graph.dst)), np.concatenate((graph.dst, graph.src))
        self._known = np.unique(src * np.int64(graph.n_nodes) + dst)
        split = link_split(graph, seed=self.job.seed)
        self._held = {"val": split.val, "test": split.test}
        return split.graph

    @property
    def measured(self) -> tuple[str, ...]:
        return self.label_kinds

    @property
    def decoder(self) -> str:
        return str(self.job.decoder)

    def objective(self, graph: Graph, partition: Partition) -> Task:
        pair = pair_key(np.minimum(graph.src, graph.dst), np.maximum(graph.src, graph.dst), graph.n_nodes)
        positive = distinct_pairs(graph, pair, graph.src != graph.dst)
        return LinkTask(partition, self._links(partition, positive, self.job.negatives, self.job.seed), seed=self.job.seed)

    def evaluator(self, partition: Partition, layers: Layers, task: Task) -> Evaluator:
        held = {split: self._links(partition, ends, self.job.eval_negatives, self.job.seed + i)
                for i, (split, ends) in enumerate(self._held.items())}
        # from here on each worker has the keys of its own nodes only
        del self._known
        return LinkEvaluator(partition, layers, task, held)

    def _links(self, partition: Partition, ends: np.ndarray, negatives: int, key: int) -> Links:
        return Links.of(partition, ends[0], ends[1], self._known, negatives, key)

    def named(self, info: GraphInfo, rows: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Original ids of both ends of test links, and their scores."""
        return info.ids(self._held["test"].T[rows]), out
