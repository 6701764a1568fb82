"""PLADIES: LADIES with Poisson sampling, so that importance weights are exact inverse
probabilities.

Source: Balin and Catalyurek, "Layer-Neighbor Sampling", https://arxiv.org/abs/2210.13339
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphtheta.engine.sampling.bipartite import TERM_BITS, Bipartite
from graphtheta.samplers.layer_wise import LayerWiseSampler

STEPS = 50
ENOUGH = 0.9999


@dataclass(frozen=True)
class PladiesSampler(LayerWiseSampler):
    """Keeps about ``fanout`` source vertices per hop, with all their edges into receiving nodes.

    A vertex is kept with probability min(1, c p), where p is that of LADIES and c makes the
    expected number of vertices ``fanout``.

    Attributes:
        skip: Keep the receiving nodes themselves where they are senders too, as models with skip
            connections compute them in any case.
    """

    name: ClassVar[str] = "pladies"

    skip: bool = False

    def inverse_probability(
        self, graph: Bipartite, p: np.ndarray, r: np.ndarray, n: int
    ) -> np.ndarray:
        mine = p[: graph.senders.n_masters]
        if graph.senders.comm.all_sum(np.array(len(mine))) <= n:
            return np.ones(graph.senders.n)
        # the largest probability is 1 at first, so that terms are not lost by rounding
        c = 1 / float(graph.senders.comm.all_max(np.array(mine.max(initial=0))))
        for _ in range(STEPS):
            terms = np.rint(2.0**TERM_BITS * np.minimum(c * mine, 1)).astype(np.int64)
            total = float(graph.senders.comm.all_sum(terms.sum())) * 2.0**-TERM_BITS
            if min(total, n) >= ENOUGH * max(total, n):
                break
            c *= n / total
        y = 1 / np.minimum(c * p, 1)
        if self.skip:
            y[graph.receiving] = 1
        return np.where(r * y < 1, y, np.inf)
