"""Reads pickles without unpickling them: interprets the opcodes and calls nothing.

A pickle is a program that names functions and calls them. This reader accepts the names of a short
list only, and records a call instead of making it; arrays are made from the records afterwards,
once they are checked. Memory is bounded by the size of the file: one byte makes at most one
object, and the bytes of all arrays together are those of the file.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

ARRAY_MODULES = (
    "numpy.core.multiarray",
    "numpy._core.multiarray",
    "numpy.core._multiarray_umath",
    "numpy._core._multiarray_umath",
)
# the kind of object that a call of each name makes; names of kind "" occur as arguments only
NAMES: dict[tuple[str, str], str] = {
    **{(module, "_reconstruct"): "array" for module in ARRAY_MODULES},
    **{
        (module, name): "csr"
        for module in ("scipy.sparse.csr", "scipy.sparse._csr")
        for name in ("csr_matrix", "csr_array")
    },
    ("numpy", "ndarray"): "",
    ("numpy", "dtype"): "dtype",
    ("collections", "defaultdict"): "pairs",
    ("_codecs", "encode"): "encode",
    **{(module, "_reconstructor"): "object" for module in ("copy_reg", "copyreg")},
    **{(module, "bytes"): "bytes" for module in ("__builtin__", "builtins")},
    **{
        (module, name): ""
        for module in ("__builtin__", "builtins")
        for name in ("list", "dict", "int", "object")
    },
}
# decimal digits of a number of 64 bits, with sign, L and a margin
DIGITS = 24


class Refused(ValueError):
    """A pickle holds something that no Planetoid file holds."""


class Name(NamedTuple):
    """A function or class a pickle names."""

    module: str
    name: str


class PickledDict(list[Any]):
    """A dictionary as its entries: keys of a hostile file need not be hashable."""

    __slots__ = ()


class PickledObject:
    """An object that a pickle would have made by a call.

    Attributes:
        kind: "array", "dtype" or "csr".
        args: Arguments of the call.
        state: State that ``__setstate__`` would have been given.
    """

    __slots__ = ("args", "kind", "state")

    def __init__(self, kind: str, args: tuple[Any, ...] = ()):
        self.kind = kind
        self.args = args
        self.state: Any = None

    def array(self) -> np.ndarray:
        """The array, if it is one of plain numbers."""
        if self.kind != "array":
            raise Refused(f"a {self.kind} in place of an array")
        _, shape, dtype, fortran, raw = self.state
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        if not isinstance(dtype, PickledObject) or not isinstance(raw, bytes):
            raise Refused("an array without a dtype or bytes")
        # frombuffer and reshape refuse a shape that the bytes do not fill
        return np.frombuffer(raw, dtype.dtype()).reshape(shape, order="F" if fortran else "C")

    def dtype(self) -> np.dtype:
        """The dtype, if it is one of plain numbers."""
        code = self.args[0] if self.kind == "dtype" and self.args else None
        if not isinstance(code, str) or len(code) > 8 or np.dtype(code).kind not in "fiub":
            raise Refused("an array of another dtype than numbers")
        order = self.state[1] if self.state else "="
        return (
            np.dtype(f"{order}{code}")
            if order in ("<", ">") and code[0].isalpha()
            else np.dtype(code)
        )

    def parts(self) -> dict[str, Any]:
        """The parts of a CSR matrix by name."""
        if self.kind != "csr" or not isinstance(self.state, PickledDict):
            raise Refused(f"a {self.kind} in place of a CSR matrix")
        return {key: value for key, value in self.state if isinstance(key, str)}


class Reader:
    """Interprets the opcodes of a pickle.

    Args:
        data: The pickle.
    """

    def __init__(self, data: bytes):
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self._encoded = 0

    def read(self) -> Any:
        """The content: numbers, text, bytes, lists, tuples, and ``PickledDict``, ``Name`` and
        ``PickledObject``.

        Raises:
            Refused: It holds anything else.
            Exception: It is damaged.
        """
        while (code := self.take(1)) != b".":
            action = ACTIONS.get(code)
            if action is None:
                raise Refused(f"the opcode {code!r}")
            action(self)
        return self.stack.pop()

    def take(self, n: int) -> bytes:
        """The next n bytes."""
        if not 0 <= n <= len(self.data) - self.at:
            raise ValueError(
                f"it ends at byte {len(self.data)} and states {n} bytes from {self.at} on"
            )
        self.at += n
        return self.data[self.at - n : self.at]

    def line(self) -> bytes:
        """The bytes up to the end of the line."""
        return self.take(self.data.index(b"\n", self.at) + 1 - self.at)[:-1]

    def number(self, form: str) -> Any:
        """A number of a fixed size."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def long(self, n: int) -> int:
        """A number of n bytes."""
        if n > 9:
            raise Refused("a number of more than 64 bits")
        return int.from_bytes(self.take(n), "little", signed=True)

    def digits(self) -> int:
        """A number in a line."""
        text = self.line()
        if len(text) > DIGITS:
            raise Refused("a number of more than 64 bits")
        return int(text.rstrip(b"L"))

    def name(self, module: str, name: str) -> Name:
        """A name, which must be in the list."""
        if (module, name) not in NAMES:
            raise Refused(f"the name {module:.60}.{name:.60}")
        return Name(module, name)

    def named(self) -> Name:
        """A name whose module and name are on the stack."""
        name = self.stack.pop()
        module = self.stack.pop()
        if not isinstance(module, str) or not isinstance(name, str):
            raise Refused("a name that is not text")
        return self.name(module, name)

    def since_mark(self) -> list[Any]:
        """Remove and return the items on the stack above the last mark."""
        mark = self.marks.pop()
        found = self.stack[mark:]
        del self.stack[mark:]
        return found

    def extend(self, kind: type[list[Any]], items: list[Any]) -> None:
        """Add to the list or the dictionary on top of the stack."""
        top = self.stack[-1]
        if type(top) is not kind:
            raise Refused(f"items added to a {type(top).__name__}")
        top.extend(items)

    def call(self) -> None:
        """Replace a name and its arguments on the stack by a record of the call."""
        args = self.stack.pop()
        name = self.stack.pop()
        kind = NAMES[name] if isinstance(name, Name) else ""
        if kind in ("array", "dtype"):
            self.stack.append(PickledObject(kind, args))
        elif kind == "pairs":
            self.stack.append(PickledDict())
        elif kind == "encode":
            self.stack.append(self.encode(*args))
        elif kind == "bytes" and args == ():
            self.stack.append(b"")
        elif kind == "object":
            self.new(args[0])
        else:
            raise Refused("an object made by calling a function or a class")

    def new(self, name: Any) -> None:
        """An object made without a call: always a CSR matrix."""
        if not isinstance(name, Name) or NAMES[name] != "csr":
            raise Refused("an object that is not a CSR matrix")
        self.stack.append(PickledObject("csr"))

    def encode(self, text: Any, encoding: Any) -> bytes:
        """Bytes written by Python 3 in an old protocol: text that is encoded again, once."""
        if not isinstance(text, str) or not isinstance(encoding, str) or encoding != "latin1":
            raise Refused("bytes in another encoding than latin1")
        self._encoded += len(text)
        if self._encoded > len(self.data):
            raise Refused("more bytes than the file has")
        return text.encode("latin1")

    def build(self) -> None:
        """Fill a record."""
        state = self.stack.pop()
        made = self.stack[-1]
        if not isinstance(made, PickledObject) or made.state is not None:
            raise Refused("a state of something else than an array or a matrix")
        made.state = state


