"""The base class of ``Trainer`` and ``Run``: a model on a graph, partitioned over the workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.logger import start_logging
from graphtheta.base.memory import peak_bytes
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.layer.module import Module
from graphtheta.engine.layer.settings import PassSettings, pass_scope
from graphtheta.engine.layer.superstep import fallback_text
from graphtheta.engine.runtime.start import start
from graphtheta.engine.train.step import QUIET
from graphtheta.engine.train.update import Schedule
from graphtheta.errors import ConfigError, DivergedError, FormatError
from graphtheta.graph.data.graph import Graph
from graphtheta.inference.forward.on_graph import ModelOnGraph
from graphtheta.inference.forward.reads import columns_read
from graphtheta.inference.grown.inference import Inference
from graphtheta.inference.grown.trained import Trained
from graphtheta.inference.outputs.predictions import in_order
from graphtheta.ops.edge.backend.fused import backend_scope, fallbacks
from graphtheta.ops.functions.losses.weighting import Weighting
from graphtheta.ops.functions.metrics.scores import GOALS
from graphtheta.ops.parallel.buffers import release
from graphtheta.run.checkpoints.weights import read_saved, write_weights
from graphtheta.run.embeddings.saved import gathered_values, load_values
from graphtheta.run.job.job import Job
from graphtheta.train.loop.build import Choices, RunSetup, build
from graphtheta.train.loop.groups import Choice, Groups
from graphtheta.train.loop.make_model import refuse_prepared, source_of
from graphtheta.train.pipeline.profile import pipeline_of

# what to do about numbers that are not finite
CALMER = "lower --lr, or check features, targets and edge values for very large numbers"


class Session(ModelOnGraph):
    """A model on a graph, built as a job says.

    Training changes the parameters and running statistics of the model in place. Nothing else of
    it is changed, so that several sessions, with different keys, can use one model.

    Args:
        model: Name of a published model, "file.py:Class", a model, or a function (d_in, d_out,
            d_edge) that makes one; by default the job's.
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
        **keys: Keys of the job ("strategy", "lr", ...). Those that choose and prepare a dataset
            need one, and no graph.

    Attributes:
        setup: The parts of the run that do not change during training.
        reuse: Caches and macrobatches.
        caches: Caches of features.
        macrobatches: Make the views of several steps together; None to make them one by one.
        training: The state of the run, apart from the model.
        pipeline: Chooses the number of views in flight and the threads of stages; None if the job
            gives both.

    Raises:
        GraphThetaError: Something does not fit; on all workers together.

    Collective: all ranks of comm.
    """

    setup: RunSetup
    # keys of a job that have no meaning here
    unread: tuple[str, ...] = ("seeds",)

    @checked
    def __init__(
        self,
        model: str | Model | Callable[..., Model] | None = None,
        graph: Graph | None = None,
        *,
        job: Job | None = None,
        comm: Comm | None = None,
        loss: Callable[..., Any] | None = None,
        lr_schedule: str | Schedule | None = None,
        groups: Groups | None = None,
        freeze: Choice | Sequence[Choice] = (),
        **keys: Any,
    ):
        if model is not None:
            keys["model"] = model if isinstance(model, str) else source_of(model)
        if isinstance(lr_schedule, str):
            keys["lr_schedule"] = lr_schedule
        comm = comm if comm is not None else start()
        job = job.change(**keys) if job is not None else Job(**keys)
        self._refuse_unread(job)
        schedule = lr_schedule if callable(lr_schedule) else None
        freeze = (freeze,) if isinstance(freeze, (str, Module)) else tuple(freeze)
        if graph is not None:
            refuse_prepared(job, Job.model_fields)
        if not job.is_default("log_level"):
            start_logging(job.log_level, comm.rank, comm.size)
        setup = build(
            job,
            graph,
            None if isinstance(model, str) else model,
            comm,
            Choices(loss, schedule, groups, freeze),
        )
        # arrays from which the partition was made
        release()
        super().__init__(setup)
        self.setup = setup
        self.strategy = setup.strategy
        self.reuse = setup.reuse()
        self.caches = self.reuse.caches
        self.macrobatches = self.reuse.macrobatches
        self.training = setup.training(self.reuse)
        size = 0 if self.macrobatches is None else self.macrobatches.size
        self.pipeline = pipeline_of(setup.job, self.training, size)

    def _refuse_unread(self, job: Job) -> None:
        for key in self.unread:
            if getattr(job, key) != Job.model_fields[key].default:
                raise ConfigError(
                    f"{key}={job.as_text(key)} has no meaning for gt.{type(self).__name__};"
                    f" {self._remedy(key)}"
                )

    def _remedy(self, key: str) -> str:
        return (
            "make one trainer for each seed=..., or use graphtheta train"
            if key == "seeds"
            else "drop it"
        )

    @property
    def fallbacks(self) -> list[str]:
        """Layers on the reference back end although the fused one is chosen, with reasons."""
        with backend_scope(self.job.backend):
            return list(
                dict.fromkeys(
                    fallback_text(step.layer, reason)
                    for step in self.probe.supersteps
                    if step.program is not None
                    for reason in fallbacks(step.program)
                )
            )

    def predicted_peak(self) -> int:
        """Upper bound of this process's peak memory in bytes; to be called before training."""
        # resident memory includes the partition already
        bound = self.setup.bound
        return peak_bytes() + bound.total - bound.partition + self.reuse.nbytes

    def summed(
        self, losses: np.ndarray, first: int, more: list[float]
    ) -> tuple[np.ndarray, list[float]]:
        """Losses of views, and further numbers, summed over the ranks in one message.

        Args:
            losses: This rank's shares of the losses.
            first: Number of updates before the first view.
            more: The further numbers.

        Raises:
            DivergedError: A sum of losses is not finite; on all ranks together.

        Collective: all ranks.
        """
        n = len(losses)
        total = self.comm.all_sum(np.append(losses, more))
        wrong = np.flatnonzero(~np.isfinite(total[:n]))
        if len(wrong):
            step = first + int(wrong[0]) // self.setup.views_per_step + 1
            raise DivergedError(f"the loss of step {step} is {total[wrong[0]]}; {CALMER}")
        return total[:n], total[n:].tolist()

    @checked
    def on(self, graph: Graph) -> Inference:
        """The model on another graph, with the weights that it has whenever it runs.

        What was derived from the graph of the training is applied to the other one. That graph
        needs no labels and no masks; without masks, all that has labels is the test set.

        Raises:
            DataError: The graph lacks something that the model reads, or has it in another form; on
                all ranks together.

        Collective: all ranks.
        """
        rows = gathered_values(self.setup.tables, self.partition, Path(gettempdir()))
        with self.comm.agreed():
            if rows.failure is not None:
                raise FormatError(
                    f"{gettempdir()}: learned features of nodes cannot be written: "
                    f"{rows.failure}; set TMPDIR to a folder on a larger disk"
                )
        arrays = self.comm.broadcast({name: np.array(x) for name, x in rows.arrays.items()})
        return Inference(
            job=self.job,
            trained=self.trained(),
            graph=lambda: graph,
            comm=self.comm,
            make=lambda *_: self.model,
            arrays=arrays,
        )

    def learned(self) -> np.ndarray | None:
        """Learned node features as layers read them, with those of the graph beside them if it has
        some.

        Returns:
            [n_nodes, width] in the order of the nodes on rank 0, None elsewhere.

        Raises:
            ConfigError: The job learns no features.

        Collective: all ranks.
        """
        if not self.setup.tables:
            raise ConfigError(
                "the model learns no node features, and those of the graph are graph.x; give"
                " --embedding to learn some"
            )
        rows = [self.partition.masters, self.partition.node.read("x")]
        ordered = in_order(self.comm, rows, True)
        return None if ordered is None else ordered[1]

    @np.errstate(**QUIET)
    def trained(self) -> Trained:
        """What is carried to other graphs.

        Collective: all ranks.
        """
        setup = self.setup
        weighting = self.setup.task.weighting
        thresholds = None
        if self.job.threshold in GOALS:
            with setup.scope(), setup.evaluator.at(self.epoch):
                thresholds = setup.evaluator.decisions(self.model).thresholds
        with pass_scope(PassSettings()), backend_scope(self.job.backend):
            read = columns_read(
                self.model, self.partition, probe(self.model, self.partition).layers
            )
        weights = weighting or Weighting()
        return Trained(
            graph=setup.schema,
            read=read,
            task=setup.kind.name,
            weighted=weighting is not None,
            class_weights=None if weights.classes is None else weights.classes.tolist(),
            weight_column=weights.column,
            weight_mean=weights.mean,
            thresholds=None if thresholds is None else thresholds.tolist(),
            positive=setup.evaluator.positive,
            target_types=setup.kind.target_types,
            epoch=self.epoch,
            prepared=setup.prepared,
        )

    @checked
    def save(self, path: str | Path) -> None:
        """Write the weights and the job, on rank 0, with what is carried to other graphs; the file
        appears whole or not at all.

        Raises:
            FormatError: It cannot be written; on all ranks together.

        Collective: all ranks.
        """
        rows = gathered_values(self.setup.tables, self.partition, Path(path).parent)
        trained = self.trained()
        with self.comm.agreed():
            if self.comm.rank == 0:
                write_weights(
                    path=Path(path),
                    job=self.job,
                    weights=self.model.state() | rows.arrays,
                    failure=rows.failure,
                    trained=trained.model_dump_json(),
                )

    @checked
    def load(self, path: str | Path) -> str:
        """Load the weights from a file that ``save`` wrote.

        Returns:
            What the file says about the graph of the training, as JSON, see ``Trained``; empty if
            an earlier version wrote it.

        Raises:
            FormatError: The file cannot be read.
            ConfigError: It belongs to another model.

        Collective: all ranks.
        """
        with self.comm.agreed():
            _, weights, trained = read_saved(path)
            self.model.load_state(load_values(self.setup.tables, self.partition.n_nodes, weights))
            self.epoch = Trained.read_from(trained, str(path)).epoch if trained else 0
        return trained
