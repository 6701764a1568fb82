"""The seam of stale exchange: how workers exchange the halo rows of a global batch.

A halo exchange changes the view of a global batch, which has the exact moves. It may replace the
``Exchange`` of each pass by one whose moves deliver other values, or leave out edges of mirrors.
Evaluation has views of its own and stays exact.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from graphtheta.engine.partition.exchange import Exchange, ToMasters, ToMirrors
from graphtheta.engine.partition.message import Columns
from graphtheta.engine.view.level import Level
from graphtheta.engine.view.view import GraphView
from graphtheta.train.reuse.staleness.approximate import StaleValues, StateArrays

# merges columns of some master rows into these
Merge = Callable[[np.ndarray, Columns], None]


class HaloExchange(StaleValues):
    """How halo rows are exchanged.

    Attributes:
        name: Name in a job.
        by_values: Whether what is sent depends on the values of the rows.
    """

    name: ClassVar[str]
    by_values: ClassVar[bool] = False

    @abstractmethod
    def view(self, exact: GraphView, epoch: int) -> GraphView:
        """The view of an epoch, from the exact one, which is the same object in every epoch.

        Collective: all ranks of the view's partition.
        """

    def settle(self) -> None:
        """End moves that the epoch has begun.

        Collective: all ranks of the view's partition.
        """
        return

    @abstractmethod
    def figures(self) -> dict[str, float]:
        """As ``Approximate.figures``, of this worker; they are averaged over the workers."""


class LaterRows(ToMirrors):
    """A forward move whose rows a function returns when it ends."""

    def __init__(self, end: Callable[[], Columns]):
        self._end = end

    def end(self) -> Columns:
        return self._end()


class LaterSums(ToMasters):
    """A backward move at whose end a function merges rows."""

    def __init__(self, end: Callable[[Merge], None]):
        self._end = end

    def end(self, merge: Merge) -> None:
        self._end(merge)


class MovePolicy(HaloExchange):
    """A halo exchange that replaces both moves of the sending ends.

    A slot is one move of an epoch: the k-th forward or backward move of a pass of a superstep.
    Supersteps run in the same order in every epoch, so a slot is the same move in all of them.

    Attributes:
        last: Values of the last epochs, by slot and column; arrays are replaced and never changed.
    """

    def __init__(self) -> None:
        self.last: StateArrays = {}
        self._exact: GraphView | None = None
        self._view: GraphView | None = None
        self._calls: Counter[str] = Counter()

    @abstractmethod
    def begin(self, epoch: int) -> None:
        """Called before the moves of an epoch."""

    @abstractmethod
    def to_mirrors(self, slot: str, exchange: Exchange, columns: Columns) -> ToMirrors:
        """Begin the forward move of a slot; arguments as for ``Exchange.to_mirrors_begin``."""

    @abstractmethod
    def to_masters(self, slot: str, exchange: Exchange, columns: Columns) -> ToMasters:
        """Begin the backward move of a slot; arguments as for ``Exchange.to_masters_begin``."""

    def view(self, exact: GraphView, epoch: int) -> GraphView:
        if self._view is None or exact is not self._exact:
            # supersteps share levels in the exact view, but each has slots of its own
            self._exact = exact
            levels = [self._level(i, level) for i, level in enumerate(exact.levels)]
            self._view = replace(exact, levels=levels)
        self._calls.clear()
        self.begin(epoch)
        return self._view

    def _level(self, superstep: int, level: Level) -> Level:
        return replace(
            level,
            passes=[
                replace(p, senders=_Replaced(p.senders, self, f"{superstep}/{number}"))
                for number, p in enumerate(level.passes)
            ],
        )

    def slot(self, path: str) -> str:
        """The slot of the next move of a path."""
        self._calls[path] += 1
        return f"{path}/{self._calls[path]}"

    def columns(self, slot: str, names: Columns) -> Columns | None:
        """The last values of a slot, for each of these names; None before there are any."""
        return (
            {name: self.last[f"{slot}/{name}"] for name in names}
            if all(f"{slot}/{name}" in self.last for name in names)
            else None
        )

    def store(self, slot: str, columns: Columns) -> Columns:
        """Replace the last values of a slot; returns them."""
        self.last.update((f"{slot}/{name}", x) for name, x in columns.items())
        return columns

    def held(self) -> StateArrays:
        return {**self.last, **super().held()}

    def hold(self, state: Mapping[str, np.ndarray]) -> None:
        super().hold(state)
        self.last = {name: x for name, x in state.items() if name not in self.knobs}


class _Replaced(Exchange):
    """An exchange whose moves a policy makes; without halo rows anywhere they are exact."""

    def __init__(self, exact: Exchange, policy: MovePolicy, path: str):
        super().__init__(exact.comm, exact.plan)
        self._exact = exact
        self._policy = policy
        self._path = path

    def to_mirrors_begin(self, columns: Columns) -> ToMirrors:
        if not columns or not self.plan.anywhere:
            return self._exact.to_mirrors_begin(columns)
        return self._policy.to_mirrors(
            self._policy.slot(f"{self._path}/forward"), self._exact, columns
        )

    def to_masters_begin(self, columns: Columns) -> ToMasters:
        if not columns or not self.plan.anywhere:
            return self._exact.to_masters_begin(columns)
        return self._policy.to_masters(
            self._policy.slot(f"{self._path}/backward"), self._exact, columns
        )
