"""The order in which rows take their edges, one in each step, for sums that depend on it.

In step t, every row with more than t edges takes its edge number t. Rows are sorted by their number
of edges, so those that still take one are a prefix, which shrinks from step to step:

    row        edges            step 0   step 1   step 2
    a          3 1 4            3        1        4
    b          1 5              1        5
    c          9                9

Long lists are cut into blocks of rows, so that what a step computes exists for one block at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..functions.recurrence import Turn

# most numbers of the messages of a block of several rows: fixed, so that results do not depend on
# the number of threads. What a step computes for them should fit into memory several times, and
# arrays of fewer numbers take less time than to call the functions of a step
NUMBERS = 1 << 23


@dataclass
class TurnBlock:
    """Some rows, and their edges by step.

    Attributes:
        rows: The rows, those with most edges first, [n_rows] int64.
        edges: Position of each edge, those of step 0 first, in the order of the rows, [n_edges].
        bounds: Bounds of the edges of each step, [n_steps + 1].
    """

    rows: np.ndarray
    edges: np.ndarray
    bounds: np.ndarray

    @cached_property
    def turns(self) -> list[Turn]:
        """The steps."""
        stays = np.append(np.diff(self.bounds)[1:], 0)
        each = zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), stays.tolist(), strict=True)
        return [Turn(*bounds) for bounds in each]


def edges_of_block(width: int) -> int:
    """Most edges of a block of several rows, whose messages have ``width`` numbers each."""
    return max(1, NUMBERS // max(1, width))


def blocks_of(
    row: np.ndarray, keys: Sequence[np.ndarray], most: int | None = None, width: int = 1
) -> list[TurnBlock]:
    """The turns of edges.

    Args:
        row: Receiving row of each edge, [n].
        keys: What the edges of a row are sorted by, the most important first, [n] each; NaN is
            last, as in NumPy.
        most: Number of edges that a row takes at most; None for all.
        width: Numbers of a message; a row whose messages have more than ``NUMBERS`` is a block by
            itself.

    Returns:
        Blocks of all rows that have edges.
    """
    order = np.lexsort((*reversed(keys), row))
    of_row = row[order]
    start = np.flatnonzero(np.concatenate(([True], of_row[1:] != of_row[:-1]))[: len(of_row)])
    count = np.diff(start, append=len(of_row))
    if most is not None:
        count = np.minimum(count, most)
    longest = np.argsort(-count, kind="stable")
    start = start[longest]
    count = count[longest]
    total = np.append(0, np.cumsum(count))
    size = edges_of_block(width)
    blocks = []
    first = 0
    while first < len(count):
        fitting = int(np.searchsorted(total, total[first] + size, side="right")) - 1
        last = max(first + 1, fitting)
        blocks.append(_block(order, of_row, start[first:last], count[first:last]))
        first = last
    return blocks


def _block(
    order: np.ndarray, of_row: np.ndarray, start: np.ndarray, count: np.ndarray
) -> TurnBlock:
    steps = np.arange(count[0])
    # rows with more edges than the number of a step, which come first
    active = np.searchsorted(-count, -steps, side="left")
    bounds = np.append(0, np.cumsum(active))
    row = np.arange(bounds[-1]) - np.repeat(bounds[:-1], active)
    return TurnBlock(of_row[start], order[start[row] + np.repeat(steps, active)], bounds)
