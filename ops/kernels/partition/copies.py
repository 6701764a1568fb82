"""Which nodes have copies on which workers."""

from __future__ import annotations

import numpy as np

from ...compile.jit import jit


@jit()
def mark_copies(nodes, workers, copies):  # type: ignore[no-untyped-def]
    """Set the bit of workers[i] in copies[nodes[i]], for each i.

    Args:
        nodes, workers: [n] integers.
        copies: [n_nodes, n_words] uint64; changed.
    """
    for i in range(len(nodes)):
        copies[nodes[i], workers[i] >> 6] |= np.uint64(1) << np.uint64(workers[i] & 63)


@jit()
def count_pairs(copies, owners, counts):  # type: ignore[no-untyped-def]
    """counts[o, p] += number of nodes of owner o with a copy on another worker p; returns counts.

    Args:
        copies: [n_nodes, n_words] uint64.
        owners: [n_nodes] integers.
        counts: [n_workers, n_workers] int64; changed.
    """
    for v in range(len(copies)):
        for p in range(len(counts)):
            if p != owners[v]:
                counts[owners[v], p] += np.int64(
                    copies[v, p >> 6] >> np.uint64(p & 63) & np.uint64(1)
                )
    return counts
