"""An independent evaluation of layers: the functions of ``gt`` on arrays of edges, in float64, with
gradients.

The text of a program runs with this module as ``gt``. It shares no code with what it checks, except
for the hash that decides what dropout drops. Every function is written as plainly as possible, and
records how to pass a gradient to its arguments; edge softmax and sums are loops over destinations.

Values have the types that docs/reference/stages.md describes: integers and masks combine as in
NumPy, and what has a fraction is a float. While a program runs, ``Pass.margin`` collects how close
it came to a point where a function jumps or has a kink, where the last bit of a number would
decide.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr

from graphtheta.base.rng import Purpose, key
from graphtheta.ops.functions.dropout import _drop

FLOAT = np.dtype(np.float64)
Slope = Callable[..., Any] | None


class Pass:
    """State of the evaluation that runs: its draws, its edges, and its margin."""

    def __init__(self, training: bool = False, receivers: np.ndarray | None = None):
        self.training = training
        self.draws = 0
        self.sites: int | None = None
        self.key = 0
        self.ids = np.zeros(0, np.int64)
        self.margin = math.inf
        # whether numbers that may move apart are equal, so that differences say nothing about the
        # rule for equal ones
        self.tied = False
        self.receivers = receivers
        self.scale = np.ones(0)
        self.n = 0
        self.senders = np.zeros(0, np.int64)

    def next_key(self) -> int:
        """Keys of random draws as a tape of seed 0 makes them."""
        self.draws += 1
        return key(0, Purpose.DROPOUT, 0, self.draws)


now = Pass()


def begin(training: bool) -> Pass:
    """Start an evaluation."""
    global now
    now = Pass(training)
    return now


def near(gap: Any, *values: Value) -> None:
    """Note a distance to a point where a function is not smooth; values that are exact may lie on
    it.
    """
    gaps = np.abs(np.asarray(gap, np.float64))
    if any(v.learned for v in values) and not gaps.all():
        now.tied = True
    if all(v.exact for v in values):
        gaps = gaps[gaps > 0]
    gaps = gaps[np.isfinite(gaps)]
    if gaps.size:
        now.margin = builtins.min(now.margin, float(gaps.min()))


def cancels(y: np.ndarray, nan: np.ndarray) -> None:
    """Note an infinity less another, or times 0, which is NaN in one order of operations only.

    Args:
        y: Sums or products.
        nan: Where one of the numbers that they are made of is NaN.
    """
    if (np.isnan(y) & ~nan).any():
        now.margin = 0


class Value:
    """An array with rows of nodes or edges, or one without rows, and how its gradient goes on.

    Attributes:
        x: The array; floats are float64 whatever the type of the job.
        rows: Whether axis 0 counts nodes or edges.
        back: Arguments, each with a function from the gradient of this value to that of the
            argument.
        exact: Whether every evaluation gives the same bits: small integers, halves and the like.
        weak: Whether it is a Python number, which takes the type of what it is combined with.
    """

    __array_ufunc__ = None
    __array_priority__ = 1000
    _count = 0

    def __init__(
        self,
        x: Any,
        rows: bool = False,
        back: Sequence[tuple[Value, Callable[[Any], Any]]] = (),
        *,
        exact: bool = False,
        weak: bool = False,
        learned: bool = False,
    ):
        x = np.asarray(x)
        self.x = x.astype(FLOAT) if x.dtype.kind == "f" else x
        self.rows = rows
        self.exact = exact
        self.weak = weak
        self.back = [(v, rule) for v, rule in back if v.learned] if x.dtype.kind == "f" else []
        self.learned = learned or bool(self.back)
        self.gradient: Any = None
        Value._count += 1
        self.number = Value._count

    @property
    def kind(self) -> str:
        return self.x.dtype.kind

    @property
    def dtype(self) -> np.dtype:
        return self.x.dtype

    @property
    def dims(self) -> tuple[int, ...]:
        return self.x.shape[1:] if self.rows else self.x.shape

    @property
    def shape(self) -> tuple[int, ...]:
        return self.x.shape

    __hash__ = object.__hash__
    __add__ = lambda x, y: add(x, y)
    __radd__ = lambda x, y: add(y, x)
    __sub__ = lambda x, y: sub(x, y)
    __rsub__ = lambda x, y: sub(y, x)
    __mul__ = lambda x, y: mul(x, y)
    __rmul__ = lambda x, y: mul(y, x)
    __truediv__ = lambda x, y: div(x, y)
    __rtruediv__ = lambda x, y: div(y, x)
    __pow__ = lambda x, y: power(x, y)
    __rpow__ = lambda x, y: power(y, x)
    __matmul__ = lambda x, w: matmul(x, w)
    __neg__ = lambda x: neg(x)
    __lt__ = lambda x, y: compare(np.less, x, y)
    __le__ = lambda x, y: compare(np.less_equal, x, y)
    __gt__ = lambda x, y: compare(np.greater, x, y)
    __ge__ = lambda x, y: compare(np.greater_equal, x, y)
    __eq__ = lambda x, y: compare(np.equal, x, y)  # type: ignore[assignment]
    __ne__ = lambda x, y: compare(np.not_equal, x, y)  # type: ignore[assignment]
    __and__ = lambda x, y: masks(np.logical_and, x, y)
    __or__ = lambda x, y: masks(np.logical_or, x, y)
    __invert__ = lambda x: masks(np.logical_not, x)
    __getitem__ = lambda x, at: getitem(x, at)
    sum = lambda x, axis=-1, keepdims=False: sum(x, axis, keepdims)
    mean = lambda x, axis=-1, keepdims=False: mean(x, axis, keepdims)
    max = lambda x, axis=-1, keepdims=False: max(x, axis, keepdims)
    min = lambda x, axis=-1, keepdims=False: min(x, axis, keepdims)
    reshape = lambda x, *shape: reshape(x, *shape)
    flatten = lambda x: flatten(x)


def Parameter(x: np.ndarray) -> Value:
    """A value that is learned."""
    return Value(x, learned=True, exact=True)


def backward(out: Value, seed: np.ndarray) -> None:
    """Set ``gradient`` of all values below ``out``."""
    order: dict[int, Value] = {}
    stack = [out]
    while stack:
        v = stack.pop()
        if v.number not in order:
            order[v.number] = v
            v.gradient = np.zeros(v.x.shape)
            stack += [a for a, _ in v.back]
    out.gradient = np.array(seed, FLOAT)
    for number in sorted(order, reverse=True):
        for a, rule in order[number].back:
            a.gradient = a.gradient + rule(order[number].gradient)


# ---- types and shapes


def value(x: Any) -> Value:
    """A value, array or number as a value."""
    if isinstance(x, Value):
        return x
    if isinstance(x, (bool, int, float, np.generic)):
        return Value(
            np.asarray(x.item() if isinstance(x, np.generic) else x), weak=True, exact=True
        )
    return Value(x, exact=True)


def floating(x: Value) -> Value:
    """A value as a float."""
    return x if x.kind == "f" else Value(x.x.astype(FLOAT), x.rows, exact=x.exact, weak=x.weak)


def promoted(*args: Any) -> list[Value]:
    """Values in their common type: a float, or an integer, where masks count as int32 and numbers
    are weak.
    """
    values = [value(a) for a in args]
    if any(v.kind == "f" for v in values):
        return [floating(v) for v in values]
    strong = [np.dtype(np.int32) if v.kind == "b" else v.dtype for v in values if not v.weak]
    dtype = np.result_type(*strong) if strong else np.dtype(np.int64)
    return [Value(v.x.astype(dtype), v.rows, exact=True, weak=v.weak) for v in values]


def aligned(*values: Value) -> list[np.ndarray]:
    """Arrays with axes added at the right of values with rows, which broadcast as
    docs/reference/stages.md says.
    """
    if not any(v.rows for v in values):
        return [v.x for v in values]
    width = builtins.max(len(v.dims) for v in values)
    return [
        v.x.reshape(v.x.shape + (1,) * (width - len(v.dims))) if v.rows else v.x for v in values
    ]


def reduced(g: np.ndarray, expanded: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """A gradient summed over what was repeated to broadcast ``expanded``, in the original shape."""
    while g.ndim > len(expanded):
        g = g.sum(axis=0)
    for axis, d in enumerate(expanded):
        if d == 1 and g.shape[axis] != 1:
            g = g.sum(axis=axis, keepdims=True)
    return g.reshape(shape)


def elementwise(
    function: Callable[..., Any], slopes: Sequence[Slope], *values: Value, exact: bool = False
) -> Value:
    """A function of aligned values; the slopes are functions of the arrays and the result."""
    arrays = aligned(*values)
    y = np.asarray(function(*arrays))
    if any(v.rows for v in values):
        n = next(len(v.x) for v in values if v.rows)
        if y.ndim == 0 or y.shape[0] != n or any(v.rows and len(v.x) != n for v in values):
            raise ValueError("the axis of rows was broadcast")

    def rule(i: int, slope: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda g: reduced(g * slope(*arrays, y), arrays[i].shape, values[i].x.shape)

    back = [
        (v, rule(i, s))
        for i, (v, s) in enumerate(zip(values, slopes, strict=True))
        if s is not None
    ]
    return Value(y, any(v.rows for v in values), back, exact=exact and all(v.exact for v in values))


# ---- elementwise functions


def add(x: Any, y: Any) -> Value:
    return elementwise(np.add, (lambda x, y, z: 1, lambda x, y, z: 1), *promoted(x, y), exact=True)


def sub(x: Any, y: Any) -> Value:
    return elementwise(
        np.subtract, (lambda x, y, z: 1, lambda x, y, z: -1), *promoted(x, y), exact=True
    )


def mul(x: Any, y: Any) -> Value:
    return elementwise(
        np.multiply, (lambda x, y, z: y, lambda x, y, z: x), *promoted(x, y), exact=True
    )


def div(x: Any, y: Any) -> Value:
    return elementwise(
        np.true_divide,
        (lambda x, y, z: 1 / y, lambda x, y, z: -x / (y * y)),
        floating(value(x)),
        floating(value(y)),
    )


def maximum(x: Any, y: Any) -> Value:
    x, y = promoted(x, y)
    near(np.subtract(*aligned(floating(x), floating(y))), x, y)
    return elementwise(
        np.maximum, (lambda x, y, z: x >= y, lambda x, y, z: y > x), x, y, exact=True
    )


def minimum(x: Any, y: Any) -> Value:
    x, y = promoted(x, y)
    near(np.subtract(*aligned(floating(x), floating(y))), x, y)
    return elementwise(
        np.minimum, (lambda x, y, z: x <= y, lambda x, y, z: y < x), x, y, exact=True
    )


def neg(x: Any) -> Value:
    (x,) = promoted(x)
    return elementwise(np.negative, (lambda x, y: -1,), x, exact=True)


def square(x: Any) -> Value:
    (x,) = promoted(x)
    return elementwise(lambda x: x * x, (lambda x, y: 2 * x,), x, exact=True)


def absolute(x: Any) -> Value:
    (x,) = promoted(x)
    near(x.x, x)
    return elementwise(np.abs, (lambda x, y: np.sign(x),), x, exact=True)


def _float_function(
    function: Callable[..., Any], slope: Callable[..., Any]
) -> Callable[[Any], Value]:
    return lambda x: elementwise(function, (slope,), floating(value(x)))


exp = _float_function(np.exp, lambda x, y: np.exp(x))
log = _float_function(np.log, lambda x, y: 1 / x)
sqrt = _float_function(np.sqrt, lambda x, y: 0.5 / np.sqrt(x))
sin = _float_function(np.sin, lambda x, y: np.cos(x))
cos = _float_function(np.cos, lambda x, y: -np.sin(x))
tanh = _float_function(np.tanh, lambda x, y: 1 / np.cosh(x) ** 2)
sigmoid = _float_function(
    lambda x: 0.5 * (1 + np.tanh(x / 2)), lambda x, y: 0.25 / np.cosh(x / 2) ** 2
)
softplus = _float_function(
    lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    lambda x, y: 0.5 * (1 + np.tanh(x / 2)),
)
gelu = _float_function(
    lambda x: x * ndtr(x), lambda x, y: ndtr(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
)


silu = _float_function(
    lambda x: x * 0.5 * (1 + np.tanh(x / 2)),
    lambda x, y: 0.5 * (1 + np.tanh(x / 2)) + x * 0.25 / np.cosh(x / 2) ** 2,
)


def relu(x: Any) -> Value:
    (x,) = promoted(x)
    near(x.x, x)
    return elementwise(
        lambda x: np.where(x < 0, x.dtype.type(0), x), (lambda x, y: x > 0,), x, exact=True
    )


def leaky_relu(x: Any, slope: float = 0.01) -> Value:
    x = floating(value(x))
    near(x.x, x)
    return elementwise(
        lambda x: np.where(x > 0, x, slope * x), (lambda x, y: np.where(x > 0, 1, slope),), x
    )


def elu(x: Any, alpha: float = 1.0) -> Value:
    x = floating(value(x))
    near(x.x, x)
    return elementwise(
        lambda x: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
        (lambda x, y: np.where(x > 0, 1, alpha * np.exp(np.minimum(x, 0))),),
        x,
    )


def clip(x: Any, low: float | None, high: float | None) -> Value:
    bounds = [b for b in (low, high) if b is not None]
    x, *_ = promoted(x, *bounds)
    for b in bounds:
        near(x.x - b, x)
    low = -math.inf if low is None else low
    high = math.inf if high is None else high
    inside = lambda x, y: (x >= low) & (x <= high)
    return elementwise(
        lambda x: np.where(x < low, low, np.where(x > high, high, x)).astype(x.dtype),
        (inside,),
        x,
        exact=True,
    )


def power(x: Any, exponent: Any) -> Value:
    if isinstance(exponent, (int, float, np.generic)) and isinstance(x, Value):
        whole = float(exponent).is_integer() and exponent >= 0 and isinstance(exponent, int)
        x = promoted(x)[0] if whole else floating(x)
        slope = lambda x, y: (
            np.zeros(x.shape) if exponent == 0 else exponent * np.power(x, float(exponent - 1))
        )
        return elementwise(lambda x: np.power(x, exponent), (slope,), x)
    x, exponent = floating(value(x)), floating(value(exponent))
    of_x = lambda x, p, y: p * np.power(x, p - 1)
    return elementwise(
        np.power,
        (of_x, lambda x, p, y: np.where(x > 0, y * np.log(np.where(x > 0, x, 1)), 0)),
        x,
        exponent,
    )


def compare(how: Any, x: Any, y: Any) -> Value:
    x, y = promoted(x, y)
    if x.kind == "f":
        near(np.subtract(*aligned(x, y)), x, y)
    return elementwise(how, (None, None), x, y, exact=True)


def masks(how: Any, *args: Value) -> Value:
    if any(a.kind != "b" for a in args):
        raise TypeError("no mask")
    return elementwise(how, (None,) * len(args), *args, exact=True)


def where(mask: Value, x: Any, y: Any) -> Value:
    if mask.kind not in "biu":
        raise TypeError("no mask")
    x, y = promoted(x, y)
    return elementwise(
        lambda m, x, y: np.where(m != 0, x, y),
        (None, lambda m, x, y, z: m != 0, lambda m, x, y, z: m == 0),
        mask,
        x,
        y,
        exact=True,
    )


def cast(x: Value, dtype: Any) -> Value:
    kind = np.dtype(dtype).kind
    if kind == "f":
        return (
            floating(x)
            if x.kind != "f"
            else elementwise(lambda x: x, (lambda x, y: 1,), x, exact=True)
        )
    if x.kind == "f":
        near(x.x if kind == "b" else x.x - np.rint(x.x), x)
    return Value(
        (
            x.x != 0
            if kind == "b"
            else np.trunc(x.x).astype(dtype)
            if x.kind == "f"
            else x.x.astype(dtype)
        ),
        x.rows,
        exact=True,
    )


def stop_gradient(x: Value) -> Value:
    return Value(x.x, x.rows, exact=x.exact)


def dropout(x: Value, rate: float) -> Value:
    if now.sites is not None:
        now.sites += 1
    if not now.training:
        return x
    step, site = (now.key, now.sites) if now.sites is not None else (now.next_key(), 0)
    if rate == 0:
        return x
    ids = now.ids if x.rows else np.arange(x.x.shape[0] if x.x.ndim else 1)
    factor = _drop(np.ones((len(ids), math.prod(x.x.shape[1:]))), ids, step, rate, site).reshape(
        x.x.shape
    )
    return elementwise(lambda x: x * factor, (lambda x, y: factor,), floating(x))


# ---- shapes


def _axes(x: Value, axis: Any) -> tuple[int, ...]:
    width = len(x.dims)
    axes = range(-width, 0) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    found = tuple(sorted({a if a < 0 else a - width for a in axes}))
    if any(not -width <= a < 0 for a in found) or (
        x.rows and (axis is None or any(a >= 0 for a in axes))
    ):
        raise ValueError("no such axis")
    return found


def _kept(x: Value, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if i - x.x.ndim in axes else d for i, d in enumerate(x.x.shape))


def sum(x: Value, axis: Any = -1, keepdims: bool = False) -> Value:
    (x,) = promoted(x)
    axes = _axes(x, axis)
    kept = _kept(x, axes)
    rule = lambda g: np.broadcast_to(g.reshape(kept), x.x.shape)
    y = x.x.sum(axis=axes, keepdims=keepdims)
    cancels(y, np.isnan(x.x).any(axis=axes, keepdims=keepdims))
    return Value(y, x.rows, [(x, rule)], exact=x.exact)


def mean(x: Value, axis: Any = -1, keepdims: bool = False) -> Value:
    size = math.prod(x.dims[a] for a in _axes(x, axis))
    return div(sum(x, axis, keepdims), float(size))


def std(x: Value, axis: Any = -1, keepdims: bool = False) -> Value:
    x = floating(value(x))
    axes = _axes(x, axis)
    kept = x.x.std(axis=axes, keepdims=True)
    near(kept, x)
    gap = x.x - x.x.mean(axis=axes, keepdims=True)
    size = math.prod(x.dims[a] for a in axes)
    slope = np.where(kept > 0, gap, 0) / np.where(kept > 0, kept * size, 1)
    y = kept if keepdims else x.x.std(axis=axes)
    cancels(y, np.isnan(x.x).any(axis=axes, keepdims=keepdims))
    return Value(y, x.rows, [(x, lambda g: g.reshape(kept.shape) * slope)])


def cumsum(x: Value, axis: int = -1) -> Value:
    (x,) = promoted(x)
    y = np.cumsum(x.x, axis=axis)
    cancels(y, np.cumsum(np.isnan(x.x), axis=axis) > 0)
    back = lambda g: np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis)
    return Value(y, x.rows, [(x, back)], exact=x.exact)


def einsum(subscripts: str, x: Any, y: Any) -> Value:
    """Of two values; a letter stands for the rows."""
    values = [floating(value(v)) for v in (x, y)]
    before, _, result = subscripts.partition("->")
    parts = before.split(",")
    out = np.einsum(subscripts, *(v.x for v in values))
    cancels(out, np.full(out.shape, any(np.isnan(v.x).any() for v in values)))

    def rule(i: int) -> Callable[[Any], Any]:
        other = 1 - i
        alone = "".join(a for a in parts[i] if a not in parts[other] + result)
        ones = np.ones([values[i].x.shape[parts[i].index(a)] for a in alone])
        text = f"{result},{parts[other]},{alone}->{parts[i]}"
        return lambda g: np.einsum(text, g, values[other].x, ones)

    return Value(out, any(v.rows for v in values), [(v, rule(i)) for i, v in enumerate(values)])


def max(x: Value, axis: Any = -1, keepdims: bool = False) -> Value:
    x = value(x)
    return _largest(x, _axes(x, axis), keepdims, 1)


def min(x: Value, axis: Any = -1, keepdims: bool = False) -> Value:
    x = value(x)
    return _largest(x, _axes(x, axis), keepdims, -1)


def _largest(x: Value, axes: tuple[int, ...], keepdims: bool, sign: int) -> Value:
    if not axes:
        return x
    others = [i for i in range(x.x.ndim) if i - x.x.ndim not in axes]
    order = others + [i for i in range(x.x.ndim) if i not in others]
    moved = np.transpose(x.x, order)
    flat = moved.reshape(*(x.x.shape[i] for i in others), math.prod(x.x.shape[a] for a in axes))
    which = np.argmax(sign * flat, axis=-1)[..., None]
    if flat.shape[-1] > 1 and flat.size:
        ranked = np.sort(sign * flat.astype(FLOAT), axis=-1)
        near(ranked[..., -1] - ranked[..., -2], x)
    y = np.take_along_axis(flat, which, axis=-1)[..., 0].reshape(_kept(x, axes))

    def rule(g: Any) -> Any:
        out = np.zeros(flat.shape)
        np.put_along_axis(out, which, g.reshape(*flat.shape[:-1], 1), axis=-1)
        return np.transpose(out.reshape(moved.shape), np.argsort(order))

    y = (
        y
        if keepdims
        else y.reshape([d for i, d in enumerate(x.x.shape) if i - x.x.ndim not in axes])
    )
    return Value(y, x.rows, [(x, rule)], exact=x.exact)


def reshape(x: Value, *shape: int) -> Value:
    lead = x.x.shape[:1] if x.rows else ()
    if -1 in shape:
        rest = math.prod(x.dims) // -math.prod(shape)
        shape = tuple(rest if d == -1 else d for d in shape)
    if math.prod(shape) != math.prod(x.dims):
        raise ValueError("another size")
    return Value(
        x.x.reshape(lead + tuple(shape)),
        x.rows,
        [(x, lambda g: g.reshape(x.x.shape))],
        exact=x.exact,
    )


def flatten(x: Value) -> Value:
    return reshape(x, math.prod(x.dims))


def getitem(x: Value, at: Any) -> Value:
    def rule(g: Any) -> Any:
        out = np.zeros(x.x.shape)
        np.add.at(out, at, g)
        return out

    return Value(x.x[at], x.rows, [(x, rule)], exact=x.exact)


def concat(values: Sequence[Any], axis: int = -1) -> Value:
    given = promoted(*values)
    rows = next((v for v in given if v.rows), None)
    parts = []
    for v in given:
        if rows is not None and not v.rows:
            repeated = np.broadcast_to(v.x, (len(rows.x), *v.x.shape))
            v = Value(repeated, True, [(v, lambda g: g.sum(axis=0))], exact=v.exact)
        parts.append(v)
    if any(not -len(v.dims) <= axis < 0 or len(v.dims) != len(parts[0].dims) for v in parts):
        raise ValueError("no such axis")
    ends = np.cumsum([0] + [v.x.shape[axis] for v in parts])

    def rule(i: int) -> Callable[[Any], Any]:
        return lambda g: np.moveaxis(np.moveaxis(g, axis, 0)[ends[i] : ends[i + 1]], 0, axis)

    return Value(
        np.concatenate([v.x for v in parts], axis),
        rows is not None,
        [(v, rule(i)) for i, v in enumerate(parts)],
        exact=all(v.exact for v in parts),
    )


def stack(values: Sequence[Any], axis: int = -1) -> Value:
    parts = []
    for v in map(value, values):
        if not -len(v.dims) - 1 <= axis < 0:
            raise ValueError("no such axis")
        cut = len(v.dims) + 1 + axis
        parts.append(reshape(v, *v.dims[:cut], 1, *v.dims[cut:]))
    return concat(parts, axis)


def matmul(x: Value, w: Any) -> Value:
    x, w = floating(value(x)), floating(value(w))
    if w.rows or not x.dims or not w.dims or x.dims[-1] != w.dims[0]:
        raise ValueError("shapes do not fit")
    y = np.tensordot(x.x, w.x, 1)
    cancels(y, np.tensordot(np.isnan(x.x) * 1.0, np.ones(w.x.shape), 1) > 0)
    many = tuple(range(x.x.ndim - 1))
    of_x = lambda g: np.tensordot(
        g, w.x, (tuple(range(x.x.ndim - 1, g.ndim)), tuple(range(1, w.x.ndim)))
    )
    return Value(y, x.rows, [(x, of_x), (w, lambda g: np.tensordot(x.x, g, (many, many)))])


def linear(x: Value, w: Any, b: Any = None) -> Value:
    return matmul(x, w) if b is None else add(matmul(x, w), b)


def embedding(table: Value, index: Value) -> Value:
    if index.kind not in "iu":
        raise TypeError("no integers")
    size = table.dims[0]
    if index.x.size and not (index.x.min() >= 0 and index.x.max() < size):
        raise ValueError("out of range")
    if table.rows:
        if not index.rows or index.dims:
            raise ValueError("an index for each row")
        at: Any = (np.arange(len(index.x)), index.x)
    else:
        at = index.x

    def rule(g: Any) -> Any:
        out = np.zeros(table.x.shape)
        np.add.at(out, at, g)
        return out

    return Value(table.x[at], index.rows, [(table, rule)], exact=table.exact)


def layer_norm(x: Value, gamma: Any = None, beta: Any = None, eps: float = 1e-5) -> Value:
    x = floating(x)
    if not x.dims:
        raise ValueError("no axis")
    centred = sub(x, mean(x, -1, True))
    y = div(centred, sqrt(add(mean(square(centred), -1, True), eps)))
    y = y if gamma is None else mul(y, gamma)
    return y if beta is None else add(y, beta)


# ---- edges and their destinations


def softmax(x: Value, axis: Any = None) -> Value:
    x = floating(x)
    if axis is not None:
        axes = _axes(x, axis)
        e = np.exp(x.x - x.x.max(axis=axes, keepdims=True))
        p = e / e.sum(axis=axes, keepdims=True)
        return Value(p, x.rows, [(x, lambda g: p * (g - (g * p).sum(axis=axes, keepdims=True)))])
    if not x.rows or now.receivers is None:
        raise TypeError("outside of gather")
    groups = _groups()
    p = np.zeros(x.x.shape)
    for at, w in groups:
        top = x.x[at].max(axis=0)
        # a score of -inf is masked, also where all are
        e = np.exp(x.x[at] - np.where(np.isneginf(top), 0, top))
        mass = (_wide(w, e) * e).sum(axis=0)
        p[at] = e / np.where(mass == 0, 1, mass)

    def rule(g: Any) -> Any:
        out = np.zeros(x.x.shape)
        for at, w in groups:
            out[at] = p[at] * (g[at] - _wide(w, p) * (g[at] * p[at]).sum(axis=0))
        return out

    return Value(p, True, [(x, rule)])


def _groups() -> list[tuple[np.ndarray, np.ndarray]]:
    """The edges of each destination that has some, with their importance weights."""
    assert now.receivers is not None
    found = [np.flatnonzero(now.receivers == v) for v in range(now.n)]
    return [(at, now.scale[at]) for at in found if len(at)]


def _wide(w: np.ndarray, like: np.ndarray) -> np.ndarray:
    return w.reshape(w.shape + (1,) * (like.ndim - 1))


class TopK:
    """The k largest messages."""

    def __init__(self, k: int):
        self.k = k
        self.name = f"top{k}"


def total(how: Any, x: Value) -> Value:
    """The total of the messages of every destination."""
    x = floating(x)
    k = how.k if isinstance(how, TopK) else 0
    out = np.zeros((now.n, *((k,) if k else ()), *x.dims))
    rules: list[tuple[int, np.ndarray, np.ndarray]] = []
    assert now.receivers is not None
    for v in range(now.n):
        at = np.flatnonzero(now.receivers == v)
        if not len(at):
            continue
        m = x.x[at]
        w = _wide(now.scale[at], x.x)
        share = w / w.sum(axis=0)
        if how == "sum":
            out[v], slope = (w * m).sum(axis=0), w * np.ones(m.shape)
        elif how == "mean":
            out[v], slope = (share * m).sum(axis=0), share * np.ones(m.shape)
        elif how in ("var", "std"):
            gap = m - (share * m).sum(axis=0)
            out[v] = (share * gap * gap).sum(axis=0)
            slope = 2 * share * gap
            if how == "std":
                out[v] = root = np.sqrt(out[v])
                same = root <= 1e-12 * (1 + np.abs(m).max(axis=0))
                near(root[~same] * 1e-2)
                if len(at) > 1:
                    # messages that are equal but for rounding have any slope
                    near(root[same] * 1e-2, x)
                slope = np.where(same, 0, slope / (2 * np.where(same, 1, root)))
        else:
            # of equal messages that of the first edge, NaN before all numbers
            rank = np.lexsort((m if how in ("min", "median") else -m, ~np.isnan(m)), axis=0)
            ranked = np.take_along_axis(m, rank, axis=0)
            if len(at) > 1:
                gaps = np.diff(np.sort(m, axis=0), axis=0)
                near(gaps[gaps > 0])
                now.tied |= x.learned and not gaps.all()
                if not x.exact and _equal_by_chance(m, now.senders[at]):
                    now.margin = 0
            places = (
                [(len(at) - 1) // 2]
                if how == "median"
                else range(builtins.min(builtins.max(k, 1), len(at)))
            )
            slope = np.zeros(m.shape)
            for i, place in enumerate(places):
                one = np.zeros(m.shape)
                np.put_along_axis(
                    one,
                    (
                        _first_of_equals(m, ranked[place], rank[place])
                        if how == "median"
                        else rank[place : place + 1]
                    ),
                    1,
                    axis=0,
                )
                if k:
                    out[v, i] = ranked[place]
                    rules.append(
                        (
                            v,
                            at,
                            one[:, None] * (np.arange(k) == i).reshape(1, k, *(1,) * (m.ndim - 1)),
                        )
                    )
                else:
                    out[v] = ranked[place]
                    slope = one
                if how == "median":
                    out[v] = np.where(np.isnan(m).any(axis=0), np.nan, out[v])
        if not k:
            rules.append((v, at, slope))

    def rule(g: Any) -> Any:
        back = np.zeros(x.x.shape)
        for v, at, slope in rules:
            back[at] += (slope * g[v]).sum(axis=1) if k else slope * g[v]
        return back

    return Value(out, True, [(x, rule)])


def _equal_by_chance(m: np.ndarray, senders: np.ndarray) -> bool:
    """Whether messages of different nodes are equal: products of equal rows may differ in the last
    bit.

    Only 0 is certain, as ``relu`` makes it.
    """
    order = np.argsort(m, axis=0, kind="stable")
    ranked = np.take_along_axis(m, order, axis=0)
    equal = (np.diff(ranked, axis=0) == 0) & (ranked[1:] != 0)
    return bool((equal & (np.diff(senders[order], axis=0) != 0)).any())


def _first_of_equals(m: np.ndarray, wanted: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The first edge whose message is the wanted one."""
    return np.where(np.isnan(wanted), known, np.argmax(m == wanted, axis=0))[None]


