"""The fields that most columns become: ids, real numbers, classes and codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import DataError
from graphtheta.graph.data.validation import MOST_CLASSES, WHOLE32, WHOLE64, first_rounded, largest
from graphtheta.importing.tables.arrow import (
    BOOL,
    FLOAT,
    TEXT,
    WHOLE,
    absent,
    flags,
    integers,
    is_list,
    lengths,
    lists_with,
    null,
    numbers,
    one,
)

# rows that are wrong, and what is wrong with a row
Wrong = tuple[np.ndarray, Callable[[int], str]]


class Output(NamedTuple):
    """A column of a store: its name, the shape of a row, and the type of its values."""

    name: str
    trailing: tuple[int, ...]
    dtype: Any


class Field:
    """A field of a graph. This base accepts all rows and writes nothing.

    Attributes:
        inputs: Columns to read, and their types.
    """

    inputs: dict[str, Any]

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Rows that cannot be used, [n] bool, and why."""
        return iter(())

    def observe(self, table: pa.Table) -> None:
        """Take notice of rows that are used."""

    def agree(self, comm: Comm, n: int) -> None:
        """Exchange what was observed, after all n rows.

        Raises:
            DataError: The values together make no field; on all ranks.

        Collective: all ranks of comm.
        """

    def outputs(self) -> list[Output]:
        """The columns of the store."""
        return []

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """Values of the outputs for some rows."""
        return []

    def meta(self) -> dict[str, Any]:
        """What is stored with the graph."""
        return {}

    def labels(self) -> dict[str, Any]:
        """The arguments n_classes and multilabel of a graph, where the labels themselves do not
        tell them.
        """
        return {}


class Numbers(Field):
    """Real numbers from columns of numbers, or from one column of lists.

    Args:
        name: Name in the store.
        columns: The columns.
        types: Types of all columns; the integers of a column of integers must be exact in float32.
        width: Length of the lists; None for columns of numbers.
        vector: Whether a row is a number instead of a list of them.
        missing: Whether values may be missing (NaN).
        dtype: Type of the values in the store, float32 or float64.
        remedy: Where values belong that float32 would round.
    """

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        types: Mapping[str, Any],
        width: int | None = None,
        *,
        vector: bool = False,
        missing: bool = False,
        dtype: Any = np.float32,
        remedy: str = "",
    ):
        if width == 0:
            raise DataError(
                f"column '{columns[0]}': all lists are empty; give a list of as many numbers in"
                " every row, or leave the column out"
            )
        read = {
            column: BOOL if pa.types.is_boolean(element(types[column])) else FLOAT
            for column in columns
        }
        self.inputs: dict[str, Any] = (
            read
            if width is None
            else {column: pa.large_list(kind) for column, kind in read.items()}
        )
        self._name = name
        self._width = width
        self._vector = vector
        self._missing = missing
        self._remedy = remedy
        self._dtype = np.dtype(dtype)
        whole = [pa.types.is_integer(element(types[column])) for column in columns]
        self._whole = whole if width is None else whole * width
        # of each column, whether it has fractions, and the first number that float32 rounds
        self._fractions = np.zeros(len(self._whole), bool)
        self._rounded: dict[int, int] = {}

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Numbers that are missing or infinite, and lists of another length."""
        for name in self.inputs:
            column = one(table.column(name))
            if self._width is None:
                values = numbers(column)
                yield self._refused(values), no_number(name, values)
            else:
                sizes = lengths(column)
                yield (
                    (sizes != self._width) & ~(self._missing & (sizes < 0)),
                    no_list(name, sizes, self._width),
                )
                yield (
                    lists_with(sizes, self._refused(numbers(column.flatten()))),
                    says(f"column '{name}' has a list with numbers that are missing or infinite"),
                )

    def _refused(self, values: np.ndarray) -> np.ndarray:
        beyond = np.abs(values) > np.finfo(np.float32).max
        return beyond if self._missing else beyond | np.isnan(values)

    def observe(self, table: pa.Table) -> None:
        """Look for fractions, and for large integers, which float32 rounds."""
        if self._dtype != np.float32:
            return
        for i, x in enumerate(self._values(table).T):
            x = x[~np.isnan(x)]
            # integers are read as float64, which rounds those above 2^53
            beyond = self._whole[i] and largest(x) >= WHOLE64
            if not self._fractions[i] and len(x):
                self._fractions[i] = (largest(x) > WHOLE64 and not beyond) or not np.array_equal(
                    x, np.rint(x)
                )
            if not self._fractions[i] and i not in self._rounded and largest(x) > WHOLE32:
                at = int(np.argmax(np.abs(x))) if beyond else first_rounded(x)
                if at is not None:
                    self._rounded[i] = int(x[at])

    def agree(self, comm: Comm, n: int) -> None:
        """Refuse columns of integers that float32 rounds."""
        parts = comm.all_gather([self._fractions.tolist(), sorted(self._rounded.items())])
        names = list(self.inputs)
        for _, rounded in parts:
            for i, value in rounded:
                if not any(fractions[i] for fractions, _ in parts):
                    raise DataError(
                        f"column '{names[0 if self._width else i]}' has integers such as {value},"
                        f" which float32 would round to {int(np.float32(value))}; {self._remedy}"
                    )

    def outputs(self) -> list[Output]:
        """Rows of floats."""
        return [Output(self._name, () if self._vector else (len(self._fractions),), self._dtype)]

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """Rows of floats."""
        values = self._values(table).astype(self._dtype)
        return [values[:, 0] if self._vector else values]

    def missing(self, table: pa.Table) -> np.ndarray:
        """Rows without any value, [n] bool."""
        return np.asarray(np.isnan(self._values(table)).all(axis=1))

    def _values(self, table: pa.Table) -> np.ndarray:
        """[n, d] float64."""
        columns = [one(table.column(name)) for name in self.inputs]
        if self._width is None:
            return np.stack([numbers(column) for column in columns], axis=1)
        out = np.full((table.num_rows, self._width), np.nan)
        present = ~null(columns[0])
        out[present] = numbers(columns[0].flatten()).reshape(int(present.sum()), self._width)
        return out


class Codes(Field):
    """A column of texts as codes of their sorted values.

    Args:
        name: Name in the store.
        column: The column.
        key: Where the values are kept in the meta data: a name, or the name of a table and one in
            it.
        dtype: Type of the codes.
        missing: Code of rows without a value; None refuses such rows.
    """

    def __init__(
        self, name: str, column: str, key: tuple[str, ...], dtype: Any, missing: int | None = None
    ):
        self.inputs = {column: TEXT}
        self._name = name
        self._column = column
        self._key = key
        self._dtype = dtype
        self._missing = missing
        self._seen: set[str] = set()
        self._values: list[str] = []

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Rows without a value."""
        if self._missing is None:
            yield (
                absent(one(table.column(self._column))),
                says(f"column '{self._column}' has no value"),
            )

    def observe(self, table: pa.Table) -> None:
        """Collect the values."""
        values = one(table.column(self._column))
        self._seen.update(value for value in values.unique().to_pylist() if value)
        check_categories(self._column, len(self._seen))

    def agree(self, comm: Comm, n: int) -> None:
        """Sort the values of all workers."""
        self._values = sorted(set().union(*comm.all_gather(sorted(self._seen))))
        check_categories(self._column, len(self._values))

    def outputs(self) -> list[Output]:
        """One code a row."""
        return [Output(self._name, (), self._dtype)]

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """One code a row."""
        codes = pc.index_in(one(table.column(self._column)), pa.array(self._values, TEXT))
        return [integers(codes.fill_null(-1)).astype(self._dtype)]

    def missing(self, table: pa.Table) -> np.ndarray:
        """Rows without a value, [n] bool."""
        return absent(one(table.column(self._column)))

    def meta(self) -> dict[str, Any]:
        """The values, in the order of their codes."""
        value: Any = self._values
        for key in reversed(self._key):
            value = {key: value}
        return dict(value)


