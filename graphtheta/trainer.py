"""Training: views in, parameter updates out, the best model kept.

The loop is the same for every strategy, task and number of workers.
"""
from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from graphtheta.engine.comm import Comm
from graphtheta.engine.evaluate import SPLITS, Evaluator
from graphtheta.engine.layer import Model
from graphtheta.engine.memory import check_memory, memory_bound, resident_bytes
from graphtheta.engine.partition import build_partition
from graphtheta.engine.precompute import forget, precompute
from graphtheta.engine.probe import probe
from graphtheta.engine.start import start
from graphtheta.engine.timeline import TRACE_FILE, tracing
from graphtheta.engine.training import QUIET, Training
from graphtheta.errors import ConfigError, DataError, FormatError, GraphThetaError, MemoryLimitError
from graphtheta.graph import Graph
from graphtheta.job import Job, did_you_mean
from graphtheta.ops.fused import backend_scope
from graphtheta.ops.optim import SGD, Adam, AdamW, Optimiser
from graphtheta.prepare import Setup, build_strategy, load_graph, prepare, source_of

SMALLER_IS_BETTER = ("loss", "mae", "rmse")


class Log(Protocol):
    """Where the trainer reports to."""

    def epoch(self, row: dict[str, Any]) -> None:
        """One evaluated epoch."""


@dataclass
class Result:
    """What came out of a run.

    Attributes:
        best_epoch: Epoch of the best validation metric.
        metrics: Metrics of the best model ("test_accuracy", ...).
        history: One row per evaluated epoch.
        seconds: Time spent training.
    """

    best_epoch: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


