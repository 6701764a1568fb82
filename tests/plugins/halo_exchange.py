"""A halo exchange of your own: every second epoch reads a sample of the rows of other workers."""

from __future__ import annotations

import graphtheta as gt


@gt.EXCHANGES.add
class EverySecond(gt.HaloExchange):
    """Exact epochs and sampled ones in turn.

    Args:
        rate: Share of the rows that a sampled epoch reads; 1 is exact.
        seed: Seed of the sample.
    """

    name = "every_second"

    def __init__(self, rate: float = 0.5, *, seed: int):
        self._sampled = gt.Bns(rate, seed=seed)

    def view(self, exact, epoch):
        return self._sampled.view(exact, epoch) if epoch % 2 else exact

    def held(self):
        return self._sampled.held()

    def hold(self, state):
        self._sampled.hold(state)

    def figures(self):
        return self._sampled.figures()

    def tighten(self):
        return self._sampled.tighten()
