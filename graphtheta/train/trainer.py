"""Training: views in, parameter updates out, the best model kept.

The loop is the same for every strategy, task and number of workers.
"""
from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from graphtheta.console import complain, say
from graphtheta.data.graph import Graph
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.layer.memory import check_memory, memory_bound, resident_bytes
from graphtheta.engine.layer.precompute import forget, precompute
from graphtheta.engine.layer.superstep import fallback_text
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.runtime.start import start
from graphtheta.engine.runtime.timeline import TRACE_FILE, tracing
from graphtheta.engine.train.evaluate import SPLITS
from graphtheta.engine.train.metrics import METRICS
from graphtheta.engine.train.step import QUIET, Training
from graphtheta.errors import ConfigError, DataError, FormatError, GraphThetaError, MemoryLimitError
from graphtheta.job.job import Job
from graphtheta.logger import logger
from graphtheta.ops.backend.fused import backend_scope, fallbacks
from graphtheta.ops.functions.optim import SGD, Adam, AdamW, Optimiser
from graphtheta.recovery.checkpoint import Checkpoint, Manifest
from graphtheta.recovery.keeper import Keeper, job_hash, take_up
from graphtheta.recovery.lock import alone
from graphtheta.recovery.progress import Pace, Progress, Result
from graphtheta.recovery.stopping import PREEMPTED, Stop, Stopped, code_of
from graphtheta.recovery.weights import read_weights, write_weights
from graphtheta.train.make_model import source_of
from graphtheta.train.setup import Setup, build_strategy, load_graph, prepare
from graphtheta.wording import did_you_mean


