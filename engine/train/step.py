"""Training steps: a task for each view of an epoch, several under way at a time.

A task builds its view, waits for its version of the parameters, runs forward and backward with it, sums the gradients
over the ranks and hands them in. What tasks do at the same time has no influence on the numbers.
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
from .scheduler import TaskQueue
from .update import UpdateRule
from .versions import ParameterManager

# the watchdog gives steps less time than other code
RUNS_STEPS = True

# a loss that diverges is an error of ours, and one message about it is enough
QUIET: dict[str, Any] = {"over": "ignore", "invalid": "ignore", "divide": "ignore"}


class Training:
    """Turns the views of a strategy into updates of the parameters.

    Args:
        model: Computes outputs from a view.
        strategy: Gives the views, and with its task the loss.
        optimiser: Makes updates of gradients.
        job_comm: All ranks that share the parameters; gradients are summed over them. What a view moves goes over the
            ``halo_comm`` of its partition.
        seed: Of all draws.
        backend: How messages are computed, as ``ops.fused.backend_scope`` takes it.
        halo: How numbers travel between ranks, as ``mail.halo_scope`` takes it.
        views_per_step: Views whose gradients are summed for an update; the last step of an epoch may have fewer.
        views_in_flight: Views under way at a time.
        staleness: Updates a view may miss.
        settings: Of the passes.
        rule: How gradients become an update.
        stored: Stored node columns that the model reads for all rows of a view; their reads begin as soon as the view is built.

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
        self.queue = TaskQueue(job_comm, views_in_flight)
        self.views = 0

    @property
    def step(self) -> int:
        """Updates made so far."""
        return self.versions.newest

    def run(self, epoch: int, first: int, last: int) -> np.ndarray:
        """Run some views of an epoch, to the end of each; returns this rank's share of the loss of each.

        Where an epoch is cut changes no number: which version a view uses is known beforehand, and no view of a later step
        asks for one that is not kept.

        Args:
            epoch: Number of the epoch.
            first: Number of the first view, at the beginning of a step.
            last: Number behind the last view, at the end of a step.

        Collective: all ranks.
        """
        return np.array(self._run([partial(self.strategy.batch, epoch, i) for i in range(first, last)]))

    def state(self) -> dict[str, Any]:
        """All that the next step depends on, between two steps: arrays, which are never changed, and whole numbers, by name."""
        parts = {"model": self.model.state(), "optimiser": self.versions.optimiser.state(), "version": self.versions.state()}
        return {"views": self.views, **{f"{part}/{name}": x for part, held in parts.items() for name, x in held.items()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state`` returned, on any number of ranks.

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
        """Inside, passes compute and exchange as this training does."""
        with backend_scope(self.backend), halo_scope(self.halo), pass_scope(self.settings):
            yield

    def tape(self, number: int) -> Tape:
        """For the pass of view ``number`` of the run."""
        # draws are keyed by the view and not by the step, so that views of one step draw differently
        return Tape(seed=self.seed, step=number, all_sum=self.strategy.partition.halo_comm.all_sum)

    def backward(self, tape: Tape, loss: Var) -> tuple[list[np.ndarray], list[Callable[[], None]]]:
        """Backpropagate; returns the gradients of the optimiser's parameters, summed over the ranks, and the pass's changes of other state.

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
        tasks = []
        for i, make in enumerate(makers):
            step, place = divmod(i, per_step)
            tasks.append(partial(self._compute, make, self.views + i, first + step, place, min(per_step, len(makers) - step * per_step)))
        with np.errstate(**QUIET):
            losses = self.queue.run(tasks)
        self.views += len(tasks)
        return losses

    def _compute(self, make: Callable[[], GraphView], number: int, step: int, place: int, views: int) -> float:
        """One task: view ``number`` of the run, which is view ``place`` of the ``views`` of a step."""
        ledger = self.job_comm.ledger
        with ledger.span(f"view {number + 1}", step=step + 1, version=self.versions.version_of(step)):
            with ledger.stage("batch"):
                view = make()
                view.read_begin(self.stored, view.space.n)
            with self.versions.using(step), self.scope(), self.tape(number) as tape:
                with ledger.span("forward"):
                    loss = self.strategy.task.loss(view, self.model(view))
                reduced, changes = self.backward(tape, loss)
            self.versions.deliver(step, place, views, reduced, changes)
        return float(loss.value)
