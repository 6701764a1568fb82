"""Features that are read by rows and scaled when they are read."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphtheta.data.validation import is_column
from graphtheta.engine.store.column import Decoding, Read, Ready
from graphtheta.sparse import is_sparse


class Rescaled:
    """A column whose rows are computed from those of another one.

    Args:
        values: The other column, or an array in a file, [n, d].
        change: From some rows, [m, d], to those of this column, float32.
    """

    sparse = False
    dtype = np.dtype(np.float32)

    def __init__(self, values: Any, change: Callable[[np.ndarray], np.ndarray]):
        self._values, self._change = values, change
        self.shape: tuple[int, ...] = tuple(values.shape)

    @property
    def nbytes(self) -> int:
        return int(self._values.nbytes) if is_column(self._values) else 0

    def read_begin(self, rows: np.ndarray | None) -> Read:
        """Begin to read; see ``Column``."""
        if is_column(self._values):
            return Decoding(self._values.read_begin(rows), self._decoded)
        return Ready(self._decoded(self._values if rows is None else self._values[rows]))

    def _decoded(self, rows: Any) -> np.ndarray:
        return self._change(rows.toarray() if is_sparse(rows) else np.asarray(rows))