# ---- layers


class Columns:
    """Values by name."""

    def __init__(self, **values: Any):
        self.__dict__.update(values)


def at_nodes(graph: Graph) -> None:
    """Go on with values of nodes."""
    now.ids = np.arange(graph.n)
    now.sites = None
    now.receivers = None


def at_edges(graph: Graph, columns: Mapping[str, Value], direction: str | None) -> Columns:
    """Go on with values of edges; returns the argument of gather.

    Edges of both directions are those along the edges, then the others; without a direction, those
    that a decoder scores.
    """
    used = graph.pairs if direction is None else graph.kept
    passes = [p for p in (("in", 0), ("out", 1)) if direction in (p[0], "both")] or [("in", 0)]
    forth = graph.src[used], graph.dst[used]
    ends = [forth if d == "in" else forth[::-1] for d, _ in passes]
    senders, receivers = (np.concatenate([e[i] for e in ends]) for i in (0, 1))
    ids = np.tile(used, len(passes))
    of = lambda rows: Columns(**{n: _rows(v, rows) for n, v in columns.items()})
    edges = {n: _rows(v, ids) for n, v in graph.edges.items()}
    backwards = np.repeat(np.array([r for _, r in passes], np.int32), len(used))
    if now.training:
        now.key = now.next_key()
    now.senders = senders
    now.ids = ids
    now.sites = 0
    now.receivers = None if direction is None else receivers
    now.scale = graph.scale[ids]
    now.n = graph.n
    return Columns(
        src=of(senders), dst=of(receivers), reversed=Value(backwards, True, exact=True), **edges
    )


