"""Streams of nodes, one for each part, that advance together in rounds.

A stream reads the nodes of a block of ids in ascending order, some in each round. A worker computes
all streams, or one of as many as there are workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import block_bounds
from graphtheta.partitioners.streaming.blocks import IdBlocks
from graphtheta.partitioners.streaming.dealing import n_rounds
from graphtheta.partitioners.streaming.degrees import block_degrees
from graphtheta.partitioners.streaming.lists import neighbour_lists

# neighbours that a worker has in memory at a time, unless it streams more than half as many nodes
NEIGHBOURS = 1 << 25


class NodeChunk(NamedTuple):
    """The nodes that a stream reads in a round, with their neighbours along edges of both
    directions.

    Attributes:
        stream: Number of the stream.
        first: The first node.
        ptr: Bounds of each node's neighbours, [n + 1] int64.
        near: Neighbours, [ptr[n]] int32 or int64; a loop gives two.
    """

    stream: int
    first: int
    ptr: np.ndarray
    near: np.ndarray


class NodeStreams:
    """The neighbourhoods of all nodes, by rounds.

    Args:
        source: The edges.
        comm: The workers: one, or ``size``.
        size: Number of streams.
        at_most: Neighbours in memory, unless they are those of one round; at least twice the nodes
            that this worker streams.

    Attributes:
        blocks: The nodes that each worker streams.
        own: Streams of this worker.

    Collective: all ranks of comm.
    """

    def __init__(self, source: EdgeSource, comm: Comm, size: int, at_most: int = NEIGHBOURS):
        n = source.n_nodes
        self.blocks = IdBlocks(comm, n)
        self.own = range(size) if comm.size == 1 else range(comm.rank, comm.rank + 1)
        self._source = source
        self._comm = comm
        self._degree = block_degrees(source, comm)
        self._at_most = max(at_most, 2 * len(self._degree))
        self._bounds = [block_bounds(n, stream, size) for stream in self.own]
        longest = -(-n // size)
        self._step = -(-longest // n_rounds(size)) or 1
        self._rounds = -(-longest // self._step)

    def rounds(self) -> Iterator[list[NodeChunk]]:
        """The chunks of this worker's streams; all edges are read once for each group of rounds.

        Collective: all ranks, at each item.
        """
        for begin, end in self._groups():
            start, near = self._filled(begin, end)
            for number in range(begin, end):
                chunks = []
                for stream, (a, b) in zip(self.own, self._reached(number, number + 1), strict=True):
                    ptr = start[a - self.blocks.first : b - self.blocks.first + 1]
                    # a copy: a view would keep all neighbours in memory while the next ones are
                    # read
                    chunks.append(NodeChunk(stream, a, ptr - ptr[0], near[ptr[0] : ptr[-1]].copy()))
                yield chunks
            del near

    def _reached(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The first node that each stream reads in some rounds, and the first one beyond."""
        return [
            (min(first + begin * self._step, last), min(first + end * self._step, last))
            for first, last in self._bounds
        ]

    def _groups(self) -> Iterator[tuple[int, int]]:
        """The rounds whose neighbours fit into memory on all workers."""
        total = np.append(0, np.cumsum(self._degree))
        counts = [
            sum(
                int(total[b - self.blocks.first] - total[a - self.blocks.first])
                for a, b in self._reached(number, number + 1)
            )
            for number in range(self._rounds)
        ]
        bounds = np.append(0, np.cumsum(self._comm.all_max(np.array(counts, np.int64))))
        at_most = int(self._comm.all_min(np.array(self._at_most)))
        begin = 0
        while begin < self._rounds:
            end = max(
                int(np.searchsorted(bounds, bounds[begin] + at_most, side="right")) - 1, begin + 1
            )
            yield begin, end
            begin = end

    def _filled(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """The neighbours that are read in some rounds, and where those of each node begin; no other
        node has any.
        """
        used = np.zeros(len(self._degree), bool)
        for a, b in self._reached(begin, end):
            used[a - self.blocks.first : b - self.blocks.first] = True
        return neighbour_lists(self._source, self.blocks, np.where(used, self._degree, 0))
