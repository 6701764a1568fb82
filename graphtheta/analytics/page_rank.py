"""PageRank.

Source: Page, Brin, Motwani and Winograd, 1998; nodes without out-edges give their rank to all
nodes. Ranks are integers in units of 2**-60, so that sums are exact in any order, and all numbers
of workers and threads give the same bits. A rank has an error of a few units for each in-edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.analytics.algorithm import Algorithm
from graphtheta.analytics.local_edges import LocalEdges
from graphtheta.base.logger import logger
from graphtheta.engine.partition.partition import Partition
from graphtheta.errors import ConfigError
from graphtheta.ops.kernels.analytics.sums import neighbour_sum, new_ranks, rank_shares
from graphtheta.ops.parallel.buffers import by_blocks, row_blocks

UNIT = 2.0**-60


@dataclass(frozen=True)
class PageRank(Algorithm):
    """PageRank: the share of time of a random surfer at each node, float64; all add up to 1.

    An edge that is stored several times counts as often. Weights of edges are not read.

    Attributes:
        damping: Probability of following an edge, from 0 to below 1.
        tolerance: Iterations end when the sum of the absolute changes of all ranks is at most this.
        iterations: The most iterations.
    """

    name = "pagerank"
    damping: float = 0.85
    tolerance: float = 1e-9
    iterations: int = 1000

    def __post_init__(self) -> None:
        if not 0 <= self.damping < 1:
            raise ConfigError(
                f"pagerank: damping is {self.damping}; expected a number from 0 to below 1"
            )
        if not self.tolerance >= 0 or self.iterations < 1:
            raise ConfigError(
                f"pagerank: tolerance is {self.tolerance} and iterations {self.iterations};"
                " expected at least 0 and 1"
            )

    def run(self, partition: Partition, graph: Any) -> np.ndarray:
        edges = LocalEdges(partition)
        n = partition.n_nodes
        one = round(1 / UNIT)
        into = edges.into
        n_own = edges.n_masters
        rank = np.full(n_own, one // max(n, 1), np.int64)
        share, received = np.zeros(edges.n_rows, np.int64), np.empty(edges.n_rows, np.int64)
        degree = partition.node.read("out_degree").astype(np.int64)
        # rank of nodes without out-edges, and changes of the iteration before, by block of rows
        lost, changes = np.zeros((2, max(row_blocks(n_own, 1)[0], 1)), np.int64)
        changes[0] = one if n_own else 0

        def update(base: int) -> None:
            by_blocks(
                lambda b, first, last: new_ranks(
                    received=received,
                    damping=self.damping,
                    base=base,
                    rank=rank,
                    change=changes,
                    block=b,
                    first=first,
                    last=last,
                ),
                n_own,
                1,
            )

        for i in range(self.iterations + 1):
            by_blocks(
                lambda b, first, last: rank_shares(
                    rank=rank,
                    degree=degree,
                    share=share,
                    lost=lost,
                    block=b,
                    first=first,
                    last=last,
                ),
                n_own,
                1,
            )
            unused, change = edges.comm.all_sum(np.array([lost.sum(), changes.sum()])).tolist()
            if change <= self.tolerance * one or i == self.iterations:
                break
            edges.to_sources(share)
            into.by_edges(
                lambda first, last: neighbour_sum(
                    indptr=into.indptr,
                    near=into.near,
                    x=share,
                    out=received,
                    first=first,
                    last=last,
                )
            )
            edges.from_destinations(received, np.add)
            update(round((1 - self.damping) / n * one + self.damping * unused / n))
        if change > self.tolerance * one and edges.comm.rank == 0:
            logger.warning(
                f"pagerank: after {i} iterations ranks still change by {change * UNIT:.2g} in all,"
                f" more than tolerance={self.tolerance:g}; give more iterations, or a larger"
                " tolerance"
            )
        return rank * UNIT
