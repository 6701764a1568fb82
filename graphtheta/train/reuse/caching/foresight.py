"""Tells caches what the next batches will read, some groups of batches at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from graphtheta.engine.view.view import GraphView
from graphtheta.train.reuse.caching.scout import Scout


class Foreseeing(Protocol):
    """A cache that is told what will be read."""

    def foresee(self, batches: Sequence[np.ndarray]) -> None:
        """Tell the policies the keys of the rows that the next batches read here; collective."""


class Foresight:
    """Runs the sampler ahead whenever the caches do not know what is read next, unless views are
    expanded ahead anyway.

    Args:
        scout: Runs the sampler.
        caches: Are told.
        window: Number of groups of batches that are known ahead at most.

    Attributes:
        window: The same.
    """

    def __init__(self, scout: Scout, caches: Sequence[Foreseeing], window: int):
        self._scout = scout
        self._caches = caches
        self.window = window
        self._next = (-1, 0)
        # by epoch, the view up to which reads are known
        self._end_of: dict[int, int] = {}

    def expanded(self, views: Sequence[GraphView]) -> None:
        """This worker's views of the next groups have been made, one of each group, so no dry run
        is needed.

        Collective: all ranks.
        """
        self._tell([self._scout.reads(view) for view in views])

    def _tell(self, batches: Sequence[np.ndarray]) -> None:
        for cache in self._caches:
            cache.foresee(batches)

    def until(self, epoch: int, first: int) -> int:
        """Number of the view, at the beginning of a step, up to which the caches know what is read
        from view ``first`` of an epoch on.

        Collective: all ranks.
        """
        if first == 0 and self._next[0] == epoch - 1:
            self._next = epoch, 0
        if self._next != (epoch, first) or self._end_of.get(epoch, 0) <= first:
            groups = self._scout.groups_from(epoch, first, self.window)
            self._tell(list(self._scout.dry_run(epoch, first, self.window)))
            self._end_of = {at: end for at, _, end in groups}
        self._next = epoch, self._end_of[epoch]
        return self._end_of[epoch]
