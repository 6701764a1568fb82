"""BGL's node partitioner: blocks by breadth-first search from many sources, assigned greedily.

Workers do it together. The result depends neither on the order nor on the chunks of the edges, nor
on the number of workers that compute it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from graphtheta.base.rng import Purpose, key
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import Owners
from graphtheta.partitioners.stream import capacity, check_option
from graphtheta.partitioners.streaming.along import HomeEdges
from graphtheta.partitioners.streaming.coarse import near_blocks, searched, sized
from graphtheta.partitioners.streaming.shared import SharedPartitioner

# a block is small below this share of the mean size
SMALL = 0.25


@dataclass(frozen=True)
class BglPartitioner(SharedPartitioner):
    """Blocks in order of falling size, each to the worker i with room of the highest

        sum_j c_j |P(i) & N_j(B)| * (1 - |T(i)| / C_T) * (1 - |P(i)| / C),

    where P(i) and T(i) are its nodes and training nodes, N_j(B) the nodes j = 1, 2 hops from the
    block, C = (1 + slack) n / k and C_T = n_T / k. If all are 0, the worker of fewest nodes has it.

    The published rule is ``passes=1,second=1``. An empty worker scores 0, so in a single pass the
    first worker takes all blocks that touch its own, which are most, until it is full.

    Attributes:
        blocks: Sources of the search.
        hops: Rounds of the search; nodes beyond form blocks by connected components.
        second: c_2, the coefficient of nodes two hops away; c_1 is 1.
        passes: The most passes over the blocks. A pass after the first begins with empty workers
            again, and counts blocks that it has not reached at their owners of the pass before.
            The owners of the pass that leaves most nodes at the workers of blocks near them count.
        slack: Nodes of a worker are at most (1 + slack) times the mean; larger blocks than
            slack n / k are split.
        train: Balance training nodes.

    Source: Liu et al., BGL, NSDI 2023,
    https://www.usenix.org/conference/nsdi23/presentation/liu-tianfeng
    """

    name = "bgl"
    blocks: int = 2048
    hops: int = 32
    second: float = 0.0
    passes: int = 10
    slack: float = 0.1
    train: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        leasts = {"blocks": 1, "hops": 0, "second": 0, "passes": 1, "slack": 0}
        for option, least in leasts.items():
            check_option(self, option, getattr(self, option) >= least, f"at least {least}")

    def owners(self, source: EdgeSource, comm: Comm, size: int) -> Owners:
        n = source.n_nodes
        edges = HomeEdges(source, comm)
        blocks = edges.blocks
        named = searched(edges, self.blocks, self.hops, key(self.seed, Purpose.PLACEMENT))
        block, nodes = sized(
            blocks, *named, int(SMALL * n / self.blocks), max(1, int(min(self.slack * n / size, n)))
        )
        targets = np.zeros(len(nodes), np.int64)
        if self.train and source.train is not None:
            targets = comm.all_sum(
                np.bincount(block[source.train[blocks.first : blocks.last]], minlength=len(nodes))
            )
        near = near_blocks(edges, block, len(nodes), self.second)
        owner = self._chosen(near, nodes, targets, capacity(n, size, self.slack), size)[block]
        return lambda ids: blocks.look_up(owner, ids)

    def _chosen(
        self,
        near: Iterable[np.ndarray],
        nodes: np.ndarray,
        targets: np.ndarray,
        room: int,
        size: int,
    ) -> np.ndarray:
        """The owner of each block, [n_blocks] int32.

        Args:
            near: For each block, how many nodes of each are near it, [n_blocks] float64.
            nodes, targets: Nodes of each block, which do not increase, and training nodes,
                [n_blocks] int64.
            room: The most nodes of a worker.
            size: Number of workers.
        """
        share = max(targets.sum() / size, 1)
        neighbours = [_others(b, counts) for b, counts in enumerate(near)]
        # blocks without an owner yet are those of a worker of their own
        owner = np.full(len(nodes), size, np.int32)
        best = owner
        most_near = -1.0
        for _ in range(self.passes):
            before = owner.copy()
            load = np.zeros(size, np.int64)
            given = np.zeros(size, np.int64)
            for b, (others, counts) in enumerate(neighbours):
                near_by_owner = np.bincount(owner[others], counts, size + 1)[:size]
                score = near_by_owner * np.maximum(1 - given / share, 0) * (1 - load / room)
                score[load + nodes[b] > room] = -1
                # of equal scores the emptiest worker
                owner[b] = p = np.lexsort((load, -score))[0]
                load[p] += nodes[b]
                given[p] += targets[b]
            near_own = sum(
                float(counts[owner[others] == owner[b]].sum())
                for b, (others, counts) in enumerate(neighbours)
            )
            if near_own > most_near:
                best = owner.copy()
                most_near = near_own
            if np.array_equal(owner, before):
                break
        return best


def _others(b: int, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The other blocks with nodes near block b, [k] int32, and how many, [k] float64."""
    others = np.flatnonzero(counts).astype(np.int32)
    others = others[others != b]
    return others, counts[others]
