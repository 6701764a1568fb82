"""``gt.Run``: the steps of training, for a custom training loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from graphtheta.engine.train.step import QUIET
from graphtheta.engine.view.view import GraphView
from graphtheta.errors import TapeError
from graphtheta.ops.autodiff.tape import Change, Tape, Var
from graphtheta.train.loop.session import Session


class Run(Session):
    """The steps of training a model on a graph, one by one, for a custom loop.

    Arguments, errors and effects on the model are those of ``Session``; keys of a job that only
    ``Trainer.fit`` reads raise an error. This loop computes the numbers of ``Trainer.fit``, bit
    for bit::

        for epoch in range(10):
            for view in run.views(epoch):
                out = run.forward(view)
                run.backward(run.loss(out, view))
                run.step()

    Collective: all ranks of comm, here and in every method.
    """

    unread = (
        "seeds",
        "epochs",
        "steps",
        "patience",
        "lr_patience",
        "eval_every",
        "views_per_step",
        "mode",
        "macrobatch",
        "fetch_batch",
        "machine_cache",
        "views_in_flight",
        "pipeline",
        "stage_threads",
        "staleness",
        "checkpoint_every",
        "keep",
        "resume",
        "overwrite",
        "trace",
        "save_predictions",
        "exchange",
        "history",
        "audit",
        "audit_limit",
        "embedding",
        "metric",
        "out",
    )
    _tape: Tape | None = None

    def __init__(self, *args: Any, **keys: Any):
        super().__init__(*args, **keys)
        self._pending: list[tuple[list[np.ndarray], list[Change]]] = []

    def _remedy(self, key: str) -> str:
        return (
            super()._remedy(key)
            if key == "seeds"
            else "a custom loop does not read it; drop it, or use gt.Trainer"
        )

    @property
    def updates(self) -> int:
        """Updates made so far."""
        return self.training.step

    def views(self, epoch: int) -> Iterator[GraphView]:
        """Iterate over the views of an epoch, which are the same for every loop."""
        self.epoch = epoch + 1
        for i in range(self.strategy.views_of(epoch)):
            with self.comm.ledger.stage("batch"):
                view = self.strategy.batch(epoch, i)
            yield view

    def forward(self, view: GraphView) -> Var:
        """The outputs of the model for a view, with dropout; recording ends with ``backward``.

        An earlier pass without a ``backward`` is discarded.

        Returns:
            One row for each target of this worker, and possibly for other nodes, as ``loss`` takes
            it.
        """
        self._end()
        # the tape stays open, so that it records what the user computes from the outputs
        self._tape = self.training.tape(self.training.views, view).__enter__()
        self.training.views += 1
        with np.errstate(**QUIET), self.training.scope(), self.comm.ledger.span("forward"):
            return self.model(view)

    def loss(self, out: Var, view: GraphView) -> Var:
        """This worker's share of the mean loss over the targets of a view on all workers, 0-d.

        Shares add up over the workers: a term that is the same on all of them, such as a penalty on
        parameters, is divided by ``run.comm.size`` before it is added.
        """
        with np.errstate(**QUIET), self.training.scope():
            return self.strategy.task.loss(view, out)

    def backward(self, loss: Var) -> float:
        """Gradients of a loss, summed over the workers and added to those since the last ``step``.

        Args:
            loss: This worker's share, 0-d, computed from the outputs of the last ``forward``.

        Returns:
            The loss, summed over the workers.

        Raises:
            TapeError: There is no recorded forward pass; each allows one ``backward``.
            DivergedError: The loss is not finite.
        """
        tape = self._tape
        if tape is None:
            raise TapeError(
                "backward: there is no recorded forward pass; call forward(view) first, and"
                " backward once for each forward"
            )
        try:
            with np.errstate(**QUIET), self.training.scope():
                gradients, changes, _ = self.training.backward(tape, loss)
            total = float(self.summed(np.asarray([float(loss.value)]), self.updates, [])[0][0])
        finally:
            self._end()
        self._pending.append((gradients, changes))
        return total

    def step(self) -> None:
        """Update the parameters with the clipped sum of all gradients since the last step.

        Raises:
            TapeError: There are no gradients.
        """
        if not self._pending:
            raise TapeError("step: there are no gradients; call backward(loss) first")
        pending = self._pending
        self._pending = []
        for number, (gradients, changes) in enumerate(pending):
            self.training.versions.deliver(
                step=self.updates,
                position=number,
                groups=len(pending),
                gradients=gradients,
                changes=changes,
            )

    def state(self) -> dict[str, Any]:
        """The state between two steps: integers, and arrays that no later step changes."""
        return self.training.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a result of ``state``, on any number of workers.

        Raises:
            ConfigError, FormatError: It belongs to another model or optimiser.
        """
        self.training.load_state(state)

    def _end(self) -> None:
        """Stop recording; drop changes of running statistics that ``backward`` has not taken."""
        tape = self._tape
        self._tape = None
        if tape is not None:
            tape.changes = []
            tape.__exit__()
