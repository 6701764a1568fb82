"""The table of operations: each function of gt with arguments, its twin in NumPy and its types.

A new operation gets a case here; ``test_table.py`` makes all tests from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import special

import graphtheta.ops as gt
from graphtheta.ops import Parameter

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def normal(rng, shape):
    return rng.normal(size=shape)


def positive(rng, shape):
    return rng.uniform(0.5, 2.0, size=shape)


def mask(rng, shape):
    return rng.random(shape) < 0.5


def below(k: int) -> Draw:
    return lambda rng, shape: rng.integers(0, k, shape)


@dataclass(frozen=True)
class Rows:
    """An argument with a number, or an array of a shape, for each row."""

    shape: tuple[int, ...] = ()
    draw: Draw = normal


@dataclass(frozen=True)
class Whole:
    """A parameter, or a constant if it is not made of floats: one array for all rows."""

    shape: tuple[int, ...] = ()
    draw: Draw = normal


@dataclass(frozen=True)
class Case:
    """One way to call an operation.

    Attributes:
        ours: Called with values of gt.
        twin: Called with arrays of NumPy in float64, rows first. Those of ``aligned`` operations
            have as many axes after the rows as the longest.
        args: ``Rows`` and ``Whole``.
        types: The result for integers and masks: "float" (of the job), "same" or "first" (as the
            arguments, or the first of them), "branches" (as those after a mask), "arithmetic"
            (NumPy's, where masks count as int32), "weak" (NumPy's with a Python integer), "sum"
            (NumPy's sum), "exact" (int64) or a type, also of floats; or what it takes alone,
            "floats" or "masks".
        slope: Whether gradients flow.
        gather: Whether ``gather`` may use it.
        n: The number of rows it is made for; 0 for any.
        aligned: Whether arguments are brought to one shape.
        special: Whether it takes infinity and NaN as NumPy does.
    """

    ours: Callable[..., Any]
    twin: Callable[..., Any]
    args: tuple[Rows | Whole, ...]
    types: str = "float"
    slope: bool = True
    gather: bool = True
    n: int = 0
    aligned: bool = False
    special: bool = False


VECTOR, MATRIX = Rows((3,)), Rows((2, 3))
UNARY = ((Rows(),), (VECTOR,), (MATRIX,), (Rows((2, 1, 3)),), (Whole((2, 3)),), (Whole(),))
PAIRS = (
    (Rows(), Rows()),
    (MATRIX, MATRIX),
    (Rows((2,)), MATRIX),
    (Rows((2, 1)), MATRIX),
    (MATRIX, Rows((1, 3))),
    (Rows((2, 1, 3)), Rows((2, 4, 1))),
    (VECTOR, Whole()),
    (VECTOR, Whole((3,))),
    (Whole((3,)), MATRIX),
    (MATRIX, Whole((2, 3))),
    (Rows((2, 1)), Whole((2, 3))),
    (Rows(), Whole((3,))),
    (Whole((4, 1)), Whole((3,))),
)


def each(ours, twin, choices, **facts):
    """A case for each choice of arguments."""
    return tuple(Case(ours, twin, args, **facts) for args in choices)


def elementwise(ours, twin, draw=normal, types="float", special=True, **facts):
    return each(
        ours,
        twin,
        [tuple(replace(a, draw=draw) for a in args) for args in UNARY],
        types=types,
        special=special,
        **facts,
    )


def of_two(ours, twin, draw=normal, types="arithmetic", special=True, **facts):
    choices = [tuple(replace(a, draw=draw) for a in args) for args in PAIRS]
    return each(ours, twin, choices, types=types, special=special, aligned=True, **facts)


def reduced(ours, twin, types, **facts):
    """A reduction over trailing axes, here with one and several, in the middle, and kept."""
    ways = (
        (VECTOR, -1, False),
        (MATRIX, -2, False),
        (MATRIX, (-2, -1), True),
        (Rows((2, 1, 3)), (-3, -1), False),
        (Whole((2, 3)), -2, True),
    )
    return tuple(
        Case(
            lambda x, a=axis, k=kept: ours(x, a, k),
            lambda x, a=axis, k=kept: twin(x, axis=a, keepdims=k),
            (arg,),
            types=types,
            special=True,
            **facts,
        )
        for arg, axis, kept in ways
    )


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def gelu(x):
    # the limit at -inf, where the product is NaN, is not taken
    return x * 0.5 * (1 + special.erf(x / np.sqrt(2)))


def layer_norm(x, gamma=1.0, beta=0.0):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gamma + beta


def joined(axis):
    return lambda *xs: np.concatenate(repeated(xs, axis), axis)


def stacked(axis):
    return lambda *xs: np.stack(repeated(xs, axis), axis)


def repeated(xs, axis):
    """Values without rows, repeated for those of the others; the first has rows."""
    return [x if x.ndim == xs[0].ndim else np.broadcast_to(x, (len(xs[0]), *x.shape)) for x in xs]


def segments(how):
    """A reduction of consecutive rows by their bounds; 0 where there are none."""

    def twin(x, bounds):
        parts = [x[a:b] for a, b in pairwise(bounds)]
        return np.stack([how(p) if len(p) else np.zeros_like(how(x)) for p in parts])

    return twin


def share(terms, counted):
    """The mean of the terms that count."""
    return np.asarray(terms[counted].mean() if counted.any() else 0.0)


def cross_entropy(x, y):
    return share(
        special.logsumexp(x, axis=-1) - np.take_along_axis(x, np.maximum(y, 0)[:, None], -1)[:, 0],
        y >= 0,
    )


def in_evaluation(x, gamma, beta):
    return x / np.sqrt(1 + 1e-5) * gamma + beta


BOUNDS = np.array([0, 2, 2, 3, 5])
KEYS = (
    (..., 0),
    (..., -1),
    (..., slice(1, None)),
    (..., [0, -3]),
    (..., [2, 0, 2]),
    (..., [True, False, True]),
    (..., None),
    (slice(None), None, [-1, 1]),
    (..., slice(None, None, -1)),
    (..., []),
    (..., np.array([True, True, False])),
    (..., slice(None, 2)),
    (slice(None), slice(None)),
    ...,
)
# of rows with two axes
LONGER_KEYS = (
    (..., 0, slice(None)),
    (slice(None), 1),
    (slice(None), None, 1),
    (..., [1, -1], slice(None)),
)
CODES = Rows((), below(4))
FIVE = {"n": 5, "gather": False}

TABLE: dict[str, tuple[Case, ...]] = {
    # ---- of two values
    "add": (
        of_two(gt.add, np.add)
        + of_two(lambda x, y: x + y, np.add)[:2]
        + elementwise(lambda x: 2 + x, lambda x: 2 + x, types="weak")
    ),
    "sub": (
        of_two(gt.sub, np.subtract) + elementwise(lambda x: 1 - x, lambda x: 1 - x, types="weak")
    ),
    "mul": of_two(gt.mul, np.multiply) + elementwise(lambda x: x * 0.5, lambda x: x * 0.5),
    "div": (
        of_two(gt.div, np.true_divide, positive, "float")
        + elementwise(lambda x: 1 / x, lambda x: 1 / x, positive)
    ),
    "maximum": (
        of_two(gt.maximum, np.maximum)
        + elementwise(lambda x: gt.maximum(x, 1), lambda x: np.maximum(x, 1), types="weak")
    ),
    "minimum": (
        of_two(gt.minimum, np.minimum)
        + elementwise(lambda x: gt.minimum(x, 0.5), lambda x: np.minimum(x, 0.5))
    ),
    "power": (
        *of_two(gt.power, np.power, positive, "float", special=False),
        *(
            c
            for e in (2, 3, 0, 1)
            for c in elementwise(lambda x, e=e: x**e, lambda x, e=e: x**e, types="arithmetic")[:3]
        ),
        *(
            c
            for e in (-1, 0.5, 2.0, -1.5, np.inf)
            for c in elementwise(
                lambda x, e=e: gt.power(x, e),
                lambda x, e=e: x ** float(e),
                positive,
                slope=e < np.inf,
            )[:2]
        ),
    ),
    "less": of_two(lambda x, y: x < y, np.less, types="bool", slope=False),
    "less_equal": of_two(lambda x, y: x <= y, np.less_equal, types="bool", slope=False),
    "equal": of_two(lambda x, y: x == y, np.equal, below(3), "bool", slope=False),
    "unequal": of_two(lambda x, y: x != y, np.not_equal, below(3), "bool", slope=False),
    "logical_and": of_two(
        lambda x, y: x & y, np.logical_and, mask, "masks", special=False, slope=False
    ),
    "logical_or": of_two(
        lambda x, y: x | y, np.logical_or, mask, "masks", special=False, slope=False
    ),
    "logical_not": elementwise(
        lambda x: ~x, np.logical_not, mask, "masks", special=False, slope=False
    ),
    "where": (
        *each(
            gt.where,
            np.where,
            [
                (Rows((2, 1), mask), MATRIX, Whole((3,))),
                (Rows((3,), mask), Whole(), VECTOR),
                (Rows((3,), below(2)), VECTOR, VECTOR),
                (Rows((), mask), MATRIX, Rows((2,))),
            ],
            types="branches",
            aligned=True,
        ),
        Case(
            lambda x: gt.where(x > 0, x, 0.0),
            lambda x: np.where(x > 0, x, 0.0),
            (VECTOR,),
            special=True,
        ),
    ),
    # ---- of one value
    "neg": elementwise(gt.neg, np.negative, types="arithmetic"),
    "exp": elementwise(gt.exp, np.exp),
    "log": elementwise(gt.log, np.log, positive),
    "sqrt": elementwise(gt.sqrt, np.sqrt, positive),
    "sin": elementwise(gt.sin, np.sin),
    "cos": elementwise(gt.cos, np.cos),
    "square": elementwise(gt.square, np.square, types="arithmetic"),
    "absolute": elementwise(gt.absolute, np.abs, types="arithmetic"),
    "relu": elementwise(gt.relu, lambda x: np.maximum(x, 0), types="arithmetic"),
    "sigmoid": elementwise(gt.sigmoid, special.expit),
    "tanh": elementwise(gt.tanh, np.tanh),
    "softplus": elementwise(gt.softplus, lambda x: np.logaddexp(x, 0)),
    "gelu": elementwise(gt.gelu, gelu),
    "silu": elementwise(gt.silu, lambda x: x * special.expit(x)),
    "leaky_relu": (
        *elementwise(gt.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x)),
        *(
            c
            for s in (-2, np.inf)
            for c in elementwise(
                lambda x, s=s: gt.leaky_relu(x, s),
                lambda x, s=s: np.where(x > 0, x, s * x),
                special=s == -2,
                slope=s == -2,
            )[:2]
        ),
    ),
    "elu": elementwise(
        lambda x: gt.elu(x, 1.3), lambda x: np.where(x > 0, x, 1.3 * np.expm1(np.minimum(x, 0)))
    ),
    "clip": tuple(
        c
        for low, high in (
            (-0.5, 0.5),
            (None, 0.25),
            (2.0, 1.0),
            (-np.inf, 0.1),
            (np.inf, None),
            (np.nan, 1.0),
            (0.0, np.nan),
        )
        for c in elementwise(
            lambda x, a=low, b=high: gt.clip(x, a, b),
            lambda x, a=low, b=high: np.clip(x, a, b),
            slope=low in (None, -0.5),
        )[:2]
    )
    + elementwise(lambda x: gt.clip(x, -1, 2), lambda x: np.clip(x, -1, 2), types="arithmetic"),
    "stop_gradient": elementwise(gt.stop_gradient, np.copy, types="same", slope=False),
    "cast": (
        tuple(
            c
            for t in ("float64", "float32")
            for c in elementwise(lambda x, t=t: gt.cast(x, t), lambda x, t=t: x.astype(t), types=t)[
                :2
            ]
        )
        + tuple(
            c
            for t in (
                "bool",
                "int8",
                "uint8",
                "int16",
                "uint16",
                "int32",
                "uint32",
                "int64",
                "uint64",
            )
            for c in elementwise(
                lambda x, t=t: gt.cast(x, t),
                lambda x, t=t: x.astype(t),
                positive,
                t,
                special=False,
                slope=False,
            )[:2]
        )
    ),
    # ---- over trailing axes
    "sum": reduced(gt.sum, np.sum, "sum"),
    "mean": reduced(gt.mean, np.mean, "float"),
    "max": reduced(gt.max, np.max, "same"),
    "min": reduced(gt.min, np.min, "same"),
    "std": reduced(gt.std, np.std, "float"),
    "cumsum": tuple(
        Case(
            lambda x, a=axis: gt.cumsum(x, a),
            lambda x, a=axis: np.cumsum(x, a),
            (arg,),
            types="sum",
            special=True,
        )
        for arg, axis in (
            (VECTOR, -1),
            (MATRIX, -1),
            (MATRIX, -2),
            (Rows((2, 1, 3)), -2),
            (Rows((0,)), -1),
            (Whole((2, 3)), -2),
        )
    ),
    "einsum": tuple(
        Case(
            lambda *xs, s=subscripts: gt.einsum(s, *xs),
            lambda *xs, s=subscripts: np.einsum(s, *xs),
            args,
            types="float",
        )
        for subscripts, args in (
            ("...d,de->...e", (VECTOR, Whole((3, 2)))),
            ("...hd,hde->...he", (MATRIX, Whole((2, 3, 4)))),
            ("nhd,hd->nh", (MATRIX, Whole((2, 3)))),
            ("nhd,nhd->nh", (MATRIX, MATRIX)),
            ("ni,nj->nji", (VECTOR, Rows((2,)))),
            ("...hd->...dh", (MATRIX,)),
            ("...hd->...h", (MATRIX,)),
            ("ed,...hd->...eh", (Whole((4, 3)), MATRIX)),
            ("...hd,hdef->...fe", (MATRIX, Whole((2, 3, 2, 4)))),
            ("...ab,bc,...ac->...", (MATRIX, Whole((3, 2)), Rows((2, 2)))),
            ("nabc,cad->nbd", (Rows((2, 1, 3)), Whole((3, 2, 2)))),
            ("n,->n", (Rows(), Whole())),
            ("ab,bc->ca", (Whole((2, 3)), Whole((3, 4)))),
            ("...d,...e,de->...", (VECTOR, Rows((2,)), Whole((3, 2)))),
        )
    ),
    "softmax": (
        Case(lambda x: gt.softmax(x, axis=-1), softmax, (VECTOR,)),
        Case(lambda x: gt.softmax(x, (-2, -1)), lambda x: softmax(x, (-2, -1)), (MATRIX,)),
    ),
    "log_softmax": each(
        gt.log_softmax,
        lambda x: np.log(softmax(x)),
        [(VECTOR,), (MATRIX,), (Whole((3,)),)],
        gather=False,
    ),
    "layer_norm": (
        Case(gt.layer_norm, layer_norm, (VECTOR,)),
        Case(gt.layer_norm, layer_norm, (MATRIX, Whole((3,)), Whole((3,)))),
    ),
    # ---- shapes
    "reshape": (
        Case(
            lambda x: gt.reshape(x, 3, -1),
            lambda x: x.reshape(len(x), 3, 2),
            (MATRIX,),
            types="same",
        ),
        Case(lambda x: gt.reshape(x, -1), lambda x: x.reshape(6), (Whole((2, 3)),), types="same"),
    ),
    "flatten": each(
        gt.flatten,
        lambda x: x.reshape(len(x), int(np.prod(x.shape[1:]))),
        [(Rows(),), (VECTOR,), (MATRIX,)],
        types="same",
    ),
    "expand_last": each(
        lambda x: gt.expand_last(x, 2),
        lambda x: x[..., None, None],
        [(Rows(),), (VECTOR,), (Whole((3,)),)],
        types="same",
    ),
    "broadcast_to": (
        Case(
            lambda x: gt.broadcast_to(x, 2, 3),
            lambda x: np.broadcast_to(x, (len(x), 2, 3)),
            (Rows((1, 3)),),
            types="same",
        ),
        Case(
            lambda x: gt.broadcast_to(x, 2, 3),
            lambda x: np.broadcast_to(x, (2, 3)),
            (Whole((3,)),),
            types="same",
        ),
    ),
    "repeat_rows": each(
        gt.repeat_rows,
        lambda x, y: np.broadcast_to(x, (len(y), *x.shape)),
        [(Whole((2, 3)), VECTOR), (Whole(), Rows())],
        types="first",
    ),
    "concat": (
        Case(lambda x, y: gt.concat([x, y]), joined(-1), (VECTOR, Rows((2,))), types="same"),
        Case(
            lambda x, y: gt.concat([x, y], -2),
            joined(-2),
            (MATRIX, Rows((1, 3))),
            types="same",
        ),
        Case(lambda x, y: gt.concat([x, y]), joined(-1), (VECTOR, Whole((2,))), types="same"),
    ),
    "stack": (
        Case(lambda x, y: gt.stack([x, y]), stacked(-1), (VECTOR, VECTOR), types="same"),
        Case(
            lambda x, y: gt.stack([x, y], -2),
            stacked(-2),
            (VECTOR, Whole((3,))),
            types="same",
        ),
        Case(
            lambda x: gt.stack([x, 1.0, x]),
            lambda x: np.stack([x, np.ones_like(x), x], -1),
            (Rows(),),
        ),
    ),
    "getitem": (
        *(
            Case(lambda x, k=key: x[k], lambda x, k=key: x[k], (arg,), types="same")
            for key in KEYS
            for arg in (VECTOR, Rows((2, 3)))
        ),
        *(
            Case(lambda x, k=key: x[k], lambda x, k=key: x[k], (MATRIX,), types="same")
            for key in LONGER_KEYS
        ),
        *(
            Case(lambda x, k=key: x[k], lambda x, k=key: x[k], (Whole((3,)),), types="same")
            for key in ([0, -3], [-1, -1, 2], 1, slice(None, 2))
        ),
    ),
    "prefix": (Case(lambda x: gt.prefix(x, 3), lambda x: x[:3], (MATRIX,), types="same", **FIVE),),
    # ---- products and tables
    "matmul": each(
        gt.matmul,
        lambda x, w: np.tensordot(x, w, 1),
        [
            (VECTOR, Whole((3, 2))),
            (MATRIX, Whole((3, 2, 4))),
            (VECTOR, Whole((3,))),
            (Whole((2, 3)), Whole((3, 2))),
        ],
        types="arithmetic",
    ),
    "linear": each(
        gt.linear,
        lambda x, w, b: x @ w + b,
        [(VECTOR, Whole((3, 2)), Whole((2,)))],
        types="arithmetic",
    ),
    "to_dense": (Case(gt.to_dense, np.copy, (VECTOR,), types="same"),),
    "embedding": (
        *each(
            gt.embedding,
            lambda t, i: t[i],
            [
                (Whole((4, 3)), CODES),
                (Whole((4,)), Rows((2,), below(4))),
                (Whole((4, 2, 3)), CODES),
            ],
            types="first",
        ),
        # edges read such tables as columns alone
        Case(
            gt.embedding,
            lambda t, i: t[np.arange(len(t)), i],
            (Rows((4, 3)), CODES),
            types="first",
            gather=False,
        ),
    ),
    "typed_matmul": each(
        gt.typed_matmul,
        lambda x, w, i: np.einsum("nd,ndk->nk", x, w[i]),
        [
            (VECTOR, Whole((4, 3, 2)), CODES),
            (Rows((0,)), Whole((4, 0, 2)), CODES),
            (VECTOR, Whole((4, 3, 0)), CODES),
        ],
        types="arithmetic",
        gather=False,
    ),
    "pick": (
        Case(
            gt.pick,
            lambda x, i: x[np.arange(len(x)), i],
            (Rows((4,)), CODES),
            types="first",
            gather=False,
        ),
    ),
    # ---- random, and over all rows
    "dropout": (
        Case(lambda x: gt.dropout(x, 0.5), np.copy, (MATRIX,)),
        Case(lambda x: gt.dropout(x, 1e-30), np.copy, (VECTOR,)),
    ),
    "batch_norm": (
        Case(
            lambda x, a, b: gt.batch_norm(x, a, b, gt.RunningStats(3)),
            in_evaluation,
            (VECTOR, Whole((3,)), Whole((3,))),
            types="floats",
            gather=False,
        ),
    ),
    "graph_sum": each(
        gt.graph_sum, lambda x: x.sum(0), [(Rows(),), (MATRIX,)], types="exact", gather=False
    ),
    "graph_mean": each(
        gt.graph_mean, lambda x: x.sum(0) / max(1, len(x)), [(Rows(),), (MATRIX,)], gather=False
    ),
    "segment_sum": each(
        lambda x: gt.segment_sum(x, BOUNDS),
        lambda x: segments(lambda p: p.sum(0))(x, BOUNDS),
        [(Rows(),), (MATRIX,)],
        types="sum",
        **FIVE,
    ),
    "segment_mean": each(
        lambda x: gt.segment_mean(x, BOUNDS),
        lambda x: segments(lambda p: p.mean(0))(x, BOUNDS),
        [(Rows(),), (MATRIX,)],
        **FIVE,
    ),
    "segment_max": each(
        lambda x: gt.segment_max(x, BOUNDS),
        lambda x: segments(lambda p: p.max(0))(x, BOUNDS),
        [(Rows(),), (MATRIX,)],
        types="same",
        special=True,
        **FIVE,
    ),
    "segment_min": each(
        lambda x: gt.segment_min(x, BOUNDS),
        lambda x: segments(lambda p: p.min(0))(x, BOUNDS),
        [(Rows(),), (MATRIX,)],
        types="same",
        special=True,
        **FIVE,
    ),
    "segment_softmax": each(
        lambda x: gt.segment_softmax(x, BOUNDS),
        lambda x: np.concatenate([softmax(x[a:b], 0) for a, b in pairwise(BOUNDS) if b > a]),
        [(Rows(),), (MATRIX,)],
        **FIVE,
    ),
    # ---- losses
    "softmax_cross_entropy": (
        Case(
            gt.softmax_cross_entropy,
            cross_entropy,
            (Rows((4,)), CODES),
            gather=False,
        ),
    ),
    "binary_cross_entropy": (
        Case(
            gt.binary_cross_entropy,
            lambda x, y: share(np.logaddexp(0, x) - x * y, np.full(x.shape, True)),
            (VECTOR, Rows((3,), mask)),
            gather=False,
        ),
    ),
    "mean_squared_error": (
        Case(
            gt.mean_squared_error,
            lambda x, y: share((x - y) ** 2, np.full(x.shape, True)),
            (VECTOR, Rows((3,), below(5))),
            gather=False,
        ),
    ),
}
NAN = np.nan
# gradients where a function has a kink, a pole or equal numbers: the function, its twin in PyTorch
# (None where that shares the gradient out), points and gradients
KINKS = {
    "relu": (gt.relu, lambda t: t.relu(), [0.0, 1.0], [0, 1]),
    "absolute": (gt.absolute, lambda t: t.abs(), [0.0, NAN, -2.0], [0, 0, -1]),
    "leaky_relu": (lambda x: gt.leaky_relu(x, 0.2), None, [0.0, 1.0], [0.2, 1]),
    "elu": (lambda x: gt.elu(x, 1.5), None, [0.0, 1.0], [1.5, 1]),
    "clip": (
        lambda x: gt.clip(x, -1, np.float64(1)),
        lambda t: t.clamp(-1, 1),
        [-2.0, -1, 0, 1, 2],
        [0, 1, 1, 1, 0],
    ),
    "clip, bounds exchanged": (
        lambda x: gt.clip(x, 2, 1),
        lambda t: t.clamp(2, 1),
        [1.0, 1.5, 2],
        [0, 0, 0],
    ),
    "clip, NaN": (lambda x: gt.clip(x, NAN, 1), lambda t: t.clamp(NAN, 1), [0.0, 2], [0, 0]),
    "power 0": (lambda x: x**0, lambda t: t**0, [0.0, 2, NAN], [0, 0, 0]),
    "power 1": (lambda x: x**1, lambda t: t**1, [0.0, 2], [1, 1]),
    "power 0.5": (lambda x: x**0.5, lambda t: t**0.5, [0.0, 4], [np.inf, 0.25]),
    "power by a value": (
        lambda x: x ** Parameter(np.array([0.0, 0, 2, 1])),
        lambda t: t ** t.new_tensor([0.0, 0, 2, 1]),
        [0.0, 2, 0, 0],
        [0, 0, 0, 1],
    ),
    "exponent": (
        lambda x: Parameter(np.array([0.0, 0, 2])) ** x,
        lambda t: t.new_tensor([0.0, 0, 2]) ** t,
        [0.0, 2, 0],
        [0, 0, np.log(2)],
    ),
    "maximum": (lambda x: gt.maximum(x, 1.0) + gt.maximum(1.0, x), None, [1.0, 2], [1, 2]),
    "minimum": (lambda x: gt.minimum(x, 1.0) + 2 * gt.minimum(1.0, x), None, [1.0, 2], [1, 0]),
    "max": (lambda x: x.max(-1), lambda t: t.max(-1)[0], [1.0, 3, 3, -np.inf], [0, 1, 0, 0]),
    "min": (lambda x: x.min(-1), lambda t: t.min(-1)[0], [1.0, 1, 3, np.inf], [1, 0, 0, 0]),
    "max, all -inf": (lambda x: x.max(-1), lambda t: t.max(-1)[0], [-np.inf, -np.inf], [1, 0]),
    "max, NaN": (
        lambda x: x.max(-1),
        lambda t: t.max(-1)[0],
        [9.0, NAN, NAN, np.inf],
        [0, 1, 0, 0],
    ),
    "min, NaN": (
        lambda x: x.min(-1),
        lambda t: t.min(-1)[0],
        [-9.0, NAN, NAN, -np.inf],
        [0, 1, 0, 0],
    ),
    "segment_max, NaN": (
        lambda x: gt.segment_max(x, np.array([0, 2, 4])),
        None,
        [3.0, 3, NAN, NAN],
        [1, 0, 1, 0],
    ),
    "segment_min, NaN": (
        lambda x: gt.segment_min(x, np.array([0, 2, 4])),
        None,
        [3.0, 3, 1, NAN],
        [1, 0, 0, 1],
    ),
    "where": (
        lambda x: gt.where(x > 0, gt.log(gt.where(x > 0, x, 1.0)), x),
        None,
        [-1.0, 0, 2],
        [1, 1, 0.5],
    ),
    "stop_gradient": (
        lambda x: gt.stop_gradient(x * 2) * x,
        lambda t: (t * 2).detach() * t,
        [1.0, 2],
        [2, 4],
    ),
    "repeated index": (lambda x: x[[0, -3, 2]], lambda t: t[[0, -3, 2]], [1.0, 2, 3], [2, 0, 1]),
}
# in ``graphtheta.ops``, but no operations
OTHERS = frozenset(("current", "default_dtype", "defvjp", "dtype_scope", "init_scope", "primitive"))