class Ids(Field):
    """Ids of nodes, which are resolved and not stored as a column.

    Args:
        columns: Their columns.
        kind: Type of the ids.
    """

    def __init__(self, columns: Sequence[str], kind: Any):
        self.inputs = dict.fromkeys(columns, kind)

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Rows without an id."""
        for name, kind in self.inputs.items():
            column = one(table.column(name))
            yield (
                absent(column) if kind == TEXT else null(column),
                says(f"column '{name}' has no id"),
            )
            if kind == TEXT:
                # arrays of texts end at such a character
                yield (
                    flags(pc.match_substring(column, "\0")),
                    says(f"column '{name}' has an id with the character 0"),
                )


def element(kind: Any) -> Any:
    """The type of the values of a column, those in its lists if it has lists."""
    return kind.value_type if is_list(kind) else kind


def read_as(kind: Any) -> Any:
    """The type to read a column of integers or bools in."""
    return BOOL if pa.types.is_boolean(kind) else WHOLE


def says(text: str) -> Callable[[int], str]:
    """The same text for every row."""
    return lambda row: text


def no_number(name: str, values: np.ndarray) -> Callable[[int], str]:
    """What is wrong with a number."""
    return lambda row: (
        f"column '{name}' has no value"
        if np.isnan(values[row])
        else f"column '{name}': {values[row]} is no float32 number"
    )


def no_list(name: str, sizes: np.ndarray, width: int) -> Callable[[int], str]:
    """What is wrong with a list of another length, -1 for none."""
    return lambda row: (
        f"column '{name}' has no list"
        if sizes[row] < 0
        else f"column '{name}' has a list of {sizes[row]} numbers, expected {width}"
    )


def check_categories(column: str, n: int) -> None:
    """Check that a column of names has not too many.

    Raises:
        DataError: They are ids rather than names.
    """
    if n > MOST_CLASSES:
        raise DataError(
            f"column '{column}' has more than {MOST_CLASSES:,} different texts; codes are for names"
            " of kinds, so leave it out"
        )
