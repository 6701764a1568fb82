"""Learned features of the nodes of some types, beside the features that the graph has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.base.sparse import is_sparse
from graphtheta.engine.store.column import Column, Read
from graphtheta.engine.store.table import EmbeddingTable
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph

# of a node in the table of its type
ROW_NUMBER = np.dtype(np.int32)


def widths_of(text: str, width: int, graph: Graph) -> dict[int, int]:
    """The width of the learned features of each type that has some, by code.

    Args:
        text: Names of types with or without widths, "user,item=8".
        width: That of types without one.
        graph: Has the types.

    Raises:
        ConfigError: A type is not known or named twice, or its width is no number of at least 1.
    """
    width_of: dict[int, int] = {}
    where = f"embedding_types={text}"
    for name, equals, number in (part.partition("=") for part in text.split(",")):
        if name not in graph.node_types:
            raise ConfigError(
                f"{where}: the graph has no node type {name!r}; its types are"
                f" {', '.join(graph.node_types) or 'none'}"
            )
        code = graph.node_types.index(name)
        if code in width_of:
            raise ConfigError(f"{where} names the type {name} twice; drop one of them")
        if equals and not (number.isdecimal() and int(number)):
            raise ConfigError(
                f"{where}: type {name} has width {number!r}; give a whole number of at least 1"
            )
        width_of[code] = int(number) if equals else width
    return width_of


@dataclass(frozen=True)
class _Beside:
    """A read of stored features, which are joined with learned ones when it ends."""

    stored: Read | None
    learned: np.ndarray

    def end(self) -> np.ndarray:
        if self.stored is None:
            return self.learned
        features = self.stored.end()
        return np.concatenate(
            (features.toarray() if is_sparse(features) else features, self.learned),
            axis=1,
            dtype=self.learned.dtype,
        )


class TypedFeatures:
    """The node column x: stored features, and beside them the columns of tables, each 0 at nodes of
    other types.

    A ``Column``, and a ``Table`` for training. Gradients of stored features are computed and
    dropped.

    Args:
        n_masters: Rows of the column.
        stored: The features of the graph, dense or sparse; None without.
        tables: A table for each type that has one, of its nodes among the masters.
        rows: The master rows of each table, ascending.
    """

    name = "x"
    sparse = False

    def __init__(
        self,
        n_masters: int,
        stored: Column | None,
        tables: Sequence[EmbeddingTable],
        rows: Sequence[np.ndarray],
    ):
        self._stored = stored
        self._tables = tables
        self._at = np.full((len(tables), n_masters), -1, ROW_NUMBER)
        for at, masters in zip(self._at, rows, strict=True):
            at[masters] = np.arange(len(masters))
        first = 0 if stored is None else stored.shape[1]
        self._bounds = np.cumsum([first, *(t.shape[1] for t in tables)]).tolist()
        self.shape: tuple[int, ...] = (n_masters, self._bounds[-1])
        self.dtype = tables[0].dtype

    @property
    def nbytes(self) -> int:
        return (
            self._at.nbytes
            + sum(t.nbytes for t in self._tables)
            + (0 if self._stored is None else self._stored.nbytes)
        )

    def read_begin(self, rows: np.ndarray | None) -> Read:
        at = self._at if rows is None else self._at[:, rows]
        learned = np.zeros((at.shape[1], self._bounds[-1] - self._bounds[0]), self.dtype)
        for table, row, begin, end in self._each(at):
            learned[row >= 0, begin - self._bounds[0] : end - self._bounds[0]] = table.values(
                row[row >= 0]
            )
        return _Beside(None if self._stored is None else self._stored.read_begin(rows), learned)

    def values(self, rows: np.ndarray | None = None) -> np.ndarray:
        """A copy of some rows, [m, width]; None for all."""
        values: np.ndarray = self.read_begin(rows).end()
        return values

    def row_gradients(
        self, rows: np.ndarray | None, gradient: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The arguments of ``add`` after a pass that read ``rows``; the gradient is None if
        backward did not reach them.
        """
        rows = np.arange(self.shape[0]) if rows is None else rows
        return rows, (
            np.zeros((len(rows), self.shape[1]), self.dtype) if gradient is None else gradient
        )

    def add(self, rows: np.ndarray, gradient: np.ndarray) -> None:
        """Add gradients of rows to those of the next update of the tables that have them."""
        for table, row, begin, end in self._each(self._at[:, rows]):
            table.add(row[row >= 0], gradient[row >= 0, begin:end])

    def squares(self) -> float:
        """The sum of the squares of the learned gradients that have been added."""
        return sum(table.squares() for table in self._tables)

    def update(self, factor: float, scale: float = 1.0) -> None:
        """Update the rows that have been added; ``factor`` is multiplied with the step size,
        ``scale`` with the gradients.
        """
        for table in self._tables:
            table.update(factor, scale)

    def _each(self, at: np.ndarray) -> Any:
        """Each table, its rows at some nodes, and the bounds of its columns."""
        return zip(self._tables, at, self._bounds[:-1], self._bounds[1:], strict=True)
