"""Columns of small codes: features in a quarter of the bytes, each with a scale and an offset."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.base.lazy_array import LazyArray
from graphtheta.errors import FormatError

from .column import Coded, Column, Decoding, Read


class QuantisedColumn(LazyArray):
    """A column of float32 rows, stored as integer codes: ``value = code * scale + zero``.

    Args:
        codes: Column of integers, [n_rows, d].
        scale, zero: [d] float32, finite.

    Raises:
        FormatError: The parts do not fit together.
    """

    sparse = False

    def __init__(self, codes: Column, scale: np.ndarray, zero: np.ndarray):
        wide = len(codes.shape) == 2 and codes.dtype.kind in "iu" and not codes.sparse
        if not wide or not all(
            a.shape == codes.shape[1:] and a.dtype == np.float32 and np.isfinite(a).all()
            for a in (scale, zero)
        ):
            raise FormatError(
                f"codes {list(codes.shape)} of {codes.dtype} with scales {list(scale.shape)} of"
                f" {scale.dtype} and offsets {list(zero.shape)} of {zero.dtype} do not make a"
                " column; give integers [n_rows, d] and finite float32 [d]"
            )
        super().__init__(codes.shape, np.float32)
        self._codes = codes
        self.scale = scale
        self.zero = zero

    def __reduce__(self) -> tuple[Any, ...]:
        # a copy keeps the codes
        return QuantisedColumn, (self._codes, self.scale, self.zero)

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes + self.scale.nbytes + self.zero.nbytes

    @property
    def coded(self) -> Coded:
        """The codes."""
        return Coded(self._codes, self._decode)

    def read(self, rows: np.ndarray) -> np.ndarray:
        values: np.ndarray = self.read_begin(rows).end()
        return values

    def read_begin(self, rows: np.ndarray | None) -> Read:
        return Decoding(self._codes.read_begin(rows), self._decode)

    def _decode(self, codes: np.ndarray) -> np.ndarray:
        values = codes.astype(np.float32)
        values *= self.scale
        values += self.zero
        return values
