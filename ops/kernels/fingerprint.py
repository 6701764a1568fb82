"""64-bit hashes of rows and of the edges of nodes; ``graphtheta.inference.grown.fingerprints`` says
what they are.
"""

from __future__ import annotations

import numpy as np

from ..compile.jit import jit
from .hash import draw
from .prefetch import LINE, prefetch

HALF, ZERO = np.uint64(32), np.uint64(0)
# key of the hash of a row: with the key 0, a row of zeros would have the hash 0, which adds nothing
# to the sum of the edges of a node, and which a file of zeros has as a checksum
KEY = np.uint64(1)
# rows between prefetch and read of a row, and cache lines of it that are prefetched; the processor
# finds the rest of a longer row
AHEAD, LINES = 8, 8


@jit()
def hash_rows(words, odd, out):  # type: ignore[no-untyped-def]
    """Hashes of rows.

    Args:
        words: [n, m] uint32 or uint64.
        odd: [m] uint64.
        out: [n] uint64; changed.
    """
    if words.shape[1] == 1:
        # without an inner loop it is vector code
        for i in range(len(words)):
            word = np.uint64(words[i, 0])
            out[i] = draw(KEY, (word ^ (word >> HALF)) * odd[0])
        return
    for i in range(len(words)):
        total = ZERO
        for j in range(words.shape[1]):
            word = np.uint64(words[i, j])
            # a change of the highest bits alone would vanish in a product modulo 2**64
            total += (word ^ (word >> HALF)) * odd[j]
        out[i] = draw(KEY, total)


@jit()
def take_checked(words, rows, odd, hashes, out):  # type: ignore[no-untyped-def]
    """out[i] = words[rows[i]], up to the first row that has another hash.

    Args:
        words: [n, m] uint32 or uint64.
        rows: [k], each below n.
        odd: As of ``hash_rows``.
        hashes: What ``hash_rows`` returned for the rows, [n] uint64.
        out: [k, m]; changed.

    Returns:
        The position in ``rows`` of a row with another hash; k if there is none.
    """
    of_row = hashes.reshape(-1, 1)
    lines = min(LINES, -(-words.shape[1] * words.itemsize // LINE))
    for i in range(len(rows)):
        row = rows[i]
        far = rows[min(i + AHEAD, len(rows) - 1)]
        total = ZERO
        prefetch(of_row, far, 0)  # type: ignore[call-arg]
        for line in range(lines):
            prefetch(words, far, line)
        for j in range(words.shape[1]):
            value = words[row, j]
            out[i, j] = value
            word = np.uint64(value)
            total += (word ^ (word >> HALF)) * odd[j]
        if draw(KEY, total) != hashes[row]:
            return i
    return len(rows)


@jit()
def hash_placed(hashes, places, n):  # type: ignore[no-untyped-def]
    """A hash of those of [m] uint64 that have a place below n, with their places, [m] int64."""
    total = ZERO
    for i in range(len(hashes)):
        if places[i] < n:
            total += draw(np.uint64(places[i]), hashes[i])
    return total


@jit()
def hash_edges(ptr, others, edges, start, of_node, of_edge, out):  # type: ignore[no-untyped-def]
    """Add the hashes of the edges of each row.

    Args:
        ptr: Bounds of the edges of each row, [n + 1].
        others: Row at the other end of each edge.
        edges: Position of each edge in storage, counted from ``start``; empty if they are in order.
        start: Position of the first edge in storage.
        of_node: Hashes of the rows at the other end, uint64.
        of_edge: Hashes of the columns of all edges in storage, uint64; empty if none count.
        out: [n] uint64; changed.
    """
    for row in range(len(ptr) - 1):
        total = ZERO
        for e in range(ptr[row], ptr[row + 1]):
            value = of_node[others[e]]
            if len(of_edge):
                value += of_edge[start + (edges[e] if len(edges) else e)]
            total += draw(ZERO, value)
        out[row] += total
