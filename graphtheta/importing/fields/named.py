"""Fields for named columns and for splits, and the choice of a field for a column by its type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphtheta.base.wording import did_you_mean
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.columns import TAKEN, TIME_UNITS, is_attribute
from graphtheta.importing.fields.base import Field, Output, Wrong, no_list, read_as, says
from graphtheta.importing.fields.codes import Codes
from graphtheta.importing.fields.dates import is_date, time_type
from graphtheta.importing.fields.numbers import Numbers
from graphtheta.importing.tables.arrow import (
    BOOL,
    FLOAT,
    TEXT,
    WHOLE,
    flags,
    integers,
    is_list,
    is_number,
    is_text,
    is_whole,
    lengths,
    null,
    one,
)

SPLITS = {
    "train": 0,
    "training": 0,
    "val": 1,
    "valid": 1,
    "validation": 1,
    "dev": 1,
    "test": 2,
    "testing": 2,
}
MASKS = ("train", "val", "test")
KINDS = ("int", "float", "text", "bool", *TIME_UNITS)
NUMBERS = ("int", "float", "bool")


class Integers(Field):
    """A named column of integers.

    Args:
        name: Name in the store.
        column: The column.
        kind: Its type, integers or bools.
    """

    def __init__(self, name: str, column: str, kind: Any):
        self.inputs = {column: read_as(kind)}
        self._name = name
        self._column = column
        self._dtype = (
            np.int32
            if pa.types.is_boolean(kind) or (kind.bit_width < 64 and kind != pa.uint32())
            else np.int64
        )

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Rows without a value."""
        yield null(one(table.column(self._column))), says(f"column '{self._column}' has no value")

    def outputs(self) -> list[Output]:
        """One integer a row."""
        return [Output(self._name, (), self._dtype)]

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """One integer a row."""
        return [integers(one(table.column(self._column)).cast(WHOLE)).astype(self._dtype)]


class Times(Integers):
    """A named column of times: integers since 1970 in the unit of its type, which is kept.

    Args:
        name: Name in the store.
        column: The column.
        group: "node" or "edge".
        kind: Type of the times.
    """

    def __init__(self, name: str, column: str, group: str, kind: Any):
        super().__init__(name, column, WHOLE)
        self.inputs = {column: kind}
        self._group = group
        self._unit = str(kind.unit)

    def meta(self) -> dict[str, Any]:
        """The unit."""
        return {f"{self._group}_units": {self._column: self._unit}}


