"""Neighbours of the nodes of a block of ids, from edges that all workers read and send; and their
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.ops.kernels.partition.forest import free_keys, number_ids
from graphtheta.ops.kernels.partition.neighbours import fill_lists
from graphtheta.partitioners.streaming.blocks import IdBlocks
from graphtheta.partitioners.streaming.degrees import shared_chunks


def neighbour_lists(
    source: EdgeSource, blocks: IdBlocks, degree: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The neighbours of some nodes along edges of both directions; a loop gives two.

    Args:
        source: The edges.
        blocks: The ids.
        degree: Neighbours of each node of this worker's block, [n_block] int64; 0 for nodes whose
            neighbours are left out.

    Returns:
        Bounds of each node's neighbours, [n_block + 1] int64, and the neighbours, [n] of the kind
        of the blocks, in the order in which they are read.

    Collective: all ranks.
    """
    ptr = np.append(0, np.cumsum(degree))
    near = np.empty(ptr[-1], blocks.kind)
    free = np.where(degree > 0, ptr[:-1], -1)
    for at, other in _both_ways(source, blocks):
        fill_lists(at=at, other=other, first=blocks.first, free=free, near=near)
    return ptr, near


def _both_ways(source: EdgeSource, blocks: IdBlocks) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Nodes of this worker's block and a neighbour of each, [n] integers, for both ends of all
    edges.

    Collective: all ranks, at each item.
    """
    for chunk in shared_chunks(source, blocks.comm):
        for at, other in ((chunk.src, chunk.dst), (chunk.dst, chunk.src)):
            if blocks.comm.size == 1:
                yield at, other
                continue
            for part in blocks.received(
                at, np.stack((at, other), axis=1, dtype=blocks.kind, casting="same_kind")
            ):
                yield part[:, 0], part[:, 1]


def numbered(ids: np.ndarray, first: int, last: int, n: int) -> np.ndarray:
    """Number ids in place: from first to last from 0 on, others behind in the order of their first
    occurrence. Returns the others.

    Args:
        ids: [n_ids] integers; changed.
        first, last: Bounds of the first numbers.
        n: The most others.
    """
    keys = free_keys(min(len(ids), n), ids.dtype)
    names = np.empty(len(ids), ids.dtype)
    return names[
        : number_ids(
            ids=ids,
            first=first,
            last=last,
            keys=keys,
            numbers=np.empty(len(keys), ids.dtype),
            names=names,
            out=ids,
        )
    ].copy()
