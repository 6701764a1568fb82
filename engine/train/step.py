"""Training steps: a work item for each view of an epoch, several of them pipelined.

A work item builds its view, waits for its version of the parameters, runs forward and backward
with it, sums the gradients over the ranks and delivers them. The order in which work items run
does not change the numbers.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ...ops.autodiff.tape import Tape, Var
from ...ops.backend.fused import backend_scope
from ...ops.functions.optim import Optimiser
from ..comm.communicator import Comm
from ..layer.layer import Model
from ..layer.settings import PassSettings, pass_scope
from ..partition.message import halo_scope
from ..view.strategy import Strategy
from ..view.view import GraphView
from .gradient_sum import GradientSum
from .scheduler import WorkQueue
from .update import UpdateRule
from .versions import ParameterManager

# the watchdog gives steps less time than other code
RUNS_STEPS = True

# a loss that diverges is reported by an error of the engine, so warnings of NumPy are not needed
QUIET: dict[str, Any] = {"over": "ignore", "invalid": "ignore", "divide": "ignore"}


class Training:
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

    Attributes:
        views: Views computed so far.

    Collective: all ranks of job_comm.
    """

    def __init__(self, model: Model, strategy: Strategy, optimiser: Optimiser, job_comm: Comm, *, seed: int = 0, backend: str = "fused",
                 halo: str = "exact", views_per_step: int = 1, views_in_flight: int = 1, staleness: int = 0,
                 settings: PassSettings | None = None, rule: UpdateRule | None = None, stored: Sequence[str] = ()):
        self.model, self.strategy, self.job_comm, self.seed, self.backend, self.halo = model, strategy, job_comm, seed, backend, halo
        self.views_per_step, self.settings, self.stored = views_per_step, settings or PassSettings(), stored
        self.versions = ParameterManager(optimiser, job_comm, staleness, rule)
        self.queue = WorkQueue(job_comm, views_in_flight)
        self.views = 0

    @property
    def step(self) -> int:
        """Updates made so far."""
        return self.versions.newest

    def run(self, epoch: int, first: int, last: int) -> np.ndarray:
        """Run some views of an epoch, to the end of each; returns this rank's share of the loss of each.

        Running an epoch in several parts gives the same numbers: the version that a view uses is
        known beforehand, and versions that later views use are stored.

        Args:
            epoch: Number of the epoch.
            first: Number of the first view, at the beginning of a step.
            last: Number of the last view plus 1, at the end of a step.

        Collective: all ranks.
        """
        return np.array(self._run(self.strategy.makers(epoch, first, last)))

    def state(self) -> dict[str, Any]:
        """The state between two steps: integers, and arrays that are never changed, by name."""
        parts = {"model": self.model.state(), "optimiser": self.versions.optimiser.state(), "version": self.versions.state()}
        return {"views": self.views, **{f"{part}/{name}": x for part, held in parts.items() for name, x in held.items()}}

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
        return self._run([lambda: view])[0]

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Inside, passes use the back end, number format and settings of this training."""
        with backend_scope(self.backend), halo_scope(self.halo), pass_scope(self.settings):
            yield

    def tape(self, number: int) -> Tape:
        """The tape for the pass of view ``number`` of the run."""
        # draws are keyed by the view and not by the step, so that views of one step draw differently
        return Tape(seed=self.seed, step=number, all_sum=self.strategy.partition.halo_comm.all_sum)

    def backward(self, tape: Tape, loss: Var) -> tuple[list[np.ndarray], list[Callable[[], None]]]:
        """Backpropagate; returns gradients summed over the ranks, and changes of other state.

        Collective: all ranks.
        """
        ledger = self.job_comm.ledger
        with ledger.span("backward"):
            total = GradientSum(self.job_comm, self.versions.optimiser.parameters)
            gradients = tape.backward(loss, final=total.add)
        changes, tape.changes = tape.changes, []
        with ledger.span("reduce"):
            return total.finish(gradients), changes

    def _run(self, makers: list[Callable[[], GraphView]]) -> list[float]:
        first, per_step = self.step, self.views_per_step
        work = []
        for i, make in enumerate(makers):
            step, position = divmod(i, per_step)
            work.append(partial(self._compute, make, self.views + i, first + step, position, min(per_step, len(makers) - step * per_step)))
        with np.errstate(**QUIET):
            losses = self.queue.run(work)
        self.views += len(work)
        return losses

    def _compute(self, make: Callable[[], GraphView], number: int, step: int, position: int, views: int) -> float:
        """The work item of view ``number``, at ``position`` among the ``views`` of a step."""
        ledger = self.job_comm.ledger
        with ledger.span(f"view {number + 1}", step=step + 1, version=self.versions.version_of(step)):
            with ledger.stage("batch"):
                view = make()
                view.read_begin(self.stored, view.space.n)
            with self.versions.using(step), self.scope(), self.tape(number) as tape:
                with ledger.span("forward"):
                    loss = self.strategy.task.loss(view, self.model(view))
                reduced, changes = self.backward(tape, loss)
            self.versions.deliver(step, position, views, reduced, changes)
        return float(loss.value)
