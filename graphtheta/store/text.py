"""Texts as two arrays: the UTF-8 bytes of all, and where each begins."""
from __future__ import annotations

import numpy as np

from graphtheta.errors import DataError, FormatError
from graphtheta.npy import AGAIN

# an array of texts takes 4 bytes per character of the longest, for each of them
MOST_EXPANDED, ALWAYS = 64, 1 << 23
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
        raise DataError(f"the text {error.object!r} contains codes that are not characters; replace them") from None
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum([len(data) for data in encoded], dtype=np.int64)))
    return np.frombuffer(b"".join(encoded), np.uint8), bounds


def joined_texts(data: np.ndarray, bounds: np.ndarray, at: str) -> np.ndarray:
    """The texts of untrusted parts.

    Args:
        data: Bytes of all, [n_bytes] uint8.
        bounds: Bounds of each, [n + 1] int64.
        at: File and field, for errors.

    Returns:
        [n] of dtype U.

    Raises:
        FormatError: The parts do not make texts, or these need much more memory as an array.
    """
    if not len(bounds) or bounds[0] != 0 or bounds[-1] != len(data) or (bounds[1:] < bounds[:-1]).any():
        raise FormatError(f"{at}: the offsets of texts must rise from 0 to {len(data)}; {AGAIN}")
    n = len(bounds) - 1
    longest = max((_length(data[bounds[a]: bounds[min(a + ROWS_AT_ONCE, n)]], bounds[a: a + ROWS_AT_ONCE + 1])
                   for a in range(0, n, ROWS_AT_ONCE)), default=0)
    width = max(longest, 1)
    check_width(n, width, data.nbytes + bounds.nbytes, at)
    codes = np.zeros((n, width), np.uint32)
    for a in range(0, n, ROWS_AT_ONCE):
        b = min(a + ROWS_AT_ONCE, n)
        _decode(data[bounds[a]: bounds[b]], bounds[a: b + 1] - bounds[a], codes[a: b], at)
    return codes.view(f"U{width}")[:, 0]


def check_width(n: int, width: int, stored: int, at: str) -> None:
    """Check the memory of an array of n texts of up to ``width`` characters against the bytes that they are stored in.

    Raises:
        FormatError: It is too large.
    """
    if 4 * n * width > max(ALWAYS, MOST_EXPANDED * stored):
        raise FormatError(f"{at}: the longest of {n} texts has {width} characters, so that an array of them needs {4 * n * width} bytes "
                          f"for {stored} bytes of text; shorten the longest ones")


def _length(data: np.ndarray, bounds: np.ndarray) -> int:
    """Characters of the longest text: bytes other than those that continue a character."""
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum((data & 0xC0) != 0x80)))
    return int(np.diff(starts[bounds - bounds[0]]).max(initial=0))


def _decode(data: np.ndarray, bounds: np.ndarray, out: np.ndarray, at: str) -> None:
    """Write the character codes of texts into rows of zeros."""
    try:
        codes = np.frombuffer(data.tobytes().decode().encode("utf-32-le"), np.uint32)
    except UnicodeDecodeError as error:
        raise FormatError(f"{at}: not UTF-8 ({error.reason}); {AGAIN}") from None
    first = (data & 0xC0) != 0x80
    if not first[bounds[:-1][bounds[:-1] < len(data)]].all():
        raise FormatError(f"{at}: a text begins within a character; {AGAIN}")
    begin = np.concatenate((np.zeros(1, np.int64), np.cumsum(first)))[bounds]
    lengths = np.diff(begin)
    rows = np.repeat(np.arange(len(out)), lengths)
    out[rows, np.arange(len(codes)) - begin[rows]] = codes
