"""Arrow arrays as NumPy arrays, and their types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

WHOLE, FLOAT, TEXT, BOOL = pa.int64(), pa.float64(), pa.large_string(), pa.bool_()
# texts that are true and false where bools are read, in any case
YES = ("true", "yes", "t", "y", "1", "1.0")
NO = ("false", "no", "f", "n", "0", "0.0")
# texts that are no value where anything but texts is read
NO_VALUE = tuple(csv.ConvertOptions().null_values)
# wrong values in a block from which on the column itself is taken for wrong
MOST_WRONG = 1000
# what the values of a type are, in words
KINDS = {
    "int64": "a whole number of 64 bits",
    "double": "a number",
    "bool": "true or false",
    "timestamp[s]": "a time in whole seconds",
    "timestamp[ms]": "a time in whole milliseconds",
    "timestamp[us]": "a time in whole microseconds",
    "timestamp[ns]": "a time",
}


def one(column: Any) -> Any:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def plain_type(kind: Any) -> Any:
    """The type of the values that a type codes, such as that of the entries of a dictionary, or of
    a view of texts.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return TEXT
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(plain_type(kind.value_type))
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and plain_type(
        kind.value_type
    ) != kind.value_type:
        return pa.large_list(plain_type(kind.value_type))
    return kind


def plain(column: Any) -> Any:
    """A column as ``plain_type`` of its type."""
    if isinstance(column, pa.ChunkedArray):
        kind = plain_type(column.type)
        return column if kind == column.type else pa.chunked_array(map(plain, column.chunks), kind)
    kind = column.type
    if plain_type(kind) == kind:
        return column
    if isinstance(kind, pa.BaseExtensionType):
        return plain(column.storage)
    if pa.types.is_dictionary(kind):
        return plain(column.dictionary).take(column.indices)
    if pa.types.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(column))
    if pa.types.is_string_view(kind):
        return column.cast(TEXT)
    ends = np.cumsum(np.maximum(lengths(column), 0))
    return pa.LargeListArray.from_arrays(
        np.concatenate(([0], ends)), plain(column.flatten()), mask=column.is_null()
    )


def integers(column: Any) -> np.ndarray:
    """Integers of a column without missing values, [n] int64."""
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def numbers(column: Any) -> np.ndarray:
    """Numbers of a column, 1 and 0 of one of bools, [n] float64; NaN where there is none."""
    return np.asarray(
        column.cast(FLOAT).fill_null(np.nan).to_numpy(zero_copy_only=False), np.float64
    )


def flags(column: Any) -> np.ndarray:
    """True and false of a column, [n] bool; false where there is none."""
    return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), bool)


def lengths(column: Any) -> np.ndarray:
    """Lengths of the lists of a column, [n] int64; -1 where there is none."""
    return integers(column.value_lengths().fill_null(-1))


def owners(sizes: np.ndarray) -> np.ndarray:
    """The row of each entry of lists of these lengths, -1 for none; [n_entries] int64."""
    return np.repeat(np.arange(len(sizes)), np.maximum(sizes, 0))


def lists_with(sizes: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """Whether a list has a marked entry, [n] bool."""
    return np.bincount(owners(sizes)[marked], minlength=len(sizes)) > 0


def null(column: Any) -> np.ndarray:
    """Where a column has no value, [n] bool."""
    return flags(column.is_null())


def absent(column: Any) -> np.ndarray:
    """Where a column of texts has none, or an empty one, [n] bool."""
    return null(column) | flags(pc.equal(column, ""))


def in_words(kind: str) -> str:
    """What the values of a type are, by its name; times of all zones are the same."""
    plain_name = re.sub(", tz=[^]]*", "", kind)
    return KINDS.get(plain_name, kind)


def in_any_case(words: Sequence[str]) -> list[str]:
    """Words in small letters, in capitals, and with a capital in front."""
    return sorted({form for word in words for form in (word, word.upper(), word.title())})


def is_yes_or_no(texts: Any) -> bool:
    """Whether texts that are given are those of true and false, and not numbers only."""
    words = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    words = words.filter(pa.array(~absent(words))).unique().to_pylist()
    return set(words) <= {*YES, *NO} and not set(words) <= {"0", "1", "0.0", "1.0"}


def as_bools(column: Any) -> Any:
    """Texts and numbers as true and false; others become null.

    Raises:
        ArrowNotImplementedError: They are of another type.
    """
    words = column if is_text(column.type) else column.cast(FLOAT).cast(TEXT)
    words = pc.utf8_lower(pc.utf8_trim_whitespace(words))
    yes = pc.is_in(words, pa.array(YES, words.type))
    no = pc.is_in(words, pa.array(NO, words.type))
    return pc.if_else(pc.or_(yes, no), yes, None)


def parsed(texts: Any, kind: Any) -> tuple[Any, Sequence[int]]:
    """Texts as values of a type, as those of a file of text are read."""
    texts = pc.utf8_trim_whitespace(one(texts))
    texts = pc.if_else(pc.is_in(texts, pa.array(NO_VALUE, texts.type)), None, texts)
    return with_misfits(texts, as_bools(texts)) if kind == BOOL else cast(texts, kind)


def cast(column: Any, kind: Any) -> tuple[Any, Sequence[int]]:
    """A column in another type, null where a value cannot have it; and the rows of these.

    Raises:
        ArrowInvalid: So many cannot that the column must be another one.
        ArrowNotImplementedError: No value can.
    """
    pieces = list[Any]()
    _halve(one(column), kind, pieces)
    return with_misfits(column, pa.concat_arrays(pieces) if pieces else pa.array([], kind))


def _halve(column: Any, kind: Any, pieces: list[Any]) -> None:
    """Cast values; where that fails, the halves; a single one that fails is null."""
    try:
        pieces.append(column.cast(kind))
    except pa.ArrowInvalid:
        if len(column) == 1:
            pieces.append(pa.nulls(1, kind))
            if sum(len(piece) == 1 and piece.null_count for piece in pieces) > MOST_WRONG:
                raise
            return
        middle = len(column) // 2
        _halve(column.slice(0, middle), kind, pieces)
        _halve(column.slice(middle), kind, pieces)


def with_misfits(given: Any, values: Any) -> tuple[Any, Sequence[int]]:
    """Values, and the rows that have none though a value was given."""
    return values, np.flatnonzero(null(values) & ~null(given)).tolist()


def is_text(kind: Any) -> bool:
    """Whether a type is text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_whole(kind: Any) -> bool:
    """Whether a type is one of whole numbers: integers, and decimals without a fraction."""
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))


def is_number(kind: Any) -> bool:
    """Whether a type is one of numbers."""
    return bool(is_whole(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_list(kind: Any) -> bool:
    """Whether a type is a list."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
