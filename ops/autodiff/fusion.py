"""Lazy elementwise fusion: functions of large row values run when their result is read, several in
one pass over memory.

``dropout(relu(total * factor + bias), 0.5)`` reads ``total`` once and writes its result once;
backward reads the inputs and the gradient and writes their gradients, without other arrays.
Deferral changes the time and no result: a value is computed when it is read, or when a second
function uses it, from what its arguments were when the function was called. A function is deferred
if its scalar form calls only functions that are lazy (``compile.elementary``); NumPy is faster at
others, such as log.

Small values, where calling costs more than computing, are computed at once. Where the pass stores
wide values of nodes as bfloat16, these are deferred however few they are: only the result of fused
functions is rounded, and which functions are fused must not depend on the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.lib.stride_tricks import as_strided

from graphtheta.base import rng
from graphtheta.base.bfloat16 import BFLOAT16, is_wide
from graphtheta.base.rng import Purpose

from ..compile.fusion_code import FusedStep, FusionWriter, Leaf, Structure
from ..parallel.buffers import PER_NUMBER, by_blocks, empty, row_blocks
from ..rows.bfloat16 import expanded_rows, round_rows
from ..rows.computed import ComputedRows
from ..rows.row_list import ArrayOrList, RowList
from .operation import Operation
from .space import RowSpace
from .stored import StoredRows, blocks_of, operand_of
from .tape import Parameter, Tape, Var, current, is_rounded, needs_grad, value_of

# elements from which a value is deferred
SMALLEST = 1 << 16
# functions that are fused; more would need more variables than there are registers
LONGEST = 16


class _Whole(NamedTuple):
    """An argument without rows as it was when a function was called.

    Attributes:
        source: The parameter, variable or array.
        array: Its numbers at that time.
        needs_grad: Whether gradients flowed into it at that time.
    """

    source: Any
    array: np.ndarray
    needs_grad: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


def _as_called(x: Any) -> Any:
    """An argument of a deferred function, out of reach of later changes to parameters and
    constants.

    An update gives a parameter a new array. An array of the user's, such as a temperature, may be
    changed in place and is copied, being small. Rows are large and not copied: they must stay as
    they are until the pass has ended, since gradient rules read them too.
    """
    if isinstance(x, (int, float)) or (isinstance(x, Var) and x.space is not None):
        return x
    array = value_of(x)
    return _Whole(x, array if isinstance(x, (Var, Parameter)) else np.array(array), needs_grad(x))


class Deferred(Var):
    """A value that is computed when it is read.

    Attributes:
        args: The values that the function was called with.
        draw: Ids of rows and the key of draws, which dropout gets besides.
    """

    __slots__ = (
        "_shape",
        "_dtype",
        "args",
        "draw",
        "fused",
        "length",
        "prim",
        "readers",
        "static",
        "tape",
    )

    def __init__(
        self,
        prim: Operation,
        args: tuple[Any, ...],
        static: dict[str, Any],
        shape: tuple[int, ...],
        dtype: np.dtype,
        space: RowSpace,
    ):
        self.prim = prim
        self.static = static
        self.args = tuple(map(_as_called, _valued(prim, args)))
        self.draw = args[len(self.args) :]
        self._shape = shape
        self._dtype = dtype
        self.space = space
        self.tape: Tape | None = current()
        self.made_in = self.tape.number
        self.needs_grad = self.tape.record and any(map(needs_grad, args))
        self._stored: np.ndarray | None = None
        self.fused: _Fused | None = None
        self.readers = 0
        self.length: int = 1 + sum(a.length for a in args if is_open(a))

    # nobody sets it
    @property  # type: ignore[misc]
    def value(self) -> Any:
        if self._stored is None:
            _compute(self, self._dtype)
        return super().value

    @property
    def short(self) -> ArrayOrList | None:
        if self._stored is None:
            _compute(self, BFLOAT16 if is_rounded(self) else self._dtype)
        return super().short

    def lent(self) -> ComputedRows | None:
        self.readers += 1
        # a value that a second operation reads, or one deferred before a checkpointed segment
        if self.readers > 1 or self.tape is not current():
            return None
        fused = _recorded(self)
        if not fused.is_cheap:
            return None
        dtype = np.dtype(BFLOAT16 if is_rounded(self) else self._dtype)
        return ComputedRows(fused.filling(dtype), lambda: self._stored, self._shape, dtype)

    @property
    def sparse(self) -> bool:
        return False

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> np.dtype:
        return self._dtype


def is_open(x: Any) -> TypeGuard[Deferred]:
    """Whether x is deferred, and neither computed nor recorded."""
    return waits(x) and x.fused is None


def waits(x: Any) -> TypeGuard[Deferred]:
    """Whether x is deferred and not yet computed; products may have read it."""
    return isinstance(x, Deferred) and x._stored is None


def evaluated(x: Any) -> Any:
    """x, computed as operations will read it if it was deferred."""
    if waits(x):
        operand_of(x)
    return x


def defer(prim: Operation, args: tuple[Any, ...], static: dict[str, Any]) -> Deferred | None:
    """prim(*args) as a value to be computed later; None if it should be computed now."""
    operands = _valued(prim, args)
    small = not current().large
    for a in operands if small else ():
        if isinstance(a, Var) and prod(a.shape) >= SMALLEST:
            small = False
            break
    if small and not current().short:
        return None
    if not _fits(prim, operands, static):
        return None
    rows = [a for a in operands if isinstance(a, Var) and a.space is not None]
    if not rows or any(
        a.shape[0] != rows[0].shape[0] or len(a.shape) != len(rows[0].shape) for a in rows
    ):
        return None
    try:
        shape = np.broadcast_shapes(*map(_trailing, operands))
    except ValueError:
        return None
    if len(shape) != len(rows[0].shape) - 1 or not _one_type(operands):
        return None
    space = rows[0].space
    assert space is not None
    if small and not (space.kind == "node" and is_wide(shape, rows[0].dtype)):
        return None
    if prim.traits.lazy == "axes":
        shape += (1,) * static["n"]
    elif prim.traits.lazy == "total":
        with_ones = [1 if k - len(shape) in static["axis"] else d for k, d in enumerate(shape)]
        shape = (
            tuple(with_ones)
            if static["keepdims"]
            else tuple(d for k, d in enumerate(shape) if k - len(shape) not in static["axis"])
        )
    _read(operands)
    return Deferred(
        prim=prim,
        args=args,
        static=static,
        shape=(rows[0].shape[0], *shape),
        dtype=rows[0].dtype,
        space=space,
    )


def _trailing(x: Any) -> tuple[int, ...]:
    """The shape without rows."""
    shape = x.shape if isinstance(x, (Var, Parameter, _Whole)) else np.shape(x)
    return shape[1:] if isinstance(x, Var) and x.space is not None else shape


def _fits(prim: Operation, operands: tuple[Any, ...], static: dict[str, Any]) -> bool:
    if prim.traits.lazy == "axes":
        # for an array it is a view, which costs nothing
        return is_open(operands[0])
    if prim.traits.lazy:
        return True
    form = prim.form(static)
    return form is not None and form.lazy


def _one_type(operands: tuple[Any, ...]) -> bool:
    """Whether all arrays are dense and of one float type."""
    arrays = [a for a in operands if not isinstance(a, (int, float))]
    if not all(
        not a.sparse if isinstance(a, Var) else isinstance(value_of(a), (np.ndarray, np.generic))
        for a in arrays
    ):
        return False
    return len({a.dtype for a in arrays}) == 1 and bool(arrays[0].dtype.kind == "f")


def _read(operands: tuple[Any, ...]) -> None:
    """Round operands that were computed, and compute those that are read twice, are sums, or would
    fuse too many functions.
    """
    for a in operands if current().short else ():
        if not is_open(a):
            blocks_of(a)
    for a in {id(a): a for a in operands}.values():
        if is_open(a):
            a.readers += 1
            # a value deferred before a checkpointed segment is recorded before it
            if a.readers > 1 or a.prim.traits.lazy == "total" or a.tape is not current():
                evaluated(a)
    for a in operands:
        if sum(x.length for x in operands if is_open(x)) >= LONGEST and is_open(a):
            evaluated(a)


class _Fused:
    """The deferred functions that lead to a value, and their inputs."""

    def __init__(self, root: Deferred):
        self.leaves: list[Any] = []
        self.draws: list[tuple[np.ndarray, np.uint64]] = []
        self._numbers: dict[Any, int] = {}
        self._steps: list[Deferred] = []
        self._visit(root)
        n = len(self.leaves)
        number = {**self._numbers, **{id(d): n + k for k, d in enumerate(self._steps)}}
        steps = tuple(self._step(d, number) for d in self._steps)
        unit = [tuple(d == 1 for d in _trailing(x)) for x in (*self.leaves, *self._steps)]
        self.structure = Structure(tuple(self._leaf(x) for x in self.leaves), steps, tuple(unit))
        self.values = [_plain(x, root.dtype) for x in self.leaves]
        self.lists = [rows.rows for x in self.leaves if (rows := _listed(x)) is not None]
        self.inputs = [x.source if isinstance(x, _Whole) else x for x in self.leaves]
        self.n = root.shape[0]
        self.shape = root.shape
        self.dtype = root.dtype
        self.width = max(
            prod(d.shape[1:]) for d in [*self._steps, *(a for a in root.args if isinstance(a, Var))]
        )
        top = root.args[0].shape[1:] if root.prim.traits.lazy == "total" else root.shape[1:]
        self.code = _code(self.structure)
        # to draw a number takes about as long as to read and write it
        self.per_number = PER_NUMBER * (1 + len(self.draws))
        self.lengths = [prod(top[k] for k in group) for group in self.code.groups]
        # whether rows of an argument are expanded, copied or computed a block at a time
        self.is_cut = any(
            leaf.kind == "row" and (x.dtype == BFLOAT16 or not isinstance(x, np.ndarray))
            for leaf, x in zip(self.structure.leaves, self.values, strict=True)
        )
        # to compute them again takes less time than to store and read them
        self.is_cheap = (
            len(root.shape) == 2
            and not any(step.form is not None and step.form.costly for step in steps)
            and sum(leaf.kind in ("row", "listed") for leaf in self.structure.leaves) <= 2
        )
        self._steps = []

    def _visit(self, x: Any) -> None:
        if is_open(x):
            if not any(x is d for d in self._steps):
                for a in x.args:
                    self._visit(a)
                self._steps.append(x)
        elif _identity(x) not in self._numbers:
            self._numbers[_identity(x)] = len(self.leaves)
            self.leaves.append(x)

    def _leaf(self, x: Any) -> Leaf:
        if isinstance(x, (int, float)):
            return Leaf("number")
        if _listed(x) is not None:
            return Leaf("listed")
        return Leaf("whole" if isinstance(x, _Whole) else "row", needs_grad(x))

    def _step(self, d: Deferred, number: dict[int, int]) -> FusedStep:
        static = dict(d.static)
        kind = d.prim.traits.lazy or "scalar"
        form = d.prim.form(static)
        if kind == "draw":
            rate = static.pop("rate")
            site = static.pop("site")
            static = {"threshold": min(int(rate * 2.0**64), 2**64 - 1), "scale": 1 / (1 - rate)}
            ids, key = d.draw
            self.draws.append((ids, np.uint64(rng.key(int(key), Purpose.DROPOUT, site))))
        numbers = tuple(number[_identity(a)] for a in d.args)
        ranks = tuple(len(_trailing(a)) for a in d.args)
        return FusedStep(kind, form, numbers, tuple(static.items()), ranks)

    # ---- running

    def _arguments(self) -> list[Any]:
        draws = (x for draw in self.draws for x in draw)
        return [*self.lengths, *self.values, *self.lists, *draws]

    def _of_rows(self, begin: int, end: int) -> list[Any]:
        """The arguments for some rows alone, of which rounded ones are expanded."""
        values = [
            _float_rows(x, begin, end) if leaf.kind == "row" else x
            for leaf, x in zip(self.structure.leaves, self.values, strict=True)
        ]
        lists = [rows[begin:end] for rows in self.lists]
        draws = [x for ids, key in self.draws for x in (ids[begin:end], key)]
        return [*self.lengths, *values, *lists, *draws]

    def _run(
        self, kernel: Callable[..., None], rest: Callable[[int, slice], list[Any]], cut: bool
    ) -> None:
        """Run a kernel on blocks of rows.

        Args:
            rest: The arguments that follow the leaves and draws, given the number of the block and
                the rows that arrays with rows are cut to.
            cut: Whether the kernel is given the rows of a block alone.
        """
        given = self._arguments()

        def whole(b: int, begin: int, end: int) -> None:
            kernel(begin, end, *given, *rest(b, slice(None)))

        def alone(b: int, begin: int, end: int) -> None:
            kernel(0, end - begin, *self._of_rows(begin, end), *rest(b, slice(begin, end)))

        # a rank without rows compiles nothing
        if self.n:
            by_blocks(alone if cut else whole, self.n, self.width, self.per_number)

    def forward(self, dtype: np.dtype) -> np.ndarray:
        """The result, in its float type or rounded to ``BFLOAT16``."""
        out = empty(self.shape, dtype)
        rows = out.reshape(self.n, prod(self.shape[1:]))
        self._run(
            kernel=self._forward_kernel(dtype),
            rest=lambda b, part: [rows[part]],
            cut=dtype == BFLOAT16 or self.is_cut,
        )
        return out

    def filling(self, dtype: np.dtype) -> Callable[[int, int, np.ndarray], None]:
        """A function from two bounds of rows and an array, which it fills with these rows of the
        result, [n, d].
        """
        kernel = self._forward_kernel(dtype)

        def fill(begin: int, end: int, out: np.ndarray) -> None:
            kernel(0, end - begin, *self._of_rows(begin, end), out)

        return fill

    def _forward_kernel(self, dtype: np.dtype) -> Callable[..., None]:
        """Fills rows in the float type, or rows of ``BFLOAT16`` that begin with the first."""
        kernel = self.code.forward(self.dtype)

        def rounding(begin: int, end: int, *arguments: Any) -> None:
            block = np.empty((end, arguments[-1].shape[1]), self.dtype)
            kernel(begin, end, *arguments[:-1], block)
            round_rows(block, arguments[-1])

        return rounding if dtype == BFLOAT16 else kernel

    def backward(self, gradient: np.ndarray) -> list[Any]:
        """One gradient per leaf; None where the leaf requires none."""
        kernel, shared = self.code.backward(self.dtype)
        blocks, _ = row_blocks(self.n, self.width)
        into: dict[int, np.ndarray] = {}
        for k in sorted(set(shared.values())):
            whole = self.structure.leaves[k].kind == "whole"
            if whole:
                # a sum over many rows, see ``rows.columns``
                into[k] = np.zeros((blocks, self.values[k].size))
            else:
                into[k] = empty((self.n, prod(self.leaves[k].shape[1:])), self.dtype)
        outputs = [(x, self.structure.leaves[k].kind == "whole") for k, x in into.items()]
        g = np.ascontiguousarray(gradient).reshape(self.n, prod(self.shape[1:]))
        self._run(
            kernel=kernel,
            rest=lambda b, part: [g[part], b, *(x if whole else x[part] for x, whole in outputs)],
            cut=self.is_cut,
        )
        out: list[Any] = []
        for k, x in enumerate(self.leaves):
            leaf_gradient = into[shared[k]] if k in shared else None
            if leaf_gradient is not None and self.structure.leaves[k].kind == "whole":
                # in the order of the rows, whichever thread computed them
                leaf_gradient = leaf_gradient.sum(axis=0).astype(self.dtype)
            out.append(None if leaf_gradient is None else leaf_gradient.reshape(x.shape))
        return out


class _Code:
    """The kernels of a structure, written when first used."""

    def __init__(self, structure: Structure):
        self._structure = structure
        self._forward: dict[np.dtype, Callable[..., None]] = {}
        self._backward: dict[np.dtype, tuple[Callable[..., None], dict[int, int]]] = {}
        self.groups = FusionWriter(structure).groups

    def forward(self, dtype: np.dtype) -> Callable[..., None]:
        if dtype not in self._forward:
            self._forward[dtype] = _compiled(FusionWriter(self._structure).forward(), dtype)
        return self._forward[dtype]

    def backward(self, dtype: np.dtype) -> tuple[Callable[..., None], dict[int, int]]:
        if dtype not in self._backward:
            source, shared = FusionWriter(self._structure).backward()
            self._backward[dtype] = _compiled(source, dtype), shared
        return self._backward[dtype]


def _compiled(source: str, dtype: np.dtype) -> Callable[..., None]:
    # numba takes longer to import than many programs to run
    from ..compile.generated import compiled
    from ..kernels import number_header

    return compiled(source, dtype.name, number_header)


_CODES: dict[Structure, _Code] = {}


def _code(structure: Structure) -> _Code:
    if structure not in _CODES:
        _CODES[structure] = _Code(structure)
    return _CODES[structure]


def _identity(x: Any) -> Any:
    """Equal for arguments that are one leaf: a parameter is another one after an update."""
    return (id(x.source), id(x.array), x.needs_grad) if isinstance(x, _Whole) else id(x)


def _valued(prim: Operation, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments that are values; ids and the key of draws follow them."""
    return args[:1] if prim.traits.random else args


