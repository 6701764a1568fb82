"""Sums over neighbours, and the step of PageRank. Integers are added, so no result depends on the
order.

``first`` and ``last`` select the rows of one thread.
"""

from __future__ import annotations

import numpy as np

from ...compile.jit import jit


@jit()
def neighbour_sum(indptr, near, x, out, first, last):  # type: ignore[no-untyped-def]
    """out[v] = sum of x over the neighbours of row v.

    Args:
        indptr, near: Neighbours of each row.
        x: [n_rows] integers or float64.
        out: [n_rows]; changed.
    """
    for v in range(first, last):
        total = x[0] * 0
        for e in range(indptr[v], indptr[v + 1]):
            u = near[e]
            # never true; a loop with an exit stays scalar, and loads are faster than vector gathers
            # of integers
            if u < 0:
                break
            total += x[u]
        out[v] = total


@jit()
def rank_shares(rank, degree, share, lost, block, first, last):  # type: ignore[no-untyped-def]
    """share[v] = rank[v] / degree[v], rounded to the nearest integer; nodes without out-edges add
    their rank to lost[block].

    Args:
        rank: [n] int64.
        degree: Out-edges of each node, [n] int64.
        share: [n] int64; changed.
        lost: [blocks] int64; changed.
        block: Number of this block.
    """
    total = np.int64(0)
    for v in range(first, last):
        if degree[v] == 0:
            total += rank[v]
            share[v] = 0
        else:
            share[v] = (rank[v] + (degree[v] >> 1)) // degree[v]
    lost[block] = total


@jit()
def new_ranks(  # type: ignore[no-untyped-def]
    received, damping, base, rank, change, block, first, last
):
    """rank[v] = base + damping * received[v], and change[block] = sum of the absolute differences.

    Args:
        received: Sum of the shares that each node receives, [n] int64.
        damping, base: float64 and int64.
        rank: [n] int64; changed.
        change: [blocks] int64; changed.
        block: Number of this block.
    """
    total = np.int64(0)
    for v in range(first, last):
        new = base + np.int64(damping * np.float64(received[v]) + 0.5)
        total += abs(new - rank[v])
        rank[v] = new
    change[block] = total
