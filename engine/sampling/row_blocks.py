"""Rows with edges, divided among threads by the number of their edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ops.parallel.pool import run_blocks


def row_blocks(ends: np.ndarray, edges_per_block: int) -> list[int]:
    """Bounds of consecutive rows that have about so many edges together, at least two bounds.

    Args:
        ends: Number of edges up to each row, with its own, [n].
        edges_per_block: Edges of a block.
    """
    n = 1 + int(ends[-1:].sum()) // edges_per_block
    return [0, *np.searchsorted(ends, np.arange(1, n) * edges_per_block).tolist(), len(ends)]


def by_rows(
    n_edges: np.ndarray, part: Callable[[slice], tuple[np.ndarray, ...]], edges_per_block: int
) -> tuple[np.ndarray, ...]:
    """Make lists of edges on all threads, each for some of the rows.

    Args:
        n_edges: Number of edges of each row.
        part: Returns bounds and lists of the edges of some rows.
        edges_per_block: Edges that a thread takes at a time, about.

    Returns:
        Bounds and lists of the edges of all rows.
    """
    cuts = row_blocks(np.cumsum(n_edges), edges_per_block)
    parts: list[Any] = [None] * (len(cuts) - 1)

    def block(b: int) -> None:
        parts[b] = part(slice(*cuts[b : b + 2]))

    run_blocks(block, len(parts))
    if len(parts) == 1:
        return tuple(parts[0])
    counts, *lists = (
        np.concatenate(x)
        for x in zip(*((np.diff(bounds), *rest) for bounds, *rest in parts), strict=True)
    )
    return np.append(0, np.cumsum(counts)), *lists
