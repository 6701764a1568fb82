"""Arrow arrays as NumPy arrays, and their types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

WHOLE, FLOAT, TEXT, BOOL = pa.int64(), pa.float64(), pa.large_string(), pa.bool_()


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


def is_text(kind: Any) -> bool:
    """Whether a type is text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_list(kind: Any) -> bool:
    """Whether a type is a list."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
