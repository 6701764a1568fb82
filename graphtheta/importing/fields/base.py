"""The fields that most columns become: ids, real numbers, classes and codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import DataError
from graphtheta.graph.data.columns import listed
from graphtheta.graph.data.validation import MOST_CLASSES, WHOLE32, WHOLE64, first_rounded, largest
from graphtheta.importing.fields.dates import PARTS, days, encoded, is_date, time_type
from graphtheta.importing.fields.filling import OWN, Filling, no_value, rows_of
from graphtheta.importing.fields.statistics import Frequencies
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

    @property
    def key(self) -> str:
        """What finds what it learnt, among the fields of its table."""
        return next((output.name for output in self.outputs()), "")

    def learnt(self) -> dict[str, Any]:
        """What an import of other tables takes, as plain values; after ``agree``."""
        return {}

    def take(self, learnt: dict[str, Any], store: str) -> None:
        """Take what the same field of another import learnt, before any rows.

        Args:
            learnt: Of the other field.
            store: The store that has it, for messages.
        """

    def over(self) -> set[str]:
        """The rows that means, deviations and most frequent values are those of: "training" or
        "all"; after ``agree``.
        """
        return set()

    def counts(self) -> dict[str, dict[str, int]]:
        """Numbers of values that are something else than the table says, by what is said of them
        and by column; after ``agree``.
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
        whole = [pa.types.is_integer(element(types[column])) for column in columns]
        self._whole = whole if width is None else whole * width
        # columns of the numbers of a row as they are read, and which are dates
        self._columns = list(columns) if width is None else list(columns) * width
        self._dates = of_dates if width is None else of_dates * width
        self._filling = None if filling is None else filling(self._columns)
        self._lacking = Tally("missing_values")
        # of each column, whether it has fractions, and the first number that float32 rounds
        self._fractions = np.array(self._dates)
        self._rounded: dict[int, int] = {}

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
                    self._rounded[i] = int(x[at])

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
                        f"column '{names[0 if self._width else i]}' has integers such as {value},"
                        f" which float32 would round to {int(np.float32(value))}; {self._remedy}"
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


