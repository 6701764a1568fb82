"""Features in fewer bits: what is stored, and by how much values change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.base.sparse import is_sparse
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.store.column import Read, Ready
from graphtheta.errors import DataError
from graphtheta.graph.data.validation import is_column
from graphtheta.graph.store.checksum import BLOCK_BYTES, share

# codes of 8 bits lie this far apart at most
STEPS = 255
LOWEST = -128
# steps of columns that reach near the largest float32 are smaller by this share
NEAR_END = np.finfo(np.float32).max / 2
INWARD = 1e-6
HALF = np.finfo(np.float16)


@dataclass(frozen=True)
class Rounding:
    """By how much stored features may differ from those given.

    Attributes:
        features: "int8" or "float16".
        largest: The largest difference of a value, half a step.
        relative: The same relative to the range of its column (int8) or to the value (float16).
    """

    features: str
    largest: float
    relative: float

    def __str__(self) -> str:
        of = "the range of its column" if self.features == "int8" else "its size"
        return (
            f"features stored as {self.features}: a value changes by at most {self.largest:.3g}"
            f" (half a step), {self.relative:.2g} of {of}"
        )


class Encoded:
    """Codes of a column, computed when rows are read.

    Args:
        values: [n, d] array, or a column of floats.
        code: Scale and offset of each column, [d] float32 both; None converts to float16.
    """

    sparse = False
    nbytes = 0

    def __init__(self, values: Any, code: tuple[np.ndarray, np.ndarray] | None = None):
        self._values = values
        self._code = code
        self.shape = values.shape
        self.dtype = np.dtype(np.float16 if code is None else np.int8)

    def read_begin(self, rows: np.ndarray) -> Read:
        """Begin to read the codes of some rows."""
        x = rows_of(self._values, rows)
        if self._code is None:
            return Ready(x.astype(np.float16))
        scale, zero = self._code
        codes = np.rint((x.astype(np.float64) - zero) / np.where(scale > 0, scale, 1))
        return Ready(np.clip(codes, LOWEST, LOWEST + STEPS).astype(np.int8))


def narrowed(
    x: Any, features: str, comm: Comm, where: str
) -> tuple[list[tuple[str, Any]], Rounding]:
    """The columns that store features in fewer bits.

    Args:
        x: The features, [n, d] array or column of floats; the same on every rank, which reads its
            share.
        features: "int8" or "float16".
        comm: The workers.
        where: Name of the graph, for errors.

    Returns:
        Endings of the names and values of the columns, and the error.

    Raises:
        DataError: The features are sparse, not finite, or too large for float16.

    Collective: all ranks of comm.
    """
    low, high = _ranges(x, comm, where)
    size = float(max(-low.min(initial=0), high.max(initial=0)))
    if features == "float16":
        if size > float(HALF.max):
            raise DataError(
                f"{where}: x reaches {size:.4g}, but float16 ends at {HALF.max:.0f}; rescale the"
                " features, or store them as int8"
            )
        # a step is the distance of two numbers of that size; small ones are no closer than the
        # smallest number
        step = float(np.spacing(np.nextafter(np.float16(size), np.float16(0))))
        return [("", Encoded(x))], Rounding(features, step / 2, float(HALF.eps) / 2)
    scale = ((high - low) / STEPS).astype(np.float32)
    # the largest numbers must not be rounded up
    scale = np.where(np.maximum(-low, high) > NEAR_END, scale * np.float32(1 - INWARD), scale)
    zero = (low - LOWEST * scale.astype(np.float64)).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        ends = [np.float32(code) * scale + zero for code in (LOWEST, LOWEST + STEPS)]
    beyond = np.flatnonzero(~np.isfinite(ends).all(axis=0))
    if len(beyond):
        column = int(beyond[0])
        raise DataError(
            f"{where}: x, column {column} reaches from {low[column]:.4g} to {high[column]:.4g},"
            " where codes of 8 bits would exceed float32; rescale the features, or leave"
            " --features out"
        )
    # half a step, and the rounding of scale, offset and result; the largest number has no spacing
    size32 = np.nextafter(np.maximum(-low, high).astype(np.float32), np.float32(0))
    change = (
        scale * (0.5 + STEPS * INWARD)
        + STEPS * np.spacing(scale).astype(np.float64)
        + 8.0 * np.spacing(size32)
    )
    # a range whose steps float32 does not hold has one value
    change = np.where(scale > 0, change, high - low)
    spread = np.maximum(high - low, np.finfo(np.float32).tiny)
    return (
        [(".codes", Encoded(x, (scale, zero))), (".scale", scale), (".zero", zero)],
        Rounding(features, float(change.max(initial=0)), float((change / spread).max(initial=0))),
    )


def rows_of(values: Any, rows: np.ndarray) -> np.ndarray:
    """Rows of an array or column, ascending and adjacent."""
    read: np.ndarray = (
        values.read_begin(rows).end() if is_column(values) else values[rows[0] : rows[-1] + 1]
    )
    return read


def _ranges(x: Any, comm: Comm, where: str) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest value of each column, [d] float64.

    Collective: all ranks of comm.
    """
    low = np.full(x.shape[1], np.inf)
    high = -low
    with comm.agreed():
        if is_sparse(x) or (is_column(x) and x.sparse):
            raise DataError(
                f"{where}: x is sparse, and only its entries other than 0 are stored; leave"
                " --features out"
            )
        for rows in _parts(x, comm):
            values = rows_of(x, rows)
            low = np.minimum(low, values.min(axis=0))
            high = np.maximum(high, values.max(axis=0))
            if not np.isfinite([low, high]).all():
                row, column = np.argwhere(~np.isfinite(values))[0].tolist()
                raise DataError(
                    f"{where}: x: node {rows[0] + row}, column {column} is {values[row, column]};"
                    " replace or drop values that are not finite first"
                )
    return -comm.all_max(-low), comm.all_max(high)


def _parts(x: Any, comm: Comm) -> Iterator[np.ndarray]:
    rows = share(x.shape[0], comm.rank, comm.size)
    step = max(1, BLOCK_BYTES // max(1, 4 * x.shape[1]))
    yield from (np.arange(a, min(a + step, rows.stop)) for a in range(rows.start, rows.stop, step))