class Words(Field):
    """Masks from columns of words: train, val, test, or nothing. Each column is a split.

    Args:
        columns: The columns.
    """

    def __init__(self, columns: Sequence[str]):
        self.inputs = dict.fromkeys(columns, TEXT)

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Other words."""
        for name in self.inputs:
            words = pc.utf8_lower(one(table.column(name))).fill_null("")
            bad = ~flags(pc.is_in(words, pa.array([*SPLITS, ""], TEXT)))
            yield bad, no_split(name, words)

    def outputs(self) -> list[Output]:
        """Three masks."""
        return [
            Output(mask, (len(self.inputs),) if len(self.inputs) > 1 else (), np.bool_)
            for mask in MASKS
        ]

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """Three masks."""
        codes = np.stack([self._codes(table, name) for name in self.inputs], axis=1)
        codes = codes if len(self.inputs) > 1 else codes[:, 0]
        return [codes == i for i in range(len(MASKS))]

    def _codes(self, table: pa.Table, name: str) -> np.ndarray:
        words = pc.utf8_lower(one(table.column(name)))
        return np.array([*SPLITS.values(), -1])[
            integers(pc.index_in(words, pa.array(list(SPLITS), TEXT)).fill_null(-1))
        ]


class Marks(Field):
    """Masks from up to three columns of true and false, or 1 and 0; or of lists of them, with a
    value for each split.

    Args:
        columns: The columns: those of train, val and test in this order, unless their names all say
            which they are.
        types: Types of all columns.
        widths: Lengths of the lists of columns that have lists.

    Raises:
        ConfigError: Lists of different lengths.
    """

    def __init__(self, columns: Sequence[str], types: dict[str, Any], widths: dict[str, int]):
        self._widths = {name: widths[name] for name in columns if is_list(types[name])}
        if len(set(self._widths.values())) > 1:
            raise ConfigError(
                f"the splits {', '.join(f'{name} ({n})' for name, n in self._widths.items())} have"
                " lists of different lengths; give all a value for each split"
            )
        if 0 in self._widths.values():
            raise ConfigError(
                f"the split '{next(iter(self._widths))}' has empty lists only; give a value for"
                " each split"
            )
        self.inputs = {
            name: (
                pa.large_list(read_as(types[name].value_type))
                if name in self._widths
                else read_as(types[name])
            )
            for name in columns
        }
        words = [SPLITS.get(name.lower().removesuffix("_mask")) for name in columns]
        self._masks = [
            MASKS[i if None in words or word is None else word] for i, word in enumerate(words)
        ]
        if len(set(self._masks)) < len(columns):
            raise ConfigError(
                f"the columns {', '.join(columns)} of the split name a set twice; give one for each"
                f" of {', '.join(MASKS)}"
            )

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Missing values, other numbers, and rows of several splits."""
        for name, width in self._widths.items():
            sizes = lengths(one(table.column(name)))
            yield sizes != width, no_list(name, sizes, width)
        for name in self.inputs:
            values = self._values(table, name)
            yield (
                ((values != 0) & (values != 1)).any(axis=1),
                says(f"column '{name}' is neither true nor false"),
            )
        yield (
            (sum(self._values(table, name) == 1 for name in self.inputs) > 1).any(axis=1),
            says(f"more than one of {', '.join(self.inputs)} is true"),
        )

    def outputs(self) -> list[Output]:
        """A mask for each column."""
        return [
            Output(mask, (self._widths[name],) if name in self._widths else (), np.bool_)
            for mask, name in zip(self._masks, self.inputs, strict=True)
        ]

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """A mask for each column."""
        return [
            values if name in self._widths else values[:, 0]
            for name in self.inputs
            for values in [self._values(table, name) == 1]
        ]

    def _values(self, table: pa.Table, name: str) -> np.ndarray:
        """[n, 1], or [n, S] of lists; -1 where there is no value."""
        column = one(table.column(name))
        if name not in self._widths:
            return integers(column.cast(WHOLE).fill_null(-1))[:, None]
        out = np.full((len(column), self._widths[name]), -1, np.int64)
        right = lengths(column) == self._widths[name]
        out[right] = integers(
            column.filter(pa.array(right)).flatten().cast(WHOLE).fill_null(-1)
        ).reshape(-1, self._widths[name])
        return out


def no_split(name: str, words: Any) -> Callable[[int], str]:
    """What is wrong with a word."""
    return lambda row: f"column '{name}': '{words[row].as_py()}' is none of train, val and test"


def named_field(
    group: str,
    column: str,
    types: dict[str, Any],
    width: int,
    rule: str = "error",
    training: Callable[[pa.Table], np.ndarray] | None = None,
) -> Field:
    """The field of a named column.

    Args:
        group: "node" or "edge".
        column: The column.
        types: Types of all columns.
        width: Length of its lists, if it has lists.
        rule, training: As of ``Codes``; only texts have a rule.

    Raises:
        ConfigError: A name that models cannot read, a type that no column has, or a rule that the
            column cannot have.
    """
    kind = types[column]
    name = f"columns.{column}"
    if not is_attribute(column) or column in TAKEN:
        raise ConfigError(
            f"{group} column '{column}': models could not read {group}.{column}; rename it to a"
            " Python identifier that is no keyword of Python and not one of"
            f" {', '.join(sorted(TAKEN))}"
        )
    remedy = f"state its type with --types {column}:int"
    if rule != "error" and (not is_text(kind) or rule not in ("mode", "own")):
        raise ConfigError(
            f"--missing {column}={rule}: named columns are stored as they are, and missing texts of"
            " them become the most frequent one (mode) or one of their own (own); give"
            f" {column} as a feature, or fill its values in beforehand"
        )
    if is_list(kind):
        return Numbers(name, [column], types, width, remedy=remedy)
    if is_text(kind):
        return Codes(
            name=name,
            column=column,
            key=(f"{group}_categories", column),
            dtype=np.int32,
            rule=rule,
            training=training,
        )
    if pa.types.is_floating(kind):
        # as in gt.Graph: times with fractions are compared exactly
        dtype = np.float64 if pa.types.is_float64(kind) else np.float32
        return Numbers(name, [column], types, vector=True, dtype=dtype, remedy=remedy)
    if is_date(kind):
        return Times(name, column, group, time_type(kind))
    if is_whole(kind) or pa.types.is_boolean(kind):
        return Integers(name, column, kind)
    raise ConfigError(
        f"{group} column '{column}' has type {kind}; columns are numbers, texts, times or lists of"
        f" numbers. State another type with --types {column}:text"
    )