def pairs(items: list[Any]) -> list[tuple[Any, Any]]:
    """Pairs from alternating keys and values."""
    return list(zip(items[::2], items[1::2], strict=True))


def last(reader: Reader, n: int) -> list[Any]:
    """Remove and return the last n items of the stack."""
    found = reader.stack[-n:]
    if len(found) < n:
        raise ValueError("the stack is empty")
    del reader.stack[-n:]
    return found


def push(value: Callable[[Reader], Any]) -> Callable[[Reader], None]:
    """An action that puts a value on the stack."""
    return lambda r: r.stack.append(value(r))


def text(n: Callable[[Reader], int], encoding: str) -> Callable[[Reader], None]:
    """An action that puts a text of stated length on the stack."""
    return push(
        lambda r: r.take(n(r)).decode(
            encoding, "surrogatepass" if encoding == "utf-8" else "strict"
        )
    )


def size(form: str) -> Callable[[Reader], Any]:
    """A number in the given form."""
    return lambda r: r.number(form)


def remember(r: Reader, at: int) -> None:
    """Store the top of the stack in the memo."""
    r.memo[at] = r.stack[-1]


# by opcode, as in the module pickle; Planetoid files use no others
ACTIONS: dict[bytes, Callable[[Reader], None]] = {
    b"\x80": lambda r: r.number("<B"),
    b"\x95": lambda r: r.number("<Q"),
    b"N": push(lambda r: None),
    b"\x88": push(lambda r: True),
    b"\x89": push(lambda r: False),
    b"I": push(Reader.digits),
    b"L": push(Reader.digits),
    b"K": push(size("<B")),
    b"M": push(size("<H")),
    b"J": push(size("<i")),
    b"\x8a": push(lambda r: r.long(r.number("<B"))),
    b"\x8b": push(lambda r: r.long(r.number("<i"))),
    b"F": push(lambda r: float(r.line())),
    b"G": push(size(">d")),
    b"S": push(lambda r: codecs.escape_decode(r.line()[1:-1])[0].decode("latin1")),
    b"T": text(size("<i"), "latin1"),
    b"U": text(size("<B"), "latin1"),
    b"V": push(lambda r: r.line().decode("raw-unicode-escape")),
    b"X": text(size("<I"), "utf-8"),
    b"\x8c": text(size("<B"), "utf-8"),
    b"\x8d": text(size("<Q"), "utf-8"),
    b"B": push(lambda r: r.take(r.number("<I"))),
    b"C": push(lambda r: r.take(r.number("<B"))),
    b"\x8e": push(lambda r: r.take(r.number("<Q"))),
    b"(": lambda r: r.marks.append(len(r.stack)),
    b"0": lambda r: last(r, 1).clear(),
    b"1": lambda r: r.since_mark().clear(),
    b"2": push(lambda r: r.stack[-1]),
    b"]": push(lambda r: []),
    b"l": push(Reader.since_mark),
    b"a": lambda r: r.extend(list, last(r, 1)),
    b"e": lambda r: r.extend(list, r.since_mark()),
    b"}": push(lambda r: PickledDict()),
    b"d": push(lambda r: PickledDict(pairs(r.since_mark()))),
    b"s": lambda r: r.extend(PickledDict, pairs(last(r, 2))),
    b"u": lambda r: r.extend(PickledDict, pairs(r.since_mark())),
    b")": push(lambda r: ()),
    b"t": push(lambda r: tuple(r.since_mark())),
    b"\x85": push(lambda r: tuple(last(r, 1))),
    b"\x86": push(lambda r: tuple(last(r, 2))),
    b"\x87": push(lambda r: tuple(last(r, 3))),
    b"p": lambda r: remember(r, r.digits()),
    b"q": lambda r: remember(r, r.number("<B")),
    b"r": lambda r: remember(r, r.number("<I")),
    b"\x94": lambda r: remember(r, len(r.memo)),
    b"g": push(lambda r: r.memo[r.digits()]),
    b"h": push(lambda r: r.memo[r.number("<B")]),
    b"j": push(lambda r: r.memo[r.number("<I")]),
    b"c": push(lambda r: r.name(r.line().decode(), r.line().decode())),
    b"\x93": push(Reader.named),
    b"R": Reader.call,
    b"\x81": lambda r: r.new(last(r, 2)[0]),
    b"b": Reader.build,
}
