"""Columns: stored values of nodes or edges, read by rows.

A read begins and ends in separate calls: a column in memory returns its values at once, a column
in a file or on another machine can fetch them while the engine computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    # the package takes longer to import than a graph needs to be read
    from ...ops.rows.row_list import RowList


class Role(Enum):
    """What a column is for. Models read features and learned columns only."""

    FEATURE = "feature"
    # changed by every step of training, which reads its rows by itself
    LEARNED = "learned"
    TARGET = "target"
    MASK = "mask"
    # computed by the engine from other columns, for its own use
    DERIVED = "derived"


class Read(Protocol):
    """A started read."""

    def end(self) -> Any:
        """The rows, [m, ...]: a plain array, or scipy CSR for a sparse column. Called once."""


class Column(Protocol):
    """Stored values of all rows; every thread may read it at any time."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[n_rows, ...]."""

    @property
    def dtype(self) -> np.dtype:
        """Type of the values that a read returns."""

    @property
    def sparse(self) -> bool:
        """Whether a read returns CSR rows instead of a plain array."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the column holds; files do not count."""

    def read_begin(self, rows: np.ndarray | None) -> Read:
        """Begin to read.

        Args:
            rows: Row numbers in any order, [m]; None for all rows in order, without a copy where
                possible. The result of a read of all rows must not be changed.
        """


@dataclass(frozen=True)
class Ready:
    """A read whose values are available."""

    values: Any

    def end(self) -> Any:
        return self.values


def listed_rows(column: Column, rows: np.ndarray) -> RowList | None:
    """Rows of a column where they are stored, without a copy, from its method ``listed``, which
    takes their numbers.

    Args:
        column: The column.
        rows: Row numbers in any order, [m].

    Returns:
        Rows of an array, of the type and trailing shape of the column, [m, ...]; None if they must
        be read with ``read_begin``.
    """
    listed: Callable[[np.ndarray], RowList | None] | None = getattr(column, "listed", None)
    return None if listed is None else listed(rows)


@dataclass(frozen=True)
class Decoding:
    """A read of other values, which are decoded when it ends. That of a column with a narrower form
    (``Coded``) reads this form.

    Attributes:
        read: The read of these.
        decode: Function from rows of them to the values, see ``Coded``.
    """

    read: Read
    decode: Callable[[Any], Any]

    def end(self) -> Any:
        return self.decode(self.read.end())


@dataclass(frozen=True)
class Coded:
    """A column of narrower values, from which those of another one are computed; messages and
    caches hold these.

    Attributes:
        column: The narrower values.
        decode: Function from rows of them, [m, ...], to the values.
    """

    column: Column
    decode: Callable[[Any], Any]


def coded(column: Column) -> Coded:
    """The narrower form of a column, from its attribute ``coded``; the column itself if it has
    none.
    """
    narrow: Coded | None = getattr(column, "coded", None)
    return Coded(column, lambda rows: rows) if narrow is None else narrow


class RoundedColumn:
    """A column of narrower floats, whose values are stored exactly: reads round them.

    What compares values instead of computing with them, such as times, reads ``exact``.

    Args:
        exact: The stored values.
        dtype: Type of the values that a read returns.
    """

    sparse = False

    def __init__(self, exact: Column, dtype: Any):
        self.exact = exact
        self.shape: tuple[int, ...] = exact.shape
        self.dtype: np.dtype = np.dtype(dtype)

    @property
    def nbytes(self) -> int:
        return self.exact.nbytes

    def read_begin(self, rows: np.ndarray | None) -> Read:
        return Decoding(self.exact.read_begin(rows), lambda values: values.astype(self.dtype))


def exact_column(column: Column) -> Column:
    """The column of exact values behind one that rounds them; otherwise the column itself."""
    return column.exact if isinstance(column, RoundedColumn) else column


def is_column(x: Any) -> bool:
    """Whether x has the methods of a column, as opposed to an array."""
    return hasattr(x, "read_begin")
