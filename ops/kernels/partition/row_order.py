"""Which of two orders of rows has better cache locality, by a sample of the edges."""

from __future__ import annotations

import numpy as np

# rows of 128 numbers that fit into a few megabytes of cache; edges sampled to order the rows
CACHED_ROWS, SAMPLED_EDGES = 1 << 13, 1 << 20


def sample_step(n_edges: int) -> int:
    """Distance between the global ids of edges that are sampled to order the rows."""
    return max(1, n_edges // SAMPLED_EDGES)


def votes(by_degree: np.ndarray, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """How many sampled edges are close in memory if rows are ordered by degree, and if they are
    ordered by id, [2] int64.

    By falling degree, the rows that many edges read are adjacent. By id, the rows of adjacent ids
    are adjacent, which is better if ids follow communities.

    Args:
        by_degree: Rows of the sources in the order by degree, [n] int32.
        src, dst: Rows of the sources and destinations in the order by id, [n] int32.
    """
    return np.array(
        [
            np.count_nonzero(by_degree < CACHED_ROWS),
            np.count_nonzero(np.abs(src - dst) < CACHED_ROWS),
        ]
    )
