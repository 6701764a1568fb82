"""An R-MAT graph that is never stored: hashes draw the edges of a node when it is asked for, the
same each time.

So batches of a graph of the size of papers100M can be drawn one after another, and what they have
in common is what they have there. The edges into a node do not depend on those into another one, so
an edge may lack its reverse, as in ``excerpts.py``.
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations, count
from math import comb, expm1

import numpy as np
import scipy
from excerpts import PAPERS, A, B, distinct

from graphtheta.base.rng import Purpose, bits, integers, key, uniform

# random bits that decide about a bit of a neighbour
PRECISION = 16
# from this mean on, a number of edges is that of a normal distribution
NORMAL = 50.0
# nodes whose edges are drawn at a time
CHUNK = 1 << 19


class LazyRmat:
    """A graph of 2**scale nodes.

    Args:
        scale: Of the graph.
        degree: Mean number of edges into a node.
        seed: Seed of the edges.
    """

    def __init__(self, scale: int, degree: int = PAPERS.degree, seed: int = 0):
        self.scale = scale
        self._degree = degree
        self._seed = seed

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return 1 << self.scale

    def degrees(self, nodes: np.ndarray) -> np.ndarray:
        """Edges into some nodes, [n] int64."""
        u = uniform(key(self._seed, Purpose.DATA, 0), nodes)
        ones = np.bitwise_count(nodes)
        found = np.zeros(len(nodes), np.int64)
        for n in np.unique(ones):
            at = np.flatnonzero(ones == n)
            mean = self._mean(int(n))
            if mean < NORMAL:
                below = scipy.special.pdtr(np.arange(4 * NORMAL), mean)
                found[at] = np.searchsorted(below, u[at])
            else:
                found[at] = np.rint(
                    mean + np.sqrt(mean) * scipy.special.ndtri(np.clip(u[at], 1e-12, 1 - 1e-12))
                )
        return found

    def _mean(self, ones: int) -> float:
        """Expected edges into a node, whose bits decide the probability that an edge ends there."""
        return (
            float(self._degree << self.scale) * (A + B) ** (self.scale - ones) * (1 - A - B) ** ones
        )

    @cached_property
    def connected(self) -> float:
        """Expected share of the nodes that have edges, about half in an R-MAT graph."""
        return (
            sum(comb(self.scale, n) * -expm1(-self._mean(n)) for n in range(self.scale + 1))
            / self.n_nodes
        )

    def neighbours(self, nodes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The other end of edge ``numbers[i]`` into node ``nodes[i]``, [n] int64."""
        found = np.zeros_like(nodes)
        edges = nodes * np.int64(self._degree << self.scale) + numbers
        # with each bit of a node, a bit of the other end has another probability
        one = np.array([B / (A + B), 1 - B / (1 - A - B)]) * (1 << PRECISION)
        limit = np.rint(one).astype(np.uint64)
        each = 64 // PRECISION
        for bit in range(self.scale):
            if bit % each == 0:
                drawn = bits(key(self._seed, Purpose.DATA, 1, bit), edges)
            part = drawn >> np.uint64(PRECISION * (bit % each)) & np.uint64((1 << PRECISION) - 1)
            found |= (part < limit[nodes >> bit & 1]).astype(np.int64) << bit
        return found

    def sampled(self, nodes: np.ndarray, fanout: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """At most ``fanout`` edges into each node, which differ from batch to batch: sources and
        destinations.

        Those of a node follow each other in its list, which has no order, from a place that the
        batch decides.
        """
        degrees = self.degrees(nodes)
        taken = np.minimum(degrees, fanout)
        dst = np.repeat(nodes, taken)
        number = np.arange(len(dst)) - np.repeat(np.cumsum(taken) - taken, taken)
        first = (uniform(key(self._seed, Purpose.SAMPLE, batch), nodes) * degrees).astype(np.int64)
        number = (np.repeat(first, taken) + number) % np.repeat(degrees, taken)
        return self.neighbours(dst, number), dst

    def targets(self, n: int, batch: int) -> np.ndarray:
        """At most n training nodes, in random order, others for each batch; all have edges, and
        there are as many as in papers100M.
        """
        every = round(PAPERS.nodes / PAPERS.training * self.connected)
        found = every * integers(
            key(self._seed, Purpose.BATCH, batch), np.arange(8 * n), self.n_nodes // every
        )
        found = found[np.sort(np.unique(found, return_index=True)[1])]
        return found[self.degrees(found) > 0][:n]

    def neighbourhood(
        self, targets: np.ndarray, fanouts: list[int], batch: int
    ) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
        """What a sampled mini-batch reads: nodes, ascending, and sources and destinations of the
        edges of each hop.

        A node that is met several times keeps the neighbours of the first time.
        """
        new = computed = np.sort(targets)
        ends: list[tuple[np.ndarray, np.ndarray]] = []
        for fanout in fanouts:
            ends.append(self.sampled(new, fanout, batch))
            new = np.setdiff1d(distinct(ends[-1][0]), computed, assume_unique=True)
            computed = distinct(np.concatenate((computed, new)))
        return computed, ends

    def counted(self, targets: np.ndarray, fanouts: list[int], batch: int) -> tuple[int, int]:
        """Nodes and edges of such a batch, which need not fit into memory."""
        seen = np.zeros(self.n_nodes, bool)
        new = targets
        edges = 0
        seen[new] = True
        for fanout in fanouts:
            reached = np.zeros(self.n_nodes, bool)
            for some in np.array_split(new, -(-len(new) // CHUNK)):
                src, _ = self.sampled(some, fanout, batch)
                reached[src] = True
                edges += len(src)
            new = np.flatnonzero(reached & ~seen)
            seen |= reached
        return int(seen.sum()), edges

    def most_connected(self, n: int) -> np.ndarray:
        """The n nodes of the largest expected degrees, [n] int64: those with the fewest bits."""
        found = list[np.ndarray]()
        held = 0
        for ones in count():
            found.append(
                np.sort(
                    [
                        sum(each)
                        for each in combinations([1 << bit for bit in range(self.scale)], ones)
                    ]
                ).astype(np.int64)
            )
            held += len(found[-1])
            if held >= n or ones == self.scale:
                return np.concatenate(found)[:n]
        raise AssertionError
