"""Runs the source of generated kernels in plain Python, with NumPy arrays as vectors: no
compilation.

``running()`` puts an emulated ``compiled`` into the fused back end, of which everything else is the
real one. It is as strict as the compiler: the elements of vectors have types that are not mixed,
integers are divided as LLVM divides them, and a read or write outside of a row, a name that is not
known and a variable that is not assigned are errors. Scratch space begins with numbers that no
program makes. The functions of ``lane_math`` are the real ones, called with an emulated vector.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from numba import types
from scipy.special import erf

from graphtheta.ops.autodiff import fusion
from graphtheta.ops.compile import generated
from graphtheta.ops.compile.elementary import FUNCTIONS
from graphtheta.ops.edge.backend import fused, pair_kernels
from graphtheta.ops.kernels import lane_math, lanes, vector_header
from graphtheta.ops.kernels.hash import COLUMN, GOLDEN
from graphtheta.ops.parallel import buffers
from graphtheta.ops.rows.bfloat16 import rounded

BOOL = np.dtype(bool)
# what scratch space holds before it is written
POISON = {"f": np.nan, "i": -0x5A5A5A5A, "u": 0x5A, "b": True}


class Fault(Exception):
    """Something that LLVM would refuse, or that reads or writes outside of a row."""


class V:
    """A vector: as ``lanes.V``, whose methods it has, and with the operators that kernels use."""

    __slots__ = ("x",)
    __array_ufunc__ = None

    def __init__(self, x: np.ndarray):
        self.x = x

    @property
    def n(self) -> int:
        return len(self.x)

    @property
    def floating(self) -> bool:
        return self.x.dtype.kind == "f"

    @property
    def single(self) -> bool:
        return self.x.dtype == np.float32

    def of(self, x: Any) -> V:
        return (
            x.repeated(len(self.x))
            if isinstance(x, V)
            else V(np.full(len(self.x), x, self.x.dtype))
        )

    def repeated(self, n: int) -> V:
        if len(self.x) == n:
            return self
        if len(self.x) != 1:
            raise Fault(f"a vector of {len(self.x)} lanes is combined with one of {n}")
        return V(np.full(n, self.x[0], self.x.dtype))

    def pair(self, other: Any) -> tuple[np.ndarray, np.ndarray]:
        """Both as arrays of one length and type."""
        if not isinstance(other, V):
            return self.x, self.x.dtype.type(other)
        a, b = self.x, other.x
        if a.dtype != b.dtype:
            raise Fault(f"a vector of {a.dtype} is combined with one of {b.dtype}")
        if len(a) != len(b) and len(a) != 1 and len(b) != 1:
            raise Fault(f"a vector of {len(a)} lanes is combined with one of {len(b)}")
        return a, b

    def __add__(self, x: Any) -> V:
        a, b = self.pair(x)
        return V(a + b)

    __radd__ = __add__

    def __sub__(self, x: Any) -> V:
        a, b = self.pair(x)
        return V(a - b)

    def __rsub__(self, x: Any) -> V:
        a, b = self.pair(x)
        return V(b - a)

    def __mul__(self, x: Any) -> V:
        a, b = self.pair(x)
        return V(a * b)

    __rmul__ = __mul__

    def __truediv__(self, x: Any) -> V:
        return V(_quotient(*self.pair(x)))

    def __rtruediv__(self, x: Any) -> V:
        a, b = self.pair(x)
        return V(_quotient(b + np.zeros_like(a), a))

    def __neg__(self) -> V:
        return V(-self.x)

    def __abs__(self) -> V:
        return V(abs(self.x))

    def compared(self, how: str, x: Any) -> V:
        a, b = self.pair(x)
        return V(
            {
                "<": np.less,
                "<=": np.less_equal,
                ">": np.greater,
                ">=": np.greater_equal,
                "==": np.equal,
            }[how](a, b)
        )

    def __lt__(self, x: Any) -> V:
        return self.compared("<", x)

    def __le__(self, x: Any) -> V:
        return self.compared("<=", x)

    def __gt__(self, x: Any) -> V:
        return self.compared(">", x)

    def __ge__(self, x: Any) -> V:
        return self.compared(">=", x)

    def equals(self, x: Any) -> V:
        return self.compared("==", x)

    def unequal(self, x: Any) -> V:
        a, b = self.pair(x)
        return V(a != b)

    def is_nan(self) -> V:
        return V(np.isnan(self.x) if self.floating else np.zeros(len(self.x), bool))

    def __and__(self, x: Any) -> V:
        a, b = self.pair(x)
        return V(a & b)

    def __or__(self, x: Any) -> V:
        a, b = self.pair(x)
        return V(a | b)

    def __xor__(self, x: Any) -> V:
        a, b = self.pair(x)
        return V(a ^ b)

    def choose(self, yes: Any, no: Any) -> V:
        if self.x.dtype != BOOL:
            raise Fault("a choice by what is no mask")
        like = yes if isinstance(yes, V) else no
        yes, no = (v.x if isinstance(v, V) else like.x.dtype.type(v) for v in (yes, no))
        if np.asarray(yes).dtype != np.asarray(no).dtype:
            raise Fault("a choice between two types")
        n = max(len(self.x), *(len(v) for v in (yes, no) if np.ndim(v)))
        if any(len(v) not in (1, n) for v in (self.x, yes, no) if np.ndim(v)):
            raise Fault("a choice between vectors of different lengths")
        return V(np.where(self.x, yes, no))

    def __lshift__(self, x: int) -> V:
        return V(self.x << self.x.dtype.type(x))

    def __rshift__(self, x: int) -> V:
        unsigned = np.dtype(f"u{self.x.itemsize}")
        return V((self.x.view(unsigned) >> unsigned.type(x)).view(self.x.dtype))

    def halved(self) -> V:
        return V(self.x >> self.x.dtype.type(1))

    def bits(self, element: str) -> V:
        return V(self.x.view(element))

    def to(self, element: str) -> V:
        return V(_converted(self.x, np.dtype(element)))

    def call(self, name: str, *more: Any) -> V:
        given = [self.x, *(self.of(v).x for v in more)]
        return V(np.asarray(INTRINSICS[name](*given)).astype(self.x.dtype))

    def libm(self, name: str) -> V:
        return V(LIBM[name](self.x))

    def unless_rare(self, usual: V, rare: Callable[[], V]) -> V:
        return usual.choose(self, rare())


LIBM = {"erf": erf}
INTRINSICS: dict[str, Callable[..., Any]] = {
    "llvm.exp": np.exp,
    "llvm.log": np.log,
    "llvm.sqrt": np.sqrt,
    "llvm.fabs": np.abs,
    "llvm.rint": np.rint,
    "llvm.pow": np.power,
    "llvm.sin": np.sin,
    "llvm.cos": np.cos,
    "llvm.arithmetic.fence": lambda x: x,
    "llvm.fma": lambda a, b, c: np.asarray(a, np.longdouble) * b + c,
}


def _quotient(a: Any, b: Any) -> Any:
    if np.asarray(a).dtype.kind == "f":
        return a / b
    if not np.all(b):
        raise Fault("an integer is divided by 0")
    # sdiv truncates
    return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(
        np.asarray(a).dtype
    )


def _converted(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return x.astype(dtype)


def _vector(x: Any, dtype: np.dtype | None = None) -> V:
    """An argument as a vector; a number gets one lane and the type."""
    return x if isinstance(x, V) else V(np.asarray([x]).astype(dtype or np.asarray(x).dtype))


def _widest(values: tuple[Any, ...]) -> tuple[np.dtype, int]:
    """Element and lanes of the result of an operation."""
    vectors = [v for v in values if isinstance(v, V)]
    if not vectors:
        raise Fault("a function of vectors is called without one")
    return next((v.x.dtype for v in vectors if v.x.dtype != BOOL), BOOL), max(v.n for v in vectors)


def _lanewise(name: str) -> Callable[..., V]:
    def call(*given: Any) -> V:
        # read when it is called, so that a test may replace it
        function = lane_math.LANES[name]
        dtype, n = _widest(given)
        return function(*(_vector(v, dtype) for v in given)).repeated(n)

    return call


# ---- rows


class Matrix(np.ndarray):
    """A value without rows, of which a read may go on to the next rows."""


def _row(array: np.ndarray, row: int, column: int, active: int) -> np.ndarray:
    if array.strides[-1] != array.itemsize and array.shape[-1] > 1:
        raise Fault("numbers of a row are not beside each other in memory")
    if type(array) is Matrix:
        begin = row * array.shape[1] + column
        if not array.flags.c_contiguous:
            raise Fault("rows of a matrix are not beside each other in memory")
        if row < 0 or column < 0 or begin + active > array.size:
            raise Fault(
                f"row {row}, columns {column} to {column + active} of a matrix of shape"
                f" {array.shape}"
            )
        return array.reshape(-1)[begin : begin + active]
    if (
        array.ndim != 2
        or not 0 <= row < array.shape[0]
        or not 0 <= column <= column + active <= array.shape[1]
    ):
        raise Fault(
            f"row {row}, columns {column} to {column + active} of an array of shape {array.shape}"
        )
    return array[row, column : column + active]


def _read(stored: np.ndarray) -> np.ndarray:
    """Stored numbers as vectors have them: those of 16 bits are bfloat16."""
    if stored.dtype != np.uint16:
        return np.array(stored)
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)


def loader(active: int) -> Callable[..., V]:
    n = lanes.width(active)

    def load(array: np.ndarray, row: int, column: int) -> V:
        found = _read(_row(array, row, column, active))
        if n == active:
            return V(found)
        out = np.zeros(n, found.dtype)
        out[:active] = found
        return V(out)

    return load


def storer(active: int) -> Callable[..., None]:
    n = lanes.width(active)

    def store(array: np.ndarray, row: int, column: int, x: Any) -> None:
        is_short = array.dtype == np.uint16
        v = _vector(x, np.dtype(np.float32) if is_short else array.dtype).repeated(n)
        if is_short and v.x.dtype == np.float32:
            v = V(rounded(v.x).view(np.uint16))
        if v.x.dtype != array.dtype:
            raise Fault(f"{v.x.dtype} stored in an array of {array.dtype}")
        _row(array, row, column, active)[...] = v.x[:active]

    return store


def picker(active: int) -> Callable[..., V]:
    n = lanes.width(active)

    def pick(array: np.ndarray, row: int, where: np.ndarray, first: int) -> V:
        out = np.zeros(n, array.dtype)
        for i, column in enumerate(_row(where, 0, first, active)):
            out[i] = _row(array, row, column, 1)[0]
        return V(_read(out))

    return pick


def zeros(active: int, element: Any) -> Callable[[], V]:
    return lambda: V(np.zeros(lanes.width(active), np.dtype(element.name)))


def entry(array: np.ndarray, i: int) -> Any:
    if not 0 <= i < len(array):
        raise Fault(f"entry {i} of {len(array)}")
    return array[i]


# ---- lane_tools


def beats(x: V, best: V, tie: Any, edge: V) -> V:
    mine = x.repeated(edge.n)
    top = best.repeated(edge.n)
    lower = _vector(tie, edge.x.dtype) < edge
    return (mine > top) | (mine.equals(top) & lower) | (mine.is_nan() & top.equals(top))


def same(x: Any, y: Any) -> V:
    a = _vector(x)
    b = _vector(y)
    return a.repeated(max(a.n, b.n)).equals(b)


def where(holds: V, yes: Any, no: Any) -> V:
    if isinstance(yes, V) or isinstance(no, V):
        dtype, n = _widest((yes, no))
    else:
        dtype = np.asarray(yes).dtype
        n = holds.n
    n = max(n, holds.n)
    m, y, other = (_vector(v, dtype).repeated(n) for v in (holds, yes, no))
    return (m if m.x.dtype == BOOL else m.unequal(0)).choose(y, other)


def lane(x: V, i: int) -> V:
    if x.n == 1:
        return x
    if not 0 <= i < x.n:
        raise Fault(f"lane {i} of {x.n}")
    return V(x.x[i : i + 1])


def single(x: Any) -> V:
    if isinstance(x, V):
        raise Fault("a vector as a number")
    return V(np.asarray([x]))


def number(x: V) -> Any:
    return x.x[0]


def some(x: V, y: V) -> bool:
    a, b = x.pair(y)
    return bool((a > b).any())


def comparison(how: str, dtype: np.dtype) -> Callable[..., V]:
    def compare(x: Any, y: Any) -> V:
        n = max(v.n for v in (x, y) if isinstance(v, V))
        a, b = (_vector(v).repeated(n) for v in (x, y))
        if a.floating or b.floating:
            a = V(a.x.astype(dtype))
            b = V(b.x.astype(dtype))
        elif a.x.dtype != b.x.dtype:
            a = V(a.x.astype(np.int64))
            b = V(b.x.astype(np.int64))
        return V(a.compared(how, b).x.astype(dtype))

    return compare


def as_type(dtype: np.dtype) -> Callable[[Any], V]:
    return lambda x: V(_converted(_vector(x).x, dtype))


def first(active: int, lanes_: int) -> Callable[[V], V]:
    def cut(x: V) -> V:
        v = x.repeated(lanes.width(active)) if x.n == 1 else x
        out = np.zeros(lanes_, v.x.dtype)
        out[:active] = v.x[:active]
        return V(out)

    return cut


def totals(count: int) -> Callable[..., V]:
    def total(*given: V) -> V:
        if len(given) != count or len({v.n for v in given}) > 1:
            raise Fault("vectors of different lengths are added up")
        out = np.zeros(lanes.width(count), given[0].x.dtype)
        out[:count] = [v.x.sum() for v in given]
        return V(out)

    return total


def dropout_factors(active: int) -> Callable[..., V]:
    n = lanes.width(active)

    def draw(hashed: Any, first_: int, threshold: Any, factor: Any) -> V:
        columns = np.arange(first_ + 1, first_ + 1 + n, dtype=np.uint64)
        x = np.full(n, hashed, np.uint64) + columns * np.uint64(0xD1B54A32D192ED03)
        return V(np.where(mix(x) >= np.uint64(threshold), factor, factor.dtype.type(0)))

    return draw


def mix(x: Any) -> Any:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def inside_table(i: int, size: int) -> int:
    if i < 0 or i >= size:
        raise IndexError
    return i


def power(x: V, exponent: Any) -> V:
    return V(np.power(x.x, exponent))


def next_turn(counters: np.ndarray, shares: int, side: int) -> int:
    admitted = counters[0]
    counters[0] = counters[0] + 1
    if admitted >= shares:
        return shares
    taken = counters[1 + side]
    counters[1 + side] = counters[1 + side] + 1
    return int(shares - 1 - taken if side else taken)


def prefetch(array: np.ndarray, row: int, line: int) -> None:
    if not 0 <= row < len(array):
        raise Fault(f"prefetch of row {row} of {len(array)}")


class _Lanes:
    """Stands for ``lanes`` and ``lane_tools``, as far as generated sources name their functions."""

    loader, storer, picker, zeros = map(staticmethod, (loader, storer, picker, zeros))
    totals, first, dropout_factors = map(staticmethod, (totals, first, dropout_factors))


def scope(dtype: str) -> dict[str, Any]:
    """The names of a kernel: those of the header."""
    kind = np.dtype(dtype)
    return {
        **{name: _lanewise(name) for name in lane_math.LANES},
        "np": np,
        "lanes": _Lanes,
        "lane_tools": _Lanes,
        "T": kind.type,
        "ELEMENT": getattr(types, dtype),
        "ZERO": kind.type(0),
        "ONE": kind.type(1),
        "GOLDEN": GOLDEN,
        "as_float": as_type(kind),
        "as_float64": as_type(np.dtype(np.float64)),
        "as_int32": as_type(np.dtype(np.int32)),
        "as_int64": as_type(np.dtype(np.int64)),
        "less": comparison("<", kind),
        "less_equal": comparison("<=", kind),
        "equal": comparison("==", kind),
        "kernel_form": lambda f: f,
        "mix": mix,
        "inside_table": inside_table,
        "power": power,
        "beats": beats,
        "lane": lane,
        "number": number,
        "same": same,
        "single": single,
        "some": some,
        "where": where,
        "entry": entry,
        "prefetch": prefetch,
        "next_turn": next_turn,
    }


def scalar_scope(dtype: str) -> dict[str, Any]:
    """The names of loops over single numbers; the real exponentials are close to those of NumPy."""
    kind = np.dtype(dtype).type
    return {
        **{
            name: function.loop(kind, np.exp, np.expm1) if function.loop else function.array
            for name, function in FUNCTIONS.items()
            if function.of_numbers
        },
        "np": np,
        "T": kind,
        "ONE": kind(1),
        "GOLDEN": GOLDEN,
        "COLUMN": COLUMN,
        "kernel_form": lambda f: f,
        "mix": mix,
        "prefetch": prefetch,
    }


@lru_cache(maxsize=256)
def compiled(source: str, dtype: str, header: ModuleType) -> Callable[..., None]:
    """The function of a generated source."""
    vectors = header is vector_header
    names = scope(dtype) if vectors else scalar_scope(dtype)
    exec(compile(source, "<kernel>", "exec"), names)
    kernel = names["kernel"]
    for line in dis.get_instructions(kernel):
        if (
            line.opname == "LOAD_GLOBAL"
            and line.argval not in names
            and line.argval not in dir(builtins)
        ):
            raise Fault(f"the name {line.argval} is not known")
    hidden = set(kernel.__code__.co_varnames) & set(names)
    if hidden:
        raise Fault(f"a variable of a kernel has the name of a function: {sorted(hidden)}")
    given = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
    matrices = [
        i
        for i, name in enumerate(given)
        if vectors and re.fullmatch(r"(all_g|near_g)?ct?\d+", name)
    ]

    signature = inspect.signature(kernel)

    def run(*arguments: Any, **named: Any) -> None:
        each = list(signature.bind(*arguments, **named).args)
        for i in matrices:
            if isinstance(each[i], np.ndarray):
                each[i] = each[i].view(Matrix)
        with np.errstate(all="ignore"):
            kernel(*each)

    return run


class _Poisoned:
    """A module whose ``empty`` is filled with numbers that no program makes."""

    def __init__(self, module: Any):
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def empty(self, *given: Any, **named: Any) -> np.ndarray:
        out = self._module.empty(*given, **named)
        out[...] = POISON[out.dtype.kind]
        return out


def run_one(work: Callable[[int], object], most: int) -> None:
    """The work on one thread."""
    work(0)


@contextmanager
def running() -> Iterator[None]:
    """Run kernels of the fused back end, fused elementwise loops, and steps of recurrences in the
    emulator inside the block.
    """
    changed: list[tuple[Any, str, Any]] = [
        (fused, "compiled", compiled),
        (fused, "run_threads", run_one),
        # also of small arrays, so that lines of prefetches run
        (fused, "edges_ahead", lambda n_bytes: 1),
        (fused, "np", _Poisoned(np)),
        (fused, "buffers", _Poisoned(buffers)),
        (pair_kernels, "compiled", compiled),
        (pair_kernels, "run_threads", run_one),
        (generated, "compiled", compiled),
        (fusion, "by_blocks", one_by_one),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in changed]
    caches = [getattr(pair_kernels, name) for name in ("_times", "_outer_sums")]
    for module, name, x in changed:
        setattr(module, name, x)
    for known in (*caches, fusion._CODES):
        known.clear() if isinstance(known, dict) else known.cache_clear()
    try:
        yield
    finally:
        for module, name, x in before:
            setattr(module, name, x)
        for known in (*caches, fusion._CODES):
            known.clear() if isinstance(known, dict) else known.cache_clear()


def one_by_one(f: Callable[[int, int, int], None], n: int, width: int, *_: Any) -> None:
    """The blocks of rows in turn."""
    count, size = buffers.row_blocks(n, width)
    for b in range(count):
        f(b, b * size, min((b + 1) * size, n))