class Trainer:
    """Trains a model on a graph.

    Args:
        model: Name of a published model, "file.py:Class", a model, or a function (d_in, d_out, d_edge) that makes one;
            by default the job's.
        graph: A graph, or by default the job's dataset.
        job: All choices; by default a job made from ``keys``.
        comm: The workers; by default those the process was started with.
        **keys: Keys of the job ("strategy", "epochs", ...).

    Raises:
        GraphThetaError: Something does not fit; on all workers together.

    Collective: all ranks of comm.
    """

    def __init__(self, model: str | Model | Callable[..., Model] | None = None, graph: Graph | None = None, *, job: Job | None = None,
                 comm: Comm | None = None, **keys: Any):
        if model is not None:
            keys["model"] = model if isinstance(model, str) else source_of(model)
        self.comm = comm if comm is not None else start()
        self.job = job.change(**keys) if job is not None else Job(**keys)
        if self.job.seeds > 1:
            raise ConfigError(f"seeds={self.job.seeds}, but a trainer trains once; make one for each seed=..., or use graphtheta train")
        if graph is not None and not isinstance(graph, Graph):
            raise ConfigError(f"gt.Trainer(MODEL, GRAPH): the graph is of type {type(graph).__name__}; expected a gt.Graph, such as "
                              "gt.load('sbm'), gt.Graph(edge_index, x=...) or gt.Graph.from_networkx(...)")
        given = None if isinstance(model, str) else model
        error: GraphThetaError | None = None
        setup = None
        try:
            setup = prepare(self.job, load_graph(self.job) if graph is None else graph, given)
        except MemoryError as e:
            error = MemoryLimitError(f"graph and weights do not fit into memory: {e}; use fewer or narrower layers")
        except GraphThetaError as e:
            error = e
        self.comm.agree(error)
        assert setup is not None
        self.model, self.graph_info = setup.model, setup.info
        self._build(setup)

    def _build(self, setup: Setup) -> None:
        job, dtype = self.job, np.dtype(self.job.dtype)
        self.partition = build_partition(setup.graph, self.comm, job.partitioner, job.masters, job.seed, dtype)
        forget(self.model)
        self.model.recompute_layers(job.recompute)
        with backend_scope(job.backend):
            self.saving = precompute(self.model, self.partition) if job.precompute else None
        self.probe = probe(self.model, self.partition)
        setup.check_output(self.probe)
        self.kind = setup.kind
        in_flight = 1 if job.strategy == "global" else job.views_in_flight
        self.bound = memory_bound(self.partition, self.probe, dtype.itemsize, max(job.fanout, default=0), in_flight, job.staleness)
        check_memory(self.bound, self.comm, job.strategy == "global")
        self.task, self.evaluator = setup.build_task(self.partition, self.probe.layers)
        self.metric = choose_metric(job, self.evaluator)
        self.strategy = build_strategy(job, setup.graph, self.partition, self.probe.layers, self.task)
        self.parameters = self.model.parameters()
        self.optimiser = make_optimiser(job, self.parameters)
        self.training = Training(self.model, self.strategy, self.optimiser, self.comm, seed=job.seed, backend=job.backend, halo=job.halo,
                                 views_per_step=job.views_per_step, views_in_flight=job.views_in_flight, staleness=job.staleness)

    @property
    def step(self) -> int:
        """Updates made so far."""
        return self.training.step

    # ---- training

    def fit(self, log: Log | None = None) -> Result:
        """Train; afterwards the model holds the weights of the best validation metric.

        Raises:
            FormatError: The timeline that the job asks for cannot be written.

        Collective: all ranks.
        """
        with tracing(self.comm, self.job.folder / TRACE_FILE) if self.job.trace else nullcontext():
            return self._fit(log)

    def _fit(self, log: Log | None) -> Result:
        job, result, best, waited = self.job, Result(), None, 0
        epochs = job.epochs if not job.steps else -(-job.steps // -(-self.strategy.steps_per_epoch // job.views_per_step))
        for epoch in range(epochs):
            began = perf_counter()
            loss = self.train_epoch(epoch)
            seconds = perf_counter() - began
            result.seconds += seconds
            if (epoch + 1) % job.eval_every and epoch + 1 < epochs:
                continue
            metrics = self._measure()
            row = {"epoch": epoch + 1, "step": self.step, "loss": loss, "seconds": seconds, **metrics}
            result.history.append(row)
            if log is not None:
                log.epoch(row)
            quality = self._quality(metrics, loss)
            # a smaller loss at an equal metric is kept, but is no reason to wait longer
            waited = 0 if best is None or quality[0] > best[0][0] else waited + 1
            if best is None or quality > best[0]:
                best = (quality, {n: x.copy() for n, x in self.model.state().items()})
                result.best_epoch, result.metrics = epoch + 1, metrics
            if job.patience and waited >= job.patience:
                break
        if best is not None:
            self.model.load_state(best[1])
        else:
            result.metrics = self._measure()
        return result

    @np.errstate(**QUIET)
    def _measure(self) -> dict[str, float]:
        with self.comm.ledger.stage("evaluate"), backend_scope(self.job.backend):
            return self.evaluator.metrics(self.model)

    def train_epoch(self, epoch: int) -> float:
        """One pass over the training set; the mean loss of its steps.

        Raises:
            DataError: The loss of a step is not finite; on all ranks alike, because the sum over the ranks is looked at.

        Collective: all ranks.
        """
        self.comm.ledger.mark(f"epoch {epoch + 1}")
        first, per_step = self.step, self.job.views_per_step
        total = self.comm.all_sum(self.training.epoch(epoch, self.job.steps - first if self.job.steps else None))
        wrong = np.flatnonzero(~np.isfinite(total))
        if len(wrong):
            raise DataError(f"the loss of step {first + int(wrong[0]) // per_step + 1} is {total[wrong[0]]}; lower --lr, or check "
                            "features, targets and edge values for extreme numbers")
        return float(total.mean())

    def _quality(self, metrics: dict[str, float], loss: float) -> tuple[float, float]:
        """Larger is better: the validation metric, and among equals the smaller validation loss."""
        split = next((s for s in ("val", "train") if f"{s}_loss" in metrics), None)
        if split is None:
            return -loss, -loss
        value = metrics[f"{split}_{self.metric}"]
        value = -value if self.metric in SMALLER_IS_BETTER else value
        return (value if np.isfinite(value) else -np.inf), -metrics[f"{split}_loss"]

    def predicted_peak(self) -> int:
        """The most memory this worker's process will have taken after any step, in bytes; asked before training."""
        # what is held now holds the partition already
        return resident_bytes() + self.bound.total - self.bound.partition

    # ---- using what was trained

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Metrics of one split: "train", "val" or "test"; none if the graph has no such split.

        Raises:
            ConfigError: There is no split of that name.

        Collective: all ranks.
        """
        if split not in SPLITS:
            raise ConfigError(f"there is no split {split!r}{did_you_mean(split, SPLITS)}; choose from {', '.join(SPLITS)}")
        return {n: v for n, v in self._measure().items() if n.startswith(f"{split}_")}

    def predict(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Original ids of all nodes (edges by their numbers, test links by the ids of their ends) and outputs on rank 0, None elsewhere.

        Collective: all ranks.
        """
        with backend_scope(self.job.backend):
            out = self.evaluator.predict(self.model)
        return None if out is None else self.graph_info.named(out, self.probe.per_edge)

    def save(self, path: str | Path) -> None:
        """Write the weights and the job, on rank 0; the file appears whole or not at all.

        Raises:
            FormatError: It cannot be written.
        """
        if self.comm.rank:
            return
        path = Path(path)
        aside = path.with_name(path.name + ".part")
        arrays: dict[str, Any] = {f"weight/{n}": x for n, x in self.model.state().items()}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with aside.open("wb") as f:
                np.savez(f, job=np.array(json.dumps(self.job.model_dump())), **arrays)
            os.replace(aside, path)
        except OSError as e:
            raise FormatError(f"{path}: the weights cannot be written: {e.strerror or e}") from None

    def load(self, path: str | Path) -> None:
        """Take the weights from a file that ``save`` wrote.

        Raises:
            FormatError: The file cannot be read.
            ConfigError: It belongs to another model.
        """
        error = None
        try:
            self.model.load_state(read_weights(path)[1])
        except (ConfigError, FormatError) as e:
            error = e
        self.comm.agree(error)


def read_weights(path: str | Path) -> tuple[Job, dict[str, np.ndarray]]:
    """Job and weights of a file that ``Trainer.save`` wrote.

    Raises:
        FormatError: It cannot be read, or is something else.
    """
    try:
        with np.load(path, allow_pickle=False) as z:
            weights = {n.removeprefix("weight/"): z[n] for n in z.files if n.startswith("weight/")}
            return Job(**json.loads(str(z["job"]))), weights
    except OSError as e:
        raise FormatError(f"{path}: cannot be read: {e.strerror or e}; give the weights.npz that 'graphtheta train' wrote") from None
    except (ValueError, KeyError, EOFError) as e:
        if isinstance(e, ConfigError):
            raise
        raise FormatError(f"{path}: not a file of weights ({e}); give the weights.npz that 'graphtheta train' wrote") from None
    except Exception as e:
        # zipfile and zlib raise errors of their own on damaged archives
        raise FormatError(f"{path}: damaged file of weights ({e}); train again or use a copy") from None


def choose_metric(job: Job, evaluator: Evaluator) -> str:
    """The metric the best model is chosen by.

    Raises:
        ConfigError: The task has no such metric.
    """
    if job.metric != "auto" and job.metric not in evaluator.names:
        raise ConfigError(f"metric={job.metric} does not measure this task; choose from {', '.join(evaluator.names)}")
    return evaluator.default_metric if job.metric == "auto" else job.metric


def make_optimiser(job: Job, parameters: list[Any]) -> Optimiser:
    """The optimiser a job names."""
    if job.optimiser == "sgd":
        return SGD(parameters, job.lr, job.weight_decay, momentum=job.momentum)
    return {"adam": Adam, "adamw": AdamW}[job.optimiser](parameters, job.lr, job.weight_decay)

