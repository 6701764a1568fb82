"""The samplers of GraphSAINT: random nodes, edges, walks, and multi-dimensional random walks.

Each draws with replacement, as the reference implementation does, and yields the set of nodes that
were drawn or visited. Walks run along the edges.

Source: GraphSAINT, https://arxiv.org/abs/1907.04931
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphtheta.base.rng import Purpose, key, uniform
from graphtheta.engine.partition.exchange import Exchange
from graphtheta.engine.partition.located import values_of
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.relation import EDGE
from graphtheta.engine.sampling.drawing import Neighbours, WeightedNodes
from graphtheta.engine.sampling.node_set import NodeSets, NodeSetSampler
from graphtheta.errors import ConfigError

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
            raise ConfigError(
                f"{self.name}: probability is {self.probability!r}, expected 'degree' or 'norm'"
            )

    @property
    def nodes_per_batch(self) -> int:
        return self.budget

    def open(self, partition: Partition) -> NodeSets:
        degree = partition.node.read("out_degree").astype(np.int64)
        nodes = WeightedNodes(
            partition,
            np.maximum(degree, 1) if self.probability == "degree" else _squared_norms(partition),
        )

        def chosen(batch: int) -> np.ndarray:
            return _mask(partition, nodes.draw(_key(self.seed, batch, 0), self.budget).row)

        return chosen


@dataclass(frozen=True, kw_only=True)
class SaintEdge(NodeSetSampler):
    """Draws ``budget`` edges with probabilities in proportion to 1 / d(source) + 1 /
    d(destination).

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
            others = [
                neighbours.step(_key(self.seed, batch, 1), row[some], number[some, None])[0]
                for neighbours, some in ((along, leaves), (against, ~leaves))
            ]
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
        nodes = WeightedNodes(partition, np.ones(partition.n_masters, np.int64))
        neighbours = Neighbours(partition, False)

        def chosen(batch: int) -> np.ndarray:
            row, number, _ = nodes.draw(_key(self.seed, batch, 0), self.roots)
            visited = [row]
            state = number[:, None]
            for step in range(self.depth):
                row, state = neighbours.step(_key(self.seed, batch, 1, step), row, state)
                visited.append(row)
            return _mask(partition, *visited)

        return chosen


