"""LADIES: a fixed number of source vertices per hop, chosen by importance for all receiving nodes.

Source: Zou et al., "Layer-Dependent Importance Sampling", https://arxiv.org/abs/1911.07323
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphtheta.engine.sampling.bipartite import Bipartite
from graphtheta.samplers.layer_wise import LayerWiseSampler


@dataclass(frozen=True)
class LadiesSampler(LayerWiseSampler):
    """Keeps ``fanout`` source vertices per hop, with all their edges into receiving nodes.

    Vertices are drawn one after another, without replacement, in proportion to their importance p:
    each has an exponential time of rate p, and those of the lowest times are kept. The importance
    weight of an edge is 1 / (1 - exp(-p tau)), where tau is the lowest time that is not kept: given
    tau, this is the inverse of the probability of its sender, so sums are unbiased. The published
    weights, 1 / p with rows rescaled, ignore that a vertex is kept once at most; they count
    vertices of large p too little and are biased. For small p both agree, with ``normalise``, which
    rescales rows.
    """

    name: ClassVar[str] = "ladies"

    def inverse_probability(
        self, graph: Bipartite, p: np.ndarray, r: np.ndarray, n: int
    ) -> np.ndarray:
        rank = -np.log1p(-r) / p
        mine = slice(graph.senders.n_masters)
        lowest = np.lexsort((graph.ids[mine], rank[mine]))[: n + 1]
        of_workers = graph.senders.comm.all_gather((rank[lowest], graph.ids[lowest]))
        ranks, ids = (np.concatenate(x) for x in zip(*of_workers, strict=True))
        order = np.lexsort((ids, ranks))
        if len(order) <= n:
            return np.ones(graph.senders.n)
        last = order[n]
        chosen = (rank < ranks[last]) | ((rank == ranks[last]) & (graph.ids < ids[last]))
        # copied rather than computed again: mirrors decide as their masters do
        return graph.senders.copied(np.where(chosen, -1 / np.expm1(-p * ranks[last]), np.inf))
