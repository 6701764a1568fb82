"""Edge placements: vertex-cuts, which divide the edges of a node among workers.

Greedy ones place edges in streams of consecutive ids, one for each worker; the result depends on
their order and number, and not on the chunks. They remember on which workers each node has a copy:
a bit for each worker, and some bytes, for each node. No worker has more than (1 + slack) times the
mean edges.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.base.rng import Purpose, bits, key
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeChunk, EdgeSource
from graphtheta.engine.partition.partitioner import EdgeRule, Owners
from graphtheta.ops.kernels.partition.copies import mark_copies
from graphtheta.ops.kernels.partition.greedy_edges import place_by_load, place_by_score
from graphtheta.partitioners.stream import capacity, check_option
from graphtheta.partitioners.streaming.blocks import IdBlocks
from graphtheta.partitioners.streaming.degrees import block_degrees
from graphtheta.partitioners.streaming.edges import EdgeStreams
from graphtheta.partitioners.streaming.shared import SharedPlacement

Workers = Callable[[EdgeChunk], np.ndarray]


def no_copies(n_nodes: int, size: int) -> np.ndarray:
    """A bit for each node and worker, all 0, [n_nodes, n_words] uint64."""
    return np.zeros((n_nodes, -(-size // 64)), np.uint64)


@dataclass(frozen=True)
class RandomCut(EdgeRule):
    """Random vertex-cut: the hash of the edge id, which ignores the graph.

    Source: Gonzalez et al., PowerGraph, OSDI 2012,
    https://www.usenix.org/conference/osdi12/technical-sessions/presentation/gonzalez
    """

    name = "random"
    seed: int = 0

    def worker(self, chunk: EdgeChunk, owner: Owners, size: int) -> np.ndarray:
        return (bits(key(self.seed, Purpose.PLACEMENT), chunk.ids) % np.uint64(size)).astype(
            np.int32
        )


@dataclass(frozen=True)
class HybridCut(SharedPlacement):
    """By destination, and by source if the destination has a high in-degree.

    Attributes:
        threshold: The highest in-degree of a node whose in-edges stay on its owner.

    Source: Chen et al., PowerLyra, EuroSys 2015, https://doi.org/10.1145/2741948.2741970
    """

    name = "hybrid"
    threshold: int = 100

    def workers(self, source: EdgeSource, owner: Owners, comm: Comm, size: int) -> Workers:
        blocks = IdBlocks(comm, source.n_nodes)
        high = block_degrees(source, comm, outgoing=False) > self.threshold
        return lambda chunk: owner(np.where(blocks.look_up(high, chunk.dst), chunk.src, chunk.dst))


@dataclass(frozen=True)
class GreedyCut(SharedPlacement):
    """A greedy vertex-cut.

    Attributes:
        slack: Edges of a worker are at most (1 + slack) times the mean.
        owners: Begin with a copy of each node on its owner, which has one in any case, so that
            edges follow the node partitioner. Without it, the rule is that of the paper.
    """

    slack: float = 0.1
    owners: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check_option(self, "slack", self.slack >= 0, "at least 0")

    @abstractmethod
    def rule(
        self, source: EdgeSource, comm: Comm, key: np.uint64
    ) -> tuple[Any, np.ndarray | None, tuple[Any, ...]]:
        """The compiled loop, the degrees that it begins with for the nodes of this worker's block
        or None for none, and its settings.

        Args:
            source: The edges.
            comm: The workers.
            key: Key of ties.

        Collective: all ranks of comm.
        """

    def workers(self, source: EdgeSource, owner: Owners, comm: Comm, size: int) -> Workers:
        blocks = IdBlocks(comm, source.n_nodes)
        n = blocks.last - blocks.first
        copies = no_copies(n, size)
        if self.owners:
            mark_copies(np.arange(n), owner(np.arange(blocks.first, blocks.last)), copies)
        loop, degree, settings = self.rule(
            source, comm, np.uint64(key(self.seed, Purpose.PLACEMENT))
        )
        degree = np.zeros(n, np.int64) if degree is None else degree
        placed = EdgeStreams(
            source=source,
            comm=comm,
            size=size,
            loop=loop,
            settings=settings,
            copies=copies,
            degree=degree,
        ).place(capacity(source.n_edges, size, self.slack))
        first = source.n_edges * comm.rank // comm.size
        return lambda chunk: placed[chunk.ids - first]


@dataclass(frozen=True)
class HdrfCut(GreedyCut):
    """High-degree replicated first: ends that have copies count, those of lower degree more, and
    balance.

    Attributes:
        balance: Lambda of the paper, the weight of balance; above 1 it outweighs a copy in the end.

    Source: Petroni et al., CIKM 2015, https://doi.org/10.1145/2806416.2806424
    """

    name = "hdrf"
    balance: float = 1.1

    def rule(
        self, source: EdgeSource, comm: Comm, key: np.uint64
    ) -> tuple[Any, np.ndarray | None, tuple[Any, ...]]:
        return place_by_score, None, (key, float(self.balance), True)


@dataclass(frozen=True)
class ObliviousCut(GreedyCut):
    """PowerGraph's oblivious greedy rule: ends that have copies count, and balance.

    Source: Gonzalez et al., PowerGraph, OSDI 2012,
    https://www.usenix.org/conference/osdi12/technical-sessions/presentation/gonzalez
    """

    name = "oblivious"

    def rule(
        self, source: EdgeSource, comm: Comm, key: np.uint64
    ) -> tuple[Any, np.ndarray | None, tuple[Any, ...]]:
        return place_by_score, None, (key, 1.0, False)


@dataclass(frozen=True)
class LibraCut(GreedyCut):
    """Libra: the least loaded worker with copies of both ends, else of the end of lower degree.

    Source: Xie et al., Distributed Power-law Graph Computing, NIPS 2014; as in DistGNN,
    https://arxiv.org/abs/2104.06700
    """

    name = "libra"

    def rule(
        self, source: EdgeSource, comm: Comm, key: np.uint64
    ) -> tuple[Any, np.ndarray | None, tuple[Any, ...]]:
        return place_by_load, block_degrees(source, comm), (key,)
