"""Values of nodes that are sent along the edges, from blocks of ids to blocks of ids."""
from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.streaming.blocks import Blocks
from graphtheta.streaming.degrees import shared_chunks


class HomeEdges:
    """All edges in both directions, each at the worker whose block of ids has its sender.

    Several workers send the edges there once and keep them, in 8 bytes for each direction of an edge
    (16 from 2**31 nodes). One worker alone reads them from the source each time.

    Args:
        source: The edges.
        comm: The workers.

    Attributes:
        source, comm: As given.
        blocks: The blocks of ids.

    Collective: all ranks of comm.
    """

    def __init__(self, source: EdgeSource, comm: Comm):
        self.source, self.comm, self.blocks = source, comm, Blocks(comm, source.n_nodes)
        self._kept = list(self._read()) if comm.size > 1 else None

    def along(self, columns: Sequence[np.ndarray], sends: np.ndarray | None = None) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """What the nodes of this worker's block receive from their neighbours, one column at a time.

        Args:
            columns: Values of the nodes of this worker's block, [n_block] each.
            sends: Nodes that send, [n_block] bool; None if all do.

        Yields:
            The number of a column, positions of nodes in the block, [n] integers, and a value of the
            column for each, [n].

        Collective: all ranks, at each item of the longest iteration; use all items.
        """
        for at, to in self._read() if self._kept is None else self._kept:
            if sends is not None:
                sent = np.flatnonzero(sends[at])
                at, to = at[sent], to[sent]
            if self.comm.size == 1:
                yield from ((number, to, column[at]) for number, column in enumerate(columns))
                continue
            route = self.blocks.route(to)
            nodes = [part.astype(np.int64) - self.blocks.first for part in self.comm.all_to_all(route.parts(to))]
            for number, column in enumerate(columns):
                for part, values in zip(nodes, self.comm.all_to_all(route.parts(column[at])), strict=True):
                    yield number, part, values

    def _read(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Positions of senders in this worker's block, and the receivers of each, [n] integers, by chunks of the source.

        Collective: all ranks, at each item.
        """
        kind = np.int32 if self.source.n_nodes <= np.iinfo(np.int32).max else np.int64
        for chunk in shared_chunks(self.source, self.comm):
            for sender, receiver in ((chunk.src, chunk.dst), (chunk.dst, chunk.src)):
                if self.comm.size == 1:
                    yield sender, receiver
                    continue
                pairs = np.concatenate(self.blocks.received(sender, np.stack((sender, receiver), axis=1).astype(kind)))
                yield pairs[:, 0] - kind(self.blocks.first), pairs[:, 1].copy()
