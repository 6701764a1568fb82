"""Training steps: a work item for each group of views of an epoch; they run in order or pipelined.

In cooperative mode a group is one view, which all workers compute together. In independent mode it
is one view for each worker, as far as the step has so many. A work item builds its view, waits for
its version of the parameters, runs forward and backward with it, sums the gradients over the ranks
and delivers them. The order in which work items run does not change the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ...ops.autodiff.gradients import Gradients
from ...ops.autodiff.tape import Change, Tape, Var
from ...ops.edge.backend.fused import backend_scope
from ...ops.optimisers.optim import Optimiser
from ..comm.communicator import Comm
from ..layer.layer import Model
from ..layer.settings import PassSettings, pass_scope
from ..partition.message import halo_scope
from ..strategy.strategy import Strategy
from ..view.view import GraphView
from .fetch import Features
from .gradient_sum import GradientSum
from .learned import FetchedRows, LearnedRows, OwnRows
from .scheduler import WINDOW, Pipeline, Work, in_stage
from .stages import FEATURES, StageThreads
from .supply import Ahead, Foresight, ViewSupply
from .table import LearnedTable, check_tables
from .update import UpdateRule
from .versions import ParameterManager

T = TypeVar("T")

# the watchdog gives steps less time than other code
RUNS_STEPS = True

# a loss that diverges is reported by an error of the engine, so warnings of NumPy are not needed
QUIET: dict[str, Any] = {"over": "ignore", "invalid": "ignore", "divide": "ignore"}


# a view, and the rows of tables that its passes read
PreparedView: TypeAlias = tuple[GraphView, LearnedRows]


class WorkQueue:
    """Runs work items of this rank, one after the other or pipelined.

    Args:
        comm: All ranks; they run the same work items in the same order.
        in_flight: Largest number of active work items, at least 1; with 1 they run one after the
            other.

    Attributes:
        stages: The threads of each stage, if work items are pipelined; empty for threads that take
            whatever can continue. Each stage is in one of them. Ranks may have different ones.
        channels: Numbers of the channels of work items.
        stalled: Seconds in which no work item could compute, because all waited for other ranks.

    Collective: all ranks of comm.
    """

    def __init__(self, comm: Comm, in_flight: int = 1):
        self.comm = comm
        self.in_flight = in_flight
        self.stages: Sequence[StageThreads] = ()
        self.stalled = 0.0
        self.channels: list[int] = []
        if in_flight > 1:
            self.channels = comm.open_channels("views", WINDOW * in_flight)

    def run(self, work: Sequence[Work[T]]) -> list[T]:
        """Run all work items; returns their results in order.

        Raises:
            BaseException: The error of the first failing work item; the others are stopped.

        Collective: all ranks of comm.
        """
        if self.in_flight == 1 or len(work) == 1:
            results = []
            for item in work:
                with item as compute:
                    results.append(compute())
                # with it the view is released, before the next one is made
                del compute
            return results
        self.comm.ledger.pause()
        pipeline = Pipeline(
            work=work,
            comm=self.comm,
            in_flight=self.in_flight,
            channels=self.channels[: WINDOW * self.in_flight],
            stages=self.stages,
        )
        try:
            return pipeline.finish()
        finally:
            self.stalled += pipeline.stalled
            self.comm.ledger.resume()


class Group(NamedTuple):
    """A group of views, of which each worker computes one.

    Attributes:
        number: Number of its first view in the run.
        n: Number of views.
        step: Number of the step.
        position: Its position among the groups of the step.
        groups: Number of groups of the step.
    """

    number: int
    n: int
    step: int
    position: int
    groups: int


class Training(ViewSupply):
    """Turns the views of a strategy into updates of the parameters.

    Args:
        model: Computes outputs from a view.
        strategy: Makes the views; its task computes the loss.
        optimiser: Makes updates from gradients.
        job_comm: All ranks that share the parameters; gradients are summed over them. The moves
            of a view use the ``halo_comm`` of its partition.
        seed: Seed of all draws.
        backend: How messages are computed, an argument of ``ops.backend.fused.backend_scope``.
        halo: Number format of moves, an argument of ``engine.partition.message.halo_scope``.
        views_per_step: Views whose gradients are summed for an update; the last step of an epoch
            may have fewer.
        views_in_flight: Number of pipelined views.
        staleness: Updates a view may miss.
        settings: Settings of the passes.
        rule: How gradients become an update.
        stored: Stored node columns that the model reads for all rows of a view; reads begin as
            soon as the view is built.
        independent: Whether each worker computes views of its own.
        features: Fetches the features of these views; None makes one without a cache.
        foresight: Tells caches what the next views will read; None if none of them asks.
        ahead: Makes views of several groups together; None to make them one by one.
        tables: Learnable columns of the masters; the partition of the strategy has them too.

    Attributes:
        views: Views computed so far.

    Raises:
        ConfigError: There are tables, and views compute with old versions.

    Collective: all ranks of job_comm.
    """

    def __init__(
        self,
        model: Model,
        strategy: Strategy,
        optimiser: Optimiser,
        job_comm: Comm,
        *,
        seed: int = 0,
        backend: str = "fused",
        halo: str = "exact",
        views_per_step: int = 1,
        views_in_flight: int = 1,
        staleness: int = 0,
        settings: PassSettings | None = None,
        rule: UpdateRule | None = None,
        stored: Sequence[str] = (),
        independent: bool = False,
        features: Features | None = None,
        foresight: Foresight | None = None,
        ahead: Ahead | None = None,
        tables: Sequence[LearnedTable] = (),
    ):
        super().__init__(
            strategy,
            views_per_step=views_per_step,
            independent=independent,
            features=features,
            foresight=foresight,
            ahead=ahead,
        )
        self.model = model
        self.job_comm = job_comm
        self.seed = seed
        self.backend = backend
        self.halo = halo
        check_tables(tables, staleness)
        names = {table.name for table in tables}
        self.settings = settings or PassSettings()
        self.stored = [n for n in stored if n not in names]
        self.tables = tables
        self.versions = ParameterManager(
            optimiser=optimiser, comm=job_comm, staleness=staleness, rule=rule, tables=tables
        )
        self.queue = WorkQueue(job_comm, views_in_flight)
        self.views = 0

    @property
    def step(self) -> int:
        """Updates made so far."""
        return self.versions.newest

    def run(self, epoch: int, first: int, last: int) -> np.ndarray:
        """Run some views of an epoch, to the end of each; returns this rank's share of the loss of
        each.

        Running an epoch in several parts gives the same numbers: the version that a view uses is
        known beforehand, and versions that later views use are stored.

        Args:
            epoch: Number of the epoch.
            first: Number of the first view, at the beginning of a step.
            last: Number of the last view plus 1, at the end of a step.

        Collective: all ranks.
        """
        losses: list[float] = []
        for steps, views in self._foreseen(epoch, first, last):
            begin = steps[0][0][0]
            groups = [
                Group(self.views + a - begin, b - a, step, position, len(bounds))
                for step, bounds in enumerate(steps, start=self.step)
                for position, (a, b) in enumerate(bounds)
            ]
            work = map(self._work_item, self._prepared(views), groups)
            with np.errstate(**QUIET):
                shares = list(chain.from_iterable(self.queue.run(list(work))))
            self.views += len(shares)
            losses += shares
        self.strategy.settle()
        return np.array(losses)

    def rehearse(self, epoch: int, first: int, last: int) -> Iterator[Callable[[], PreparedView]]:
        """Functions that make this worker's view of each group as ``run`` does, with all that its
        pass would read; each is called before the next one is asked for.

        Args:
            epoch, first, last: As for ``run``.

        Collective: all ranks.
        """
        for _, views in self._foreseen(epoch, first, last):
            yield from self._prepared(views)

    def state(self) -> dict[str, Any]:
        """The state between two steps: integers, and arrays that are never changed, by name."""
        parts = {
            "model": self.model.state(),
            "optimiser": self.versions.optimiser.state(),
            "version": self.versions.state(),
        }
        return {
            "views": self.views,
            **{f"{part}/{name}": x for part, values in parts.items() for name, x in values.items()},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load the result of ``state``, on any number of ranks.

        Raises:
            ConfigError, FormatError: It belongs to another model or optimiser.
        """
        parts: dict[str, dict[str, Any]] = {"model": {}, "optimiser": {}, "version": {}}
        for name, x in state.items():
            part, slash, rest = name.partition("/")
            if slash and part in parts:
                parts[part][rest] = x
        self.model.load_state(parts["model"])
        self.versions.optimiser.load_state(parts["optimiser"])
        self.versions.load_state(parts["version"])
        self.views = int(state["views"])

    def update(self, view: GraphView) -> float:
        """One update from one view; returns this rank's share of the loss.

        Collective: all ranks.
        """
        (make,) = self._prepared([lambda: view])
        item = self._work_item(make, Group(self.views, 1, self.step, 0, 1))
        with np.errstate(**QUIET):
            ((loss,),) = self.queue.run([item])
        self.views += 1
        return loss

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Inside, passes use the back end, number format and settings of this training."""
        with backend_scope(self.backend), halo_scope(self.halo), pass_scope(self.settings):
            yield

    def tape(self, number: int, view: GraphView) -> Tape:
        """The tape for this worker's pass of a group whose first view is ``number`` of the run."""
        # views of one step draw differently, but not views that are made alone, which have no node
        # in common
        offset = 0 if self.strategy.alone else self.own_view
        return Tape(seed=self.seed, step=number + offset, all_sum=view.partition.halo_comm.all_sum)

    def backward(self, tape: Tape, loss: Var) -> tuple[list[np.ndarray], list[Change], Gradients]:
        """Backpropagate; returns gradients summed over the ranks, changes of other state, and the
        gradients of this rank.

        Args:
            tape: Of the pass.
            loss: This rank's share of the loss.

        Collective: all ranks.
        """
        ledger = self.job_comm.ledger
        with ledger.span("backward"):
            total = GradientSum(self.job_comm, self.versions.optimiser.parameters)
            gradients = tape.backward(loss, final=total.add)
        changes = tape.changes
        tape.changes = []
        with ledger.span("reduce"):
            return total.finish(gradients), changes, gradients

    def learned(self, view: GraphView) -> LearnedRows:
        """The rows of tables that a pass over a view reads.

        Collective: all ranks.
        """
        return (
            FetchedRows(self.tables, self.strategy.partition, view)
            if self.tables and self.dealt
            else OwnRows(self.tables, view)
        )

    def _prepared(
        self, views: Sequence[Callable[[], GraphView]]
    ) -> list[Callable[[], PreparedView]]:
        """Functions for work items that run together: each makes a view in its turn, and begins to
        read the rows of its passes.
        """

        def begin(view: GraphView) -> LearnedRows:
            learned = self.learned(view)
            view.node.read_begin(self.stored, view.space.n)
            return learned

        def prepare(make: Callable[[], GraphView]) -> PreparedView:
            with self.job_comm.ledger.stage("batch"):
                view = make()
                if not (self.tables or self.stored):
                    return view, begin(view)
                with self.job_comm.ledger.stage("fetch"):
                    return view, in_stage(FEATURES, partial(begin, view))

        return [partial(prepare, make) for make in self._in_turns(views)]

    @contextmanager
    def _work_item(
        self, make: Callable[[], PreparedView], group: Group
    ) -> Iterator[Callable[[], list[float]]]:
        """The work item of a group: entering it makes this worker's view."""
        ledger = self.job_comm.ledger
        version = self.versions.version_of(group.step)
        name = f"view {group.number + self.own_view + 1}"
        with (
            ledger.batch(group.number),
            ledger.span(name, step=group.step + 1, version=version),
        ):
            yield partial(self._compute, *make(), group)

    def _compute(self, view: GraphView, learned: LearnedRows, group: Group) -> list[float]:
        """Forward and backward over this worker's view of a group; delivers the gradients.

        Returns:
            This rank's share of the loss of each view of the group.

        Collective: all ranks.
        """
        with (
            self.versions.using(group.step),
            self.scope(),
            self.tape(group.number, view) as tape,
        ):
            with self.job_comm.ledger.span("forward"):
                loss = self.strategy.task.loss(view, self.model(view, **learned.read()))
            reduced, changes, gradients = self.backward(tape, loss)
            rows = learned.changes(gradients)
        if self.independent:
            changes = self._changes_of_all(changes, group.n)
        self.versions.deliver(
            step=group.step,
            position=group.position,
            groups=group.groups,
            gradients=reduced,
            changes=changes,
            rows=rows,
        )
        return [float(loss.value) if i == self.own_view else 0.0 for i in range(group.n)]

    def _changes_of_all(self, changes: list[Change], views: int) -> list[Change]:
        """The changes of the views of all workers, in the order of the views.

        Collective: all ranks.
        """
        if not changes:
            return []
        values = self.strategy.partition.halo_comm.all_gather([values for _, values in changes])
        return [
            (update, its)
            for own in values[:views]
            for (update, _), its in zip(changes, own, strict=True)
        ]
