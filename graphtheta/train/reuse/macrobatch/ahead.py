"""Views of several steps, expanded together before the first of them, and their features fetched
together.

Sampling needs no parameters, so views made ahead are those made one by one. The groups of views of
an epoch are divided into *macrobatches* of B groups, counted from the beginning of the epoch. The
first work item of a macrobatch expands all its views in lockstep (``merged.py``); in independent
mode it also deals their structure. Features of F of these groups at a time are fetched by the first
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, groupby

import numpy as np

from graphtheta.engine.strategy.strategy import Strategy
from graphtheta.engine.train.deal import complete, structure
from graphtheta.engine.train.fetch import Features, row_bytes
from graphtheta.engine.train.parts import parts_of
from graphtheta.engine.train.supply import groups_of
from graphtheta.engine.view.view import GraphView
from graphtheta.train.reuse.caching.foresight import Foresight
from graphtheta.train.reuse.macrobatch.counts import RelayCounts
from graphtheta.train.reuse.macrobatch.merged import MergedComm

Group = tuple[int, int]
# rows whose mean size counts as that of all; those of dense columns are equal
MEASURED_ROWS = 64


class Macrobatches:
    """Makes the views of groups ahead; see ``ViewSupply``.

    Args:
        strategy: Makes the views, from a partition whose ``halo_comm`` is a ``MergedComm``.
        features: Fetches the features of views that a worker computes alone; None in cooperative
            mode.
        views_per_step: Views of a step.
        size: Groups of a macrobatch.
        fetched: Groups whose features are fetched together.
        foresight: Tells caches what the views of a macrobatch read, in place of a dry run; None if
            they learn it by a dry run, or do not ask.
        nbytes: About the memory that they take.
        line: How the size was chosen; empty if it was given.

    Attributes:
        expanded: Views expanded so far.
    """

    def __init__(
        self,
        strategy: Strategy,
        features: Features | None,
        views_per_step: int,
        size: int,
        fetched: int,
        *,
        foresight: Foresight | None = None,
        nbytes: int = 0,
        line: str = "",
    ):
        comm = strategy.partition.halo_comm
        assert isinstance(comm, MergedComm)
        self.comm = comm
        self.strategy = strategy
        self.features = features
        self.size = size
        self.fetched = fetched
        self.foresight = foresight
        self.nbytes = nbytes
        self.line = line
        self.expanded = 0
        self._rows = np.zeros(2, np.int64)
        self._per_step = views_per_step
        self._epoch = -1
        self._groups: list[Group] = []
        self._number: dict[Group, int] = {}
        self._last: _Macrobatch | None = None

    def views(self, epoch: int, groups: Sequence[Group]) -> list[Callable[[], GraphView]]:
        """Functions that return this worker's view of each group, each called once, in a work item
        of its own.

        Args:
            epoch: Number of the epoch.
            groups: Numbers of the first view, and of the last plus 1, of groups that follow each
                other.

        Collective: all ranks of the partition.
        """
        if epoch != self._epoch:
            width = 1 if self.features is None else self.comm.size
            steps = groups_of(self.strategy.views_of(epoch), self._per_step, width)
            self._epoch = epoch
            self._groups = list(chain.from_iterable(steps))
            self._number = {group: i for i, group in enumerate(self._groups)}
        takers: list[Callable[[], GraphView]] = []
        for k, same in groupby(
            (self._number[group] for group in groups), lambda number: number // self.size
        ):
            numbers = list(same)
            if self._last is None or not self._last.holds(epoch, numbers):
                until = (k + 1) * self.size
                self._last = _Macrobatch(self, epoch, numbers[0], self._groups[numbers[0] : until])
            takers += self._last.takers(numbers)
        return takers

    def count_rows(self, ids: Sequence[np.ndarray]) -> None:
        """Count the features that some views read from other workers, together and each alone."""
        mine = self.strategy.partition.masters
        others = [np.setdiff1d(x, mine, assume_unique=True) for x in ids]
        self._rows += len(np.unique(np.concatenate(others))), sum(map(len, others))

    @property
    def counts(self) -> RelayCounts:
        """What was sent so far."""
        partition = self.strategy.partition
        some = row_bytes(partition, np.arange(min(partition.n_masters, MEASURED_ROWS)))
        alone_messages, alone_bytes = self.comm.alone
        messages, n_bytes = self.comm.merged
        rows, alone_rows = self._rows
        return RelayCounts(
            views=self.expanded,
            alone_messages=int(alone_messages),
            alone_bytes=int(alone_bytes),
            messages=int(messages),
            n_bytes=int(n_bytes),
            alone_rows=int(alone_rows),
            rows=int(rows),
            measured_rows=len(some),
            measured_bytes=int(some.sum()),
        )


class _Macrobatch:
    """Some groups of views of an epoch.

    Args:
        of: Expands and fetches.
        epoch: Number of the epoch.
        first: Number of the first group in the epoch.
        groups: The groups.
    """

    def __init__(self, of: Macrobatches, epoch: int, first: int, groups: list[Group]):
        self._of = of
        self._epoch = epoch
        self._first = first
        self._groups = groups
        self._makers = of.strategy.makers(epoch, groups[0][0], groups[-1][1])
        self._left = set(range(first, first + len(groups)))
        self._views: dict[int, GraphView] = {}
        # groups whose features are fetched by the first of them, by number
        self._together: dict[int, range] = {}
        for at in range(first, first + len(groups), of.fetched):
            same = range(at, min(at + of.fetched, first + len(groups)))
            self._together.update(dict.fromkeys(same, same))
        self._complete: set[int] = set()
        self._expanded = False

    def holds(self, epoch: int, numbers: Iterable[int]) -> bool:
        """Whether it makes the views of some groups, and nobody has taken them."""
        return epoch == self._epoch and self._left.issuperset(numbers)

    def takers(self, numbers: list[int]) -> list[Callable[[], GraphView]]:
        """Functions that return the views of some groups."""
        self._left.difference_update(numbers)
        return [partial(self._take, number) for number in numbers]

    def _take(self, number: int) -> GraphView:
        """The view of a group; the first caller makes those of others, which wait for it.

        Collective: all ranks of the partition, for the first group and for each first one whose
        features are fetched.
        """
        comm = self._of.comm
        if number == self._first:
            self._expand()
        comm.until(lambda: self._expanded, "waits for its macrobatch")
        if number == self._together[number][0]:
            self._fetch(self._together[number])
        comm.until(lambda: number in self._complete, "waits for features")
        return self._views.pop(number)

    def _expand(self) -> None:
        of = self._of
        comm = self._of.comm
        of.expanded += len(self._makers)
        views = comm.together(
            self._makers
            if of.features is None
            else [partial(self._dealt, *group) for group in self._groups]
        )
        self._makers = []
        self._views = dict(enumerate(views, start=self._first))
        if of.foresight is not None:
            if of.features is not None:
                # earlier reads are over
                of.features.turns.wait(comm)
            of.foresight.expanded(views)
        self._expanded = True

    def _dealt(self, first: int, last: int) -> GraphView:
        """The structure of this worker's view of a group; collective."""
        strategy = self._of.strategy
        return structure(parts_of(strategy, self._epoch, first, last), strategy.layers)

    def _fetch(self, numbers: range) -> None:
        if (features := self._of.features) is not None:
            partition = self._of.strategy.partition
            ids = [self._views[number].partition.masters for number in numbers]
            with partition.halo_comm.ledger.stage("fetch"):
                columns = features.fetch(ids)
            for number, wide in zip(numbers, columns, strict=True):
                self._views[number] = complete(self._views[number], partition, wide)
            self._of.count_rows(ids)
        self._complete.update(numbers)