def _plain(x: Any, dtype: np.dtype) -> Any:
    """A leaf as the kernels take it: [n, size] for rows, [m, size] for those that rows are listed
    of, [size] without, a number.
    """
    if isinstance(x, (int, float)):
        return dtype.type(x)
    if isinstance(x, _Whole):
        return np.ascontiguousarray(x.array).reshape(-1)
    if (listed := _listed(x)) is not None:
        return _by_rows(listed.array)
    rows = blocks_of(x) if isinstance(x, StoredRows) else operand_of(x)
    if isinstance(rows, ComputedRows):
        return rows
    if isinstance(rows, RowList):
        return RowList(_by_rows(rows.array), rows.rows)
    return _by_rows(rows)


def _listed(x: Any) -> RowList | None:
    """The rows of a leaf where kernels read them, if that is where they are stored."""
    return x.in_place if isinstance(x, StoredRows) else None


def _float_rows(x: ArrayOrList | ComputedRows, begin: int, end: int) -> np.ndarray:
    """Some rows of a leaf, [n, size], in its float type."""
    return expanded_rows(x, begin, end) if x.dtype == BFLOAT16 else x[begin:end]


def _by_rows(value: np.ndarray) -> np.ndarray:
    """Rows as kernels take them, [n, at least the numbers of a row].

    A slice of wider rows, such as a gate of a recurrent cell, is not copied. The array then has the
    width of those, of which kernels read as many columns as the slice has; the others, some of the
    last row behind the end of the memory, are never read. Of ``BFLOAT16``, blocks of rows are
    copied when they are expanded.
    """
    width = prod(value.shape[1:])
    if value.dtype == BFLOAT16:
        return value.reshape(len(value), width)
    step, rest = divmod(value.strides[0], value.itemsize)
    if not rest and step > width > 0 and value[:1].flags.c_contiguous:
        shape = (len(value), step)
        return as_strided(value, shape, (value.strides[0], value.itemsize))
    return np.ascontiguousarray(value).reshape(len(value), width)


def _compute(d: Deferred, dtype: np.dtype) -> None:
    """Compute a value, in its float type or rounded to ``BFLOAT16``."""
    d._stored = _recorded(d).forward(dtype)
    d.fused = None


def _recorded(d: Deferred) -> _Fused:
    """The functions that lead to a value, which are recorded as one operation."""
    fused = d.fused
    if fused is None:
        tape = d.tape
        fused = d.fused = _Fused(d)
        # the tape refers to the value; a reference back would be a cycle
        d.args = ()
        d.draw = ()
        d.tape = None
        assert tape is not None
        tape.add("fused", fused.inputs, [d], lambda gs: fused.backward(gs[0]))
    return fused
