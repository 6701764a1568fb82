"""A learnable row for each node, stored at the worker of the node's master.

A table is a column of the masters, so layers, evaluation and inference read it like a feature.
Training reads the rows of a view as a variable. Gradients of copies at other workers reach the
master with the moves of backward, so the gradient of a row is complete where the row is, and
updates send nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

import numpy as np

from graphtheta.base.rng import Purpose, key, normal
from graphtheta.errors import ConfigError, FormatError

from ...ops.optimisers.row_optimiser import RowOptimiser
from .column import Read, Ready

VALUE = "value"


class EmbeddingTable:
    """The rows of this worker's masters; a ``Column``.

    The first values are normal with variance 1 / width, so that a row has an expected squared
    norm of 1. Each is a hash of (seed, name, node id, column) and is the same for any number of
    workers and any partition.

    Args:
        name: Name of the column.
        masters: Global ids of the masters in the order of their rows, [n_masters].
        width: Numbers of a row, at least 1.
        optimiser: Makes updates.
        seed: Seed of the first values.
        dtype: A float type.

    Attributes:
        changed: Number of rows that the last update changed at this worker.

    Raises:
        ConfigError: The width is below 1.
    """

    sparse = False

    def __init__(
        self,
        name: str,
        masters: np.ndarray,
        width: int,
        optimiser: RowOptimiser,
        seed: int,
        dtype: np.dtype | type,
    ):
        if width < 1:
            raise ConfigError(f"an embedding {name!r} of width {width}; give a width of at least 1")
        self.name = name
        self.masters = masters
        self.optimiser = optimiser
        self.dtype = np.dtype(dtype)
        first = normal(
            key(seed, Purpose.EMBEDDING, crc32(name.encode())), masters, width
        ) / np.sqrt(width)
        self._values = first.astype(self.dtype)
        self._state = optimiser.start(len(masters), width, self.dtype)
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self.changed = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self._values.shape

    @property
    def nbytes(self) -> int:
        return self._values.nbytes + sum(x.nbytes for x in self._state.values())

    def read_begin(self, rows: np.ndarray | None) -> Read:
        return Ready(self.values(rows))

    def values(self, rows: np.ndarray | None = None) -> np.ndarray:
        """A copy of some rows, [m, width]; None for all."""
        # an update changes rows in place, and readers hold what they have read
        return self._values.copy() if rows is None else self._values[rows]

    def set_values(self, values: np.ndarray) -> None:
        """Replace the values of all rows; their state stays."""
        self._values = values.astype(self.dtype)

    def row_gradients(
        self, rows: np.ndarray | None, gradient: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The arguments of ``add`` after a pass.

        Args:
            rows: Master rows that the pass read, [m]; None for all.
            gradient: [m, width]; None if backward reached none of the rows at this worker.
        """
        rows = np.arange(len(self.masters)) if rows is None else rows
        return rows, (
            np.zeros((len(rows), *self.shape[1:]), self.dtype) if gradient is None else gradient
        )

    def add(self, rows: np.ndarray, gradient: np.ndarray) -> None:
        """Add gradients of a view to those of the next update.

        Args:
            rows: Master rows, [m] int64, none twice.
            gradient: [m, width].
        """
        self._waiting.append(
            (np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(gradient, self.dtype))
        )

    def squares(self) -> float:
        """The sum of the squares of the gradients that have been added since the last update."""
        self._waiting = [self._total()]
        return float(np.sum(np.square(self._waiting[0][1], dtype=np.float64)))

    def update(self, factor: float, scale: float = 1.0) -> None:
        """Update the rows that have been added since the last update.

        Args:
            factor: Multiplied with the step size.
            scale: Multiplied with the gradients.
        """
        rows, total = self._total()
        self._waiting = []
        self.optimiser.update(
            values=self._values,
            state=self._state,
            rows=rows,
            g=total,
            lr=self.optimiser.lr * factor,
            scale=scale,
        )
        self.changed = len(rows)

    def _total(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows that have been added, each once, and the sums of their gradients."""
        if len(self._waiting) == 1:
            return self._waiting[0]
        rows = np.unique(np.concatenate([np.zeros(0, np.int64), *(r for r, _ in self._waiting)]))
        total = np.zeros((len(rows), *self.shape[1:]), self.dtype)
        for added, gradient in self._waiting:
            total[np.searchsorted(rows, added)] += gradient
        return rows, total

    # ---- checkpoints: by node id, so that another number of workers can load them

    def arrays(self) -> dict[str, np.ndarray]:
        """Values and state by name, [n_masters, ...] each; updates change them."""
        return {VALUE: self._values, **self._state}

    def check(self, stored: Mapping[str, np.ndarray]) -> None:
        """Check that stored arrays, of any rows, have the names, types and widths of ``arrays``.

        Raises:
            FormatError: They do not.
        """
        expected = self.arrays()
        if set(stored) != set(expected):
            raise FormatError(
                f"the stored embedding {self.name!r} has {', '.join(sorted(stored))}, expected"
                f" {', '.join(sorted(expected))}; resume with the optimiser of the run that stored"
                " it"
            )
        for name, x in expected.items():
            if stored[name].shape[1:] != x.shape[1:] or stored[name].dtype != x.dtype:
                raise FormatError(
                    f"{name} of the stored embedding {self.name!r} is"
                    f" {stored[name].dtype}{list(stored[name].shape)}, expected"
                    f" {x.dtype}{['nodes', *x.shape[1:]]}; resume with the width and dtype of the"
                    " run that stored it"
                )

    def load(self, rows: Mapping[str, np.ndarray]) -> None:
        """Load what ``arrays`` returned, [n_masters, ...] each.

        Raises:
            FormatError: See ``check``; nothing has been changed then.
        """
        self.check(rows)
        self._values = np.ascontiguousarray(rows[VALUE])
        self._state = {name: np.ascontiguousarray(rows[name]) for name in self._state}
