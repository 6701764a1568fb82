"""What training needs of learnable node columns."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from graphtheta.errors import ConfigError

from ...ops.autodiff.tape import Var
from .update import UpdateRule


class Table(Protocol):
    """A learnable column of the masters, such as ``engine.store.table.EmbeddingTable``."""

    @property
    def name(self) -> str:
        """Name of the column."""

    def values(self, rows: np.ndarray | None = None) -> np.ndarray:
        """A copy of some rows, [m, width]; None for all."""

    def row_gradients(self, rows: np.ndarray | None, gradient: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """The arguments of ``add`` after a pass that read ``rows``; the gradient is None if backward did not reach them."""

    def add(self, rows: np.ndarray, gradient: np.ndarray) -> None:
        """Add gradients of rows to those of the next update."""

    def update(self, factor: float) -> None:
        """Update the rows that have been added; ``factor`` is multiplied with the step size."""


# a table, the master rows that a pass read of it (None for all), and the variable with their values
LearnedRows = tuple[Table, np.ndarray | None, Var]


def check_tables(tables: Sequence[Table], staleness: int, independent: bool, rule: UpdateRule | None) -> None:
    """Check that tables can be trained with these settings.

    Raises:
        ConfigError: Views compute with old versions or with rows of other workers, or gradients are clipped.
    """
    refused = {"staleness above 0": staleness > 0, "independent views": independent, "clip_norm": rule is not None and rule.clip_norm > 0}
    for what, given in refused.items():
        if tables and given:
            raise ConfigError(f"the embedding {tables[0].name!r} cannot be trained with {what}; use mode=cooperative, staleness=0 "
                              "and clip_norm=0, or give the nodes features")
