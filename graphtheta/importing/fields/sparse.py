"""Sparse features from two columns of lists: the features of a row that are not 0, and their
values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.base.sparse import WIDEST
from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.validation import WHOLE32, WHOLE64, first_rounded, largest
from graphtheta.importing.fields.base import Field, Wrong, element, says
from graphtheta.importing.fields.numbers import would_round
from graphtheta.importing.tables.arrow import (
    FLOAT,
    WHOLE,
    integers,
    is_list,
    is_whole,
    lengths,
    lists_with,
    numbers,
    one,
    owners,
)


class SparseRows(Field):
    """Rows of a CSR matrix.

    Args:
        columns: The columns of the numbers of features, from 0, and of their values.
        types: Types of all columns.
        width: Number of features; None is the largest number + 1.

    Raises:
        ConfigError: Not two columns of lists.
    """

    def __init__(self, columns: Sequence[str], types: dict[str, Any], width: int | None):
        if len(columns) != 2 or not all(is_list(types[name]) for name in columns):
            got = ", ".join(f"{name} of {types[name]}" for name in columns)
            raise ConfigError(
                "sparse_features (--sparse-features) needs two columns of lists, of numbers of"
                f" features and of their values; got {got}"
            )
        self._at, self._value = columns
        self.inputs = {self._at: pa.large_list(WHOLE), self._value: pa.large_list(FLOAT)}
        self._given = width
        self._largest = -1
        self._whole = is_whole(element(types[self._value]))
        # features with fractions, and of others the first number that float32 rounds
        self._fractions: set[int] = set()
        self._rounded: dict[int, float] = {}

    @property
    def width(self) -> int:
        """Number of features, after ``agree``."""
        return self._largest + 1 if self._given is None else self._given

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Lists of different lengths, numbers that are no features or are listed twice, values that
        are no float32.
        """
        sizes, others = (lengths(one(table.column(name))) for name in self.inputs)
        yield (
            (sizes < 0) | (sizes != others),
            lambda row: (
                f"columns '{self._at}' and '{self._value}' have lists of {max(sizes[row], 0)} and"
                f" {max(others[row], 0)} numbers"
                if sizes[row] >= 0 <= others[row]
                else f"column '{self._at if sizes[row] < 0 else self._value}' has no list"
            ),
        )
        limit = WIDEST if self._given is None else self._given
        owner, at = self._flat(table, self._at, sizes)
        yield (
            lists_with(sizes, (at < 0) | (at >= limit)),
            says(f"column '{self._at}' has a number outside 0..{limit - 1}"),
        )
        order = np.lexsort((at, owner))
        again = (np.diff(at[order]) == 0) & (np.diff(owner[order]) == 0)
        yield (
            lists_with(sizes, order[1:][again]),
            says(f"column '{self._at}' lists a feature twice"),
        )
        _, value = self._flat(table, self._value, others)
        yield (
            lists_with(others, ~(np.abs(value) <= np.finfo(np.float32).max)),
            says(f"column '{self._value}' has a list with numbers that are missing or infinite"),
        )

    def observe(self, table: pa.Table) -> None:
        """Find the largest number, and integers that float32 rounds."""
        _, at, value = self._sorted(table)
        self._largest = max(self._largest, int(at.max(initial=-1)))
        # integers are read as float64, which rounds those above 2^53
        fraction = (value != np.rint(value)) | (
            np.abs(value) > (np.inf if self._whole else WHOLE64)
        )
        self._fractions.update(np.unique(at[fraction]).tolist())
        large = ~fraction & (np.abs(value) > WHOLE32)
        for column in np.unique(at[large]).tolist():
            x = value[large & (at == column)]
            beyond = self._whole and largest(x) >= WHOLE64
            first = int(np.argmax(np.abs(x))) if beyond else first_rounded(x)
            if first is not None:
                self._rounded.setdefault(column, float(x[first]))

    def agree(self, comm: Comm, n: int) -> None:
        """Agree on the number of features; refuse features of integers that float32 rounds."""
        parts = comm.all_gather(
            [self._largest, sorted(self._fractions), sorted(self._rounded.items())]
        )
        self._largest = max(largest for largest, _, _ in parts)
        fractions = {column for _, columns, _ in parts for column in columns}
        for column, value in sorted(item for _, _, rounded in parts for item in rounded):
            if column not in fractions:
                raise DataError(
                    f"column '{self._value}': feature {column} has integers such as"
                    f" {would_round(value)}; give codes, ids and times as --node-columns, and"
                    " rescale measured quantities"
                )
        if not self.width:
            raise DataError(
                f"column '{self._at}': all lists are empty; state the number of features with"
                " n_features (--n-features)"
            )

    @property
    def key(self) -> str:
        """It writes the features, though they are no column of a fixed width."""
        return "x"

    def learnt(self) -> dict[str, Any]:
        """The number of features."""
        return {"width": self.width}

    def take(self, learnt: dict[str, Any], store: str) -> None:
        """Take the number of features of another import."""
        self._given = learnt["width"]

    def entries(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Entries of each row, [n] int64, and the features, ascending in a row, and values of all,
        [nnz] int64 and float32.
        """
        owner, at, value = self._sorted(table)
        return np.bincount(owner, minlength=table.num_rows), at, value.astype(np.float32)

    def _sorted(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row, feature and value of each entry, rows and features of a row ascending."""
        sizes = lengths(one(table.column(self._at)))
        (owner, at), (_, value) = (self._flat(table, name, sizes) for name in self.inputs)
        order = np.lexsort((at, owner))
        return owner[order], at[order], value[order]

    def _flat(self, table: pa.Table, name: str, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row and number of each entry of the lists of a column; -1 and NaN where there is no
        number.
        """
        values = one(table.column(name)).flatten()
        return owners(sizes), integers(values.fill_null(-1)) if name == self._at else numbers(
            values
        )
