"""A sampler that expands no edges of nodes whose values are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from graphtheta.engine.partition.partition import MASTER, MIRROR
from graphtheta.engine.sampling.candidates import Chosen, Frontier, Sample
from graphtheta.engine.sampling.sampler import Sampler


class Pruned:
    """Another sampler, or all neighbours, without the edges of nodes that need no sum.

    Args:
        inner: Chooses edges of the others; None keeps all.
        usable: From the number of a hop to a mask of the masters whose sums are not needed,
            [n_masters] bool.
    """

    name: ClassVar[str] = "pruned"
    hops = None

    def __init__(self, inner: Sampler | None, usable: Callable[[int], np.ndarray]):
        self._inner = inner
        self._usable = usable

    def choose(self, frontier: Frontier, *, hop: int, step: int) -> Sample:
        """Choose edges of one pass; see ``Sampler.choose``."""
        masters = self._usable(hop)[frontier.rows[MASTER]]
        usable = {
            MASTER: masters,
            MIRROR: (
                frontier.receivers.to_mirrors({"usable": masters.view(np.uint8)})["usable"].view(
                    bool
                )
            ),
        }
        # the others have the edges that they would have without histories
        chosen = (
            [c.listed() for c in frontier.candidates]
            if self._inner is None
            else self._inner.choose(frontier, hop=hop, step=step).chosen
        )
        return Sample([_without(c, usable[c.kinds[1]]) for c in chosen])


def _without(c: Chosen, rows: np.ndarray) -> Chosen:
    """The edges into other rows.

    Args:
        rows: Mask of the receiving rows, in the order of the groups, [n_groups] bool.
    """
    on = np.repeat(~rows, np.diff(c.ptr))
    return c.selected(on.astype(np.int32))[0].weighted(None if c.weight is None else c.weight[on])
