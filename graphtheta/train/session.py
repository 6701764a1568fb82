"""The base class of ``Trainer`` and ``Run``: a model on a graph, partitioned over the workers."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.data.graph import Graph
from graphtheta.embeddings.saved import gathered_values, load_values
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.layer.module import Module
from graphtheta.engine.layer.stages import Stages
from graphtheta.engine.layer.superstep import fallback_text
from graphtheta.engine.runtime.start import start
from graphtheta.engine.train.step import QUIET
from graphtheta.engine.train.update import Schedule
from graphtheta.errors import ConfigError, DataError, FormatError, GraphThetaError
from graphtheta.evaluation.evaluate import SPLITS
from graphtheta.inference.embedding import embedded, of_nodes, superstep_of
from graphtheta.inference.some import predicted
from graphtheta.job.job import Job
from graphtheta.memory.bound import resident_bytes
from graphtheta.ops.backend.fused import backend_scope, fallbacks
from graphtheta.outputs.formats import Rows
from graphtheta.outputs.parts import PartFolder
from graphtheta.outputs.predictions import predictions
from graphtheta.pipeline.profile import Pipeline
from graphtheta.recovery.weights import read_weights, write_weights
from graphtheta.tasks.class_report import ClassReport
from graphtheta.train.build import Choices, build
from graphtheta.train.groups import Choice, Groups
from graphtheta.train.make_model import source_of
from graphtheta.wording import did_you_mean


class Session:
    """A model on a graph, built as a job says.

    Training changes the parameters and running statistics of the model in place. Nothing else of
    it is changed, so that several sessions, with different keys, can use one model.

    Args:
        model: Name of a published model, "file.py:Class", a model, or a function (d_in, d_out, d_edge) that makes one;
            by default the job's.
        graph: A graph, or by default the job's dataset.
        job: The job; by default one made from ``keys``.
        comm: The workers; by default those the process was started with.
        loss: Replaces the loss that fits the labels: a function (out, y) of outputs and labels
            that returns a value for each row, or (values, weights); see ``RowLoss``. The loss is
            its mean over all workers. Outputs and labels of a link task have a row for each link,
            [n, 1 + negatives], with the link itself first.
        lr_schedule: Name of a schedule, or a function that maps the number of an update, from 0,
            to the factor of the learning rate in it.
        groups: Settings of some parameters, {"lr": ..., "weight_decay": ...}, by pattern of their
            names or by module of the model; a parameter belongs to the first group that matches
            it.
        freeze: Patterns of names, or modules, of parameters that are not trained. Parameters whose
            ``requires_grad`` is False are not trained either.
        **keys: Keys of the job ("strategy", "lr", ...).

    Attributes:
        setup: The parts of the run that do not change during training.
        caches: Caches of features.
        macrobatches: Make the views of several steps together; None to make them one by one.
        training: The state of the run, apart from the model.
        pipeline: Chooses the number of views in flight; None if the job gives it.

    Raises:
        GraphThetaError: Something does not fit; on all workers together.

    Collective: all ranks of comm.
    """

    # keys of a job that have no meaning here
    unread: tuple[str, ...] = ("seeds",)

    def __init__(self, model: str | Model | Callable[..., Model] | None = None, graph: Graph | None = None, *, job: Job | None = None,
                 comm: Comm | None = None, loss: Callable[..., Any] | None = None, lr_schedule: str | Schedule | None = None,
                 groups: Groups | None = None, freeze: Iterable[Choice] = (), **keys: Any):
        if model is not None:
            keys["model"] = model if isinstance(model, str) else source_of(model)
        if isinstance(lr_schedule, str):
            keys["lr_schedule"] = lr_schedule
        comm = comm if comm is not None else start()
        job = job.change(**keys) if job is not None else Job(**keys)
        self._refuse_unread(job)
        if graph is not None and not isinstance(graph, Graph):
            raise ConfigError(f"gt.{type(self).__name__}(MODEL, GRAPH): the graph is of type {type(graph).__name__}; expected a gt.Graph, "
                              "such as gt.load('sbm'), gt.Graph(edge_index, x=...) or gt.Graph.from_networkx(...)")
        if loss is not None and not callable(loss):
            raise ConfigError(f"loss={loss!r} is not a function; give a function of (out, y) that returns a value for each row")
        schedule = lr_schedule if callable(lr_schedule) else None
        freeze = (freeze,) if isinstance(freeze, (str, Module)) else tuple(freeze)
        self.setup = build(job, graph, None if isinstance(model, str) else model, comm, Choices(loss, schedule, groups, freeze))
        self.job, self.comm, self.model = job, comm, self.setup.model
        self.partition, self.probe, self.strategy = self.setup.partition, self.setup.probe, self.setup.strategy
        self.caches = self.setup.caches()
        self.macrobatches = self.setup.macrobatches(self.caches)
        self.training = self.setup.training(self.caches, self.macrobatches)
        chosen = job.pipeline == "auto"
        self.pipeline = Pipeline(self.training, 0 if self.macrobatches is None else self.macrobatches.size) if chosen else None

    def _refuse_unread(self, job: Job) -> None:
        for key in self.unread:
            if getattr(job, key) != Job.model_fields[key].default:
                raise ConfigError(f"{key}={job.as_text(key)} has no meaning for gt.{type(self).__name__}; {self._remedy(key)}")

    def _remedy(self, key: str) -> str:
        return "make one trainer for each seed=..., or use graphtheta train" if key == "seeds" else "drop it"

    @property
    def fallbacks(self) -> list[str]:
        """Layers on the reference back end although the fused one is chosen, with reasons."""
        with backend_scope(self.job.backend):
            return list(dict.fromkeys(fallback_text(step.layer, reason) for step in self.probe.supersteps if step.program is not None
                                      for reason in fallbacks(step.program)))

    def predicted_peak(self) -> int:
        """Upper bound of this process's peak memory in bytes; to be called before training."""
        # resident memory includes the partition already
        held = self.caches.nbytes + (0 if self.macrobatches is None else self.macrobatches.nbytes)
        return resident_bytes() + self.setup.bound.total - self.setup.bound.partition + held

    def summed(self, losses: np.ndarray, first: int, more: list[float]) -> tuple[np.ndarray, list[float]]:
        """Losses of views, and further numbers, summed over the ranks in one message.

        Args:
            losses: This rank's shares of the losses.
            first: Number of updates before the first view.
            more: The further numbers.

        Raises:
            DataError: A sum of losses is not finite; on all ranks together.

        Collective: all ranks.
        """
        n = len(losses)
        total = self.comm.all_sum(np.append(losses, more))
        wrong = np.flatnonzero(~np.isfinite(total[:n]))
        if len(wrong):
            step = first + int(wrong[0]) // self.setup.views_per_step + 1
            raise DataError(f"the loss of step {step} is {total[wrong[0]]}; lower --lr, or "
                            "check features, targets and edge values for very large numbers")
        return total[:n], total[n:].tolist()

    @np.errstate(**QUIET)
    def measure(self) -> dict[str, float]:
        """Metrics of all splits.

        Collective: all ranks.
        """
        with self.comm.ledger.stage("evaluate"), self.setup.scope():
            return self.setup.evaluator.metrics(self.model)

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Metrics of one split: "train", "val" or "test"; none if the graph has no such split.

        Raises:
            ConfigError: There is no split of that name.

        Collective: all ranks.
        """
        if split not in SPLITS:
            raise ConfigError(f"unknown split {split!r}{did_you_mean(split, SPLITS)}; choose from {', '.join(SPLITS)}")
        return {n: v for n, v in self.measure().items() if n.startswith(f"{split}_")}

    @np.errstate(**QUIET)
    def class_report(self) -> ClassReport:
        """Precision, recall, F1 and support of each class or label, by split; without splits if the task has no classes.

        Collective: all ranks.
        """
        with self.comm.ledger.stage("evaluate"), self.setup.scope():
            return ClassReport.of(self.setup.evaluator.decisions(self.model), self.setup.kind.class_names)

    def predict(self, nodes: Any = None) -> tuple[np.ndarray, np.ndarray] | None:
        """Original ids of all nodes (edges by their numbers, test links by the ids of their ends) and outputs on rank 0, None elsewhere.

        Args:
            nodes: Original ids, in the order of the result; only their neighbourhoods are computed. None for all.

        Raises:
            ConfigError: There is no such node, or the outputs are not those of nodes; on all ranks together.

        Collective: all ranks.
        """
        if nodes is not None:
            with self.comm.ledger.stage("evaluate"), self.setup.scope():
                return predicted(self.model, self.setup.evaluator, self.setup.info, nodes)
        found = self.predictions()
        return None if found is None else (found.ids, found.values)

    def predictions(self, whole: bool = True) -> Rows | None:
        """What ``predict`` returns, with the class of each row by name; those of this worker unless ``whole``.

        Collective: all ranks.
        """
        with self.setup.scope():
            return predictions(self.model, self.setup.evaluator, self.setup.kind, self.setup.info, whole)

    def write_predictions(self, folder: str | Path, format: str = "parquet") -> int:
        """Write what ``predictions`` returns to a folder; each worker writes a part with its own rows.

        Args:
            folder: New, empty, or an earlier output, which is replaced when all parts are complete; on a file system that all
                workers share.
            format: "parquet" (needs pyarrow), "csv" or "npy".

        Returns:
            Number of predictions of all workers.

        Raises:
            ConfigError: Unknown format, or its library is not installed; on all ranks together.
            FormatError: The folder holds other files, or cannot be written; on all ranks together.

        Collective: all ranks.
        """
        parts = PartFolder(folder, format, self.comm)
        found = self.predictions(whole=False)
        assert found is not None
        return parts.write(found)

    def embed(self, nodes: Any = None, layer: int | str | Stages = -1) -> tuple[np.ndarray, np.ndarray] | None:
        """What a layer inside the model returns for nodes of the graph, without dropout.

        Args:
            nodes: Original ids; None for all nodes.
            layer: Its number among the layers that sum messages, in the order of calls, from the end if negative; its path
                ("layers.0"); or the layer itself. By default the last one, whose values a head or a decoder reads.

        Returns:
            (ids, values [len(ids), ...]) on rank 0, None elsewhere.

        Raises:
            ConfigError: There is no such layer, or no node of an id; on all ranks together.

        Collective: all ranks.
        """
        out = self.setup.evaluator.gathered(self.partition.masters, self._embedded(layer))
        found, error = None, None
        try:
            found = None if out is None else of_nodes(self.setup.info.ids(np.arange(len(out))), out, nodes)
        except GraphThetaError as e:
            error = e
        self.comm.agree(error)
        return found

    def write_embeddings(self, folder: str | Path, format: str = "parquet", layer: int | str | Stages = -1) -> int:
        """Write what ``embed`` returns for all nodes to a folder; each worker writes a part with its own nodes.

        Args:
            folder, format: As in ``write_predictions``.
            layer: As in ``embed``.

        Returns:
            Number of nodes of all workers.

        Raises:
            ConfigError: There is no such layer, or as in ``write_predictions``; on all ranks together.
            FormatError: As in ``write_predictions``; on all ranks together.

        Collective: all ranks.
        """
        parts = PartFolder(folder, format, self.comm)
        out, masters = self._embedded(layer), self.partition.masters
        order = np.argsort(masters)
        return parts.write(Rows("embedding", self.setup.info.ids(masters[order]), out[order]))

    def _embedded(self, layer: int | str | Stages) -> np.ndarray:
        """What a layer returns for the masters of this worker."""
        number = superstep_of(self.model, self.probe, layer)
        with self.setup.scope():
            if self.setup.limit is not None:
                return self.setup.limit.layer(self.model, number)
            return embedded(self.model, self.partition, self.probe, number)

    def save(self, path: str | Path) -> None:
        """Write the weights and the job, on rank 0; the file appears whole or not at all.

        Raises:
            FormatError: It cannot be written; on all ranks together.

        Collective: all ranks.
        """
        error, rows = None, gathered_values(self.setup.tables, self.partition, Path(path).parent)
        try:
            if self.comm.rank == 0:
                write_weights(Path(path), self.job, self.model.state() | rows.arrays, rows.failure)
        except FormatError as e:
            error = e
        self.comm.agree(error)

    def load(self, path: str | Path) -> None:
        """Load the weights from a file that ``save`` wrote.

        Raises:
            FormatError: The file cannot be read.
            ConfigError: It belongs to another model.

        Collective: all ranks.
        """
        error = None
        try:
            self.model.load_state(load_values(self.setup.tables, self.partition, read_weights(path)[1]))
        except (ConfigError, FormatError) as e:
            error = e
        self.comm.agree(error)
