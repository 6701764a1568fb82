"""The supply of views: those of a strategy, group by group, as each worker computes them.

In cooperative mode a group is one view, which all workers compute together. In independent mode it
is one view for each worker, as far as the step has so many: all workers search the group together,
and each gets the view that is its own, with the features of its nodes. Training and loaders for
other libraries have the same supply, so they see the same views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Protocol

from ..strategy.strategy import Strategy
from ..view.view import GraphView
from .deal import deal
from .fetch import Features
from .parts import parts_of


class Ahead(Protocol):
    """Makes the views of several groups together."""

    def views(self, epoch: int, groups: Sequence[tuple[int, int]]) -> list[Callable[[], GraphView]]:
        """Functions that return this worker's view of each group, each called once, in a work item
        of its own.

        Args:
            epoch: Number of the epoch.
            groups: Of views that follow each other; see ``groups_of``.

        Collective: all ranks.
        """


class Foresight(Protocol):
    """Tells caches what the next views will read."""

    def until(self, epoch: int, first: int) -> int:
        """Number of the view, at the beginning of a step, up to which the caches know what is read
        from view ``first`` of an epoch on.

        Collective: all ranks.
        """


def groups_of(n: int, views_per_step: int, width: int) -> list[list[tuple[int, int]]]:
    """For each step, its groups of views: the number of the first view, and of the last plus 1.

    Args:
        n: Number of views, from the beginning of a step on.
        views_per_step: Views of a step.
        width: Most views of a group.
    """
    steps = [(begin, min(begin + views_per_step, n)) for begin in range(0, n, views_per_step)]
    return [[(i, min(i + width, end)) for i in range(begin, end, width)] for begin, end in steps]


class ViewSupply:
    """Makes the views of a strategy.

    Args:
        strategy: Chooses the nodes and edges of the views.
        views_per_step: Views of a step.
        independent: Whether each worker computes views of its own.
        features: Fetches the features of these views; None makes one without a cache.
        foresight: Tells caches what the next views will read; None if none of them asks.
        ahead: Makes views of several groups together; None to make them one by one.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        views_per_step: int = 1,
        independent: bool = False,
        features: Features | None = None,
        foresight: Foresight | None = None,
        ahead: Ahead | None = None,
    ):
        self.strategy = strategy
        self.views_per_step = views_per_step
        self.independent = independent
        self.features = Features(strategy.partition) if features is None else features
        self.foresight = foresight
        self.ahead = ahead

    @property
    def own_view(self) -> int:
        """Number of this worker's view in a group."""
        return self.strategy.partition.halo_comm.rank if self.independent else 0

    @property
    def dealt(self) -> bool:
        """Whether workers compute views of nodes of other workers."""
        return self.independent and not self.strategy.alone

    @property
    def width(self) -> int:
        """Most views of a group."""
        return self.strategy.partition.halo_comm.size if self.independent else 1

    def own_views(self, epoch: int, first: int, last: int) -> Iterator[GraphView]:
        """This worker's view of each group, one after another.

        Args:
            epoch: Number of the epoch.
            first: Number of the first view, at the beginning of a step.
            last: Number of the last view plus 1, at the end of a step.

        Collective: all ranks, whenever the next view is asked for.
        """
        for _, makers in self._foreseen(epoch, first, last):
            for make in self._in_turns(makers):
                yield make()

    def _foreseen(
        self, epoch: int, first: int, last: int
    ) -> Iterator[tuple[list[list[tuple[int, int]]], list[Callable[[], GraphView]]]]:
        """The groups of the steps of some views, and functions that make this worker's view of
        each group; as many at a time as caches know what is read.
        """
        while first < last:
            end = last if self.foresight is None else min(last, self.foresight.until(epoch, first))
            steps = [
                [(first + a, first + b) for a, b in groups]
                for groups in groups_of(end - first, self.views_per_step, self.width)
            ]
            yield steps, self._views(epoch, list(chain.from_iterable(steps)))
            first = end

    def _views(self, epoch: int, groups: list[tuple[int, int]]) -> list[Callable[[], GraphView]]:
        """Functions that make this worker's views of groups that follow each other."""
        if self.ahead is not None:
            return self.ahead.views(epoch, groups)
        first = groups[0][0]
        makers = self.strategy.makers(epoch, first, groups[-1][1])
        if self.dealt:
            return [partial(self._dealt, epoch, *group) for group in groups]
        return [makers[a - first : b - first][self.own_view] for a, b in groups]

    def _dealt(self, epoch: int, first: int, last: int) -> GraphView:
        """This worker's view of a group, which all workers search."""
        return deal(
            parts_of(self.strategy, epoch, first, last), self.strategy.layers, self.features
        )

    def _in_turns(self, views: Sequence[Callable[[], GraphView]]) -> list[Callable[[], GraphView]]:
        """Functions for work items that run together: each makes a view, whose features are
        fetched in its turn.
        """
        self.features.turns.restart()

        def in_turn(number: int, make: Callable[[], GraphView]) -> GraphView:
            with self.features.turns.of(number):
                return make()

        return [partial(in_turn, number, make) for number, make in enumerate(views)]
