"""``gt.Trainer``: the training loop, with evaluation, checkpoints and selection of the best model.

The loop is the same for every strategy, task and number of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.console import complain, figure, say
from graphtheta.base.logger import logger
from graphtheta.engine.runtime.timeline import TRACE_FILE, tracing
from graphtheta.engine.store.table import VALUE
from graphtheta.engine.train.metrics import METRICS
from graphtheta.engine.train.step import QUIET
from graphtheta.errors import ConfigError, DivergedError, FormatError
from graphtheta.graph.data.columns import listed
from graphtheta.graph.data.scale import SCALES
from graphtheta.inference.grown.trained import EARLIER_POSITIVE
from graphtheta.inference.outputs.file import write_together
from graphtheta.run.agreement.digest import changed, in_other_forms
from graphtheta.run.checkpoints.checkpoint import Checkpoint, CheckpointManifest
from graphtheta.run.checkpoints.keeper import Keeper, find_checkpoint, job_hash
from graphtheta.run.checkpoints.lock import exclusive
from graphtheta.run.checkpoints.progress import Pace, Progress, Result
from graphtheta.run.checkpoints.run_folder import placed
from graphtheta.run.checkpoints.stopping import PREEMPTED, Stop, Stopped, code_of
from graphtheta.run.embeddings.saved import gathered_tables, load_tables
from graphtheta.run.job.keys import ASKING
from graphtheta.run.job.run_files import PREDICTIONS_FILE
from graphtheta.run.log.runlog import RunLog
from graphtheta.run.log.shown import Shown
from graphtheta.tasks.evaluation.evaluate import SPLITS
from graphtheta.train.loop.callback import Callback, Callbacks
from graphtheta.train.loop.recorded import best_saved, write_run
from graphtheta.train.loop.session import CALMER, Session
from graphtheta.train.reuse.staleness.approximate import PARTITION, Approximate, gathered, scattered
from graphtheta.train.reuse.staleness.audit import OUTPUTS, audited

# counters of a checkpoint: batches of an epoch; and what the names of the digests of the graph
# begin with
EPOCH, GRAPH = "views_per_epoch", "graph/"


class Weights(NamedTuple):
    """The weights of an evaluated model.

    Attributes:
        state: Those that all workers have, by name.
        rows: Values of this worker's rows of each embedding.
    """

    state: dict[str, np.ndarray]
    rows: Sequence[np.ndarray]


@runtime_checkable
class Log(Protocol):
    """Receives the reports of a trainer."""

    def begin(self, history: list[dict[str, Any]]) -> None:
        """Called when training begins, or resumes after the rows of ``history``."""

    def epoch(self, row: dict[str, Any]) -> dict[str, Any]:
        """Called after each evaluation with its row; returns further entries to store in it."""


class Trainer(Session):
    """Trains a model on a graph.

    Arguments, errors and effects on the model are those of ``Session``.

    Collective: all ranks of comm.
    """

    # of the best evaluation
    _best: Weights | None = None
    # of the best one before the last, if that is there only because the run ends with it
    _best_before: Weights | None = None
    # counts of the caches at the last evaluation
    _counted = np.zeros((2, 2), np.int64)

    @property
    def step(self) -> int:
        """Updates made so far."""
        return self.training.step

    def _facts(self) -> list[tuple[str, str]]:
        return [*super()._facts(), ("updates", figure(self.step))]

    @checked
    def fit(
        self,
        log: Log | None = None,
        callbacks: Sequence[Callback] = (),
        progress: bool | None = None,
    ) -> Result:
        """Train; afterwards the model holds the weights of the best validation metric.

        A job that sets ``out``, ``resume``, ``checkpoint_every`` or ``keep``, or a log, makes a
        run, unless ``keep=0`` is all of it: its folder receives what ``graphtheta train`` writes
        there: the job, metrics, weights, profile, result and checkpoints. Only such a run handles
        SIGTERM and a first Ctrl-C: it finishes the step and writes a checkpoint. Its folder is
        ``trainer.job.folder`` afterwards.

        Args:
            log: Receives a row per evaluated epoch.
            callbacks: Called during training, on all ranks; they may end it.
            progress: Whether rank 0 shows a progress bar on standard error; by default if that is
                a terminal, and in notebooks.

        Raises:
            ConfigError: The folder holds a run, and the job neither resumes nor overwrites it; or
                it holds one of another job; or an item of ``callbacks`` is no callback.
            MemoryLimitError: ``inference_memory`` is too low for any evaluation; before the first
                step.
            FormatError: A file of the run, the timeline, or the checkpoint of a run that is asked
                to stop, cannot be written; or another job is training in the folder.
            DivergedError: A loss, or what an update made, is NaN or infinite; on all ranks
                together. The model holds the weights of the best validation metric before.
            Stopped: The run was asked to stop and can be resumed; on all ranks together.

        Collective: all ranks.
        """
        calls = Callbacks(callbacks)
        own = self._log(log, progress)
        logs = (own,) if log is None or log is own else (own, log)
        run_log = own if isinstance(own, RunLog) else None
        job = self.job
        writes = run_log is not None or job.save_predictions or job.trace
        predicted = self.predicted_peak()
        with own, exclusive(job.folder, self.comm) if writes else nullcontext():
            run, trains = self._begun(run_log is not None)
            if trains:
                if self.setup.limit is not None:
                    self.setup.limit.check()
                for one in logs:
                    one.begin(run.history)
                try:
                    with (
                        tracing(self.comm, job.folder / TRACE_FILE) if job.trace else nullcontext()
                    ):
                        self._train(run, logs, calls, run_log is not None and job.keep > 0)
                except DivergedError as error:
                    self._take_best(run)
                    error.best_epoch = run.best_epoch
                    if run_log is None or not run.best_epoch:
                        raise
                    raise best_saved(self, error) from None
            if self._best is None:
                run.metrics = self.measure()
            self._take_best(run)
            if job.save_predictions:
                self._save_predictions(again=trains)
            calls.call("on_end", run, self.step)
            result = run.result(self.positive, metric=self.setup.metric, **job.evaluation_entry)
            if run_log is not None:
                write_run(self, run_log, result, predicted)
            return result

    def _log(self, log: Log | None, progress: bool | None) -> RunLog | Shown:
        """What shows a training, and writes it if it is a run; then, the job knows its folder.

        Collective: all ranks.
        """
        if isinstance(log, RunLog):
            return log
        job = self.job
        asks = log is not None or not all(map(job.is_default, ASKING))
        makes_run = asks and (job.keep > 0 or bool(job.out) or job.resume)
        if makes_run or job.save_predictions or job.trace:
            self.job = job = placed(job, self.comm)
        return (RunLog if makes_run else Shown)(job, self.comm, self.setup.metric, progress)

    def _begun(self, resumable: bool) -> tuple[Progress, bool]:
        """The progress from which training goes on, and whether anything is left to train.

        Args:
            resumable: Whether the folder may hold a checkpoint of this run.

        Collective: all ranks.
        """
        checkpoint = find_checkpoint(self.job, self.comm) if resumable else None
        run = self._restored(checkpoint) if checkpoint is not None else Progress()
        if (plateau := self.setup.rule.plateau) is not None:
            plateau.begin(self._quality(row, row["loss"])[0] for row in run.history)
        trains = checkpoint is None or not self._is_over(run)
        if trains and checkpoint is not None and self.comm.rank == 0:
            say(f"resuming from step {self.step}, in epoch {run.epoch + 1}")
        return run, trains

    def _save_predictions(self, again: bool) -> None:
        """Write the predictions to the folder of the run, if they are not there or ``again``."""
        path = self.job.folder / PREDICTIONS_FILE
        if again or not self.comm.broadcast(path.is_file()):
            write_together(path, self.predictions(), self.comm)

    def _take_best(self, run: Progress) -> None:
        """Give the model the weights of the best evaluation, if there was one."""
        if self._best is None:
            return
        self.epoch = run.best_epoch
        self.model.load_state(self._best.state)
        for table, rows in zip(self.setup.tables, self._best.rows, strict=True):
            table.set_values(rows)

    def _check_finite(self) -> None:
        """Check what the last update made, which no loss has been computed from yet.

        Raises:
            DivergedError: It is not finite; on all ranks together.

        Collective: all ranks.
        """
        arrays = self.model.state()
        arrays |= {table.name: table.arrays()[VALUE] for table in self.setup.tables}
        own = [name for name, x in arrays.items() if not is_finite(x)]
        names = dict.fromkeys(name for of_rank in self.comm.all_gather(own) for name in of_rank)
        if names:
            raise DivergedError(
                f"after step {self.step} the model has NaN or infinite values in "
                f"{listed(list(names))}; {CALMER}"
            )

    def _train(self, run: Progress, logs: Sequence[Log], calls: Callbacks, keeps: bool) -> None:
        """Train to the end of the run, a few updates at a time."""
        job = self.job
        pace = Pace(1 if calls.every_step else job.checkpoint_every, job.audit)
        over = self._is_over(run)
        with Keeper(job, keeps and self.comm.rank == 0, self.step) as keeper, Stop(keeps) as stop:
            while not over:
                begin = self.step
                code = 0
                due = 0.0
                ends = False
                if views := self._next_views(run, pace.updates(begin)):
                    if not run.losses:
                        self.comm.ledger.mark(f"epoch {run.epoch + 1}")
                    began = perf_counter()
                    own = (self.pipeline or self.training).run(run.epoch, views.start, views.stop)
                    seconds = perf_counter() - began
                    # all ranks adapt to the clock of rank 0, which alone knows when a checkpoint
                    # is due
                    clock = seconds * (self.comm.rank == 0)
                    more = [*stop.flags(), clock, float(keeper.due(self.step))]
                    losses, (terminated, interrupted, elapsed, due) = self.summed(own, begin, more)
                    code = code_of(terminated, interrupted)
                    run.take_views(losses, seconds)
                    pace.adapt(self.step - begin, elapsed)
                    if job.audit and self.step % job.audit == 0:
                        self._audit(run)
                    ends = calls.call("on_step", run, self.step)
                if not code and (
                    self._is_done(run) or len(run.losses) >= self.strategy.views_of(run.epoch)
                ):
                    ends |= self._end_epoch(run, logs, calls)
                run.ended = calls.agree(ends, self.comm)
                over = run.over = self._is_over(run)
                if code or over or due:
                    self._check_finite()
                    self._offer(run, keeper, keeps)
                if code:
                    self._leave(keeper, code)

    def _next_views(self, run: Progress, updates: int) -> range:
        """Numbers of the next views of the epoch, those of some updates at most."""
        first = len(run.losses)
        # a run that was asked for fewer updates than it has made is only evaluated
        last = first if self._is_done(run) else self._views(run.epoch)
        return range(first, min(last, first + updates * self.setup.views_per_step))

    def _offer(self, run: Progress, keeper: Keeper, keeps: bool) -> None:
        """Give the keeper a checkpoint of the run.

        The state of other workers is gathered, so all ranks take part.

        Collective: all ranks.
        """
        arrays = (
            {}
            if self._memory is None or not keeps
            else gathered(self.partition, self._memory.held())
        )
        best = self._best if run.before is None else self._best_before
        rows = () if best is None else best.rows
        tables = gathered_tables(
            self.setup.tables if keeps else (), self.partition, rows, keeper.folder
        )
        arrays |= tables.arrays | {
            f"best/{name}": x for name, x in ({} if best is None else best.state).items()
        }
        arrays |= self._views_of_next(run)
        keeper.offer(partial(self._checkpoint, run, arrays, tables.failure))

    def _end_epoch(self, run: Progress, logs: Sequence[Log], calls: Callbacks) -> bool:
        """End an epoch whose views are done; returns whether a callback ends training."""
        ends = False
        whole = len(run.losses) == self.strategy.views_of(run.epoch)
        is_due = whole and (run.epoch + 1) % self.job.eval_every == 0
        if is_due or self._is_done(run):
            self._check_finite()
            self._evaluate(run, logs, is_due)
            ends = calls.call("on_evaluation", run, self.step)
        ends |= calls.call("on_epoch", run, self.step)
        if whole:
            run.next_epoch()
        return ends

    def _audit(self, run: Progress) -> None:
        """Compare the next view with the exact one; if the error is above the limit, use less of
        old values from now on.
        """
        memory = self._memory
        n = self.strategy.views_of(run.epoch)
        assert memory is not None
        ended = len(run.losses) >= n
        run.audit = audited(
            self.training, memory, run.epoch + ended, 0 if ended else len(run.losses)
        )
        error = run.audit[OUTPUTS]
        limit = self.job.audit_limit
        tighter = memory.tighten() if limit and error > limit else None
        if tighter is not None and self.comm.rank == 0:
            logger.warning(
                f"step {self.step}: old values change the outputs by {error:.2g}, more than"
                f" audit_limit={limit:g};"
                f" {f'from now on {tighter}' if tighter else 'there is no tighter setting'}"
            )

    @property
    def _memory(self) -> Approximate | None:
        """The strategy, if it reuses values of earlier steps."""
        return self.strategy if isinstance(self.strategy, Approximate) else None

    def _evaluate(self, run: Progress, logs: Sequence[Log], is_due: bool) -> None:
        """Evaluate the model, and store its weights if it is the best so far.

        Args:
            run: The run.
            logs: Receive the row.
            is_due: Whether a run with more updates would evaluate the model here too.
        """
        epoch, loss, seconds = run.evaluated
        before = None if is_due else run.standing()
        self.epoch = epoch
        metrics = self.measure()
        self._check_losses(metrics)
        if self.job.audit and not run.audit:
            self._audit(run)
        row: dict[str, Any] = {
            "epoch": epoch,
            "step": self.step,
            "loss": loss,
            "seconds": seconds,
            **metrics,
            **self.job.evaluation_entry,
            **run.audit,
            **self._cache_counts(),
        }
        for log in logs:
            row.update(log.epoch(row))
        self._best_before = self._best
        quality = self._quality(metrics, loss)
        if self.setup.rule.plateau is not None:
            self.setup.rule.plateau.take(quality[0])
        if run.take_row(row, metrics, quality, before):
            self._best = self._weights

    @property
    def _weights(self) -> Weights:
        """The weights that the model has."""
        return Weights(self.model.state(), [table.values() for table in self.setup.tables])

    def _check_losses(self, metrics: dict[str, float]) -> None:
        """Check that a model of finite weights has a finite loss of training, or of any set without
        one.

        Raises:
            DivergedError: It has not; on all ranks together.
        """
        losses = [metrics[name] for split in SPLITS if (name := f"{split}_loss") in metrics]
        judged = losses[:1] if "train_loss" in metrics else losses
        if judged and not np.isfinite(judged).any():
            raise DivergedError(
                f"after step {self.step} the loss of an evaluation is {judged[0]}; {CALMER}"
            )

    def _cache_counts(self) -> dict[str, int]:
        """Rows that the caches of all workers held, and did not hold, since the last evaluation;
        empty without caches.

        Collective: all ranks.
        """
        levels = {
            "cache": bool(self.caches.caches),
            "machine_cache": self.caches.machine is not None,
        }
        if not any(levels.values()):
            return {}
        now = np.array([self.caches.counts(), self.caches.machine_counts()])
        totals = self.comm.all_sum(now - self._counted)
        self._counted = now
        return {
            f"{level}_{what}": int(n)
            for (level, used), counts in zip(levels.items(), totals, strict=True)
            if used
            for what, n in zip(("hits", "misses"), counts, strict=True)
        }

    def _leave(self, keeper: Keeper, code: int) -> None:
        """Stop the run once its checkpoint is written."""
        keeper.close()
        with self.comm.agreed():
            if keeper.failure is not None:
                raise FormatError(
                    f"{keeper.folder}: the run was asked to stop after step {self.step} and its"
                    f" checkpoint cannot be written: {keeper.failure}; free disk space or make the"
                    " folder writable, and resume from the previous checkpoint with --resume"
                )
        if self.comm.rank == 0:
            complain(
                f"{'pre-empted' if code == PREEMPTED else 'interrupted'} at step {self.step};"
                " continue with --resume"
            )
        raise Stopped(code)

    @cached_property
    def _updates(self) -> list[int]:
        """Number of updates of all full epochs before each one, as far as they were counted."""
        return [0]

    def _updates_before(self, epoch: int) -> int:
        """Number of updates of all full epochs before one."""
        while len(self._updates) <= epoch:
            views = self.strategy.views_of(len(self._updates) - 1)
            self._updates.append(self._updates[-1] + -(-views // self.setup.views_per_step))
        return self._updates[epoch]

    def _views(self, epoch: int) -> int:
        """Number of views to run in an epoch."""
        n = self.strategy.views_of(epoch)
        steps = self.job.steps
        return (
            min(n, (steps - self._updates_before(epoch)) * self.setup.views_per_step)
            if steps
            else n
        )

    def _is_done(self, run: Progress) -> bool:
        """Whether the run has made its updates, or more."""
        if self.job.steps:
            updates = -(-len(run.losses) // self.setup.views_per_step)
            return self._updates_before(run.epoch) + updates >= self.job.steps
        # a strategy of a user may know no epoch after the last one
        last = self.job.epochs - 1
        return run.epoch > last or (
            run.epoch == last and len(run.losses) >= self.strategy.views_of(last)
        )

    def _is_over(self, run: Progress) -> bool:
        """Whether the run is finished: updates done, patience exhausted, or ended by callback."""
        waited = 0 < self.job.patience <= run.waited
        empty = not (self.job.steps or self.job.epochs)
        return empty or run.ended or (run.measured and (self._is_done(run) or waited))

    def _views_of_next(self, run: Progress) -> dict[str, int]:
        """Number of batches of the epoch that a run would continue with, by name; none after the
        last one. Collective.
        """
        follows = self.job.steps or run.epoch < self.job.epochs
        return {EPOCH: self.strategy.views_of(run.epoch)} if follows else {}

    def _checkpoint(
        self, run: Progress, arrays: dict[str, Any], failure: OSError | None
    ) -> Checkpoint:
        content = {GRAPH + name: digest for name, digest in self.setup.digests.items()}
        state = self.training.state() | self._sizes | content | arrays
        manifest = CheckpointManifest(
            step=self.step,
            counters={name: x for name, x in state.items() if isinstance(x, int)},
            progress=run.frozen(),
            job=self.job.model_dump(mode="json"),
            job_hash=job_hash(self.job),
        )
        return Checkpoint(
            manifest, {name: x for name, x in state.items() if not isinstance(x, int)}, failure
        )

    @property
    def _sizes(self) -> dict[str, int]:
        """Sizes of the graph and of a step, stored so that a run is not resumed with others."""
        scales = [
            scale for field in SCALES if (scale := self.setup.schema.scale(field)) is not None
        ]
        return {
            "nodes": self.partition.n_nodes,
            "edges": self.partition.n_edges,
            "views_per_step": self.setup.views_per_step,
            "scaled_types": sum(len(scale.widths) for scale in scales),
        }

    def _check_same(self, manifest: CheckpointManifest) -> None:
        """Check that a checkpoint belongs to this graph and to these batches.

        Raises:
            ConfigError: It does not.
        """
        counters = manifest.counters
        folder = self.job.folder
        elsewhere = "or choose another folder with --out"
        for name, n in self._sizes.items():
            stored = counters.get(name, 0)
            if stored == n:
                continue
            if name == "views_per_step":
                raise ConfigError(
                    f"views_per_step={n}, but the run in {folder} has views_per_step={stored}; give"
                    f" --views-per-step {stored} to resume it, {elsewhere}"
                )
            if name == "scaled_types":
                # runs of earlier versions have one scale for all types
                raise ConfigError(
                    f"{n} types of nodes and edges have features in a scale of their own, but"
                    f" {stored} have in the run in {folder}, which was begun with another scale of"
                    " the same features; start anew in another folder with --out, or resume it"
                    " with the version of graphtheta and the graph that it was begun with"
                )
            raise ConfigError(
                f"the graph has {n:,} {name}, but the graph of the run in {folder} had {stored:,};"
                f" give the same dataset, {elsewhere}"
            )
        # earlier versions stored neither digests nor batches of an epoch
        content = {
            name.removeprefix(GRAPH): x for name, x in counters.items() if name.startswith(GRAPH)
        }
        fields = in_other_forms(self.setup.digests, content)
        if fields:
            raise ConfigError(
                f"{listed(fields)} of the graph is stored in another form (dense, sparse, or at the"
                f" widths of types or relations) than the run in {folder} had it, as other versions"
                " of graphtheta do; resume it with the version and the form that it was begun with,"
                f" {elsewhere}"
            )
        names = changed(self.setup.digests, content) if content else []
        if names:
            verb = "differs" if len(names) == 1 else "differ"
            raise ConfigError(
                f"the graph has changed since the run in {folder} was begun: {listed(names)}"
                f" {verb}; give the same graph, with its nodes and edges in the same order,"
                f" {elsewhere}"
            )
        # between two epochs no batch is missed or repeated
        if manifest.progress.losses or self.job.steps:
            n = self.strategy.views_of(manifest.progress.epoch)
            stored = counters.get(EPOCH, n)
            if stored != n:
                raise ConfigError(
                    f"an epoch has {n} batches with {self.comm.size} worker(s), but {stored} with"
                    f" those of the run in {folder}, which stopped inside an epoch; resume it with"
                    f" as many workers as it had, {elsewhere}"
                )

    def _restored(self, checkpoint: Checkpoint) -> Progress:
        """Restore a checkpoint; returns the progress of the run."""
        self._check_same(checkpoint.manifest)
        run = checkpoint.manifest.progress
        if "positive" not in checkpoint.manifest.job:
            self.setup.evaluator.positive = EARLIER_POSITIVE
        self.training.load_state({**checkpoint.manifest.counters, **checkpoint.arrays})
        rows = load_tables(self.setup.tables, self.partition, checkpoint.arrays)
        if self._memory is not None:
            self._memory.hold(
                scattered(
                    self.partition,
                    checkpoint.arrays,
                    checkpoint.manifest.counters.get(PARTITION, 0),
                )
            )
        best = {
            name.removeprefix("best/"): x
            for name, x in checkpoint.arrays.items()
            if name.startswith("best/")
        }
        self._best = self._best_before = Weights(best, rows) if best else None
        if run.before is not None and not (run.ended or self._is_done(run)):
            run.without_last()
        elif run.before is not None and run.quality != run.before["quality"]:
            # the last evaluation, of these weights, was the best
            self._best = self._weights
        return run

    def train_epoch(self, epoch: int) -> float:
        """One pass over the training set; the mean loss of its steps.

        Raises:
            DivergedError: The loss of a step is not finite; on all ranks together.

        Collective: all ranks.
        """
        self.comm.ledger.mark(f"epoch {epoch + 1}")
        self.epoch = epoch + 1
        begin = self.step
        own = (self.pipeline or self.training).run(epoch, 0, self._views(epoch))
        return float(np.mean(self.summed(own, begin, [])[0]))

    def _quality(self, metrics: dict[str, float], loss: float) -> tuple[float, float]:
        """Larger is better: the validation metric, and among equals the smaller validation loss."""
        metric = self.setup.metric
        split = next((s for s in ("val", "train") if f"{s}_loss" in metrics), None)
        if split is None:
            return -loss, -loss
        value = metrics[f"{split}_{metric}"]
        value = -value if METRICS[metric].smaller_is_better else value
        loss = metrics[f"{split}_loss"]
        # NaN is in no order, so that a later model would always be better
        return (value if np.isfinite(value) else -np.inf), (-np.inf if np.isnan(loss) else -loss)


def is_finite(x: np.ndarray) -> bool:
    """Whether all numbers of an array are finite."""
    # a sum needs no memory, but may overflow
    with np.errstate(**QUIET):
        return bool(np.isfinite(x.sum(dtype=np.float64)) or np.isfinite(x).all())
