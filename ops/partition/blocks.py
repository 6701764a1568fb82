"""Blocks of connected nodes, and which nodes are near which blocks. No result depends on the order of the edges."""
from __future__ import annotations

import numpy as np

from ..compile.jit import jit
from ..kernels.hash import COLUMN, draw, mix


@jit()
def claim(src, dst, block, claimed, key):  # type: ignore[no-untyped-def]
    """One round of a breadth-first search from many sources, for a chunk of edges.

    A node without a block is claimed by the adjacent block of the lowest hash.

    Args:
        src, dst: The edges, used in both directions.
        block: Block of each node before the round, -1 for none, int32.
        claimed: Block that claims each node in this round, -1 for none, int32; changed.
        key: Key of the hash.
    """
    for e in range(len(src)):
        for far in range(2):
            v, b = (src[e], block[dst[e]]) if far else (dst[e], block[src[e]])
            if block[v] < 0 and b >= 0 and claimed[v] != b:
                old, drawn = claimed[v], draw(key, v)
                new = mix(drawn + np.uint64(b + 1) * COLUMN)
                if old < 0 or new < mix(drawn + np.uint64(old + 1) * COLUMN):
                    claimed[v] = b


@jit()
def join(src, dst, block, parent):  # type: ignore[no-untyped-def]
    """Join the components of nodes without a block; the root of a component is its lowest id.

    Args:
        src, dst: The edges; those between two nodes without a block count.
        block: Block of each node, -1 for none.
        parent: Forest over the nodes, ids that do not increase towards the root; changed.
    """
    for e in range(len(src)):
        u, v = src[e], dst[e]
        if block[u] < 0 and block[v] < 0:
            while parent[u] != u:
                parent[u] = parent[parent[u]]
                u = parent[u]
            while parent[v] != v:
                parent[v] = parent[parent[v]]
                v = parent[v]
            parent[max(u, v)] = min(u, v)


@jit()
def near_blocks(src, dst, block, near):  # type: ignore[no-untyped-def]
    """Set the bit of block b in near[v] if v has a neighbour in b.

    Args:
        src, dst: The edges.
        block: Block of each node.
        near: [n_nodes, n_words] uint64; changed.
    """
    for e in range(len(src)):
        s, d = src[e], dst[e]
        near[s, block[d] >> 6] |= np.uint64(1) << np.uint64(block[d] & 63)
        near[d, block[s] >> 6] |= np.uint64(1) << np.uint64(block[s] & 63)


@jit()
def spread(src, dst, near, further):  # type: ignore[no-untyped-def]
    """further[v] |= near[u] for each neighbour u of v.

    Args:
        src, dst: The edges.
        near, further: [n_nodes, n_words] uint64; further is changed.
    """
    for e in range(len(src)):
        for w in range(near.shape[1]):
            further[src[e], w] |= near[dst[e], w]
            further[dst[e], w] |= near[src[e], w]


@jit()
def count_near(block, near, without, counts):  # type: ignore[no-untyped-def]
    """counts[b, c] += number of nodes in block c whose bit b is set in near, and not in without.

    Args:
        block: Block of each node.
        near, without: [n_nodes, n_words] uint64.
        counts: [n_blocks, n_blocks] int64; changed.
    """
    for v in range(len(block)):
        for b in range(len(counts)):
            w, bit = b >> 6, np.uint64(b & 63)
            if (near[v, w] & ~without[v, w]) >> bit & np.uint64(1):
                counts[b, block[v]] += 1


@jit()
def pack(members, bounds, order, room, load, owner):  # type: ignore[no-untyped-def]
    """Give the nodes of each block to the emptiest worker, which takes as many as it has room for, and the rest to the next.

    Args:
        members, bounds: Nodes of each block, [n] and [n_blocks + 1].
        order: Order of the blocks.
        room: The most nodes of a worker; all workers together have room for all.
        load: Nodes of each worker; changed.
        owner: Owner of each node, [n]; changed.
    """
    for b in order:
        i = bounds[b]
        while i < bounds[b + 1]:
            best = 0
            for p in range(1, len(load)):
                if load[p] < load[best]:
                    best = p
            end = min(bounds[b + 1], i + room - load[best])
            load[best] += end - i
            for k in range(i, end):
                owner[members[k]] = best
            i = end