def named(sums: Any) -> dict[str, Any]:
    """The sums of a layer by name; a single one has the name ""."""
    name = lambda how: how.name if isinstance(how, TopK) else how
    if isinstance(sums, (str, TopK, Accumulator)):
        return {"": sums}
    return sums if isinstance(sums, dict) else {name(how): how for how in sums}


def accumulated(sums: Any, messages: Any, edge: Any) -> dict[str, Any]:
    """What sums have added up, by name, before accumulators go on with it at the nodes."""
    each = messages if isinstance(messages, dict) else dict.fromkeys(named(sums), messages)
    return {
        name: how.taken(edge, each[name])
        if isinstance(how, Accumulator)
        else total(how, each[name])
        for name, how in named(sums).items()
    }


def totals_of(sums: Any, found: dict[str, Any], node: Any) -> Any:
    """The total, or the totals by name, of what was added up."""
    each = {
        name: how.ended(node, found[name]) if isinstance(how, Accumulator) else found[name]
        for name, how in named(sums).items()
    }
    return each[""] if "" in each else Columns(**each)


class Module:
    """Has parameters among its attributes."""

    def parameters(self, path: str = "") -> dict[str, Value]:
        """All parameters by name."""
        found: dict[str, Value] = {}
        for name, x in vars(self).items():
            inside = x.items() if isinstance(x, dict) else [("", x)]
            for part, y in inside:
                where = ".".join(filter(None, (path, name, part)))
                if isinstance(y, Module):
                    found |= y.parameters(where)
                elif isinstance(y, Value):
                    found[where] = y
        return found


