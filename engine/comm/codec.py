"""Small objects and arrays as bytes: msgpack with three extensions, no pickle.

Unlike plain msgpack the round trip is exact: tuples stay tuples, numpy scalars and arrays keep
type and shape. Object arrays, classes and functions, which could run code or contain pointers, are
refused in both directions. Large arrays need not be copied into the bytes: ``encode`` sets them
aside and ``decode`` allocates them.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

from graphtheta.errors import FormatError

# Arrays of at least this many bytes are set aside when the caller asks for it.
LARGE = 1 << 16
# names of files that are no text have halves of characters in Python, which UTF-8 does not have
HALVES = "surrogatepass"
_TUPLE = 1
_ARRAY = 2
_ASIDE = 3
_KINDS = "biufcSUmM"
# longest name of a dtype of these kinds, such as <M8[25us]
_LONGEST_DTYPE = 20
_FOREIGN = "the data are damaged or were not written by encode"


def encode(obj: Any, aside: list[np.ndarray] | None = None) -> bytes:
    """Write an object as bytes.

    Args:
        obj: None, bool, int, float, str, bytes, numpy scalars and arrays, and lists, tuples and
            dicts of them.
        aside: If given, arrays of ``LARGE`` bytes and more are appended to it, contiguous, instead
            of being written into the bytes.

    Returns:
        The bytes.

    Raises:
        FormatError: If the object holds anything else, among it arrays of dtype object.
    """

    def extend(value: Any) -> msgpack.ExtType:
        if isinstance(value, tuple):
            return msgpack.ExtType(_TUPLE, pack(list(value)))
        if isinstance(value, (np.ndarray, np.generic)):
            return array(value)
        raise FormatError(
            f"cannot encode {value!r:.60} of type"
            f" {type(value).__module__}.{type(value).__qualname__}; send numbers, strings, arrays,"
            " and lists, tuples or dicts of them"
        )

    def array(value: np.ndarray | np.generic) -> msgpack.ExtType:
        if value.dtype.kind not in _KINDS:
            raise FormatError(
                f"cannot encode an array of dtype {value.dtype}; convert it to numbers or strings"
                " first"
            )
        # a scalar is marked by shape None, since a 0-d array is something else
        shape = list(value.shape) if isinstance(value, np.ndarray) else None
        head = [value.dtype.str, shape]
        if aside is not None and isinstance(value, np.ndarray) and value.nbytes >= LARGE:
            aside.append(np.ascontiguousarray(value))
            return msgpack.ExtType(_ASIDE, pack(head))
        return msgpack.ExtType(_ARRAY, pack([*head, value.tobytes()]))

    def pack(value: Any) -> bytes:
        data: bytes = msgpack.packb(value, default=extend, strict_types=True, unicode_errors=HALVES)
        return data

    try:
        return pack(obj)
    except (OverflowError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(
            f"cannot encode {type(obj).__name__}: {error}; integers must fit 64 bits, arrays 4 GiB"
        ) from error


def decode(data: bytes | memoryview, aside: list[np.ndarray] | None = None) -> Any:
    """Read what ``encode`` wrote.

    Args:
        data: The bytes.
        aside: If given, a new array is appended to it for each array that was set aside, with the
            same dtype and shape and in the order of ``encode``. The caller fills these arrays; the
            object refers to them.

    Returns:
        The object. Arrays are fresh and writable.

    Raises:
        FormatError: If the bytes are damaged, cut short, or hold something ``encode`` does not
            write.
    """

    def extend(code: int, payload: bytes) -> Any:
        value = unpack(payload)
        if code == _TUPLE:
            return tuple(value)
        text, shape, *raw = value
        dtype = np.dtype(text) if isinstance(text, str) and len(text) <= _LONGEST_DTYPE else None
        if dtype is None or dtype.kind not in _KINDS:
            raise FormatError(f"refused to decode an array of dtype {text!r:.60}; {_FOREIGN}")
        if shape is not None and (
            type(shape) is not list or not all(type(n) is int and n >= 0 for n in shape)
        ):
            raise FormatError(f"refused to decode an array of shape {shape!r:.60}; {_FOREIGN}")
        if code == _ASIDE and aside is not None and shape is not None:
            aside.append(np.empty(shape, dtype))
            return aside[-1]
        if code != _ARRAY:
            raise FormatError(f"cannot decode extension {code}; {_FOREIGN}")
        if shape is None:
            # an empty text has no bytes
            return (np.frombuffer(raw[0], dtype) if dtype.itemsize else np.zeros(1, dtype))[0]
        return np.frombuffer(raw[0], dtype).reshape(shape).copy()

    def unpack(payload: bytes | memoryview) -> Any:
        return msgpack.unpackb(
            payload, ext_hook=extend, strict_map_key=False, unicode_errors=HALVES
        )

    try:
        return unpack(data)
    except FormatError:
        raise
    except (
        ValueError,
        TypeError,
        LookupError,
        MemoryError,
        RecursionError,
        OverflowError,
        SyntaxError,
        msgpack.UnpackException,
    ) as error:
        raise FormatError(f"cannot decode {len(data)} bytes: {error}; {_FOREIGN}") from error
