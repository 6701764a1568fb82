"""Inclusion probabilities of LABOR: the same variance as neighbour sampling from fewer vertices.

Edge t -> s is included with probability min(1, c_s pi_t). All values here are inverse: x_s = 1 /
c_s and rho_t = 1 / pi_t. Given rho, x_s solves

    sum over edges of a max(1, x_s rho) = T_s

where the right side is the variance of neighbour sampling. The left side is convex and piecewise
linear in x_s, so Newton's method, started where no probability is 1, finds the solution in a few
steps. The published fixed point iteration multiplies c_s until both sides agree to 1e-4, which
takes more passes over the edges. All sums are made in integers and extremes are exact, so every
worker finds the same bits, whatever the partition, and no decision depends on rounding.

Source: LABOR, https://arxiv.org/abs/2210.13339
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphtheta.engine.sampling.bipartite import NO_VALUES, TERM_BITS, Bipartite, scale_of
from graphtheta.ops.kernels.sampling import vertex_sample

# LABOR-* stops when the expected number of vertices falls by less than this share
LEAST_GAIN = 1e-4


@dataclass
class Inclusion:
    """Inclusion probabilities 1 / max(1, x rho) of edges.

    Attributes:
        x: Of each receiving row.
        rho: By block: of each sender, or of each edge if ``by_edge``.
    """

    x: np.ndarray
    rho: list[np.ndarray]
    by_edge: bool


class Importance:
    """The equations of one pass.

    Args:
        graph: The edges.
        degree: Number of edges of each receiving row over all workers.
        k: Fanout.
        values: Positive value of each edge by block, or None for uniform sampling.

    Collective: all ranks of the frontier's partition.
    """

    def __init__(
        self, graph: Bipartite, degree: np.ndarray, k: int, values: list[np.ndarray] | None
    ):
        self._graph = graph
        self._degree = degree
        self._k = k
        self._values = values
        n = len(degree)
        least = np.clip(degree, 1, k)
        if values is None:
            self._weights = [NO_VALUES for _ in graph.edges]
            self._scale = np.ones(n)
            self._target = degree * degree / least
        else:
            self._weights = [x * x for x in values]
            sums, scale = graph.moments(values)
            total = sums[:, 1] / scale
            squares = sums[:, 2] * 2.0**TERM_BITS / (scale * scale)
            self._scale = scale * scale * 2.0**-TERM_BITS
            self._target = total * total / least - total * total / np.maximum(degree, 1) + squares

    def solve(self, iterations: int) -> Inclusion:
        """The probabilities after some iterations; -1 iterates while the expected number of
        vertices falls.

        Collective: all ranks of the frontier's partition.
        """
        inclusion = self._first()
        before = 0
        while iterations:
            y = self._smallest(inclusion)
            if iterations < 0:
                expected = self._expected(y)
                if not expected or expected >= (1 - LEAST_GAIN) * before > 0:
                    break
                before = expected
            rho = [y for _ in self._graph.edges]
            inclusion = Inclusion(self._solved(rho, False), rho, False)
            iterations -= 1
        return inclusion

    def _first(self) -> Inclusion:
        """The probabilities of LABOR-0."""
        if self._values is None:
            ones = np.ones(self._graph.senders.n)
            return Inclusion(
                np.maximum(self._degree / self._k, 1), [ones for _ in self._graph.edges], False
            )
        rho = [1 / x for x in self._values]
        return Inclusion(self._solved(rho, True), rho, True)

    def _solved(self, rho: list[np.ndarray], by_edge: bool) -> np.ndarray:
        """The solution x of each row."""
        n = len(self._degree)
        top = self._largest(rho, by_edge, [NO_VALUES for _ in rho])
        # a row of at most k edges keeps all of them
        done = self._degree <= self._k
        x = np.where(done, 1 / np.where(top > 0, top, 1), np.inf)
        weighted = top if self._values is None else self._largest(rho, by_edge, self._weights)
        scale = np.stack((self._scale, scale_of(weighted)), axis=1)
        below = np.full(n, -1)
        while self._any(~done):
            sums = self._saturation(rho=rho, by_edge=by_edge, x=x, done=done, scale=scale)
            moving = ~done & (sums[:, 0] != below) & (sums[:, 0] > 0)
            part = sums[moving]
            x[moving] = np.minimum(
                x[moving],
                (self._target[moving] - part[:, 1] / scale[moving, 0])
                / (part[:, 2] / scale[moving, 1]),
            )
            below = sums[:, 0]
            done = ~moving
        return x

    def _saturation(
        self,
        rho: list[np.ndarray],
        by_edge: bool,
        x: np.ndarray,
        done: np.ndarray,
        scale: np.ndarray,
    ) -> np.ndarray:
        """The sums of ``vertex_sample.saturation`` over all workers, [n, 3]."""
        graph = self._graph
        sums = np.zeros((len(x), 3), np.int64)
        graph.each(
            lambda b, ptr, rows: vertex_sample.saturation(
                ptr=ptr,
                index=graph.index[b],
                rho=rho[b],
                by_edge=by_edge,
                a=self._weights[b],
                x=x[rows],
                done=done[rows],
                scale=scale[rows],
                out=sums[rows],
            )
        )
        return graph.receivers.agree(np.add, sums)

    def _any(self, mask: np.ndarray) -> bool:
        """Whether a row of any worker is marked, if workers share rows; otherwise whether one of
        this worker is.
        """
        some = np.array(int(mask.any()))
        rows = self._graph.receivers
        return bool(rows.comm.all_max(some) if rows.anywhere else some)

    def _largest(
        self, rho: list[np.ndarray], by_edge: bool, weights: list[np.ndarray]
    ) -> np.ndarray:
        """The largest product of rho and weight of each row; 0 for a row without edges."""
        graph = self._graph
        out = np.zeros(len(self._degree))
        graph.each(
            lambda b, ptr, rows: vertex_sample.largest(
                ptr=ptr,
                index=graph.index[b],
                rho=rho[b],
                by_edge=by_edge,
                a=weights[b],
                out=out[rows],
            )
        )
        return graph.receivers.agree(np.maximum, out)

    def _smallest(self, inclusion: Inclusion) -> np.ndarray:
        """The smallest product of rho and x of each sender: 1 / max c_s pi_t."""
        graph = self._graph
        out = np.full(self._graph.senders.n, np.inf)
        for c, index, rho in zip(graph.edges, graph.index, inclusion.rho, strict=True):
            vertex_sample.smallest(
                ptr=c.ptr,
                index=index,
                rho=rho,
                by_edge=inclusion.by_edge,
                x=inclusion.x[graph.receivers.at(c.kinds[1])],
                out=out,
            )
        return graph.senders.agree(np.minimum, out)

    def _expected(self, y: np.ndarray) -> int:
        """Expected number of chosen vertices over all workers, in units of 2**-TERM_BITS."""
        senders = self._graph.senders
        terms = np.rint(2.0**TERM_BITS / np.maximum(y[: senders.n_masters], 1)).astype(np.int64)
        return int(senders.comm.all_sum(terms.sum()))
