"""Shares of the edges, and the degrees of blocks of nodes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeChunk, EdgeSource
from graphtheta.ops.kernels.partition.neighbours import add_degrees
from graphtheta.partitioners.streaming.blocks import IdBlocks

NO_EDGES = EdgeChunk(*np.zeros((3, 0), np.int64))


def shared_chunks(source: EdgeSource, comm: Comm) -> Iterator[EdgeChunk]:
    """The edges that this worker reads, and empty chunks while others have more.

    Args:
        source: The edges.
        comm: The workers.

    Collective: all ranks of comm, at each item.
    """
    chunks = source.share(comm.rank, comm.size)
    while True:
        chunk = next(chunks, None)
        if not comm.all_max(np.array(chunk is not None)):
            return
        yield NO_EDGES if chunk is None else chunk


def block_degrees(
    source: EdgeSource, comm: Comm, incoming: bool = True, outgoing: bool = True
) -> np.ndarray:
    """Edges of each node of this worker's block of ids, [n] int64; a loop that is both incoming and
    outgoing counts twice.

    Args:
        source: The edges.
        comm: The workers.
        incoming, outgoing: The edges to count.

    Collective: all ranks of comm.
    """
    blocks = IdBlocks(comm, source.n_nodes)
    degree = np.zeros(blocks.last - blocks.first, np.int64)
    for chunk in shared_chunks(source, comm):
        for end in (chunk.src,) * outgoing + (chunk.dst,) * incoming:
            for part in blocks.received(end):
                add_degrees(part, blocks.first, degree)
    return degree
