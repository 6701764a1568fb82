"""Real numbers, which features, attributes, weights and targets are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import DataError
from graphtheta.graph.data.validation import WHOLE32, WHOLE64, first_rounded, largest
from graphtheta.importing.fields.base import Field, Output, Tally, Wrong, element, no_list, says
from graphtheta.importing.fields.dates import PARTS, days, encoded, is_date, time_type
from graphtheta.importing.fields.filling import Filling
from graphtheta.importing.tables.arrow import (
    BOOL,
    FLOAT,
    is_whole,
    lengths,
    lists_with,
    null,
    numbers,
    one,
)


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
        filling: What stands for missing values; None refuses them, unless they may be missing.
        dates: Whether columns of dates and times are accepted, which become five numbers each.
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
        filling: Callable[[Sequence[str]], Filling] | None = None,
        dates: bool = False,
    ):
        if width == 0:
            raise DataError(
                f"column '{columns[0]}': all lists are empty; give a list of as many numbers in"
                " every row, or leave the column out"
            )
        of_dates = [dates and is_date(types[column]) for column in columns]
        read = {
            column: time_type(types[column])
            if is_time
            else BOOL
            if pa.types.is_boolean(element(types[column]))
            else FLOAT
            for column, is_time in zip(columns, of_dates, strict=True)
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
        whole = [is_whole(element(types[column])) for column in columns]
        self._whole = whole if width is None else whole * width
        # columns of the numbers of a row as they are read, and which are dates
        self._columns = list(columns) if width is None else list(columns) * width
        self._dates = of_dates if width is None else of_dates * width
        self._filling = None if filling is None else filling(self._columns)
        self._lacking = Tally("missing_values")
        # of each column, whether it has fractions, and the first number that float32 rounds
        self._fractions = np.array(self._dates)
        self._rounded: dict[int, float] = {}

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Numbers that are missing or infinite, and lists of another length."""
        for i, name in enumerate(self.inputs):
            column = one(table.column(name))
            may_lack = self._missing or (self._filling is not None and self._filling.fills[i])
            if self._width is None:
                values = self._numbers(i, column)
                yield refused(values, may_lack), no_number(name, values)
            else:
                sizes = lengths(column)
                yield (
                    (sizes != self._width) & ~(may_lack & (sizes < 0)),
                    no_list(name, sizes, self._width),
                )
                yield (
                    lists_with(sizes, refused(numbers(column.flatten()), may_lack)),
                    says(f"column '{name}' has a list with numbers that are missing or infinite"),
                )

    def observe(self, table: pa.Table) -> None:
        """Look for fractions, and for large integers, which float32 rounds."""
        values = self._given(table)
        self._observe_missing(table, values)
        if self._dtype != np.float32:
            return
        for i, x in enumerate(values.T):
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
                    self._rounded[i] = float(x[at])

    def _observe_missing(self, table: pa.Table, values: np.ndarray) -> None:
        """Count missing values, and take notice of what may stand for them."""
        if self._filling is not None:
            self._filling.observe(table, values)
            lacking = self.lacking(values)
            for i, name in enumerate(self.inputs):
                self._lacking.add(name, int(lacking[:, i].sum()))

    def agree(self, comm: Comm, n: int) -> None:
        """Refuse columns of integers that float32 rounds."""
        parts = comm.all_gather([self._fractions.tolist(), sorted(self._rounded.items())])
        names = list(self.inputs)
        for _, rounded in parts:
            for i, value in rounded:
                if not any(fractions[i] for fractions, _ in parts):
                    raise DataError(
                        f"column '{names[0 if self._width else i]}' has integers such as"
                        f" {would_round(value)}; {self._remedy}"
                    )
        self._agree_missing(comm)

    def _agree_missing(self, comm: Comm) -> None:
        """Agree on what stands for missing values."""
        if self._filling is not None:
            self._filling.agree(comm)
            self._lacking.agree(comm)

    def outputs(self) -> list[Output]:
        """Rows of floats."""
        width = sum(len(PARTS) if is_time else 1 for is_time in self._dates)
        return [Output(self._name, () if self._vector else (width,), self._dtype)]

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """Rows of floats."""
        values = self._values(table).astype(self._dtype)
        return [values[:, 0] if self._vector else values]

    def missing(self, table: pa.Table) -> np.ndarray:
        """Rows without any value, [n] bool."""
        return np.asarray(np.isnan(self._given(table)).all(axis=1))

    def lacking(self, values: np.ndarray) -> np.ndarray:
        """Whether a row lacks a value of each column, [n, number of columns] bool.

        Args:
            values: As they are given, [n, number of values].
        """
        lacking = np.isnan(values)
        return lacking if self._width is None else lacking.any(axis=1, keepdims=True)

    def marks(self, table: pa.Table, columns: Sequence[str]) -> np.ndarray:
        """Whether a row lacks a value of some of the columns, [n, len(columns)] bool."""
        names = list(self.inputs)
        return self.lacking(self._given(table))[:, [names.index(column) for column in columns]]

    def learnt(self) -> dict[str, Any]:
        """The values that stand for missing ones, and the length of lists."""
        filling = {} if self._filling is None else self._filling.learnt()
        return {**filling, "width": self._width}

    def take(self, learnt: dict[str, Any], store: str) -> None:
        """Take the values that stand for missing ones.

        Raises:
            DataError: The lists of the other column have another length.
        """
        if learnt["width"] != self._width:
            raise DataError(
                f"column '{next(iter(self.inputs))}' has {form_of(self._width)}, and that of"
                f" {store} {form_of(learnt['width'])}; give values of the same form"
            )
        if self._filling is not None:
            self._filling.take(learnt)

    def over(self) -> set[str]:
        """Of what stands for missing values."""
        return set() if self._filling is None or not self._filling.over else {self._filling.over}

    def counts(self) -> dict[str, dict[str, int]]:
        """Missing values by column."""
        return self._lacking.by_column()

    def _values(self, table: pa.Table) -> np.ndarray:
        """Features, [n, d] float64, NaN where a value may be missing."""
        x = self._given(table)
        if self._filling is None:
            return self._encoded(x)
        out = self._encoded(self._filling.filled(x))
        fills = np.repeat(
            self._filling.fills, [len(PARTS) if is_time else 1 for is_time in self._dates]
        )
        return np.where(np.isnan(out) & fills, 0.0, out)

    def _encoded(self, x: np.ndarray) -> np.ndarray:
        """[n, d] of [n, number of values]: days become the numbers of dates."""
        if not any(self._dates):
            return x
        return np.concatenate(
            [
                encoded(x[:, i]) if is_time else x[:, i : i + 1]
                for i, is_time in enumerate(self._dates)
            ],
            axis=1,
        )

    def _numbers(self, i: int, column: Any) -> np.ndarray:
        """Values of a column, or days of a column of dates, [n] float64."""
        return days(column) if self._dates[i] else numbers(column)

    def _given(self, table: pa.Table) -> np.ndarray:
        """Values as they are given, [n, number of values] float64, NaN where there is none."""
        columns = [one(table.column(name)) for name in self.inputs]
        if self._width is None:
            return np.stack([self._numbers(i, column) for i, column in enumerate(columns)], axis=1)
        out = np.full((table.num_rows, self._width), np.nan)
        present = ~null(columns[0])
        out[present] = numbers(columns[0].flatten()).reshape(int(present.sum()), self._width)
        return out


def no_number(name: str, values: np.ndarray) -> Callable[[int], str]:
    """What is wrong with a number."""
    return lambda row: (
        f"column '{name}' has no value"
        if np.isnan(values[row])
        else f"column '{name}': {values[row]} is no float32 number"
    )


def refused(values: np.ndarray, may_lack: bool) -> np.ndarray:
    """Numbers that are no float32, or missing where they may not, [n] bool."""
    beyond = np.abs(values) > np.finfo(np.float32).max
    return beyond if may_lack else beyond | np.isnan(values)


def would_round(value: float) -> str:
    """What float32 does to an integer, which float64 has rounded if it is beyond 2^53."""
    if abs(value) >= WHOLE64:
        return f"{value:.6g}, which float32 would round"
    return f"{int(value)}, which float32 would round to {int(np.float32(value))}"


def form_of(width: int | None) -> str:
    """What a row of a column has."""
    return "a value in each row" if width is None else f"lists of {width} numbers"
