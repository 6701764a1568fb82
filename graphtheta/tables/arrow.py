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


def integers(column: Any) -> np.ndarray:
    """Integers of a column without missing values, [n] int64."""
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def numbers(column: Any) -> np.ndarray:
    """Numbers of a column, 1 and 0 of one of bools, [n] float64; NaN where there is none."""
    return np.asarray(column.cast(FLOAT).fill_null(np.nan).to_numpy(zero_copy_only=False), np.float64)


def flags(column: Any) -> np.ndarray:
    """True and false of a column, [n] bool; false where there is none."""
    return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), bool)


def lengths(column: Any) -> np.ndarray:
    """Lengths of the lists of a column, [n] int64; -1 where there is none."""
    return integers(column.value_lengths().fill_null(-1))


def null(column: Any) -> np.ndarray:
    """Where a column has no value, [n] bool."""
    return flags(column.is_null())


def absent(column: Any) -> np.ndarray:
    """Where a column of texts has none, or an empty one, [n] bool."""
    return null(column) | flags(pc.equal(column, ""))


def is_text(kind: Any) -> bool:
    """Whether a type is text, perhaps coded."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_list(kind: Any) -> bool:
    """Whether a type is a list."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
