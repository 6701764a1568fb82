"""A model on a graph: its metrics, predictions and embeddings. The base class of ``gt.Inference``,
``gt.Trainer`` and ``gt.Run``.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.console import figure
from graphtheta.base.html import html_table
from graphtheta.base.wording import HintsAtNames, did_you_mean
from graphtheta.engine.layer.stages import Stages
from graphtheta.engine.train.step import QUIET
from graphtheta.errors import ConfigError, DataError
from graphtheta.inference.forward.assembly import Measured
from graphtheta.inference.forward.block_graph import LayerOutput, shapes
from graphtheta.inference.forward.embedding import embedded, of_nodes, superstep_of
from graphtheta.inference.forward.given import Given, given_scores
from graphtheta.inference.forward.reads import columns_read
from graphtheta.inference.forward.some import predicted
from graphtheta.inference.forward.top import Asked, Top, top
from graphtheta.inference.outputs.formats import OutputRows
from graphtheta.inference.outputs.parts import PartFolder
from graphtheta.inference.outputs.predictions import (
    TARGETS,
    PredictionChoice,
    choice_of,
    embedding_rows,
    is_all,
    predictions,
)
from graphtheta.tasks.evaluation.evaluate import SPLITS
from graphtheta.tasks.kinds.class_report import ClassReport


class ModelOnGraph(HintsAtNames):
    """A model on a graph, partitioned over the workers.

    Args:
        setup: What is set up.
        unlabelled: Why nothing can be measured; empty if there are labels.

    Attributes:
        setup: As the argument.
        job, comm, model, partition, probe: Those of the setup.
        epoch: Epochs that the weights were trained for, by which a sampled evaluation draws.
    """

    setup: Measured
    epoch = 0

    def __init__(self, setup: Measured, unlabelled: str = ""):
        self.setup = setup
        self._unlabelled = unlabelled
        self.job = setup.job
        self.comm = setup.comm
        self.model = setup.model
        self.partition = setup.partition
        self.probe = setup.probe

    def __repr__(self) -> str:
        facts = ", ".join(f"{value} {name}" for name, value in self._facts())
        return f"{type(self).__name__}({self.model!r} on {facts})"

    def _repr_html_(self) -> str:
        rows = [("model", repr(self.model)), *self._facts()]
        return html_table(type(self).__name__, (), rows)

    def _facts(self) -> list[tuple[str, str]]:
        """What is said of it beside the model: names of numbers, and the numbers."""
        return [
            ("nodes", figure(self.partition.n_nodes)),
            ("edges", figure(self.partition.n_edges)),
            ("workers", figure(self.comm.size)),
        ]

    @cached_property
    def columns_read(self) -> list[str]:
        """Names of the stored columns that the model reads, see
        ``graphtheta.inference.forward.reads``.
        """
        return columns_read(self.model, self.partition, self.probe.layers)

    @cached_property
    def layer_outputs(self) -> list[LayerOutput]:
        """What each layer makes."""
        return shapes(self.model, self.partition, self.probe.layers)

    @np.errstate(**QUIET)
    def measure(self) -> dict[str, float]:
        """Metrics of all splits; of sampled neighbourhoods if the job has ``eval_fanout``.

        Raises:
            DataError: The graph has no labels; on all ranks together.

        Collective: all ranks.
        """
        self._check_labels()
        evaluator = self.setup.evaluator
        with self.comm.ledger.stage("evaluate"), self.setup.scope(), evaluator.at(self.epoch):
            return evaluator.metrics(self.model)

    @checked
    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Metrics of one split: "train", "val" or "test"; none if the graph has no such split.

        Raises:
            ConfigError: There is no split of that name.

        Collective: all ranks.
        """
        if split not in SPLITS:
            raise ConfigError(
                f"unknown split {split!r}{did_you_mean(split, SPLITS)}; choose from"
                f" {', '.join(SPLITS)}"
            )
        return {n: v for n, v in self.measure().items() if n.startswith(f"{split}_")}

    @np.errstate(**QUIET)
    def class_report(self) -> ClassReport:
        """Precision, recall, F1 and support of each class or label, by split; without splits if the
        task has no classes.

        Collective: all ranks.
        """
        self._check_labels()
        evaluator = self.setup.evaluator
        with self.comm.ledger.stage("evaluate"), self.setup.scope(), evaluator.at(self.epoch):
            decisions = evaluator.decisions(self.model)
            return ClassReport.of(decisions, self.setup.kind.class_names, self.positive)

    @property
    def positive(self) -> str:
        """Name of the positive class, that f1, auc and average_precision are about, or its number.

        It is empty if there are not two classes.
        """
        kind = self.setup.kind
        number = self.setup.evaluator.positive
        if "binary" not in kind.measured:
            return ""
        return kind.class_names[number] if kind.class_names else str(number)

    @checked
    def predict(self, nodes: Any = None) -> tuple[np.ndarray, np.ndarray] | None:
        """Original ids and predictions on rank 0, None elsewhere: of the nodes of the types that
        have labels, whole graphs, edges by their numbers, or test links by the ids of their ends.

        Predictions are probabilities or values, or with ``scores="logits"`` of the job what the
        model returns.

        Args:
            nodes: Original ids, in the order of the result, or a mask of all nodes, [n_nodes] bool;
                only their neighbourhoods are computed. "all" for all nodes of the graph, in the
                order of their numbers. None for those that have targets. Of whole graphs, ids and
                masks are those of the graphs.

        Raises:
            ConfigError: There is no such node, or the outputs are not those of nodes; on all ranks
                together.

        Collective: all ranks.
        """
        every = is_all(nodes)
        if nodes is not None and not every:
            with self.comm.ledger.stage("evaluate"), self.setup.scope():
                some = predicted(self.model, self.setup.evaluator, self.setup.info, nodes)
            return None if some is None else (some[0], self.setup.kind.presented(some[1]))
        rows = self._predictions(True, PredictionChoice(every, own=False))
        return None if rows is None else (rows.ids, rows.values)

    @checked
    def predictions(
        self, whole: bool = True, *, nodes: str = TARGETS, columns: Any = None
    ) -> OutputRows | None:
        """What ``predict`` returns, with the class of each row by name, and ids of nodes of one
        type without its name.

        Args:
            whole: The rows of all workers on rank 0, and None elsewhere; otherwise those of each
                worker.
            nodes: "targets" for nodes of the types that have labels, and whole graphs; "all" for
                all nodes.
            columns: What is written of each row, names or a text with commas between them: "class",
                "confidence", "scores", "label", "split". None for the scores, and the classes if
                rows have one.

        Raises:
            ConfigError: The task has no such column, or no nodes to choose; on all ranks together.

        Collective: all ranks.
        """
        return self._predictions(whole, choice_of(nodes, columns))

    def _predictions(self, whole: bool, choice: PredictionChoice) -> OutputRows | None:
        setup = self.setup
        with setup.scope():
            return predictions(
                model=self.model,
                evaluator=setup.evaluator,
                kind=setup.kind,
                info=setup.info,
                whole=whole,
                choice=choice,
            )

    @checked
    def write_predictions(
        self,
        folder: str | Path,
        format: str = "parquet",
        *,
        nodes: str = TARGETS,
        columns: Any = None,
    ) -> int:
        """Write what ``predictions`` returns to a folder; each worker writes a part with its own
        rows.

        Args:
            folder: New, empty, or an earlier output, which is replaced when all parts are complete;
                on a file system that all workers share.
            format: "parquet" (needs pyarrow), "csv" or "npy".
            nodes, columns: As of ``predictions``.

        Returns:
            Number of predictions of all workers.

        Raises:
            ConfigError: Unknown format, or its library is not installed, or as of ``predictions``;
                on all ranks together.
            FormatError: The folder holds other files, or cannot be written; on all ranks together.

        Collective: all ranks.
        """
        parts = PartFolder(folder, format, self.comm)
        rows = self.predictions(whole=False, nodes=nodes, columns=columns)
        assert rows is not None
        return parts.write(rows)

    @np.errstate(**QUIET)
    @checked
    def top(
        self,
        nodes: Any = None,
        k: int = 10,
        *,
        relation: Any = None,
        side: str = "tail",
        candidates: Any = None,
        keep_known: bool = False,
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """The nodes that score highest as the other ends of links, or of triples: the best items of
        users, answers to (head, relation, ?).

        Known links and triples of all splits are left out, and for links the node itself. Equal
        scores are in the order of the graph.

        Args:
            nodes: Original ids, or a mask of all nodes, the same on all workers. None for the
                sources of all held-out links, or the queries of all held-out triples, in the order
                of the graph.
            k: Number of answers to each.
            relation: Of triples: name or code of the relation, or one for each node.
            side: "tail" if the nodes are sources, or heads of triples; "head" if they are the other
                ends.
            candidates: Original ids of the nodes to choose from; None for all of the types to which
                links of the node's type lead.
            keep_known: Whether known links and triples may be answers.

        Returns:
            (ids [n, k], scores [n, k]), the highest first, on rank 0, None elsewhere. Where there
            are fewer than k candidates, ids are -1, or empty texts, and scores NaN.

        Raises:
            ConfigError: The task is not ``link`` or ``triple``, or there is no such node or
                relation; on all ranks together.
            DataError: A score is NaN; on all ranks together.

        Collective: all ranks.
        """
        best = self.answers(
            Asked(
                nodes=nodes,
                k=k,
                relation=relation,
                side=side,
                candidates=candidates,
                keep_known=keep_known,
            )
        )
        return None if best is None else (best.ids(self.setup.info), best.scores)

    @checked
    def predict_links(self, src: Any, dst: Any, relation: Any = None) -> np.ndarray | None:
        """Predictions for links or triples, whether the graph has them or not.

        Args:
            src, dst: Original ids of the ends, [n] each, the same on all workers. If only nodes of
                one type are such ends, its name before the id may be missing.
            relation: Of triples: name or code of the relation, or one for each.

        Returns:
            Probabilities, or with ``scores="logits"`` of the job scores, [n], on rank 0, None
            elsewhere.

        Raises:
            ConfigError: The task is not ``link`` or ``triple``, or there is no such node, relation
                or pair of types; on all ranks together.

        Collective: all ranks.
        """
        scores = self.link_scores(Given(src, dst, relation))
        return None if scores is None else scores[1]

    def link_scores(self, given: Given, whole: bool = True) -> tuple[np.ndarray, np.ndarray] | None:
        """What ``predict_links`` returns, after the positions of the links; without ``whole`` those
        of this worker.

        Collective: all ranks.
        """
        with self.comm.ledger.stage("evaluate"), self.setup.scope():
            return given_scores(self.setup, given, whole)

    def answers(self, asked: Asked, whole: bool = True) -> Top | None:
        """What ``top`` returns, by numbers of nodes; without ``whole`` that of this worker.

        Collective: all ranks.
        """
        with self.comm.ledger.stage("evaluate"), self.setup.scope():
            return top(self.setup, asked, whole)

    def embed(
        self, nodes: Any = None, layer: int | str | Stages = -1
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """What a layer inside the model returns for nodes of the graph, without dropout.

        Args:
            nodes: Original ids, or a mask of all nodes, [n_nodes] bool; None for all nodes.
            layer: Its number among the layers that sum messages, in the order of calls, from the
                end if negative; its path ("layers.0"); or the layer itself. By default the last
                one, whose values a head or a decoder reads.

        Returns:
            (ids, values [len(ids), ...]) on rank 0, None elsewhere.

        Raises:
            ConfigError: There is no such layer, or no node of an id; on all ranks together.

        Collective: all ranks.
        """
        rows = self.embeddings(layer=layer)
        with self.comm.agreed():
            return None if rows is None else of_nodes(rows.ids, rows.values, nodes)

    @checked
    def write_embeddings(
        self, folder: str | Path, format: str = "parquet", layer: int | str | Stages = -1
    ) -> int:
        """Write what ``embed`` returns for all nodes to a folder; each worker writes a part with
        its own nodes.

        Args:
            folder, format: As in ``write_predictions``.
            layer: As in ``embed``.

        Returns:
            Number of nodes of all workers.

        Raises:
            ConfigError: There is no such layer, or as in ``write_predictions``; on all ranks
                together.
            FormatError: As in ``write_predictions``; on all ranks together.

        Collective: all ranks.
        """
        parts = PartFolder(folder, format, self.comm)
        rows = self.embeddings(whole=False, layer=layer)
        assert rows is not None
        return parts.write(rows)

    def embeddings(self, whole: bool = True, layer: int | str | Stages = -1) -> OutputRows | None:
        """What ``embed`` returns for all nodes; those of this worker unless ``whole``.

        Collective: all ranks.
        """
        return embedding_rows(
            rows=self.partition.masters,
            out=self._embedded(layer),
            comm=self.comm,
            info=self.setup.info,
            whole=whole,
        )

    def _embedded(self, layer: int | str | Stages) -> np.ndarray:
        """What a layer returns for the masters of this worker."""
        number = superstep_of(self.model, self.probe, layer)
        with self.setup.scope():
            if self.setup.limit is not None:
                return self.setup.limit.layer(self.model, number)
            return embedded(self.model, self.partition, self.probe, number)

    def _check_labels(self) -> None:
        if self._unlabelled:
            raise DataError(
                f"{self._unlabelled}, so there is nothing to measure; give them, or use predict or"
                " embed, which need none"
            )
