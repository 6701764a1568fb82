"""Texts as two arrays: the UTF-8 bytes of all, and where each begins."""

from __future__ import annotations

import numpy as np

from graphtheta.base.lazy_array import LazyArray
from graphtheta.base.npy import AGAIN
from graphtheta.errors import DataError, FormatError

# texts that are checked at a time
ROWS_AT_ONCE = 1 << 16


def text_parts(texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes and the offsets of texts.

    Args:
        texts: [n] of dtype U.

    Returns:
        Bytes of all, [n_bytes] uint8, and bounds of each, [n + 1] int64, the first 0.

    Raises:
        DataError: A text contains codes that are not characters.
    """
    try:
        encoded = [text.encode() for text in texts.tolist()]
    except UnicodeEncodeError as error:
        raise DataError(
            f"the text {error.object!r} contains codes that are not characters; replace them"
        ) from None
    bounds = np.concatenate(
        (np.zeros(1, np.int64), np.cumsum([len(data) for data in encoded], dtype=np.int64))
    )
    return np.frombuffer(b"".join(encoded), np.uint8), bounds


class StoredTexts(LazyArray):
    """Texts that are read from mapped parts, as arrays of dtype U that are as wide as the longest
    text that is read.

    Args:
        data: Bytes of all, [n_bytes] uint8. They may come from anybody and are checked here.
        bounds: Bounds of each, [n + 1] int64.
        at: File and field, for errors.

    Raises:
        FormatError: The parts do not make texts.
    """

    def __init__(self, data: np.ndarray, bounds: np.ndarray, at: str):
        if (
            not len(bounds)
            or bounds[0] != 0
            or bounds[-1] != len(data)
            or (bounds[1:] < bounds[:-1]).any()
        ):
            raise FormatError(
                f"{at}: the offsets of texts must rise from 0 to {len(data)}; {AGAIN}"
            )
        self._data = data
        self._bounds = bounds
        self._at = at
        n = len(bounds) - 1
        longest = max(
            (
                int(self._codes(np.arange(a, min(a + ROWS_AT_ONCE, n)))[1].max())
                for a in range(0, n, ROWS_AT_ONCE)
            ),
            default=0,
        )
        super().__init__((n,), f"U{max(longest, 1)}")

    def read(self, rows: np.ndarray) -> np.ndarray:
        codes, lengths = self._codes(rows)
        out = np.zeros((len(rows), max(int(lengths.max(initial=0)), 1)), np.uint32)
        out[np.arange(out.shape[1]) < lengths[:, None]] = codes
        return out.view(f"U{out.shape[1]}")[:, 0]

    def _codes(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The characters of some texts, one text after another, and the number of each."""
        begin = self._bounds[rows]
        sizes = self._bounds[rows + 1] - self._bounds[rows]
        ends = np.cumsum(sizes)
        data = self._data[
            np.repeat(begin - ends + sizes, sizes) + np.arange(ends[-1] if len(ends) else 0)
        ]
        try:
            codes = np.frombuffer(data.tobytes().decode().encode("utf-32-le"), np.uint32)
        except UnicodeDecodeError as error:
            raise FormatError(f"{self._at}: not UTF-8 ({error.reason}); {AGAIN}") from None
        starts = (data & 0xC0) != 0x80
        if not starts[(ends - sizes)[sizes > 0]].all():
            raise FormatError(f"{self._at}: a text begins within a character; {AGAIN}")
        return codes, np.diff(
            np.concatenate((np.zeros(1, np.int64), np.cumsum(starts)))[np.append(0, ends)]
        )
