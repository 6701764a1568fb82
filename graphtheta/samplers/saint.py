"""The samplers of GraphSAINT: random nodes, edges, walks, and multi-dimensional random walks.

Each draws with replacement, as the reference implementation does, and yields the set of nodes that
were drawn or visited. Walks run along the edges.

Source: GraphSAINT, https://arxiv.org/abs/1907.04931
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphtheta.engine.partition.exchange import Exchange
from graphtheta.engine.partition.located import values_of
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.relation import EDGE
from graphtheta.engine.sampling.drawing import Neighbours, WeightedNodes
from graphtheta.engine.sampling.node_set import NodeSets, NodeSetSampler
from graphtheta.errors import ConfigError
from graphtheta.rng import Purpose, key, uniform

# the sum of all probabilities of ``_squared_norms`` as integers is about 2**EXACT
EXACT = 52


@dataclass(frozen=True, kw_only=True)
class SaintNode(NodeSetSampler):
    """Draws ``budget`` nodes.

    Attributes:
        budget: Number of draws; the default is the published one for Reddit.
        probability: "degree" draws a node in proportion to its out-degree, at least 1, as the
            reference implementation and DGL do; "norm" in proportion to the squared norm of its
            column of the adjacency matrix with normalised rows, as the paper does.
    """

    name = "saint_node"
    sizes: ClassVar[tuple[str, ...]] = ("budget",)

    budget: int = 8000
    probability: str = "degree"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.probability not in ("degree", "norm"):
            raise ConfigError(f"{self.name}: probability is {self.probability!r}, expected 'degree' or 'norm'")

    @property
    def nodes_per_batch(self) -> int:
        return self.budget

    def open(self, partition: Partition) -> NodeSets:
        degree = partition.node.read("out_degree").astype(np.int64)
        nodes = WeightedNodes(partition, np.maximum(degree, 1) if self.probability == "degree" else _squared_norms(partition))

        def chosen(batch: int) -> np.ndarray:
            return _mask(partition, nodes.draw(_key(self.seed, batch, 0), self.budget).row)

        return chosen


@dataclass(frozen=True, kw_only=True)
class SaintEdge(NodeSetSampler):
    """Draws ``budget`` edges with probabilities in proportion to 1 / d(source) + 1 / d(destination).

    d is the out-degree of the source and the in-degree of the destination. The sum over all edges
    is a sum over nodes: drawing a node uniformly, among those with edges, and then one of its edges
    uniformly gives an edge of exactly this probability. No list of edges with probabilities is
    needed.

    Attributes:
        budget: Number of draws; the default is the published one for Reddit.
    """

    name = "saint_edge"
    sizes: ClassVar[tuple[str, ...]] = ("budget",)

    budget: int = 6000

    @property
    def nodes_per_batch(self) -> int:
        return 2 * self.budget

    def open(self, partition: Partition) -> NodeSets:
        along, against = Neighbours(partition, False), Neighbours(partition, True)
        ends = WeightedNodes(partition, np.minimum(along.degree, 1) + np.minimum(against.degree, 1))

        def chosen(batch: int) -> np.ndarray:
            row, number, offset = ends.draw(_key(self.seed, batch, 0), self.budget)
            leaves = (offset == 0) & (along.degree[row] > 0)
            others = [neighbours.step(_key(self.seed, batch, 1), row[some], number[some, None])[0]
                      for neighbours, some in ((along, leaves), (against, ~leaves))]
            return _mask(partition, row, *others)

        return chosen


@dataclass(frozen=True, kw_only=True)
class SaintWalk(NodeSetSampler):
    """Random walks from roots that are drawn uniformly.

    Attributes:
        roots: Number of walks.
        depth: Steps of a walk; a walk ends early at a node without out-edges. The defaults are the
            published ones for Reddit.
    """

    name = "saint_walk"
    sizes: ClassVar[tuple[str, ...]] = ("roots", "depth")

    roots: int = 2000
    depth: int = 4

    @property
    def nodes_per_batch(self) -> int:
        return self.roots * (self.depth + 1)

    def open(self, partition: Partition) -> NodeSets:
        nodes, neighbours = WeightedNodes(partition, np.ones(partition.n_masters, np.int64)), Neighbours(partition, False)

        def chosen(batch: int) -> np.ndarray:
            row, number, _ = nodes.draw(_key(self.seed, batch, 0), self.roots)
            visited, state = [row], number[:, None]
            for step in range(self.depth):
                row, state = neighbours.step(_key(self.seed, batch, 1, step), row, state)
                visited.append(row)
            return _mask(partition, *visited)

        return chosen


@dataclass(frozen=True, kw_only=True)
class SaintFrontier(NodeSetSampler):
    """Multi-dimensional random walk: of several walkers, one at a time moves, in proportion to its degree.

    The walkers run independently, each with a clock: it waits at a node for an exponential time of
    rate d, the degree. The next walker to move is then one of all in proportion to d, so the first
    ``budget - frontier`` moves by the clocks are those of the published sequential algorithm, and
    a batch takes about as many rounds of messages as a walker has moves.

    Attributes:
        budget: Walkers and moves together.
        frontier: Number of walkers, which start at nodes that are drawn uniformly.
        degree_clip: Degrees above it count as this number. All defaults are the published ones.

    Source of the clocks: frontier sampling, https://arxiv.org/abs/1002.1751
    """

    name = "saint_frontier"
    sizes: ClassVar[tuple[str, ...]] = ("budget", "frontier", "degree_clip")

    budget: int = 8000
    frontier: int = 1000
    degree_clip: int = 10000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frontier > self.budget:
            raise ConfigError(f"{self.name}: frontier is {self.frontier}, more than budget, which is {self.budget}; lower frontier")

    @property
    def nodes_per_batch(self) -> int:
        return self.budget

    def open(self, partition: Partition) -> NodeSets:
        nodes, neighbours = WeightedNodes(partition, np.ones(partition.n_masters, np.int64)), Neighbours(partition, False)
        rate = np.minimum(neighbours.degree, self.degree_clip)

        def chosen(batch: int) -> np.ndarray:
            row, number, _ = nodes.draw(_key(self.seed, batch, 0), self.frontier)
            return _mask(partition, row, self._left(partition, batch, neighbours, rate, row, number))

        return chosen

    def _left(self, partition: Partition, batch: int, neighbours: Neighbours, rate: np.ndarray, row: np.ndarray,
              number: np.ndarray) -> np.ndarray:
        """Rows of this worker that the first ``budget - frontier`` moves leave."""
        moves, time = self.budget - self.frontier, np.zeros(len(row))
        first, rows, times, step = np.zeros(0), [row[:0]], [time[:0]], 0
        while moves:
            some = np.flatnonzero(rate[row])
            row, number = row[some], number[some]
            time = time[some] - np.log1p(-uniform(_key(self.seed, batch, 1, step), number)) / rate[row]
            if len(first) == moves:
                # a walker that moves later than this many others is done
                some = np.flatnonzero(time <= first[-1])
                row, number, time = row[some], number[some], time[some]
            moved = np.concatenate(partition.halo_comm.all_gather(time))
            if not len(moved):
                break
            first = np.sort(np.concatenate((first, moved)))[:moves]
            rows.append(row)
            times.append(time)
            row, state = neighbours.step(_key(self.seed, batch, 2, step), row, np.stack((number, time.view(np.int64)), axis=1))
            number, time, step = state[:, 0], np.ascontiguousarray(state[:, 1]).view(np.float64), step + 1
        return np.concatenate(rows)[np.concatenate(times) <= first[-1:].sum()]


def _key(seed: int, batch: int, *words: int) -> int:
    return key(seed, Purpose.SAMPLE, batch, *words)


def _mask(partition: Partition, *rows: np.ndarray) -> np.ndarray:
    mask = np.zeros(partition.n_masters, bool)
    for some in rows:
        mask[some] = True
    return mask


def _squared_norms(partition: Partition) -> np.ndarray:
    """Squared norm of each master's column of the adjacency matrix with normalised rows, as integers, [n_masters] int64.

    Integers have the same sum in any order, and so on any number of workers.

    Collective: all ranks of the partition.
    """
    degree = values_of(partition, partition.gid, partition.node.read("in_degree").astype(np.int64))
    src, dst = partition.edge_rows()
    share = (float(1 << EXACT - partition.n_nodes.bit_length()) / degree.astype(np.float64)[dst] ** 2).astype(np.int64)
    norm = np.zeros(len(partition.gid), np.int64)
    np.add.at(norm, src, np.maximum(share, 1))
    plan, mirrors = partition.relations[EDGE].sources
    found = {"": norm[: partition.n_masters]}
    Exchange(partition.halo_comm, plan).to_masters_add({"": norm[partition.n_masters + mirrors]}, found)
    return found[""]
