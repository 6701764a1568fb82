"""Versions of the parameters: which version each view uses, and when the next one is made.

Step t of a run makes version t + 1 from version t and the summed gradients of its views. A view
computes with one version from start to end: that of the updates up to ``staleness`` steps before
its own,

    version(t) = max(0, t - staleness)

which is the oldest that stale synchronous parallel allows (Ho et al., NeurIPS 2013: a clock may
run ahead of the slowest by s, and sees all updates up to c - s - 1). If views used the newest
version available, values would be fresher but depend on the timing of each run and each rank.
With a fixed lag the order of all reads and writes is known before the run. It is the same for any
number of ranks, threads and pipelined views, so a repeated run gives the same numbers. With a lag
of 0 a step waits for the one before it, which is ordinary synchronous training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np

from graphtheta.errors import FormatError

from ...ops.autodiff.tape import Change, Parameter, version_scope
from ...ops.optimisers.optim import Optimiser
from ..comm.communicator import Comm
from ..comm.ledger import UPDATE
from .table import LearnedTable
from .update import UpdateRule


@dataclass
class _Version:
    """Values of all parameters, and how many views use them."""

    values: dict[Parameter, np.ndarray]
    users: int = 0


@dataclass
class _Step:
    """What the groups of views of a step have delivered so far, by position within the step."""

    groups: int
    gradients: dict[int, list[np.ndarray]] = field(default_factory=dict)
    changes: dict[int, list[Change]] = field(default_factory=dict)
    rows: dict[int, list[Change]] = field(default_factory=dict)
    # of the gradients of rows, over all workers; 0 unless gradients are clipped
    squares: float = 0.0

    def total(self) -> list[np.ndarray]:
        """The sum of the gradients in the order of the groups, whichever was delivered first."""
        first, *others = (self.gradients[position] for position in sorted(self.gradients))
        for more in others:
            first = [a + b for a, b in zip(first, more, strict=True)]
        return first

    def add_rows(self) -> None:
        """Add the gradients of rows to their tables, in the order of the groups."""
        rows = self.rows
        self.rows = {}
        for position in sorted(rows):
            for add, values in rows[position]:
                add(*values)


class ParameterManager:
    """Stores the versions that views may still use, and makes new ones in the order of the steps.

    Args:
        optimiser: Makes the next version.
        comm: The ranks; used to wait for a version.
        staleness: How many updates a view may miss.
        rule: How gradients become an update.
        tables: Embeddings, updated with the parameters.

    Attributes:
        newest: Number of the newest version, which is the number of updates so far.
        most_bytes: The most bytes that older versions took at a time.
    """

    def __init__(
        self,
        optimiser: Optimiser,
        comm: Comm,
        staleness: int = 0,
        rule: UpdateRule | None = None,
        tables: Sequence[LearnedTable] = (),
    ):
        self.optimiser = optimiser
        self.comm = comm
        self.staleness = staleness
        self.rule = rule or UpdateRule()
        self.tables = tables
        self.newest = 0
        self.most_bytes = 0
        # the newest version is stored in the parameters alone until a view uses it
        self._versions: dict[int, _Version] = {}
        self._steps: dict[int, _Step] = {}
        self._lock = Lock()

    def version_of(self, step: int) -> int:
        """The version that views of a step use."""
        return max(0, step - self.staleness)

    @contextmanager
    def using(self, step: int) -> Iterator[int]:
        """Inside, parameters have the version of this step; waits for it and yields its number."""
        number = self.version_of(step)
        with self.comm.ledger.waiting():
            self.comm.until(
                lambda: self.newest >= number, f"waits for version {number} of the parameters"
            )
        with self._lock:
            version = self._captured(number)
            version.users += 1
        try:
            with version_scope(version.values):
                yield number
        finally:
            with self._lock:
                version.users -= 1
                self._forget()

    def deliver(
        self,
        step: int,
        position: int,
        groups: int,
        gradients: list[np.ndarray],
        changes: Sequence[Change] = (),
        rows: Sequence[Change] = (),
    ) -> None:
        """Deliver the gradients of a group of views; a complete step becomes an update in its turn.

        Args:
            step: Number of the step.
            position: Number of the group of views within the step.
            groups: Number of groups of the step.
            gradients: One per parameter, summed over the ranks.
            changes: Updates of other state, made together with the update.
            rows: Additions to the gradients of tables.

        Collective: all ranks of comm, if there are tables and gradients are clipped.
        """
        with self._lock:
            delivered = self._steps.setdefault(step, _Step(groups))
            delivered.rows[position] = list(rows)
        if self.tables and self.rule.clip_norm and position == groups - 1:
            # without staleness a step begins when the one before it is over, so tables have no
            # other gradients
            self.comm.until(
                lambda: len(delivered.rows) == groups,
                "waits for the gradients of the other views of a step",
            )
            delivered.add_rows()
            delivered.squares = float(
                self.comm.all_sum(np.array(sum(table.squares() for table in self.tables)))
            )
        with self._lock:
            delivered.gradients[position] = gradients
            delivered.changes[position] = list(changes)
            while (due := self._steps.get(self.newest)) is not None and len(
                due.gradients
            ) == due.groups:
                self._update(self._steps.pop(self.newest))

    def state(self) -> dict[str, Any]:
        """State besides the parameters: ``newest``, and older versions as NUMBER/NAME."""
        return {
            "newest": self.newest,
            **{
                f"{n}/{name}": self._versions[n].values[p]
                for n in self._older()
                for name, p in self._named()
            },
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load the result of ``state``, after the parameters have been loaded.

        Raises:
            FormatError: Versions are missing or unknown, or of another shape or type.
        """
        self.newest = int(state["newest"])
        expected = {f"{n}/{name}": p.value for n in self._older() for name, p in self._named()}
        if set(state) - {"newest"} != set(expected):
            raise FormatError(
                f"the stored parameter versions at step {self.newest} do not match"
                f" staleness={self.staleness}; resume with the staleness of the run that stored"
                " them"
            )
        for name, like in expected.items():
            x = state[name]
            if x.shape != like.shape or x.dtype != like.dtype:
                raise FormatError(
                    f"parameter version {name} is {x.dtype}{list(x.shape)}, expected"
                    f" {like.dtype}{list(like.shape)}; resume with the model and dtype of the run"
                    " that stored it"
                )
        self._versions = {
            n: _Version({p: state[f"{n}/{name}"] for name, p in self._named()})
            for n in self._older()
        }

    def _older(self) -> range:
        """Numbers of the versions, older than the newest, that views may still use."""
        return range(self.version_of(self.newest), self.newest)

    def _named(self) -> Iterator[tuple[str, Parameter]]:
        return zip(self.optimiser.names, self.optimiser.parameters, strict=True)

    def _update(self, step: _Step) -> None:
        if self.staleness:
            self._captured(self.newest)
        for position in sorted(step.changes):
            for update, values in step.changes[position]:
                update(*values)
        step.add_rows()
        ledger = self.comm.ledger
        with ledger.span("update", version=self.newest + 1), ledger.part(UPDATE):
            scale = self.rule.apply(self.optimiser, step.total(), self.newest, step.squares)
            for table in self.tables:
                table.update(self.rule.factor(self.newest), scale)
        self.newest += 1
        self._forget()

    def _captured(self, number: int) -> _Version:
        if number == self.newest and number not in self._versions:
            self._versions[number] = _Version({p: p.value for p in self.optimiser.parameters})
        return self._versions[number]

    def _forget(self) -> None:
        """Drop versions that no view uses or will use; the newest is stored in the parameters."""
        oldest = self.version_of(self.newest)
        self._versions = {
            n: v for n, v in self._versions.items() if v.users or oldest <= n < self.newest
        }
        bytes_of = (
            sum(x.nbytes for x in v.values.values())
            for n, v in self._versions.items()
            if n < self.newest
        )
        self.most_bytes = max(self.most_bytes, sum(bytes_of))
