"""Rows that several workers hold a copy of, and values of them that all workers agree on.

Values are combined by exact operations: maxima, minima, and sums of integers. The results are
therefore the same bits for every number of workers and every partition.
"""

from __future__ import annotations

import numpy as np

from ..partition.exchange import Exchange
from ..partition.partition import MASTER


class Copies:
    """The rows of a move: its master rows, then its halo rows.

    Attributes:
        comm: The workers of the move.
        n_masters: Number of master rows.
        n: Number of rows.
        anywhere: Whether any worker has a halo row.
    """

    def __init__(self, exchange: Exchange):
        self._exchange = exchange
        self.comm = exchange.comm
        self.n_masters = exchange.plan.n_rows
        self.n = self.n_masters + exchange.plan.n_halo
        self.anywhere = exchange.plan.anywhere

    def at(self, kind: int) -> slice:
        """Where the rows of a kind are."""
        return slice(0, self.n_masters) if kind == MASTER else slice(self.n_masters, self.n)

    def agree(self, merge: np.ufunc, x: np.ndarray) -> np.ndarray:
        """Combine the values of all copies of each row; every copy gets the result.

        Args:
            merge: An operation that is associative and commutative for these values.
            x: Values of the rows, [n, ...]; changed.

        Collective: all ranks of the move.
        """
        mine = x[: self.n_masters]

        def combine(rows: np.ndarray, part: dict[str, np.ndarray]) -> None:
            mine[rows] = merge(mine[rows], part["x"])

        self._exchange.to_masters_begin({"x": x[self.n_masters :]}).end(combine)
        return self.copied(x)

    def copied(self, x: np.ndarray) -> np.ndarray:
        """Overwrite the values of halo rows by those of their masters; x is changed and returned.

        Collective: all ranks of the move.
        """
        x[self.n_masters :] = self._exchange.to_mirrors({"x": x[: self.n_masters]})["x"]
        return x
