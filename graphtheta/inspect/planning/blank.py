"""Columns without values, for those of nodes in jobs that are counted and do not run."""

from __future__ import annotations

import numpy as np

from graphtheta.engine.store.column import Read, Ready


class BlankColumn:
    """A column of zeros that takes no memory: the shape and type of one whose values do not matter.

    Args:
        shape: [n_rows, ...].
        dtype: Type of the values.
        nbytes: Bytes of memory that it counts as.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, nbytes: int = 0):
        self.shape = shape
        self.dtype = dtype
        self.sparse = False
        self.nbytes = nbytes

    def read_begin(self, rows: np.ndarray | None) -> Read:
        return Ready(self.values(rows))

    def values(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Some rows, [m, ...]; None for all."""
        n = self.shape[0] if rows is None else len(rows)
        return np.broadcast_to(np.zeros((), self.dtype), (n, *self.shape[1:]))


class BlankTable(BlankColumn):
    """The learned features of nodes, for training that makes views and no updates; a ``Table``."""

    name = "x"

    def row_gradients(
        self, rows: np.ndarray | None, gradient: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        rows = np.arange(self.shape[0]) if rows is None else rows
        return rows, self.values(rows)

    def add(self, rows: np.ndarray, gradient: np.ndarray) -> None:
        pass

    def squares(self) -> float:
        return 0.0

    def update(self, factor: float, scale: float = 1.0) -> None:
        pass
