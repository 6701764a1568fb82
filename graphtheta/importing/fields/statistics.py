"""Means, deviations and most frequent values of columns, found while the rows are read; the same on
any number of workers.

They are those of the training rows if a split says which these are, and else of all rows.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import DataError
from graphtheta.graph.data.validation import MOST_CLASSES


class Moments:
    """Numbers of values, means, and sums of squares around the means, of blocks of rows."""

    def __init__(self) -> None:
        # of training rows and of all rows, an array [3, d] for each block
        self._blocks: list[list[np.ndarray]] = [[], []]

    def add(self, x: np.ndarray, train: np.ndarray) -> None:
        """Add a block.

        Args:
            x: Values, [n, d] float64, NaN where there is none.
            train: Which rows are of training, [n] bool.
        """
        for blocks, rows in zip(self._blocks, (x[train], x), strict=True):
            if len(rows):
                present = ~np.isnan(rows)
                count = present.sum(axis=0)
                mean = rows.sum(axis=0, where=present) / np.maximum(count, 1)
                squares = ((rows - mean) ** 2).sum(axis=0, where=present)
                blocks.append(np.stack([count, mean, squares]))

    def agree(self, comm: Comm, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        """Number of values, mean and deviation of each column, [d] each, and whether they are those
        of training rows.

        Collective: all ranks of comm.
        """
        parts = comm.all_gather(self._blocks)
        train, every = ([block for part in parts for block in part[k]] for k in (0, 1))
        return *_combined(np.array(train or every).reshape(-1, 3, d)), bool(train)


def _combined(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number of values, mean and deviation of the rows of some blocks, [d] each.

    Args:
        blocks: [n_blocks, 3, d], as of ``Moments``.

    Source: Chan, Golub and LeVeque, The American Statistician 37 (1983).
    """
    # the blocks of each column in an order that does not say who has read them
    order = np.lexsort((blocks[:, 2], blocks[:, 1], blocks[:, 0]), axis=0)
    blocks = np.take_along_axis(blocks, order[:, None], axis=0)
    count = np.zeros(blocks.shape[2])
    mean = np.zeros(blocks.shape[2])
    squares = np.zeros(blocks.shape[2])
    for block in blocks:
        total = count + block[0]
        share = block[0] / np.maximum(total, 1)
        step = block[1] - mean
        mean = mean + step * share
        squares = squares + block[2] + step**2 * (count * share)
        count = total
    return count, mean, np.sqrt(squares / np.maximum(count, 1))


class Frequencies:
    """How often each value of a column occurs.

    Args:
        column: The column, for messages.
    """

    def __init__(self, column: str):
        self._column = column
        # in training rows, and in all rows
        self._counts: list[Counter[Any]] = [Counter(), Counter()]
        self._has_train = False

    def add(self, values: Any, train: np.ndarray) -> None:
        """Add the values of a block.

        Args:
            values: A column of pyarrow, [n], null where there is none.
            train: Which rows are of training, [n] bool.

        Raises:
            DataError: There are too many different ones.
        """
        self._has_train |= bool(train.any())
        for counts, rows in zip(
            self._counts, (values.filter(pa.array(train)), values), strict=True
        ):
            for entry in rows.drop_null().value_counts().to_pylist():
                counts[entry["values"]] += entry["counts"]
        self._check()

    def agree(self, comm: Comm) -> tuple[Any, bool]:
        """The most frequent value, of several the first in their order, None if there is none; and
        whether it is that of training rows.

        Raises:
            DataError: There are too many different ones.

        Collective: all ranks of comm.
        """
        parts = comm.all_gather(
            (self._has_train, [list(counts.items()) for counts in self._counts])
        )
        in_train = any(has_train for has_train, _ in parts)
        for k, counts in enumerate(self._counts):
            counts.clear()
            for _, of_worker in parts:
                counts.update(dict(of_worker[k]))
        self._check()
        counts = self._counts[0 if in_train else 1]
        return min(counts, key=lambda value: (-counts[value], value), default=None), in_train

    def _check(self) -> None:
        if len(self._counts[1]) > MOST_CLASSES:
            raise DataError(
                f"column '{self._column}' has more than {MOST_CLASSES:,} different values, of which"
                f" none stands for the missing ones; give --missing {self._column}=mean or"
                f" --missing {self._column}=zero"
            )
