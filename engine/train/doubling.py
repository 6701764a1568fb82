"""Sums in O(log P) messages of each rank.

Ranks are neighbours on a ring, and in each round a rank exchanges blocks with one rank at a certain
distance; the distances halve, rounded up, from round to round, so that all of them together reach
every rank, for any P (Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms",
arXiv:2410.14234, Algorithm 1). Every sum of an element is computed on one rank only, in an order
that P and the position of the element determine, so all ranks get the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..comm.channel import Pending, Send, Tag
from ..comm.communicator import Comm
from ..comm.ordered_reduce import ONE_ROUND, fold


class PendingSum:
    """A sum of one array over all ranks, which sends its first messages when it is made.

    Of a short array, each rank gathers those of all ranks, and adds them in rank order. Of a long
    one, the ranks halve what is left to add until each has the sum of one slice, and gather the
    slices; ranks send twice the size of the array.

    Args:
        comm: The ranks.
        x: [n]; the same n and dtype on every rank. It may be overwritten.

    Attributes:
        total: The sum, [n], once it is complete.

    Collective: all ranks of comm make their sums in the same order, and call ``advance`` in the
    same order.
    """

    def __init__(self, comm: Comm, x: np.ndarray):
        self.total = x
        self._moves = (
            self._gathered(comm) if is_short(len(x) * x.itemsize, comm.size) else self._halved(comm)
        )
        self._move: Pending | None = next(self._moves, None)

    def advance(self) -> bool:
        """End the move in progress and begin the next one; False if the sum is complete."""
        if self._move is not None:
            self._move.end()
            self._move = next(self._moves, None)
        return self._move is not None

    def _gathered(self, comm: Comm) -> Iterator[Pending]:
        """The moves of a short sum."""
        parts = np.empty((comm.size, len(self.total)), self.total.dtype)
        parts[0] = self.total
        yield from _spread(comm, parts.reshape(-1), np.arange(comm.size + 1) * len(self.total))
        self.total = fold([parts[q - comm.rank] for q in range(comm.size)], np.add)

    def _halved(self, comm: Comm) -> Iterator[Pending]:
        """The moves of a long sum."""
        # block i of a rank is the slice that the i-th rank after it sums
        first, bounds = _slices(len(self.total), comm.size, np.array([comm.rank]))
        begin = int(first[0])
        at = bounds[0]
        rows = np.roll(self.total, -begin)
        arrived = np.empty(at[comm.size // 2], self.total.dtype)
        for low, high in rounds(comm.size):
            received = arrived[: at[high - low]]
            yield comm.move_begin(
                [((comm.rank + low) % comm.size, rows[at[low] : at[high]])],
                [((comm.rank - low) % comm.size, received)],
                Tag.REDUCE,
            )
            rows[: len(received)] += received
        yield from _spread(comm, rows, at)
        # new memory costs more than the copy
        self.total[begin:] = rows[: len(rows) - begin]
        self.total[:begin] = rows[len(rows) - begin :]


def rounds(size: int) -> list[tuple[int, int]]:
    """First and last block, plus 1, that ranks exchange in each round, and the distance between
    them, which is the first.
    """
    steps = []
    high = size
    while high > 1:
        low = -(-high // 2)
        steps.append((low, high))
        high = low
    return steps


def is_short(n_bytes: int, size: int) -> bool:
    """Whether ranks gather all arrays of so many bytes to sum them."""
    return n_bytes * size <= ONE_ROUND


def sent(n: int, itemsize: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and messages that each rank sends to sum an array, [size] int64 each.

    Args:
        n, itemsize: Length of the array, and bytes of an element.
        size: Number of ranks.
    """
    ranks = np.arange(size)
    distances = rounds(size)
    if is_short(n * itemsize, size):
        return np.full(size, (size - 1) * n * itemsize), np.full(size, len(distances) * (n > 0))
    at = _slices(n, size, ranks)[1]
    # the same moves forth, which halve, and back, which gather; messages of no elements are not
    # sent
    parts = np.array(
        [part for low, high in distances for part in (at[:, high] - at[:, low], at[:, high - low])]
    ).reshape(-1, size)
    return parts.sum(axis=0) * itemsize, (parts > 0).sum(axis=0)


def _spread(comm: Comm, rows: np.ndarray, at: np.ndarray) -> Iterator[Pending]:
    """The moves that fill ``rows`` with the first block of each rank, from this rank on; block i is
    ``rows[at[i]: at[i + 1]]``.
    """
    for low, high in reversed(rounds(comm.size)):
        sends: list[Send] = [((comm.rank - low) % comm.size, rows[: at[high - low]])]
        yield comm.move_begin(
            sends, [((comm.rank + low) % comm.size, rows[at[low] : at[high]])], Tag.REDUCE
        )


def _slices(n: int, size: int, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the slice of some ranks begins, and the bounds of the blocks from it on, [ranks] and
    [ranks, size + 1].
    """
    ends = n * np.arange(size + 1) // size
    lengths = np.diff(ends)[(ranks[:, None] + np.arange(size)) % size]
    return ends[ranks], np.pad(np.cumsum(lengths, axis=1), ((0, 0), (1, 0)))