class Model(Module):
    """A model."""


# ---- accumulators


class Accumulator(Module):
    """A sum with a function of each message before it, and one of the total after it."""

    def before(self, edge: Any, message: Value) -> Any:
        return message

    def after(self, node: Any, total: Any) -> Value:
        return total

    def taken(self, edge: Any, message: Value) -> Any:
        """What is accumulated of the messages of the edges."""
        raise NotImplementedError

    def ended(self, node: Any, found: Any) -> Value:
        """The total of what was accumulated."""
        raise NotImplementedError


class Pooling(Accumulator):
    """Sums in any order."""

    sum: Any = "sum"

    def taken(self, edge: Any, message: Value) -> Any:
        return accumulated(self.sum, self.before(edge, message), edge)

    def ended(self, node: Any, found: Any) -> Value:
        return self.after(node, totals_of(self.sum, found, node))


class Ordered(Accumulator):
    """Sums that take the messages of a node by a column of their edges, and then by their ids."""

    def __init__(self, order: str | None = None):
        self.by = order

    def order(self, edge: Any) -> Any:
        if self.by is None:
            return None
        end, _, column = self.by.rpartition(".")
        return getattr(getattr(edge, end) if end else edge, column)

    def taken(self, edge: Any, message: Value) -> Any:
        x = self.before(edge, message)
        key = self.order(edge)
        assert now.receivers is not None
        ends: dict[str, list[tuple[int, Value]]] = {}
        for v in range(now.n):
            at = np.flatnonzero(now.receivers == v)
            if key is not None:
                at = at[np.argsort(key.x[at], kind="stable")]
            if len(at):
                for name, end in self.folded([_rows(x, at[i : i + 1]) for i in range(len(at))]):
                    ends.setdefault(name, []).append((v, end))
        if not ends:
            # what there would be, without messages
            none = np.zeros((1, *x.dims))
            ends = {name: [(-1, end)] for name, end in self.folded([Value(none, True)])}
        return {name: _placed(each) for name, each in ends.items()}

    def folded(self, messages: list[Value]) -> list[tuple[str, Value]]:
        """What one node ends with."""
        raise NotImplementedError

    def ended(self, node: Any, found: Any) -> Value:
        return self.after(node, found[""] if "" in found else Columns(**found))


