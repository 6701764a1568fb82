"""What training needs of learnable node columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from graphtheta.errors import ConfigError


class LearnedTable(Protocol):
    """A learnable column of the masters, such as ``engine.store.table.EmbeddingTable``."""

    @property
    def name(self) -> str:
        """Name of the column."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[n_masters, width]."""

    def values(self, rows: np.ndarray | None = None) -> np.ndarray:
        """A copy of some rows, [m, width]; None for all."""

    def row_gradients(
        self, rows: np.ndarray | None, gradient: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The arguments of ``add`` after a pass that read ``rows``; the gradient is None if
        backward did not reach them.
        """

    def add(self, rows: np.ndarray, gradient: np.ndarray) -> None:
        """Add gradients of rows to those of the next update."""

    def squares(self) -> float:
        """The sum of the squares of the gradients of the next update, at this worker."""

    def update(self, factor: float, scale: float = 1.0) -> None:
        """Update the rows that have been added; ``factor`` is multiplied with the step size,
        ``scale`` with the gradients.
        """


def check_tables(tables: Sequence[LearnedTable], staleness: int) -> None:
    """Check that tables can be trained with these settings.

    Raises:
        ConfigError: Views compute with old versions.
    """
    if tables and staleness:
        raise ConfigError(
            f"the embedding {tables[0].name!r} cannot be trained with staleness above 0, because"
            " rows are changed in place and have no older versions; use staleness=0, or give the"
            " nodes features"
        )
