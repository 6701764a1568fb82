"""LADIES: a fixed number of source vertices per hop, chosen by importance for all receiving nodes.

Source: Zou et al., "Layer-Dependent Importance Sampling", https://arxiv.org/abs/1911.07323
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphtheta.base.wording import did_you_mean
from graphtheta.engine.sampling.bipartite import Bipartite
from graphtheta.errors import ConfigError
from graphtheta.samplers.layer_wise import LayerWiseSampler

PUBLISHED = "published"
WEIGHTS = ("inverse", PUBLISHED)


@dataclass(frozen=True)
class LadiesSampler(LayerWiseSampler):
    """Keeps ``fanout`` source vertices per hop, with all their edges into receiving nodes.

    Vertices are drawn one after another, without replacement, in proportion to their importance p:
    each has an exponential time of rate p, and those of the lowest times are kept. The importance
    weight of an edge is 1 / (1 - exp(-p tau)), where tau is the lowest time that is not kept: given
    tau, this is the inverse of the probability of its sender, so sums are unbiased.

    The published weights, 1 / (s p) for s vertices with rows rescaled, are those of s draws with
    replacement. They ignore that a vertex is kept once at most, count vertices of large p too
    little, and are biased, also where all vertices are kept. For small p both agree, with
    ``normalise``, which rescales rows.

    Attributes:
        weights: "inverse" for inverse probabilities, "published" for the published weights, which
            are always rescaled. Both keep the same edges.

    Raises:
        ConfigError: ``weights`` is neither, or an option of ``VertexSampler`` is out of range.
    """

    name: ClassVar[str] = "ladies"

    weights: str = WEIGHTS[0]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights not in WEIGHTS:
            raise ConfigError(
                f"weights: got {self.weights!r}, expected {' or '.join(WEIGHTS)}"
                f"{did_you_mean(self.weights, WEIGHTS)}"
            )

    @property
    def rescales(self) -> bool:
        return self.normalise or self.weights == PUBLISHED

    def inverse_probability(
        self, graph: Bipartite, p: np.ndarray, r: np.ndarray, n: int
    ) -> np.ndarray:
        rank = -np.log1p(-r) / p
        mine = slice(graph.senders.n_masters)
        lowest = np.lexsort((graph.ids[mine], rank[mine]))[: n + 1]
        of_workers = graph.senders.comm.all_gather((rank[lowest], graph.ids[lowest]))
        ranks, ids = (np.concatenate(x) for x in zip(*of_workers, strict=True))
        order = np.lexsort((ids, ranks))
        chosen = np.ones(graph.senders.n, bool)
        weight = chosen.astype(np.float64)
        if len(order) > n:
            last = order[n]
            chosen = (rank < ranks[last]) | ((rank == ranks[last]) & (graph.ids < ids[last]))
            weight = -1 / np.expm1(-p * ranks[last])
        if self.weights == PUBLISHED:
            # factors that all vertices share, such as 1 / s, do not outlast the rescaling
            weight = 1 / p
        # copied rather than computed again: mirrors decide as their masters do
        return graph.senders.copied(np.where(chosen, weight, np.inf))
