"""Random walks of node2vec.

Source: Grover and Leskovec, 2016, https://arxiv.org/abs/1607.00653; a step is drawn by rejection as
in Yang et al., KnightKing, SOSP 2019. The worker of the first node asks the owners of the other
nodes for neighbours, in two messages to each worker for a draw. Draws are keyed by path, step and
attempt, so that all numbers of workers give the same paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.analytics.adjacency import Adjacency
from graphtheta.analytics.algorithm import Algorithm
from graphtheta.base.rng import Purpose, key, uniform
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.table import Route
from graphtheta.errors import ConfigError
from graphtheta.ops.kernels.analytics.neighbours import is_near
from graphtheta.ops.parallel.buffers import by_blocks

# largest ratio of two weights of neighbours: the expected number of attempts of a draw
MOST_UNEVEN = 1000


@dataclass(frozen=True)
class RandomWalks(Algorithm):
    """Random walks from each node: [n_nodes, paths, length + 1] int64, the node itself first; -1
    after a node without out-edges.

    Steps follow the directions of edges. From v, reached from t, neighbour x of v has weight 1/p if
    x = t, 1 if there is an edge from t to x, and 1/q otherwise. Self loops, duplicates and weights
    of edges do not count.

    Attributes:
        paths, length: Paths from each node, and steps of each.
        p, q: Return and in-out parameters; 1 and 1 draw neighbours uniformly. Weights may differ by
            a factor of 1,000, since candidates are rejected as often.
        seed: Seed of the draws.
    """

    name = "random_walks"
    gives_nodes = True
    paths: int = 10
    length: int = 80
    p: float = 1.0
    q: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.paths, self.length) < 1 or not (0 < self.p < np.inf and 0 < self.q < np.inf):
            raise ConfigError(
                f"random_walks: paths={self.paths}, length={self.length}, p={self.p:g},"
                f" q={self.q:g}; expected at least 1, and p and q above 0"
            )
        weights = 1.0, 1 / self.p, 1 / self.q
        if max(weights) > MOST_UNEVEN * min(weights):
            raise ConfigError(
                f"random_walks: p={self.p:g} and q={self.q:g} give weights 1, 1/p and 1/q that"
                f" differ by more than a factor of {MOST_UNEVEN:,}; choose p and q nearer to 1"
            )

    def run(self, partition: Partition, graph: Any) -> np.ndarray:
        adjacency = Adjacency(partition)
        n_own = partition.n_masters
        first = np.repeat(partition.masters, self.paths)
        number = first * self.paths + np.tile(np.arange(self.paths), n_own)
        walks = np.full((len(first), self.length + 1), -1, np.int64)
        walks[:, 0] = first
        for step in range(self.length):
            self._step(adjacency, partition, walks, number, step)
        return walks.reshape(n_own, self.paths, self.length + 1)

    def _step(
        self,
        adjacency: Adjacency,
        partition: Partition,
        paths: np.ndarray,
        number: np.ndarray,
        step: int,
    ) -> None:
        """Draw the next node of each path; a candidate is accepted in proportion to its weight.

        Collective: all ranks of the partition.
        """
        open_ = np.flatnonzero(paths[:, step] >= 0)
        attempt = 0
        highest = max(1.0, 1 / self.p, 1 / self.q)
        while adjacency.comm.all_max(np.array(len(open_) > 0)):
            draw = uniform(key(self.seed, Purpose.SAMPLE, step, attempt), number[open_], 2)
            here = paths[open_, step]
            chosen = _neighbours(adjacency, partition, here, draw[:, 0])
            weight = np.ones(len(open_))
            if step and (self.p != 1 or self.q != 1):
                before = paths[open_, step - 1]
                near = _asked(adjacency, partition, before, np.maximum(chosen, 0))
                weight = np.where(chosen == before, 1 / self.p, np.where(near, 1.0, 1 / self.q))
            accepted = (draw[:, 1] * highest < weight) | (chosen < 0) | (step == 0)
            paths[open_[accepted], step + 1] = chosen[accepted]
            open_ = open_[~accepted]
            attempt += 1


def _neighbours(
    adjacency: Adjacency, partition: Partition, ids: np.ndarray, draw: np.ndarray
) -> np.ndarray:
    """A neighbour of each of some nodes, by a draw in [0, 1) each, [n] int64; -1 for nodes without
    neighbours.

    Collective: all ranks of the partition.
    """

    def answer(rows: np.ndarray, draws: np.ndarray) -> np.ndarray:
        begin, degree = adjacency.indptr[rows], adjacency.degree[rows]
        at = begin + np.minimum((draws.view(np.float64) * degree).astype(np.int64), degree - 1)
        out = np.full(len(rows), -1, np.int64)
        out[degree > 0] = adjacency.ids[at[degree > 0]]
        return out

    return _ask(partition, ids, draw.copy().view(np.int64), answer)


def _asked(
    adjacency: Adjacency, partition: Partition, ids: np.ndarray, wanted: np.ndarray
) -> np.ndarray:
    """Whether nodes have edges to other nodes, [n] bool.

    Collective: all ranks of the partition.
    """

    def answer(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        out = np.empty(len(rows), np.uint8)
        by_blocks(
            lambda b, first, last: is_near(
                indptr=adjacency.indptr,
                ids=adjacency.ids,
                rows=rows,
                wanted=others,
                out=out,
                first=first,
                last=last,
            ),
            len(rows),
            16,
        )
        return out.astype(np.int64)

    return _ask(partition, ids, wanted, answer) > 0


def _ask(partition: Partition, ids: np.ndarray, words: np.ndarray, answer: Any) -> np.ndarray:
    """Answers of the owners of some nodes, [n] int64; answer(rows [k], words [k]) is computed at
    the owner.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    owner, row = partition.directory.locate(ids)
    route = Route(owner, comm.size)
    asked = comm.all_to_all(route.parts(np.stack((row.astype(np.int64), words), axis=1)))
    return route.back(comm.all_to_all([answer(*np.ascontiguousarray(x.T)) for x in asked]))
