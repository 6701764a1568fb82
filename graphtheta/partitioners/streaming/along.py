"""Values of nodes that are sent along the edges, from blocks of ids to blocks of ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import CHUNK, EdgeSource
from graphtheta.ops.kernels.partition.neighbours import drop_repeats
from graphtheta.partitioners.streaming.blocks import IdBlocks
from graphtheta.partitioners.streaming.degrees import block_degrees, shared_chunks
from graphtheta.partitioners.streaming.lists import neighbour_lists


class HomeEdges:
    """All edges in both directions, each at the worker whose block of ids has its sender.

    Several workers keep the neighbours of the nodes of their blocks, each once, in 4 bytes (8 from
    2**31 nodes). One worker alone reads the edges from the source each time.

    Args:
        source: The edges.
        comm: The workers.

    Attributes:
        source, comm: As given.
        blocks: The blocks of ids.

    Collective: all ranks of comm.
    """

    def __init__(self, source: EdgeSource, comm: Comm):
        self.source = source
        self.comm = comm
        self.blocks = IdBlocks(comm, source.n_nodes)
        if comm.size > 1:
            self._ptr, self._near = neighbour_lists(
                source, self.blocks, block_degrees(source, comm)
            )
            # without a copy
            self._near.resize(drop_repeats(self._ptr, self._near), refcheck=False)

    def along(
        self, columns: Sequence[np.ndarray], sends: np.ndarray | None = None
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """What the nodes of this worker's block receive from their neighbours, one column at a
        time.

        Args:
            columns: Values of the nodes of this worker's block, [n_block] each.
            sends: Nodes that send, [n_block] bool; None if all do.

        Yields:
            The number of a column, positions of nodes in the block, [n] integers, and a value of
            the column for each, [n]. Neighbours along several edges receive a value at least once,
            and at most once for each edge.

        Collective: all ranks, at each item of the longest iteration; use all items.
        """
        for at, to in self._read(sends) if self.comm.size == 1 else self._listed(sends):
            if self.comm.size == 1:
                yield from ((number, to, column[at]) for number, column in enumerate(columns))
                continue
            route = self.blocks.route(to)
            nodes = [
                part.astype(np.int64) - self.blocks.first
                for part in self.comm.all_to_all(route.parts(to))
            ]
            for number, column in enumerate(columns):
                for part, values in zip(
                    nodes, self.comm.all_to_all(route.parts(column[at])), strict=True
                ):
                    yield number, part, values

    def _read(self, sends: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Senders and the receivers of each, [n] integers, by chunks of the source; one worker has
        all.
        """
        for chunk in shared_chunks(self.source, self.comm):
            for at, to in ((chunk.src, chunk.dst), (chunk.dst, chunk.src)):
                sent = slice(None) if sends is None else np.flatnonzero(sends[at])
                yield at[sent], to[sent]

    def _listed(self, sends: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Positions of senders in this worker's block, and the receivers of each, [n] integers.

        Collective: all ranks, at each item.
        """
        senders = np.arange(len(self._ptr) - 1) if sends is None else np.flatnonzero(sends)
        degree = np.diff(self._ptr)[senders]
        # in steps of about as many neighbours as a chunk has edges
        step = np.append(0, np.cumsum(degree))[:-1] // CHUNK
        n_steps = int(self.comm.all_max(step.max(initial=-1))) + 1
        bounds = np.searchsorted(step, np.arange(n_steps + 1))
        for begin, end in pairwise(bounds):
            at = senders[begin:end]
            n = degree[begin:end]
            items = np.arange(n.sum()) + np.repeat(self._ptr[at] - np.cumsum(n) + n, n)
            yield np.repeat(at, n), self._near[items]
