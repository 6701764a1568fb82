"""LABOR with a fixed number of edges: a node keeps those whose senders have the lowest draws.

Parallel edges must not share a draw here. A node of three edges, two of them from one vertex, would
keep one of these two in half of the cases if it keeps one edge, and not in two thirds, so sums
would be biased. Of several edges with the same ends, each therefore has a draw of its own, as if it
came from another vertex: edge c of them draws for the id of its sender + c * n_nodes. They are
counted over all workers, since a placement may store them apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphtheta.engine.sampling.bipartite import EDGES_PER_BLOCK, degrees
from graphtheta.engine.sampling.bottom_k import BottomK
from graphtheta.engine.sampling.candidates import IN_ORDER, Candidates, Chosen, Frontier, Sample
from graphtheta.engine.sampling.copies import Copies
from graphtheta.engine.sampling.parallel import parallel_of
from graphtheta.engine.sampling.priority import Priority, Ranked, ranked_by, sender_ids
from graphtheta.engine.sampling.row_blocks import by_rows
from graphtheta.ops.kernels.sampling import vertex_sample
from graphtheta.ops.parallel.buffers import by_blocks
from graphtheta.samplers.vertex_draws import WORK, Draws, drawn
from graphtheta.samplers.weighted import RatePriority


def lowest(frontier: Frontier, draws: Draws, k: int, column: str) -> Sample:
    """The k edges of the lowest draws, or of the lowest draws divided by the values of a column, of
    each node.

    Without a column every edge has the same probability, fanout / degree. With one this is the
    priority sampling of ``WeightedSampler`` with draws of vertices.

    Collective: all ranks of the frontier's partition.
    """
    priority = ShareOfDraw(column, False, True, draws) if column else VertexPriority(draws)
    return BottomK(
        frontier=frontier, priority=priority, key=int(draws[0]), k=k, replace=False
    ).choose()


def repeated(frontier: Frontier, draws: Draws, k: int) -> Sample:
    """With replacement: each vertex has k draws, and a node keeps the edges of the k lowest of all.

    Collective: all ranks of the frontier's partition.
    """
    degree = degrees(frontier)
    edges = []
    n_nodes = frontier.partition.n_nodes
    for c in frontier.candidates:
        listed = c.listed()
        vertex = _vertices(frontier, listed, k)

        def some(rows: slice, listed: Chosen = listed, vertex: np.ndarray = vertex) -> Any:
            ptr = listed.ptr[rows.start : rows.stop + 1]
            return vertex_sample.lowest_repeated(
                ptr=ptr,
                edges=listed.edges,
                others=listed.senders,
                vertex=vertex,
                draws=draws,
                n_ids=n_nodes,
                k=k,
            )

        edges.append(c.of(*by_rows(np.diff(listed.ptr), some, EDGES_PER_BLOCK)))
    sample = BottomK(
        frontier=replace(frontier, candidates=edges, complete=False),
        priority=RepeatedPriority(draws, k),
        key=0,
        k=k,
        replace=False,
    ).choose()
    rows = Copies(frontier.receivers)
    chosen = []
    for c in sample.chosen:
        once, often = _merged(c)
        share = degree[rows.at(c.kinds[1])] / k
        chosen.append(once.weighted(often * np.repeat(share, np.diff(once.ptr))))
    return Sample(chosen, sample.move_rows)


@dataclass(frozen=True)
class VertexPriority(Priority):
    """Edges ranked by the draws of their senders."""

    draw: Draws

    def rank(self, frontier: Frontier, edges: Candidates, key: int) -> Ranked:
        if not self.draw[-1] and not len(_parallel(frontier, edges)):
            # draws of distinct senders are distinct
            return Ranked(
                edges, sender_ids(frontier.partition, edges), edges.senders, key, distinct=True
            )
        listed = edges.listed()
        vertex = _vertices(frontier, listed, 1)
        return (
            ranked_by(listed, drawn(self.draw, vertex))
            if self.draw[-1]
            else Ranked(listed, vertex, IN_ORDER, key, distinct=True)
        )


@dataclass(frozen=True)
class ShareOfDraw(RatePriority):
    """Edges ranked by the draws of their senders divided by a column of positive rates."""

    draw: Draws

    def rank(self, frontier: Frontier, edges: Candidates, key: int) -> Ranked:
        listed = edges.listed()
        vertex = _vertices(frontier, listed, 1)
        rates = self.rates(frontier, edges)
        if not self.draw[-1]:
            return Ranked(listed, vertex, IN_ORDER, key, rates=rates)
        # the bits of positive numbers have the order of the numbers
        return Ranked(
            listed, (drawn(self.draw, vertex) / rates[listed.edges]).view(np.uint64), IN_ORDER, None
        )


@dataclass(frozen=True)
class RepeatedPriority(Priority):
    """Edges that are listed once for each of their draws among the lowest; entry j of an edge has
    its j-th lowest draw.
    """

    draw: Draws
    k: int

    def rank(self, frontier: Frontier, edges: Candidates, key: int) -> Ranked:
        listed = edges.listed()
        vertex = _vertices(frontier, listed, self.k)
        n_nodes = frontier.partition.n_nodes
        return ranked_by(
            listed,
            vertex_sample.sorted_draws(
                ptr=listed.ptr,
                edges=listed.edges,
                vertex=vertex,
                draws=self.draw,
                n_ids=n_nodes,
                k=self.k,
            ),
        )

    def weight(self, frontier: Frontier, edges: Chosen, share: np.ndarray) -> None:
        return None


def _vertices(frontier: Frontier, edges: Chosen, k: int) -> np.ndarray:
    """Ids that the edges draw for, [n_edges] int64, where each id has k draws."""
    out = np.empty(len(edges.edges), np.int64)
    ids = sender_ids(frontier.partition, edges)
    number = _parallel(frontier, edges)
    settings = edges.edges, edges.senders, ids, number, k * frontier.partition.n_nodes, out
    by_blocks(lambda b, begin, end: vertex_sample.vertices(*settings, begin, end), len(out), WORK)
    return out


def _parallel(frontier: Frontier, edges: Candidates) -> np.ndarray:
    """``parallel_of`` for the edges of a block."""
    number = parallel_of(frontier.partition, frontier.relation)
    block = edges.block
    return number[block.start : block.start + block.n_edges] if len(number) else number


def _merged(c: Chosen) -> tuple[Chosen, np.ndarray]:
    """Edges that are listed several times, one entry after another, once; and how often each was
    listed.
    """
    row = np.repeat(np.arange(len(c.rows)), np.diff(c.ptr))
    first = np.append(True, (c.edges[1:] != c.edges[:-1]) | (row[1:] != row[:-1]))[: len(row)]
    often = np.diff(np.append(np.flatnonzero(first), len(row)))
    ptr = np.append(0, np.cumsum(first))[c.ptr]
    return c.of(ptr, c.edges[first], c.senders[first]), often
