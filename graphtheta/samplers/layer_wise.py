"""Layer-wise samplers: a number of source vertices per hop, for all receiving nodes together."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from graphtheta.engine.sampling.bipartite import NO_VALUES, Bipartite, degrees
from graphtheta.engine.sampling.candidates import Chosen, Frontier, Sample
from graphtheta.engine.sampling.normalised import normalised
from graphtheta.ops.kernels.sampling import vertex_sample
from graphtheta.samplers.vertex_draws import VertexSampler, drawn


@dataclass(frozen=True)
class LayerWiseSampler(VertexSampler):
    """Chooses source vertices by importance, and keeps all their edges into receiving nodes.

    The importance of a vertex is the sum of squares of the row-normalised weights of its edges: of
    the values of the column ``weight``, or of ones, divided by their sum over the edges of the
    receiving node. ``fanouts`` are vertices per hop.
    """

    def choose(self, frontier: Frontier, *, hop: int, step: int) -> Sample:
        """Choose edges of one pass; see ``Sampler.choose``.

        Collective: all ranks of the frontier's partition.
        """
        frontier = self.eligible(frontier)
        n = self.fanouts[hop]
        edges = [c.listed() for c in frontier.candidates]
        if n < 0:
            return Sample(edges)
        graph = Bipartite(frontier, edges)
        p = self._importance(graph, self.values(frontier, edges), degrees(frontier))
        y = self.inverse_probability(graph, p, drawn(self.draws(hop, step), graph.ids), n)
        sample = Sample(
            [_sent_by(c, y[index]) for c, index in zip(edges, graph.index, strict=True)]
        )
        return normalised(frontier, sample) if self.rescales else sample

    @property
    def rescales(self) -> bool:
        """Whether the importance weights of each node are rescaled to sum to the number of its
        edges.
        """
        return self.normalise

    @abstractmethod
    def inverse_probability(
        self, graph: Bipartite, p: np.ndarray, r: np.ndarray, n: int
    ) -> np.ndarray:
        """The importance weight of each chosen sender, [senders.n] float64: one divided by its
        probability; infinity for those that are not chosen.

        Args:
            graph: The edges.
            p: Importance of each sender.
            r: Draw of each sender.
            n: Vertices to choose over all workers.

        Collective: all ranks of the frontier's partition.
        """

    def _importance(
        self, graph: Bipartite, values: list[np.ndarray] | None, degree: np.ndarray
    ) -> np.ndarray:
        total = degree.astype(np.float64) if values is None else graph.row_totals(values)
        sums = np.zeros((graph.senders.n, 2), np.int64)
        for c, index, x in zip(
            graph.edges, graph.index, values or [NO_VALUES for _ in graph.edges], strict=True
        ):
            vertex_sample.squares(c.ptr, index, x, total[graph.receivers.at(c.kinds[1])], sums)
        graph.senders.agree(np.add, sums)
        bits = vertex_sample.PART_BITS
        # at least the least number that the sums can hold
        return np.maximum(sums[:, 0] + sums[:, 1] * 2.0**-bits, 2.0**-bits) * 2.0**-bits


def _sent_by(c: Chosen, weight: np.ndarray) -> Chosen:
    """Those of some edges that have a finite weight."""
    finite = np.isfinite(weight)
    return c.selected(finite.astype(np.int32))[0].weighted(weight[finite])