class Log(Protocol):
    """Where the trainer reports to."""

    def begin(self, history: list[dict[str, Any]]) -> None:
        """Training begins, or goes on after the rows of ``history``."""

    def epoch(self, row: dict[str, Any]) -> dict[str, Any]:
        """One evaluated epoch; returns what else to keep in its row."""


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
        setup.check_columns(self.model, self.partition)
        with backend_scope(job.backend):
            self.saving = precompute(self.model, self.partition) if job.precompute else None
        self.probe = probe(self.model, self.partition)
        setup.kind.check_output(self.model, self.probe)
        self._report_unread()
        self.kind, self.metric = setup.kind, setup.metric
        fanout, in_flight = max(job.fanout, default=0), 1 if job.strategy == "global" else job.views_in_flight
        # one that waits, and one being written with its bytes, once by array and once as a file
        checkpoints = 4 * (self.comm.rank == 0 and job.keep > 0)
        self.bound = memory_bound(self.partition, self.probe, dtype.itemsize, fanout, in_flight, job.staleness, checkpoints)
        check_memory(self.bound, self.comm, job.strategy == "global")
        self.task, self.evaluator = setup.build_task(self.partition, self.probe.layers)
        self.strategy = build_strategy(job, setup.graph, self.partition, self.probe.layers, self.task)
        self.parameters = self.model.parameters()
        self.optimiser = make_optimiser(job, self.parameters)
        self._best: dict[str, np.ndarray] | None = None
        self.training = Training(self.model, self.strategy, self.optimiser, self.comm, seed=job.seed, backend=job.backend, halo=job.halo,
                                 views_per_step=job.views_per_step, views_in_flight=job.views_in_flight, staleness=job.staleness)

    def _report_unread(self) -> None:
        names = self.probe.unread
        if names and self.comm.rank == 0:
            logger.warning(f"no operation in forward of {type(self.model).__name__} reads {', '.join(names)}, so nothing will be trained "
                           "there; functions of gt take a gt.Parameter itself, and its .value is a constant")

    @property
    def step(self) -> int:
        """Updates made so far."""
        return self.training.step

    @property
    def fallbacks(self) -> list[str]:
        """Which layers run on the reference back end although the fused one is chosen, and why; a text each."""
        with backend_scope(self.job.backend):
            return list(dict.fromkeys(fallback_text(step.layer, reason) for step in self.probe.supersteps if step.program is not None
                                      for reason in fallbacks(step.program)))

    # ---- training

    def fit(self, log: Log | None = None) -> Result:
        """Train; afterwards the model holds the weights of the best validation metric.

        A run that reports to a log, or whose job says ``resume`` or ``checkpoint_every``, leaves checkpoints in its folder. Only such
        a run can be stopped: after SIGTERM or a first Ctrl-C it finishes the step and leaves a checkpoint.

        Args:
            log: Where to report to.

        Raises:
            ConfigError: The folder holds a run that is not to be lost, or one of another job.
            FormatError: The timeline that the job asks for, or the checkpoint of a run that is asked to stop, cannot be written; or
                another job is training in the folder.
            Stopped: The run was asked to stop and can go on; on all ranks together.

        Collective: all ranks.
        """
        job = self.job
        asked = log is not None or job.resume or job.checkpoint_every > 0
        keeps = asked and job.keep > 0
        with alone(job.folder, self.comm) if keeps or log is not None else nullcontext():
            return self._fit(log, asked, keeps)

    def _fit(self, log: Log | None, asked: bool, keeps: bool) -> Result:
        job = self.job
        found = take_up(job, self.comm) if asked else None
        run = self._restored(found) if found is not None else Progress()
        if found is None or not self._is_over(run):
            if found is not None and self.comm.rank == 0:
                say(f"going on from step {self.step}, in epoch {run.epoch + 1}")
            if log is not None:
                log.begin(run.history)
            with tracing(self.comm, job.folder / TRACE_FILE) if job.trace else nullcontext():
                self._go_on(run, log, keeps)
        if self._best is not None:
            self.model.load_state(self._best)
        else:
            run.metrics = self._measure()
        return run.result()

    def _go_on(self, run: Progress, log: Log | None, keeps: bool) -> None:
        """Train to the end of the run, a few updates at a time."""
        job, pace, over = self.job, Pace(self.job.checkpoint_every), self._is_over(run)
        with Keeper(job, keeps and self.comm.rank == 0, self.step) as keeper, Stop(keeps) as stop:
            while not over:
                code = self._train_some(run, pace, stop)
                if not code and len(run.losses) == self._views(run.epoch):
                    if (run.epoch + 1) % job.eval_every == 0 or run.epoch + 1 >= self._epochs:
                        self._evaluate(run, log)
                    if len(run.losses) == self.strategy.steps_per_epoch:
                        run.next_epoch()
                over = run.over = self._is_over(run)
                if code or over or keeper.due(self.step):
                    keeper.offer(partial(self._checkpoint, run))
                if code:
                    self._leave(keeper, code)

    def _train_some(self, run: Progress, pace: Pace, stop: Stop) -> int:
        """Train on some more views of the epoch; returns the exit code to stop with, the same on all ranks, or 0."""
        first, last, per_step = len(run.losses), self._views(run.epoch), self.job.views_per_step
        if first == 0:
            self.comm.ledger.mark(f"epoch {run.epoch + 1}")
        if first >= last:
            return 0
        began = perf_counter()
        last = min(last, first + pace.updates(self.step) * per_step)
        own = self.training.run(run.epoch, first, last)
        seconds = perf_counter() - began
        # all ranks follow the clock of rank 0
        losses, told = self._summed(own, [*stop.flags(), seconds * (self.comm.rank == 0)])
        run.take_views(losses, seconds)
        pace.adapt(-(-(last - first) // per_step), told[2])
        return code_of(told[0], told[1])

    def _evaluate(self, run: Progress, log: Log | None) -> None:
        """Measure the model, and keep it if it is the best so far."""
        loss, metrics = float(np.mean(run.losses)), self._measure()
        row: dict[str, Any] = {"epoch": run.epoch + 1, "step": self.step, "loss": loss, "seconds": run.epoch_seconds, **metrics}
        if log is not None:
            row.update(log.epoch(row))
        if run.take_row(row, metrics, self._quality(metrics, loss)):
            self._best = self.model.state()

    def _leave(self, keeper: Keeper, code: int) -> None:
        """Stop where the run is, with a checkpoint."""
        keeper.close()
        error = None if keeper.failure is None else FormatError(
            f"{keeper.folder}: the run was asked to stop after step {self.step} and its checkpoint cannot be written: {keeper.failure}; "
            "make room or let the folder be written, and go on from the checkpoint before with --resume")
        self.comm.agree(error)
        if self.comm.rank == 0:
            complain(f"{'pre-empted' if code == PREEMPTED else 'interrupted'} at step {self.step}; go on with --resume")
        raise Stopped(code)

    @property
    def _epochs(self) -> int:
        """Epochs of the whole run; the last may be a part of one."""
        return -(-self.job.steps // self._updates) if self.job.steps else self.job.epochs

    @property
    def _updates(self) -> int:
        """Updates of a whole epoch."""
        return -(-self.strategy.steps_per_epoch // self.job.views_per_step)

    def _views(self, epoch: int) -> int:
        """Views to run in an epoch."""
        n = self.strategy.steps_per_epoch
        return min(n, (self.job.steps - epoch * self._updates) * self.job.views_per_step) if self.job.steps else n

    def _is_over(self, run: Progress) -> bool:
        """Whether nothing is left to do: enough updates, or enough evaluations without a better one."""
        done = run.epoch * self._updates + -(-len(run.losses) // self.job.views_per_step)
        goal = self.job.steps or self.job.epochs * self._updates
        waited = 0 < self.job.patience <= run.waited
        return goal == 0 or (run.measured and (done >= goal or waited))

    def _checkpoint(self, run: Progress) -> Checkpoint:
        state = self.training.state() | self._sizes | {f"best/{name}": x for name, x in (self._best or {}).items()}
        manifest = Manifest(step=self.step, counters={name: x for name, x in state.items() if isinstance(x, int)}, progress=run.frozen(),
                            job=self.job.model_dump(mode="json"), job_hash=job_hash(self.job))
        return Checkpoint(manifest, {name: x for name, x in state.items() if not isinstance(x, int)})

    @property
    def _sizes(self) -> dict[str, int]:
        """Of the graph, so that a run does not go on with another one."""
        return {"nodes": self.partition.n_nodes, "edges": self.partition.n_edges}

    def _restored(self, found: Checkpoint) -> Progress:
        """Everything as it was at a checkpoint."""
        for name, n in self._sizes.items():
            if found.manifest.counters.get(name) != n:
                raise ConfigError(f"the graph has {n:,} {name} and that of the run in {self.job.folder} had "
                                  f"{found.manifest.counters.get(name, 0):,}; give the same data, or choose another folder with --out")
        self.training.load_state({**found.manifest.counters, **found.arrays})
        best = {name.removeprefix("best/"): x for name, x in found.arrays.items() if name.startswith("best/")}
        self._best = best or None
        return found.manifest.progress

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
        return float(np.mean(self._summed(self.training.run(epoch, 0, self._views(epoch)), [])[0]))

    def _summed(self, losses: np.ndarray, told: list[float]) -> tuple[np.ndarray, list[float]]:
        """Losses of the last views, and what else the ranks tell each other, summed over the ranks in one message."""
        n, per_step = len(losses), self.job.views_per_step
        total = self.comm.all_sum(np.append(losses, told))
        wrong = np.flatnonzero(~np.isfinite(total[:n]))
        if len(wrong):
            first = self.step - -(-n // per_step)
            raise DataError(f"the loss of step {first + int(wrong[0]) // per_step + 1} is {total[wrong[0]]}; lower --lr, or check "
                            "features, targets and edge values for extreme numbers")
        return total[:n], total[n:].tolist()

    def _quality(self, metrics: dict[str, float], loss: float) -> tuple[float, float]:
        """Larger is better: the validation metric, and among equals the smaller validation loss."""
        split = next((s for s in ("val", "train") if f"{s}_loss" in metrics), None)
        if split is None:
            return -loss, -loss
        value = metrics[f"{split}_{self.metric}"]
        value = -value if METRICS[self.metric].smaller_is_better else value
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
        return None if out is None else self.kind.named(self.graph_info, out)

    def save(self, path: str | Path) -> None:
        """Write the weights and the job, on rank 0; the file appears whole or not at all.

        Raises:
            FormatError: It cannot be written; on all ranks together.

        Collective: all ranks.
        """
        error = None
        try:
            if self.comm.rank == 0:
                write_weights(Path(path), self.job, self.model.state())
        except FormatError as e:
            error = e
        self.comm.agree(error)

    def load(self, path: str | Path) -> None:
        """Take the weights from a file that ``save`` wrote.

        Raises:
            FormatError: The file cannot be read.
            ConfigError: It belongs to another model.

        Collective: all ranks.
        """
        error = None
        try:
            self.model.load_state(read_weights(path)[1])
        except (ConfigError, FormatError) as e:
            error = e
        self.comm.agree(error)


def make_optimiser(job: Job, parameters: list[Any]) -> Optimiser:
    """The optimiser a job names."""
    if job.optimiser == "sgd":
        return SGD(parameters, job.lr, job.weight_decay, momentum=job.momentum)
    return {"adam": Adam, "adamw": AdamW}[job.optimiser](parameters, job.lr, job.weight_decay)

