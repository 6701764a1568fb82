"""Numbers of ids, and forests over ids, in tables of hashes: memory grows with the ids that occur,
not with all.

A table has ``keys`` [2**k], -1 for free slots; at most about half of them are used. Consecutive
ids have consecutive slots, as in an array, so that loops over edges of near nodes stay in the
cache.
"""

from __future__ import annotations

import numpy as np

from ...compile.jit import jit
from ..hash import mix
from ..root import find_root


def free_keys(n: int, kind: np.dtype | type[np.signedinteger]) -> np.ndarray:
    """A table for n ids, [2**k] of an integer kind."""
    return np.full(1 << max(2 * n - 1, 1).bit_length(), -1, kind)


@jit()
def _next_slot(slot, v, mask):  # type: ignore[no-untyped-def]
    """The slot to look at after one that another id has; ids that share all bits above the mask are
    shifted alike.
    """
    return (slot + (np.int64(mix(np.uint64(v & ~mask))) | 1)) & mask


@jit()
def number_ids(ids, first, last, keys, numbers, names, out):  # type: ignore[no-untyped-def]
    """Number the ids in the order of their first occurrence; returns how many numbers beyond ``last
    - first`` there are.

    Args:
        ids: [n] integers.
        first, last: These ids have the numbers from 0 on, whether they occur or not.
        keys: A free table; changed.
        numbers: Of the slots, [len(keys)] integers; changed.
        names: The other ids by number, [n or fewer]; changed.
        out: Number of each id, [n]; changed. It may be ``ids``.
    """
    n = 0
    mask = np.int64(len(keys) - 1)
    for i in range(len(ids)):
        v = np.int64(ids[i])
        if first <= v < last:
            out[i] = v - first
            continue
        slot = v & mask
        while keys[slot] != v:
            if keys[slot] < 0:
                keys[slot] = v
                numbers[slot] = last - first + n
                names[n] = v
                n += 1
            else:
                slot = _next_slot(slot, v, mask)
        out[i] = numbers[slot]
    return n


@jit()
def grow_forest(a, b, begin, keys, parent, used):  # type: ignore[no-untyped-def]
    """Join the trees of the ids a[i] and b[i] for i from ``begin`` on, until half of the table is
    used.

    Returns the number of the first pair that is left, and of the slots used. The root of a tree is
    its lowest id.

    Args:
        a, b: Pairs, [n] integers.
        begin: The first pair.
        keys: A table; changed.
        parent: The slot of the parent of each slot used, [len(keys)] integers; changed.
        used: Slots used.
    """
    mask = np.int64(len(keys) - 1)
    for i in range(begin, len(a)):
        if 2 * (used + 2) > len(keys):
            return i, used
        u = np.int64(a[i])
        v = np.int64(b[i])
        x, y = u & mask, v & mask
        while keys[x] != u:
            if keys[x] < 0:
                keys[x], parent[x] = u, x
                used += 1
            else:
                x = _next_slot(x, u, mask)
        while keys[y] != v:
            if keys[y] < 0:
                keys[y], parent[y] = v, y
                used += 1
            else:
                y = _next_slot(y, v, mask)
        x = find_root(parent, x)
        y = find_root(parent, y)
        if keys[x] < keys[y]:
            parent[y] = x
        else:
            parent[x] = y
    return len(a), used


@jit()
def read_forest(keys, parent, nodes, roots):  # type: ignore[no-untyped-def]
    """List all ids of a forest but the roots, and their roots; returns their number. ``nodes`` and
    ``roots`` are changed.
    """
    n = 0
    for slot in range(len(keys)):
        if keys[slot] >= 0 and parent[slot] != slot:
            nodes[n], roots[n] = keys[slot], keys[find_root(parent, slot)]
            n += 1
    return n


@jit()
def hook(high, low, first, parent, out):  # type: ignore[no-untyped-def]
    """Give nodes lower parents; returns the number of pairs that are left for others to join,
    ``out`` [n, 2], the higher first.

    Args:
        high, low: Pairs of nodes of a component, [n] integers; high[i] >= low[i].
        first: Node of the first parent.
        parent: Parent of each node, which is no higher, [n_block]; changed.
        out: Changed.
    """
    n = 0
    for i in range(len(high)):
        v = np.int64(high[i])
        u = np.int64(low[i])
        while v != u:
            if not first <= v < first + len(parent):
                out[n, 0], out[n, 1] = v, u
                n += 1
                break
            p = parent[v - first]
            if p == v:
                parent[v - first] = u
                break
            parent[v - first] = min(p, u)
            v = max(p, u)
            u = min(p, u)
    return n
