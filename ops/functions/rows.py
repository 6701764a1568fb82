"""Alignment: how values with rows (nodes, edges) and without (parameters, constants) combine.

- Row values combine row by row. Rows of nested spaces are cut to the shorter one: the active set
  of a later layer is a prefix of that of an earlier layer.
- Row values are aligned from the left: missing trailing axes are added at the right, so ``score [n,
  H] * z [n, H, F]`` weighs heads with heads.
- A row value that is combined with a rowless one gets trailing axes at the right until it has as
  many of them as the other has axes; then numpy's rules hold. An axis of a parameter never counts
  rows.
- Without any row value numpy's rules hold alone.
- Types follow NumPy's rules, with one float type, that of the pass: plain arrays and numbers are
  constants and take it from the variables; integers that are combined with floats are converted to
  it; variables of two float types are an error. Integers and masks alone give integers, of which
  masks are the smallest, and a Python number adapts to the others. What gives fractions, such as a
  quotient or an exponential, or the product with a constant that is a float, is computed in the
  float type of the pass (``Traits.takes``, ``Tape.dtype``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.errors import ShapeError, UserFunctionError

from ..autodiff.expr import Expr, tracing
from ..autodiff.primitive import defvjp, primitive
from ..autodiff.refusal import operation
from ..autodiff.space import RowSpace
from ..autodiff.stored import StoredRows
from ..autodiff.tape import Parameter, Var, current, space_of
from ..autodiff.traits import Traits, all_axes, always, first
from ..compile.scalar import Scalar
from ..parallel import buffers


@primitive(
    "prefix",
    rowwise=False,
    sparse=True,
    short=True,
    traits=Traits(work="none", part=lambda static: slice(static["n"])),
)
def _prefix(x: Any, *, n: int) -> Any:
    """The first n rows."""
    return x[:n]


def _pad_rows(g: Any, y: Any, x: Any, n: int) -> Any:
    out = buffers.empty(x.shape, g.dtype)
    out[:n] = g
    out[n:] = 0
    return out


defvjp(_prefix, x=_pad_rows)


@primitive(
    "expand_last",
    traits=Traits(
        work="none",
        structural=True,
        linear=(0,),
        kept_axes=all_axes,
        identity=always,
        lazy="axes",
        written=first,
        joined=lambda inner, outer: {"n": inner["n"] + outer["n"]},
    ),
)
def expand_last_p(x: Any, *, n: int) -> Any:
    """n axes of length 1 added at the right."""
    return x.reshape(x.shape + (1,) * n)


defvjp(expand_last_p, x=lambda g, y, x, n: g.reshape(x.shape))


def _cast_form(dtype: str) -> Scalar | None:
    """The scalar form of a cast; kernels have no integers of other sizes."""
    kind = np.dtype(dtype).kind
    if kind in "iu" and dtype not in ("int32", "int64"):
        return None
    values = {"f": "as_float({0})", "b": "(T(1) - equal({0}, T(0)))"}
    return Scalar(values.get(kind, f"as_{dtype}({{0}})"), ("{g}",))


@primitive(
    "cast",
    scalar=_cast_form,
    traits=Traits(free=True, identity=always, written=first, integers=True),
)
def _cast(x: Any, *, dtype: str) -> Any:
    """x in another type."""
    return np.asarray(x).astype(dtype)


defvjp(_cast, x=lambda g, y, x, dtype: g.astype(x.dtype) if x.dtype.kind == "f" else None)


def prefix(x: Any, n: int) -> Any:
    """The first n rows of a row value.

    Args:
        x: [rows, ...], rows at least n; a node value, not an edge expression.
        n: Rows to keep.

    Returns:
        [n, ...]; its row space is nested in that of x.

    Raises:
        UserFunctionError: x is an edge expression.
        ShapeError: x has fewer rows.
    """
    if isinstance(x, Expr):
        raise UserFunctionError("prefix cuts rows and cannot be used inside gather")
    if not getattr(x, "shape", ()) or x.shape[0] < n:
        raise ShapeError(f"prefix: {n} rows requested of a value of shape {list(x.shape)}")
    space = space_of(x)
    return _prefix(x, n=n) if space is None else _cut(x, space.prefix(n))


def expand_last(x: Any, n: int = 1) -> Any:
    """x with n axes of length 1 added at the right, [...] -> [..., 1]."""
    return expand_last_p(x, n=n) if n else x


@operation
def cast(x: Any, dtype: Any) -> Any:
    """x in another type, for example integer counts as ``float32``; gradients come back in the type
    of x.
    """
    return _cast(x, dtype=np.dtype(dtype).name)


def as_floats(x: Any) -> Any:
    """x; integers and masks in the float type of the pass."""
    return x if np.dtype(x.dtype).kind == "f" else cast(x, current().dtype)


def has_rows(x: Any) -> bool:
    """Whether axis 0 of x counts nodes or edges."""
    return x.rows if isinstance(x, Expr) else space_of(x) is not None


def trailing(x: Any) -> tuple[int, ...]:
    """The shape without the row axis; the whole shape if there is none."""
    if isinstance(x, Expr):
        return x.dims
    if isinstance(x, Var):
        return x.shape if x.space is None else x.shape[1:]
    return tuple(x.shape) if hasattr(x, "shape") else np.shape(x)


def same_rows(*args: Any) -> list[Any]:
    """Cut row values of nested spaces to the shortest of them; everything else is left alone.

    Raises:
        UserFunctionError: Values of nodes and edges, or of unrelated sets of rows, are combined.
    """
    spaces = [s for s in map(space_of, args) if s is not None]
    if len(spaces) < 2:
        return list(args)
    shortest = min(spaces, key=lambda s: s.n)
    for s in spaces:
        if not s.nested_with(shortest):
            raise UserFunctionError(
                f"values of {s.n} {s.kind}s and of {shortest.n} {shortest.kind}s are combined, but"
                " these are different sets of rows; combine values of the same nodes or edges only"
            )
    return [a if space_of(a) is None else _cut(a, shortest) for a in args]


def _cut(x: Var, space: RowSpace) -> Var:
    if x.space is None or x.space.n == space.n:
        return x
    if isinstance(x, StoredRows):
        return x.cut(space)
    out = _prefix(x, n=space.n)
    out.space = space
    return out


def same_dtype(*args: Any) -> list[Any]:
    """Give arguments one type: the float type of the variables, or that of the pass if a constant
    is a float, else one integer type.

    Raises:
        UserFunctionError: Variables of different float types are combined.
    """
    floats = {
        a.dtype for a in args if isinstance(a, (Var, Parameter, Expr)) and a.dtype.kind == "f"
    }
    if len(floats) > 1:
        raise UserFunctionError(
            f"values of types {', '.join(sorted(d.name for d in floats))} are combined; cast one"
            " with gt.cast, or choose one type for the whole job"
        )
    if floats:
        dtype = floats.pop()
    elif any(isinstance(a, (Var, Parameter, Expr)) for a in args):
        dtype = _common_type(args)
    else:
        return list(args)
    return [_adapt(a, dtype) for a in args]


def _common_type(args: tuple[Any, ...]) -> np.dtype:
    """The type of integers, masks and constants together: an integer type if there is one that
    holds all, else the float type.
    """
    types = [np.dtype(a.dtype) for a in args if hasattr(a, "dtype")]
    dtype = np.result_type(*types)
    if any(type(a) is int and not _fits(a, dtype) for a in args):
        dtype = np.result_type(dtype, np.int64)
    inexact = any(isinstance(a, float) or (type(a) is int and not _fits(a, dtype)) for a in args)
    return current().dtype if inexact or dtype.kind == "f" else dtype


def _fits(x: int, dtype: np.dtype) -> bool:
    return dtype.kind in "iu" and np.iinfo(dtype).min <= x <= np.iinfo(dtype).max


def _adapt(a: Any, dtype: np.dtype) -> Any:
    if isinstance(a, (Var, Parameter, Expr)):
        return a if a.dtype == dtype else cast(a, dtype)
    if dtype.kind == "f" and isinstance(a, (np.generic, int, float)):
        # Python numbers are weak in numpy, numpy scalars are not
        return a.item() if isinstance(a, np.generic) else a
    if getattr(a, "dtype", None) == dtype and (tracing() or not isinstance(a, np.ndarray)):
        return a
    # gradient rules read it later, when its owner may have changed it
    return np.array(a, dtype)


def are_aligned(args: tuple[Any, ...]) -> bool:
    """Whether ``align`` would leave values as they are; also False where that takes longer to find
    out.
    """
    space = None
    dtype = None
    most = 0
    least = None
    for a in args:
        if type(a) is float or type(a) is int:
            continue
        if not isinstance(a, (Var, Parameter, Expr)):
            return False
        rank = len(a.dims) if isinstance(a, Expr) else len(a.shape)
        rows = isinstance(a, Expr) and a.rows
        if isinstance(a, Var) and a.space is not None:
            if space is not None and a.space is not space:
                return False
            space = a.space
            rank = rank - 1
            rows = True
        if dtype is None:
            dtype = a.dtype
        if a.dtype != dtype:
            return False
        most = max(most, rank)
        if rows:
            least = rank if least is None else min(least, rank)
    return dtype is not None and dtype.kind == "f" and (least is None or least == most)


def align(*args: Any) -> list[Any]:
    """Bring values to shapes that numpy's rules combine as described at the top of this module.

    Args:
        *args: Variables, parameters, edge expressions, arrays and numbers.

    Returns:
        The arguments, cut, cast and with trailing axes added where needed.

    Raises:
        UserFunctionError: Rows of different sets, or different float types, are combined.
    """
    if are_aligned(args):
        return list(args)
    out = same_dtype(*same_rows(*args))
    # in arithmetic a mask counts as 1 and 0
    masks = all(np.dtype(getattr(a, "dtype", type(a))).kind == "b" for a in out)
    return same_axes(*(cast(a, np.int32) for a in out) if masks else out)


def same_axes(*args: Any) -> list[Any]:
    """Add trailing axes to values with rows, at the right, up to as many as the others have."""
    if not any(map(has_rows, args)):
        return list(args)
    width = max(len(trailing(a)) for a in args)
    return [expand_last(a, width - len(trailing(a))) if has_rows(a) else a for a in args]
