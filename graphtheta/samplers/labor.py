"""LABOR: neighbour sampling with one draw for each source vertex, shared by all receiving nodes.

Source: Balin and Catalyurek, "Layer-Neighbor Sampling", https://arxiv.org/abs/2210.13339
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.relation import EDGE
from graphtheta.engine.sampling.bipartite import EDGES_PER_BLOCK, Bipartite, degrees
from graphtheta.engine.sampling.candidates import Candidates, Chosen, Frontier, Sample
from graphtheta.engine.sampling.copies import Copies
from graphtheta.engine.sampling.normalised import normalised
from graphtheta.engine.sampling.parallel import parallel_of
from graphtheta.engine.sampling.priority import sender_ids
from graphtheta.engine.sampling.row_blocks import by_rows
from graphtheta.errors import ConfigError
from graphtheta.ops.kernels.sampling import vertex_sample
from graphtheta.ops.parallel.buffers import by_blocks
from graphtheta.samplers.importance import Importance
from graphtheta.samplers.lowest_draws import lowest, repeated
from graphtheta.samplers.vertex_draws import WORK, Draws, VertexSampler, drawn


@dataclass(frozen=True)
class LaborSampler(VertexSampler):
    """Keeps about ``fanout`` in-edges of every node, from fewer source vertices than neighbour
    sampling.

    A vertex t draws one number, and a receiving node s keeps the edge from t if the number is below
    min(1, c_s pi_t). LABOR-0 has pi = 1 and c_s = fanout / degree. LABOR-i chooses pi in i
    iterations, and LABOR-* in as many as needed, so that fewer vertices are drawn at the variance
    of neighbour sampling. With ``weight`` the probabilities of LABOR-0 are proportional to the
    values of the column. The importance weight of an edge is the inverse of its probability, so
    sums are unbiased. They also vary with the number of edges kept, which means and ``normalise``
    remove; the published implementations normalise, and the variance is compared without this part.

    A node of at most ``fanout`` edges keeps all of them. The paper's condition for such a node,
    with fanout lowered to the degree, has no other solution; c_s is then the least one, 1 / min
    pi_t. LABOR-* stops, as published, when the expected number of vertices falls by less than 1e-4
    of it. Parallel edges share the draw of their sender, which leaves sums unbiased.

    Attributes:
        replace: Every vertex draws ``fanout`` numbers, and a node keeps the edges of the ``fanout``
            lowest of all; an edge kept twice counts twice.
        iterations: The i of LABOR-i; -1 for LABOR-*.
        star: LABOR-*.
        sequential: A node keeps exactly ``fanout`` edges: those of the lowest draws, or of the
            lowest draws divided by values of ``weight``. As with ``replace``, each of several
            parallel edges has a draw of its own, because sums would be biased otherwise.

    Raises:
        ConfigError: Bad numbers, or options that do not go together.
    """

    name: ClassVar[str] = "labor"

    replace: bool = False
    iterations: int = 0
    star: bool = False
    sequential: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.iterations < -1:
            raise ConfigError(
                f"iterations: got {self.iterations}, expected 0 or more, or -1 for LABOR-*"
            )
        if self.replace or self.sequential:
            kind = "replace" if self.replace else "sequential"
            if self.iterations or self.star or (self.replace and (self.weight or self.sequential)):
                raise ConfigError(
                    f"sampler=labor: {kind} keeps the lowest draws and has no meaning with"
                    f" iterations or star, and replace none with weight or sequential; drop {kind},"
                    " or the other option"
                )

    def check(self, partition: Partition) -> None:
        """Check the columns, and number parallel edges.

        Raises:
            ConfigError, DataError: As ``VertexSampler.check``.

        Collective: all ranks of the partition.
        """
        super().check(partition)
        if self.replace or self.sequential:
            parallel_of(partition, partition.relations[EDGE])

    def choose(self, frontier: Frontier, *, hop: int, step: int) -> Sample:
        """Choose edges of one pass; see ``Sampler.choose``.

        Collective: all ranks of the frontier's partition.
        """
        frontier = self.eligible(frontier)
        fanout = self.fanouts[hop]
        if fanout < 0:
            return Sample([c.listed() for c in frontier.candidates])
        sample = self._chosen(frontier, self.draws(hop, step), fanout)
        return normalised(frontier, sample) if self.normalise else sample

    def _chosen(self, frontier: Frontier, draws: Draws, fanout: int) -> Sample:
        if self.replace:
            return repeated(frontier, draws, fanout)
        if self.sequential:
            return lowest(frontier, draws, fanout, self.weight)
        if self.iterations or self.star or self.weight:
            return self._by_importance(frontier, draws, fanout)
        rows = Copies(frontier.receivers)
        # rounded down, and importance weights are the inverse of what is left
        limit = (
            (fanout << vertex_sample.UPPER_BITS) // np.maximum(degrees(frontier), fanout)
        ).astype(np.int64)
        return Sample(
            [_below(frontier, c, draws, limit[rows.at(c.kinds[1])]) for c in frontier.candidates]
        )

    def _by_importance(self, frontier: Frontier, draws: Draws, fanout: int) -> Sample:
        edges = [c.listed() for c in frontier.candidates]
        graph = Bipartite(frontier, edges)
        inclusion = Importance(
            graph, degrees(frontier), fanout, self.values(frontier, edges)
        ).solve(-1 if self.star else self.iterations)
        r = drawn(draws, graph.ids)
        return Sample(
            [
                _thinned(
                    c=c,
                    index=graph.index[b],
                    r=r,
                    rho=inclusion.rho[b],
                    by_edge=inclusion.by_edge,
                    x=inclusion.x[graph.receivers.at(c.kinds[1])],
                )
                for b, c in enumerate(edges)
            ]
        )


def _below(frontier: Frontier, c: Candidates, draws: Draws, limit: np.ndarray) -> Chosen:
    """The edges whose senders draw a number below the limit of their row."""
    ids = sender_ids(frontier.partition, c)
    n_edges = c.end - c.begin
    # with many edges it is faster to draw once for each row of the worker than once for each edge
    upper = np.empty(len(ids) if n_edges.sum() > len(ids) else 0, np.uint32)
    by_blocks(
        lambda b, begin, end: vertex_sample.upper_bits(
            draws=draws, ids=ids, out=upper, first=begin, last=end
        ),
        len(upper),
        WORK,
    )

    def some(rows: slice) -> Any:
        return vertex_sample.poisson(
            groups=(c.begin, c.end, c.edges, c.senders),
            draws=draws,
            ids=ids,
            upper=upper,
            limit=limit,
            first=rows.start,
            last=rows.stop,
        )

    *lists, weight = by_rows(n_edges, some, EDGES_PER_BLOCK)
    return c.of(*lists).weighted(weight)


def _thinned(
    c: Chosen, index: np.ndarray, r: np.ndarray, rho: np.ndarray, by_edge: bool, x: np.ndarray
) -> Chosen:
    """The edges whose senders draw a number below their inclusion probability, with the inverse of
    it as importance weight.
    """

    def some(rows: slice) -> Any:
        return vertex_sample.thinned(
            begin=c.begin[rows],
            end=c.end[rows],
            index=index,
            edges=c.edges,
            others=c.senders,
            r=r,
            rho=rho,
            by_edge=by_edge,
            x=x[rows],
        )

    *lists, weight = by_rows(c.end - c.begin, some, EDGES_PER_BLOCK)
    return c.of(*lists).weighted(weight)
