"""Connected components that all workers find together."""
from __future__ import annotations

import numpy as np

from graphtheta.ops.partition.blocks import join, lower
from graphtheta.streaming.along import HomeEdges


def components(edges: HomeEdges, outside: np.ndarray | None = None) -> np.ndarray:
    """The lowest id in the weakly connected component of each node of this worker's block, [n_block] int64.

    One worker reads all edges once. Several need rounds, whose number grows with the logarithm of
    the diameter: a node hears of the lowest ancestors of its neighbours, and its parent does so from it.

    Args:
        edges: The edges.
        outside: Nodes that connect none and have their own number, [n_block] bool; None for none.

    Source: Zhang, Azad and Hu, FastSV, SIAM PP 2020, https://arxiv.org/abs/1910.05971

    Collective: all ranks.
    """
    comm, blocks = edges.comm, edges.blocks
    parent = np.arange(blocks.first, blocks.last)
    inside = np.ones(len(parent), bool) if outside is None else ~outside
    if comm.size == 1:
        for chunk in edges.source.chunks():
            join(chunk.src, chunk.dst, inside, parent)
        # parents have lower ids, so a root is reached after few doublings
        while np.any(parent != (further := parent[parent])):
            parent = further
        return parent
    sent, changed = np.full(len(parent), -1), True
    while changed:
        above = blocks.look_up(parent, parent)
        lowest, sends = above.copy(), inside & (above != sent)
        for _, nodes, x in edges.along([above], sends):
            lower(nodes, x, inside, lowest)
        sent, old, parent = above, parent, lowest.copy()
        for nodes, x in zip(blocks.received(old), blocks.received(old, lowest), strict=True):
            lower(nodes - blocks.first, x, inside, parent)
        changed = bool(comm.all_max(np.array(np.any(parent != old))))
    return parent
