"""Blocks of connected nodes, and which nodes are near which blocks. No result depends on the order
of the edges.
"""

from __future__ import annotations

import numpy as np

from ...compile.jit import jit
from ..hash import COLUMN, draw, mix
from ..root import find_root


@jit()
def claim(nodes, blocks, first, block, claimed, key):  # type: ignore[no-untyped-def]
    """One round of a breadth-first search from many sources, for some pairs of a node and a
    neighbour's block.

    A node without a block is claimed by the block of the lowest hash.

    Args:
        nodes: Positions of nodes, [n].
        blocks: Block of a neighbour of each, [n].
        first: Id of the node of position 0.
        block: Block of each node before the round, -1 for none.
        claimed: Block that claims each node in this round, -1 for none; changed.
        key: Key of the hash.
    """
    for i in range(len(nodes)):
        v, b = nodes[i], blocks[i]
        if block[v] < 0 and claimed[v] != b:
            old = claimed[v]
            drawn = draw(key, first + v)
            if old < 0 or mix(drawn + np.uint64(b + 1) * COLUMN) < mix(
                drawn + np.uint64(old + 1) * COLUMN
            ):
                claimed[v] = b


@jit()
def join(a, b, parent):  # type: ignore[no-untyped-def]
    """Join the components of a[i] and b[i], for each i; the root of a component is its lowest id.

    Args:
        a, b: Pairs of nodes, [n] integers.
        parent: Forest over the nodes, ids that do not increase towards the root; changed.
    """
    for i in range(len(a)):
        u = find_root(parent, a[i])
        v = find_root(parent, b[i])
        parent[max(u, v)] = min(u, v)


@jit()
def set_bits(nodes, numbers, near):  # type: ignore[no-untyped-def]
    """Set bit numbers[i] of the node nodes[i], for each i; near [n_words, n_nodes] uint64 is
    changed.
    """
    for i in range(len(nodes)):
        near[numbers[i] >> 6, nodes[i]] |= np.uint64(1) << np.uint64(numbers[i] & 63)


@jit()
def add_bits(nodes, bits, near):  # type: ignore[no-untyped-def]
    """near[nodes[i]] |= bits[i] for each i; near [n_nodes] uint64 is changed."""
    for i in range(len(nodes)):
        near[nodes[i]] |= bits[i]


@jit()
def count_near(block, near, counts):  # type: ignore[no-untyped-def]
    """counts[b, c] += number of nodes in block c whose bit b is set in near.

    Args:
        block: Block of each node.
        near: [n_words, n_nodes] uint64.
        counts: [n_bits, n_blocks] int64; changed.
    """
    for w in range(len(near)):
        for v in range(len(block)):
            left = near[w, v]
            b = w << 6
            while left != 0:
                if left & np.uint64(1):
                    counts[b, block[v]] += 1
                left >>= np.uint64(1)
                b += 1


@jit()
def pack(members, bounds, order, room, load, owner):  # type: ignore[no-untyped-def]
    """Give the nodes of each block to the emptiest worker, which takes as many as it has room for,
    and the rest to the next.

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
