"""Unpickles Planetoid files, of which nothing is run.

A pickle is a program that names functions and calls them. The names of a short list stand for
records here: a call makes a record, and arrays are made from the records afterwards, once they are
checked. Any other name, and opcodes that these files do not use, are refused. Memory is bounded by
the size of the file: one byte makes at most one object, and the bytes of all arrays together are
those of the file.

The unpickler is that of the standard library which is written in Python. That in C would number a
memo up to 2^32, which takes memory, and hash the keys of a hostile dictionary, which takes time.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np

# of the module pickle; Planetoid files use no others
OPCODES = (
    b"\x80\x95.N\x88\x89ILKMJ\x8a\x8bFGSTUVX\x8c\x8dBC\x8e"
    b"(012]lae}dsu)t\x85\x86\x87pqr\x94ghjc\x93R\x81b"
)


class Refused(ValueError):
    """A pickle holds something that no Planetoid file holds."""


class Named:
    """A function that a pickle may call.

    Args:
        make: Called in its place; it takes a fixed number of arguments, so that no call copies a
            list.
    """

    def __init__(self, make: Callable[..., Any]):
        self.make = make

    def __call__(self, *args: Any) -> Any:
        return self.make(*args)

    def __setstate__(self, state: Any) -> None:
        raise Refused("a state of a function")


class Pairs:
    """A dictionary as its entries: keys of a hostile file need not be hashed, nor even be hashable.

    Args:
        items: Keys and values.
    """

    def __init__(self, items: list[tuple[Any, Any]]):
        self.items = items

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))

    def __setstate__(self, state: Any) -> None:
        raise Refused("a state of a dictionary")


class Record:
    """An object that a pickle would have made.

    Attributes:
        state: What ``__setstate__`` would have been given; None without it.
    """

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        if self.state is not None:
            raise Refused("two states of one object")
        self.state = state


class Dtype(Record):
    """A dtype.

    Args:
        code: Such as "f4".
        align, copy: As of ``numpy.dtype``; not used.
    """

    def __init__(self, code: Any, align: Any, copy: Any):
        self.code = code

    def value(self) -> np.dtype:
        """The dtype, if it is one of plain numbers."""
        code = self.code
        if not isinstance(code, str) or len(code) > 8 or np.dtype(code).kind not in "fiub":
            raise Refused("an array of another dtype than numbers")
        order = self.state[1] if self.state else "="
        return (
            np.dtype(f"{order}{code}")
            if order in ("<", ">") and code[0].isalpha()
            else np.dtype(code)
        )


class Array(Record):
    """An array."""

    def value(self) -> np.ndarray:
        """The array, if it is one of plain numbers."""
        _, shape, dtype, fortran, raw = self.state
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        if not isinstance(dtype, Dtype) or not isinstance(raw, bytes):
            raise Refused("an array without a dtype or bytes")
        # frombuffer and reshape refuse a shape that the bytes do not fill
        return np.frombuffer(raw, dtype.value()).reshape(shape, order="F" if fortran else "C")


class Matrix(Record):
    """A CSR matrix."""

    def parts(self) -> dict[str, Any]:
        """Its parts by name; arrays are their values."""
        if not isinstance(self.state, Pairs):
            raise Refused("a matrix without a state")
        return {
            key: part.value() if isinstance(part, Array) else part
            for key, part in self.state.items
            if isinstance(key, str)
        }


def _push_pairs(reader: Any) -> None:
    reader.append(Pairs([]))


def _push_filled_pairs(reader: Any) -> None:
    items = reader.pop_mark()
    reader.append(Pairs(list(zip(items[::2], items[1::2], strict=True))))


def _refuse(reader: Any) -> None:
    raise Refused("an opcode that no Planetoid file has")


class Unpickler(pickle._Unpickler):
    """Reads a pickle.

    Args:
        data: The pickle.
    """

    def __init__(self, data: bytes):
        # of texts that Python 2 wrote
        super().__init__(BytesIO(data), encoding="latin1")
        self._left = len(data)

    def find_class(self, module: str, name: str) -> Any:
        """What a name stands for."""
        match module, name:
            case (
                "numpy.core.multiarray"
                | "numpy._core.multiarray"
                | "numpy.core._multiarray_umath"
                | "numpy._core._multiarray_umath",
                "_reconstruct",
            ):
                return Named(lambda kind, shape, code: Array())
            case "numpy", "dtype":
                return Named(Dtype)
            case "scipy.sparse.csr" | "scipy.sparse._csr", "csr_matrix" | "csr_array":
                # a class, since one opcode makes an object without a call
                return Matrix
            case "copy_reg" | "copyreg", "_reconstructor":
                return Named(_reconstructed)
            case "collections", "defaultdict":
                return Named(lambda factory=None: Pairs([]))
            case "_codecs", "encode":
                return Named(self._encoded)
            case "__builtin__" | "builtins", "bytes":
                return Named(lambda: b"")
            case ("numpy", "ndarray") | (
                "__builtin__" | "builtins",
                "list" | "dict" | "int" | "object",
            ):
                # only as arguments
                return None
        raise Refused(f"the name {module:.60}.{name:.60}")

    def _encoded(self, text: str, encoding: str) -> bytes:
        """Bytes written by Python 3 in an old protocol: text that is encoded again, once."""
        if encoding != "latin1":
            raise Refused("bytes in another encoding than latin1")
        self._left -= len(text)
        if self._left < 0:
            raise Refused("more bytes than the file has")
        return text.encode("latin1")

    dispatch = {
        **dict.fromkeys(range(256), _refuse),
        **{code: pickle._Unpickler.dispatch[code] for code in OPCODES},
        pickle.EMPTY_DICT[0]: _push_pairs,
        pickle.DICT[0]: _push_filled_pairs,
    }


def _reconstructed(kind: Any, base: Any, state: Any) -> Matrix:
    if kind is not Matrix:
        raise Refused("an object that is not a CSR matrix")
    return Matrix()


def read(data: bytes) -> Any:
    """The content of a pickle: an array, a ``Matrix``, ``Pairs``, or numbers, text, bytes, lists
    and tuples.

    Raises:
        Refused: It holds anything else.
        Exception: It is damaged.
    """
    content = Unpickler(data).load()
    return content.value() if isinstance(content, Array) else content