class Codes(Field):
    """A column of texts as codes of their sorted values.

    Args:
        name: Name in the store.
        column: The column.
        key: Where the values are kept in the meta data: a name, or the name of a table and one in
            it.
        dtype: Type of the codes.
        missing: Code of rows without a value; None refuses such rows, unless a rule fills them.
        rule: What stands for missing values, see ``filling.RULES``.
        training: Gives the training rows of a table, [n] bool, of which the most frequent value is
            taken.
    """

    # whether names that a store does not know have no code, instead of being wrong
    passes_unknown = False

    def __init__(
        self,
        name: str,
        column: str,
        key: tuple[str, ...],
        dtype: Any,
        missing: int | None = None,
        rule: str = "error",
        training: Callable[[pa.Table], np.ndarray] | None = None,
    ):
        self.inputs = {column: TEXT}
        self._name = name
        self._column = column
        self._key = key
        self._dtype = dtype
        self._missing = missing
        self._rule = rule
        self._training = training
        self._seen: set[str] = set()
        self._values: list[str] = []
        # the store whose values are taken, and the most frequent one
        self._store = ""
        self._mode: str | None = None
        self._over = ""
        self._frequencies = Frequencies(column)
        self._lacking = Tally("missing_values")
        self._unknown = Tally("unknown_names")

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Rows without a value, and values that the store of another import does not know."""
        if self._missing is None and self._rule == "error":
            yield self.missing(table), says(f"column '{self._column}' has no value")
        if self._store and not self.passes_unknown and self._rule != "own":
            texts = self.texts(table)
            yield self.unknown(texts), unknown_name(self._column, texts, self._values, self._store)

    def observe(self, table: pa.Table) -> None:
        """Collect the values."""
        values = self.texts(table)
        if self._store:
            self._unknown.add(self._column, int(self.unknown(values).sum()))
        else:
            self._seen.update(value for value in values.unique().to_pylist() if value)
            check_categories(self._column, len(self._seen))
        if self._rule == "error":
            return
        lacking = absent(values)
        self._lacking.add(self._column, int(lacking.sum()))
        if self._rule == "mode" and not self._store and self._training is not None:
            present = pc.if_else(pa.array(lacking), None, values)
            self._frequencies.add(present, self._training(table))

    def agree(self, comm: Comm, n: int) -> None:
        """Sort the values of all workers."""
        self._lacking.agree(comm)
        self._unknown.agree(comm)
        if self._store:
            return
        own = {OWN} if self._rule == "own" else set[str]()
        self._values = sorted(own.union(*comm.all_gather(sorted(self._seen))))
        check_categories(self._column, len(self._values))
        if self._rule == "mode":
            self._mode, in_train = self._frequencies.agree(comm)
            if self._mode is None:
                raise no_value(self._column, self._rule, in_train)
            self._over = rows_of(in_train)

    def outputs(self) -> list[Output]:
        """One code a row."""
        return [Output(self._name, (), self._dtype)]

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """One code a row."""
        texts = self.texts(table)
        if self._mode is not None:
            texts = pc.if_else(pa.array(absent(texts)), self._mode, texts)
        codes = integers(pc.index_in(texts, pa.array(self._values, TEXT)).fill_null(-1))
        if self._rule == "own":
            codes = np.where(codes < 0, self._values.index(OWN), codes)
        return [codes.astype(self._dtype)]

    def texts(self, table: pa.Table) -> Any:
        """The values of the column as texts."""
        return one(table.column(self._column))

    def unknown(self, texts: Any) -> np.ndarray:
        """Whether texts are none of the values, [n] bool; missing ones are not."""
        return ~flags(pc.is_in(texts, pa.array(self._values, TEXT))) & ~absent(texts)

    def missing(self, table: pa.Table) -> np.ndarray:
        """Rows without a value, [n] bool."""
        return absent(self.texts(table))

    def marks(self, table: pa.Table, columns: Sequence[str]) -> np.ndarray:
        """Whether a row lacks a value, [n, 1] bool."""
        return self.missing(table)[:, None]

    def learnt(self) -> dict[str, Any]:
        """The values, and the most frequent one."""
        return {"values": self._values, "mode": self._mode}

    def take(self, learnt: dict[str, Any], store: str) -> None:
        """Take the values of another import."""
        self._values = list(learnt["values"])
        self._mode = learnt["mode"]
        self._store = store

    def over(self) -> set[str]:
        """Of the most frequent value."""
        return {self._over} if self._over else set()

    def counts(self) -> dict[str, dict[str, int]]:
        """Missing values and unknown names."""
        return self._lacking.by_column() | self._unknown.by_column()

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


class Tally:
    """Numbers of values by column, of all workers after ``agree``.

    Args:
        what: What is counted.
    """

    def __init__(self, what: str):
        self._what = what
        self._counts: dict[str, int] = {}

    def add(self, column: str, n: int) -> None:
        """Count values of a column."""
        self._counts[column] = self._counts.get(column, 0) + n

    def agree(self, comm: Comm) -> None:
        """Add up the numbers of all workers.

        Collective: all ranks of comm.
        """
        parts = comm.all_gather(self._counts)
        columns = {column: None for part in parts for column in part}
        self._counts = {column: sum(part.get(column, 0) for part in parts) for column in columns}

    def by_column(self) -> dict[str, dict[str, int]]:
        """The numbers that are not 0, by what is counted and by column."""
        counts = {column: n for column, n in self._counts.items() if n}
        return {self._what: counts} if counts else {}


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


def refused(values: np.ndarray, may_lack: bool) -> np.ndarray:
    """Numbers that are no float32, or missing where they may not, [n] bool."""
    beyond = np.abs(values) > np.finfo(np.float32).max
    return beyond if may_lack else beyond | np.isnan(values)


def unknown_name(
    column: str, texts: Any, values: Sequence[str], store: str
) -> Callable[[int], str]:
    """What is wrong with a name that a store does not know."""
    return lambda row: (
        f"column '{column}': {store} does not know '{texts[row].as_py()}'; it knows"
        f" {listed(values)}"
    )


def form_of(width: int | None) -> str:
    """What a row of a column has."""
    return "a value in each row" if width is None else f"lists of {width} numbers"


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