def number_field(
    name: str,
    columns: Sequence[str],
    types: dict[str, Any],
    widths: dict[str, int],
    make: Callable[..., Numbers] = Numbers,
    **options: Any,
) -> Numbers:
    """A field of real numbers.

    Args:
        name, columns, types: As of ``Numbers``.
        widths: Lengths of the lists of columns that have lists.
        make: Its class, ``Numbers`` or ``Scaled``.
        **options: Further arguments of the class.

    Raises:
        ConfigError: A list among several columns.
    """
    lists = [column for column in columns if is_list(types[column])]
    if lists and len(columns) > 1:
        raise ConfigError(
            f"the column '{lists[0]}' has lists; give it alone, or columns of numbers only"
        )
    return make(name, columns, types, widths[columns[0]] if lists else None, **options)


def split_field(columns: Sequence[str], types: dict[str, Any], widths: dict[str, int]) -> Field:
    """The field of the masks: columns of words, or columns of true and false.

    Args:
        columns: The columns.
        types: Types of all columns.
        widths: Lengths of the lists of columns that have lists.

    Raises:
        ConfigError: Columns of both kinds, of neither, or too many.
    """
    values = {
        name: types[name].value_type if is_list(types[name]) else types[name] for name in columns
    }
    marks = [
        name
        for name, kind in values.items()
        if pa.types.is_boolean(kind) or pa.types.is_integer(kind)
    ]
    if not marks and not any(is_list(types[name]) for name in columns):
        return Words(columns)
    if len(marks) < len(columns):
        raise ConfigError(
            "the split has the columns"
            f" {', '.join(f'{name} of {types[name]}' for name in columns)}; give columns of words,"
            " one for each split, or up to three columns of true and false, or of lists of them"
        )
    if len(columns) > len(MASKS):
        raise ConfigError(
            "a split has at most three columns of true and false, for train, val and test; got"
            f" {', '.join(columns)}"
        )
    return Marks(columns, types, widths)


def stated(types: dict[str, Any], words: dict[str, str], where: str) -> dict[str, Any]:
    """Types of columns, some of them stated by the user.

    Raises:
        ConfigError: Another word.
    """
    kinds = dict(
        zip(
            KINDS,
            (WHOLE, FLOAT, TEXT, BOOL, *map(pa.timestamp, TIME_UNITS.values())),
            strict=True,
        )
    )
    for column, word in words.items():
        if word not in kinds:
            raise ConfigError(
                f"{where}: the type of '{column}' is '{word}'{did_you_mean(word, kinds)}; choose"
                f" {', '.join(KINDS)}"
            )
    return {
        column: in_zone(kinds[words[column]], kind) if column in words else kind
        for column, kind in types.items()
    }


def in_zone(kind: Any, given: Any) -> Any:
    """A type that is stated; one of times in the zone of the type that the values have."""
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(given) and given.tz:
        return pa.timestamp(kind.unit, given.tz)
    return kind


def word_of(kind: Any) -> str:
    """What states a type; empty for one that nothing states, such as lists."""
    if is_date(kind):
        unit = time_type(kind).unit
        return next(word for word, of_word in TIME_UNITS.items() if of_word == unit)
    tests = {
        "bool": pa.types.is_boolean,
        "int": is_whole,
        "float": is_number,
        "text": is_text,
    }
    return next((word for word, test in tests.items() if test(kind)), "")


def as_numbers(word: str) -> str:
    """What states a type, equal for types whose values become the same numbers."""
    return "time" if word in TIME_UNITS else "number" if word in NUMBERS else word


def require(
    columns: Sequence[str], types: dict[str, Any], where: str, flag: str, store: str = ""
) -> None:
    """Check that a table has some columns.

    Args:
        columns: Their names.
        types: Types of all columns.
        where: The table, for messages.
        flag: What names them.
        store: The store of whose tables they are columns, if they are not named by the flag.

    Raises:
        DataError: One is missing, or empty as far as its type goes.
    """
    remedy = (
        f"the tables of {store} (--like) have it: add it, or say which column it is with --rename"
        " OLD=NEW"
        if store
        else f"choose one with {flag}, or read a file without a header with --no-header"
        " (header=False)"
    )
    for column in columns:
        if column not in types:
            raise DataError(
                f"{where}: there is no column '{column}'{did_you_mean(column, types)}; the columns"
                f" are {', '.join(types)}; {remedy}"
            )
        if all(map(pa.types.is_null, types.values())):
            raise DataError(f"{where}: there are no rows; check the file")
        if pa.types.is_null(types[column]):
            raise DataError(
                f"{where}: the column '{column}' has no values at the beginning; state its type"
                f" with --types {column}:int"
            )