def _placed(each: list[tuple[int, Value]]) -> Value:
    """Values of some nodes, [1, ...] each, among those of all nodes; of node -1, nowhere."""
    first = each[0][1]
    out = np.zeros((now.n, *first.dims), first.dtype)
    for v, x in each:
        if v >= 0:
            out[v] = x.x[0]
    rule = lambda v: lambda g: g[v : v + 1] if v >= 0 else np.zeros((1, *g.shape[1:]))
    return Value(out, True, [(x, rule(v)) for v, x in each])


class Recurrent(Ordered):
    """Steps from a state and a message to the next state."""

    def step(self, state: Any, message: Value) -> Any:
        raise NotImplementedError

    def folded(self, messages: list[Value]) -> list[tuple[str, Value]]:
        state = None
        for x in messages:
            state = self.step(state, x)
        return list(state.items()) if isinstance(state, dict) else [("", value(state))]


class Concat(Ordered):
    """The first k messages."""

    def __init__(self, k: int, order: str | None = None):
        super().__init__(order)
        self.k = k

    def folded(self, messages: list[Value]) -> list[tuple[str, Value]]:
        some = [*messages, *[mul(messages[0], 0.0)] * self.k][: self.k]
        return [("", stack(some, -1 - len(some[0].dims)))]


class LSTM(Recurrent):
    """W x + U h + b for the gates i, f, g, o; the text of a program gives the parameters."""

    weight: Value
    recurrent: Value
    bias: Value

    def __init__(self, d_in: int, d_out: int, order: str | None = None):
        super().__init__(order)
        self.d = d_out

    def step(self, state: Any, message: Value) -> Any:
        zero = Value(np.zeros((1, self.d)), True, exact=True)
        h, c = (zero, zero) if state is None else (state["h"], state["c"])
        z = matmul(message, self.weight) + matmul(h, self.recurrent) + self.bias
        i, f, g, o = (z[:, k] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        return {"h": sigmoid(o) * tanh(c), "c": c}

    def after(self, node: Any, total: Any) -> Value:
        return total.h


class GRU(Recurrent):
    """The GRU of PyTorch, whose reset gate follows the product."""

    weight: Value
    recurrent: Value
    bias: Value
    inner: Value

    def __init__(self, d_in: int, d_out: int, order: str | None = None):
        super().__init__(order)
        self.d = d_out

    def step(self, state: Any, message: Value) -> Any:
        h = Value(np.zeros((1, self.d)), True, exact=True) if state is None else state
        x = matmul(message, self.weight) + self.bias
        u = matmul(h, self.recurrent)
        r = sigmoid(x[:, 0] + u[:, 0])
        z = sigmoid(x[:, 1] + u[:, 1])
        new = tanh(x[:, 2] + r * (u[:, 2] + self.inner))
        return (1 - z) * new + z * h


class AttentionPooling(Pooling):
    """softmax(a x) W x of several heads."""

    weight: Value
    score: Value

    def __init__(self, d_in: int, d_out: int, heads: int = 1):
        pass

    def before(self, edge: Any, message: Value) -> Value:
        return softmax(matmul(message, self.score)) * matmul(message, self.weight)

    def after(self, node: Any, total: Any) -> Value:
        return flatten(total)


class GatedPooling(Pooling):
    """Attention by v tanh(A x + B h), then the gates of GeniePath."""

    sender: Value
    receiver: Value
    score: Value
    weight: Value
    gates: Value
    bias: Value

    def __init__(self, d_in: int, d_out: int, d_node: int):
        pass

    def before(self, edge: Any, message: Value) -> Value:
        both = tanh(matmul(message, self.sender) + matmul(edge.dst.h, self.receiver))
        return softmax(matmul(both, self.score)[:, 0]) * message

    def after(self, node: Any, total: Any) -> Value:
        z = matmul(tanh(matmul(total, self.weight)), self.gates) + self.bias
        return sigmoid(z[:, 1]) * tanh(sigmoid(z[:, 0]) * tanh(z[:, 2]))


class Layer(Module):
    """A layer, which runs on a ``Graph``."""

    direction = "in"
    sum: Any = "sum"

    def transform(self, node: Any) -> dict[str, Value]:
        return {"h": node.h}

    def gather(self, edge: Any) -> Any:
        return edge.src.h

    def apply(self, node: Any, total: Any) -> Any:
        return total

    def __call__(self, graph: Graph, h: Value) -> Value:
        at_nodes(graph)
        columns = {**graph.nodes, "h": h}
        columns |= self.transform(Columns(**columns))
        if self.sum is None:
            return self.gather(at_edges(graph, columns, None))
        edge = at_edges(graph, columns, self.direction)
        returned = self.gather(edge)
        messages, outputs = returned if isinstance(returned, tuple) else (returned, {})
        graph.edges = {**graph.edges, **graph.stored(outputs)}
        found = accumulated(self.sum, messages, edge)
        at_nodes(graph)
        node = Columns(**columns)
        return self.apply(node, totals_of(self.sum, found, node))


def _rows(x: Value, rows: np.ndarray) -> Value:
    """A row of a value for each edge."""

    def rule(g: Any) -> Any:
        out = np.zeros(x.x.shape)
        np.add.at(out, rows, g)
        return out

    return Value(x.x[rows], True, [(x, rule)], exact=x.exact)


class Graph:
    """A graph with columns as values.

    Attributes:
        scale: Importance weight of each edge.
        seen: Whether a node is in the view.
        kept: Numbers of the edges that messages run along.
        pairs: Numbers of the edges that decoders score; they leave out every third.
    """

    def __init__(
        self,
        n: int,
        src: np.ndarray,
        dst: np.ndarray,
        nodes: Mapping[str, Value],
        edges: Mapping[str, Value],
        scale: np.ndarray,
        seen: np.ndarray | None = None,
        kept: np.ndarray | None = None,
    ):
        self.seen = np.ones(n, bool) if seen is None else seen
        inside = self.seen[src] & self.seen[dst]
        self.kept = np.flatnonzero(inside if kept is None else inside & kept)
        self.pairs = np.flatnonzero(inside & (np.arange(len(src)) % 3 != 2))
        self.n = n
        self.src = src
        self.dst = dst
        self.scale = scale
        degree = lambda end: Value(np.bincount(end, minlength=n).astype(FLOAT), True, exact=True)
        self.nodes = {**nodes, "in_degree": degree(dst), "out_degree": degree(src)}
        self.edges = dict(edges)
        self.x = self.nodes["x"]

    def stored(self, outputs: Mapping[str, Value]) -> dict[str, Value]:
        """New edge values, with rows for edges of which there are none."""
        return {
            name: _spread(v, self.kept, len(self.src)) if len(self.kept) < len(self.src) else v
            for name, v in outputs.items()
        }


def _spread(x: Value, rows: np.ndarray, n: int) -> Value:
    """A value of n rows, of which some are given."""
    out = np.zeros((n, *x.dims), x.dtype)
    out[rows] = x.x
    return Value(out, True, [(x, lambda g: g[rows])], exact=x.exact)
