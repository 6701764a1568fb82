"""Connected components of a streamed graph, and parts made of whole components."""
from __future__ import annotations

import numpy as np

from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.ops.partition.blocks import join
from graphtheta.partitioners.clusters import pack


def components(source: EdgeSource, block: np.ndarray | None = None) -> np.ndarray:
    """The lowest id in the weakly connected component of each node, [n_nodes] int64; reads all edges once.

    Args:
        source: The edges.
        block: Nodes that are in a block, from 0, have no component and connect none, [n_nodes] int32; None if all are -1.
    """
    n = source.n_nodes
    parent, block = np.arange(n), np.full(n, -1, np.int32) if block is None else block
    for chunk in source.chunks():
        join(chunk.src, chunk.dst, block, parent)
    # parents have lower ids, so a root is reached after few doublings
    while np.any(parent != (further := parent[parent])):
        parent = further
    return parent


def whole_components(component: np.ndarray, size: int, room: int) -> np.ndarray | None:
    """Parts that cut no edge, [n_nodes] int32, made of components by falling size; None if one of them is too large for its part.

    Args:
        component: The lowest id in the component of each node, [n_nodes] integers.
        size: Number of parts.
        room: The most nodes of a part.
    """
    if np.bincount(component).max(initial=0) > room:
        return None
    owner = pack(component, size, room)
    return owner if np.array_equal(owner, owner[component]) else None