@dataclass(frozen=True, kw_only=True)
class SaintFrontier(NodeSetSampler):
    """Multi-dimensional random walk: of several walkers, one at a time moves, in proportion to its
    degree.

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
            raise ConfigError(
                f"{self.name}: frontier is {self.frontier}, more than budget, which is"
                f" {self.budget}; lower frontier"
            )

    @property
    def nodes_per_batch(self) -> int:
        return self.budget

    def open(self, partition: Partition) -> NodeSets:
        return FrontierSets(self, partition)


class FrontierSets:
    """The node sets of ``SaintFrontier`` on a graph. Those of several batches take as many rounds
    of messages as one.

    Args:
        sampler: The sampler.
        partition: The graph.

    Collective: all ranks of the partition.
    """

    def __init__(self, sampler: SaintFrontier, partition: Partition):
        self._sampler = sampler
        self._n_masters = partition.n_masters
        self._comm = partition.halo_comm
        self._nodes = WeightedNodes(partition, np.ones(partition.n_masters, np.int64))
        self._neighbours = Neighbours(partition, False)
        self._rate = np.minimum(self._neighbours.degree, sampler.degree_clip)

    def __call__(self, batch: int) -> np.ndarray:
        mask: np.ndarray = self.several(range(batch, batch + 1))[0]
        return mask

    def several(self, batches: range) -> np.ndarray:
        """The node sets of some batches, [len(batches), n_masters] bool.

        Collective: all ranks of the partition.
        """
        walkers = self._sampler.frontier
        masks = np.zeros((len(batches), self._n_masters), bool)
        row, number, _ = self._nodes.draw(self._keys(batches, 0), walkers)
        batch, number = np.divmod(number, walkers)
        masks[batch, row] = True
        self._mark_left(batches=batches, masks=masks, row=row, number=number, batch=batch)
        return masks

    def _keys(self, batches: range, *words: int) -> np.ndarray:
        return np.array([_key(self._sampler.seed, batch, *words) for batch in batches], np.uint64)

    def _mark_left(
        self,
        batches: range,
        masks: np.ndarray,
        row: np.ndarray,
        number: np.ndarray,
        batch: np.ndarray,
    ) -> None:
        """Mark the rows that the first ``budget - frontier`` moves of each batch leave.

        Args:
            batches: Numbers of the batches.
            masks: As the result of ``several``; changed.
            row, number, batch: Row, number and batch of this worker's walkers, [k] int64; batches
                by position.
        """
        moves = self._sampler.budget - self._sampler.frontier
        time = np.zeros(len(row))
        rate = self._rate
        first = np.zeros((0, 2))
        rows = [row[:0]]
        times = [time[:0]]
        of = [batch[:0]]
        # when a batch has all its moves
        end = np.full(len(batches), np.inf)
        step = 0
        while moves:
            some = np.flatnonzero(rate[row])
            row = row[some]
            number = number[some]
            batch = batch[some]
            wait = np.log1p(-uniform(self._keys(batches, 1, step)[batch], number)) / rate[row]
            time = time[some] - wait
            # a walker that moves later than this many others is done
            some = np.flatnonzero(time <= end[batch])
            row = row[some]
            number = number[some]
            batch = batch[some]
            time = time[some]
            moved = np.concatenate(self._comm.all_gather(np.stack((batch, time), axis=1)))
            if not len(moved):
                break
            first, end = _first_of_each(np.concatenate((first, moved)), moves, len(batches))
            rows.append(row)
            times.append(time)
            of.append(batch)
            state = np.stack((number, time.view(np.int64), batch), axis=1)
            row, state = self._neighbours.step(self._keys(batches, 2, step)[batch], row, state)
            number = state[:, 0]
            time = np.ascontiguousarray(state[:, 1]).view(np.float64)
            batch = state[:, 2]
            step += 1
        batch = np.concatenate(of)
        last = np.zeros(len(batches))
        np.maximum.at(last, first[:, 0].astype(np.int64), first[:, 1])
        left = np.flatnonzero(np.concatenate(times) <= last[batch])
        masks[batch[left], np.concatenate(rows)[left]] = True


def _first_of_each(moves: np.ndarray, most: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The first moves of each batch, by batch and time, and when a batch has them all.

    Args:
        moves: Batch and time of each move, [k, 2] float64.
        most: How many moves of a batch count.
        n: Number of batches.

    Returns:
        Those that count, [m, 2], and the time of the last of them, infinite for a batch that has
        fewer, [n].
    """
    moves = moves[np.lexsort((moves[:, 1], moves[:, 0]))]
    batch = moves[:, 0].astype(np.int64)
    begin = np.searchsorted(batch, np.arange(n))
    place = np.arange(len(moves)) - begin[batch]
    end = np.full(n, np.inf)
    last = place == most - 1
    end[batch[last]] = moves[last, 1]
    return moves[place < most], end


def _key(seed: int, batch: int, *words: int) -> int:
    return key(seed, Purpose.SAMPLE, batch, *words)


def _mask(partition: Partition, *rows: np.ndarray) -> np.ndarray:
    mask = np.zeros(partition.n_masters, bool)
    for some in rows:
        mask[some] = True
    return mask


def _squared_norms(partition: Partition) -> np.ndarray:
    """Squared norm of each master's column of the adjacency matrix with normalised rows, as
    integers, [n_masters] int64.

    Integers have the same sum in any order, and so on any number of workers.

    Collective: all ranks of the partition.
    """
    degree = values_of(partition, partition.gid, partition.node.read("in_degree").astype(np.int64))
    src, dst = partition.edge_rows()
    share = (
        float(1 << EXACT - partition.n_nodes.bit_length()) / degree.astype(np.float64)[dst] ** 2
    ).astype(np.int64)
    norm = np.zeros(len(partition.gid), np.int64)
    np.add.at(norm, src, np.maximum(share, 1))
    plan, mirrors = partition.relations[EDGE].sources
    sums = {"": norm[: partition.n_masters]}
    Exchange(partition.halo_comm, plan).to_masters_add(
        {"": norm[partition.n_masters + mirrors]}, sums
    )
    return sums[""]
