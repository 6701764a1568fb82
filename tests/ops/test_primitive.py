"""Every primitive: gradients, types, no rows, shapes inside gather. A primitive without a case here
fails.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass

import numpy as np
import pytest

import graphtheta.ops
from graphtheta.errors import MissingRuleError, ShapeError, UserFunctionError
from graphtheta.inspect.checking.gradients import check_vjp
from graphtheta.ops import PRIMITIVES, Parameter, RowSpace, Tape, Var, defvjp, primitive
from graphtheta.ops.autodiff.expr import Tracer

for _module in pkgutil.walk_packages(graphtheta.ops.__path__, "graphtheta.ops."):
    importlib.import_module(_module.name)

OURS = {
    name: p for name, p in PRIMITIVES.items() if p.forward.__module__.startswith("graphtheta.ops")
}
N = 6
_rng = np.random.default_rng(1)


@dataclass
class Rows:
    """An argument with one entry per row."""

    value: np.ndarray


def rows(*shape):
    return Rows(_rng.normal(size=(N, *shape)))


def fixed(*shape):
    return _rng.normal(size=shape)


def positive(*shape):
    return Rows(_rng.uniform(0.5, 2, size=(N, *shape)))


INDPTR = np.array([0, 2, 2, 5, 6])
USED = (np.array([0, 0, 3]), np.array([1, 2, 0]))
BINARY = [
    ((rows(3), rows(3)), {}),
    ((rows(2, 3), rows(2, 1)), {}),
    ((rows(2, 3), fixed(3)), {}),
    ((rows(2, 1), fixed(2, 3)), {}),
    ((fixed(3), rows(2, 3)), {}),
    ((fixed(4, 1), fixed(3)), {}),
    ((fixed(), rows()), {}),
]
UNARY = [((rows(),), {}), ((rows(2, 3),), {}), ((fixed(3),), {})]
KEY = (("...",), ("slice", 1, None, None))

CASES = {
    **dict.fromkeys(("add", "sub", "mul", "maximum", "minimum"), BINARY),
    "div": [
        ((rows(2, 3), positive(2, 1)), {}),
        ((fixed(3), positive(2, 3)), {}),
        ((rows(2, 3), np.array([1.0, 2.0, -1.5])), {}),
    ],
    **dict.fromkeys(
        (
            "neg",
            "exp",
            "square",
            "absolute",
            "relu",
            "sigmoid",
            "tanh",
            "softplus",
            "gelu",
            "silu",
            "sin",
            "cos",
        ),
        UNARY,
    ),
    "edge_softmax": UNARY,
    **{name: [((positive(),), {}), ((positive(2, 3),), {})] for name in ("log", "sqrt")},
    "power": (
        [((positive(3),), {"exponent": e}) for e in (-0.5, 0, 1, 2.5)]
        + [((rows(3),), {"exponent": 3})]
    ),
    "pow": [
        ((positive(2, 3), rows(2, 1)), {}),
        ((positive(3), fixed(3)), {}),
        ((np.abs(fixed(3)), rows(2, 3)), {}),
    ],
    "where": [
        ((Rows(_rng.normal(size=(N, 2, 1)) > 0), rows(2, 3), fixed(3)), {}),
        ((np.array([1, 0]), rows(2), rows(2)), {}),
    ],
    # masks and constants have no gradient
    **{
        name: []
        for name in ("less", "less_equal", "equal", "logical_and", "logical_not", "stop_gradient")
    },
    "leaky_relu": [((rows(3),), {"slope": 0.2})],
    "elu": [((rows(3),), {"alpha": 1.3})],
    "clip": [((rows(3),), {"low": -0.5, "high": None}), ((rows(3),), {"low": -0.5, "high": 0.5})],
    "cast": [((rows(3),), {"dtype": "float64"}), ((Rows(np.arange(N)),), {"dtype": "float64"})],
    "expand_last": [((rows(3),), {"n": 2}), ((fixed(3),), {"n": 1})],
    "prefix": [((fixed(N, 3),), {"n": 4}), ((fixed(N, 3),), {"n": 0})],
    "matmul": [
        ((rows(3), fixed(3, 2)), {}),
        ((rows(2, 3), fixed(3, 4, 2)), {}),
        ((rows(3), fixed(3)), {}),
        ((fixed(4, 3), fixed(3, 2)), {}),
    ],
    "embedding": [
        ((fixed(4, 3), Rows(np.array([0, 3, 3, 1, 0, 0]))), {}),
        ((fixed(4), Rows(_rng.integers(0, 4, (N, 2)))), {}),
    ],
    "own_embedding": [
        ((rows(4, 3), Rows(np.array([0, 3, 3, 1, 0, 0]))), {}),
        ((rows(4), Rows(_rng.integers(0, 4, N))), {}),
    ],
    "typed_matmul": (
        [
            ((fixed(N, 3), fixed(4, 3, 2), np.array(index)), {})
            for index in ([0, 3, 3, 1, 0, 0], [1, 1, 1, 2, 2, 2])
        ]
        + [((fixed(N, 2, 3), fixed(2, 3, 4, 2), np.array([0, 1, 0, 1, 1, 0])), {})]
    ),
    "sum": [
        ((rows(2, 3),), {"axis": a, "keepdims": k})
        for a in ((-1,), (-2,), (-2, -1))
        for k in (False, True)
    ],
    **{
        name: [
            ((rows(2, 3, 2),), {"axis": a, "keepdims": k})
            for a in ((-1,), (-3,), (-3, -1))
            for k in (False, True)
        ]
        for name in ("max", "min")
    },
    "reshape": [
        ((rows(2, 3),), {"keep": 1, "shape": (6,)}),
        ((fixed(2, 3),), {"keep": 0, "shape": (3, 2)}),
    ],
    "concat": [
        ((rows(2), rows(3), rows(1)), {"axis": -1}),
        ((rows(2, 3), rows(1, 3)), {"axis": -2}),
    ],
    "repeat_rows": [((fixed(2, 3), rows(4)), {}), ((fixed(), rows()), {})],
    "broadcast_to": [
        ((rows(1, 3),), {"keep": 1, "shape": (2, 3)}),
        ((fixed(3),), {"keep": 0, "shape": (2, 3)}),
    ],
    "getitem": [
        ((rows(3),), {"key": KEY}),
        ((rows(3),), {"key": (("...",), ("list", 0, 2, 0))}),
        ((rows(2, 3),), {"key": (("...",), ("int", -1))}),
        ((rows(3),), {"key": (("...",), ("new",), ("slice", None, None, 2))}),
        ((fixed(4, 3),), {"key": (("int", 1),)}),
    ],
    "dropout": [
        ((rows(3), Rows(np.arange(N)), 5), {"rate": 0.4, "site": 1}),
        ((rows(3), Rows(np.arange(N)), None), {"rate": 0.4, "site": 1}),
    ],
    "permute": [
        ((rows(2, 3),), {"keep": 1, "order": (1, 0)}),
        ((fixed(2, 3, 4),), {"keep": 0, "order": (2, 0, 1)}),
    ],
    "cumsum": [((rows(5),), {"axis": -1}), ((rows(3, 2),), {"axis": -2})],
    "standardise": [((rows(5),), {"eps": 1e-5}), ((rows(2, 4),), {"eps": 1e-2})],
    "normalise": [
        ((rows(3), *(fixed(3) for _ in range(4))), {}),
        ((rows(2, 3), *(fixed(2, 3) for _ in range(4))), {}),
    ],
    "ones_like": [],
    "rounded": [((rows(3),), {})],
    "to_dense": [((rows(3),), {})],
    **{
        name: [((fixed(N, 3), INDPTR), {}), ((fixed(N), INDPTR), {})]
        for name in ("segment_sum", "segment_mean", "segment_max", "segment_min", "segment_softmax")
    },
    "softmax_cross_entropy": [
        ((fixed(N, 3), np.array([0, 1, 2, 0, 1, -1]), np.array([0, 2, 4])), {"total": 7.0}),
        ((fixed(N, 3), np.zeros(N, int), np.zeros(0, int)), {"total": 0.0}),
    ],
    "binary_cross_entropy": [((fixed(N, 3), np.zeros((N, 3), int), USED), {"total": 5.0})],
    "pick": [
        ((fixed(N, 3), np.array([0, 1, 2, 0, 1, 2])), {}),
        ((fixed(N, 2, 3), np.ones((N, 2), int)), {}),
    ],
    "mean_squared_error": [((fixed(N, 3), np.ones((N, 3), int), USED), {"total": 5.0})],
    "weighted_share": [
        ((fixed(N, 3), np.arange(3 * N).reshape(N, 3)), {"total": 5.0}),
        ((fixed(N), np.ones(N, int)), {"total": 0.0}),
    ],
}
ALL = [
    pytest.param(name, *case, id=f"{name}{i}")
    for name, cases in CASES.items()
    for i, case in enumerate(cases)
]
ROWWISE = [
    p for p in ALL if OURS[p.values[0]].rowwise and any(isinstance(a, Rows) for a in p.values[1])
]


def variables(args, dtype=np.float64, n=N):
    """Arguments as variables; all that are float need gradients."""
    space = RowSpace(np.arange(n) * 7)

    def typed(x):
        return x.astype(dtype) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x

    def made(a):
        if isinstance(a, Rows):
            return Var(typed(a.value[:n]), space, a.value.dtype.kind == "f")
        return Parameter(typed(a)) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a

    return [made(a) for a in args]


def run(name, args, static):
    with Tape() as tape:
        out = OURS[name](*args, **static)
    return out, tape


def gradients(given, out, tape):
    """Arguments that have a gradient, with it."""
    grads = tape.backward(out)
    return [
        (a, grads.of(a))
        for a in given
        if getattr(a, "needs_grad", False) and grads.of(a) is not None
    ]


def test_primitives_all_have_a_case():
    assert set(OURS) == set(CASES), (
        "add a case for each new primitive, remove those of primitives that are gone"
    )


@pytest.mark.parametrize(("name", "args", "static"), ALL)
def test_primitive_gradient_agrees_with_differences(name, args, static):
    check_vjp(lambda *a: OURS[name](*a, **static), *variables(args))


@pytest.mark.parametrize(("name", "args", "static"), [p for p in ALL if p.values[0] != "cast"])
def test_primitive_float32_stays_float32(name, args, static):
    given = variables(args, np.float32)
    out, tape = run(name, given, static)
    assert out.dtype == np.float32
    for a, g in gradients(given, out, tape):
        assert (g.dtype, g.shape) == (np.float32, a.shape)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "args", "static"), ROWWISE)
def test_primitive_takes_no_rows(name, args, static):
    given = variables(args, n=0)
    out, tape = run(name, given, static)
    full, _ = run(name, variables(args), static)
    assert out.shape == (0, *full.shape[1:])
    for a, g in gradients(given, out, tape):
        assert g.shape == a.shape
        assert np.all(g == 0)


@pytest.mark.parametrize(("name", "args", "static"), ROWWISE)
def test_primitive_has_same_shape_inside_gather(name, args, static):
    full, _ = run(name, variables(args), static)
    with Tracer() as tracer:
        leaves = [
            (
                tracer.leaf(
                    "src",
                    f"x{i}",
                    a.value.shape[1:],
                    a.value.dtype,
                    requires_grad=a.value.dtype.kind == "f",
                )
                if isinstance(a, Rows)
                else a
            )
            for i, a in enumerate(args)
        ]
        e = OURS[name](*leaves, **static)
    assert (e.rows, e.dims, e.dtype) == (True, full.shape[1:], full.dtype)


@pytest.mark.parametrize("name", [n for n, p in OURS.items() if not p.rowwise])
def test_primitive_that_mixes_rows_is_refused_inside_gather(name):
    args, static = CASES[name][0]
    with Tracer() as tracer:
        leaf = tracer.leaf("src", "x", args[0].shape[1:], np.float64)
        with pytest.raises(UserFunctionError, match="cannot be used inside gather"):
            OURS[name](leaf, *args[1:], **static)


def test_primitive_without_rule_names_operation_and_argument():
    if "test_no_rule" not in PRIMITIVES:
        primitive("test_no_rule")(lambda left, right: left + right)
        defvjp(PRIMITIVES["test_no_rule"], left=lambda g, y, left, right: g)
    with (
        Tape(),
        pytest.raises(
            MissingRuleError, match="test_no_rule has no gradient rule for its argument 'right'"
        ),
    ):
        PRIMITIVES["test_no_rule"](1.0, Parameter(np.ones(2)))


def test_primitive_with_wrong_shapes_names_them():
    with pytest.raises(ShapeError, match=r"add cannot take arrays of shape \[2\], \[3\]"):
        OURS["add"](np.ones(2), np.ones(3))


def test_primitive_on_plain_arrays_gives_plain_arrays():
    assert type(OURS["exp"](np.zeros(2))) is np.ndarray


def test_a_name_may_be_given_again_to_an_operation_of_the_user():
    def make(factor):
        @primitive("test_again")
        def scaled(x):
            return factor * x

        defvjp(scaled, x=lambda g, y, x: factor * g)
        return scaled

    try:
        first = make(2.0)
        second = make(3.0)
        assert (first(np.ones(1)), second(np.ones(1))) == (2.0, 3.0)
        assert PRIMITIVES["test_again"] is second
    finally:
        del PRIMITIVES["test_again"]


@pytest.mark.parametrize("name", ["exp", "matmul", "edge_softmax"])
def test_names_of_the_package_are_its_own(name):
    with pytest.raises(
        UserFunctionError,
        match=f"gt already has an operation of this name; choose another name, such as 'my_{name}'",
    ):
        primitive(name)(lambda x: x)
    assert PRIMITIVES[name] in OURS.values()


def test_a_rule_for_an_argument_that_is_not_there_is_refused():
    with pytest.raises(
        UserFunctionError, match="exp has no argument 'z' that gets a gradient; it has x"
    ):
        defvjp(PRIMITIVES["exp"], z=None)


def test_arguments_are_given_by_position():
    """By name they would pass by the tape, and get the gradient of what is inside."""

    @primitive("test_straight")
    def test_straight(x, *, by=1.0):
        return x * x * by

    defvjp(test_straight, x=lambda g, y, x, by: g)
    p = Parameter(np.array([3.0, 4.0]))
    with Tape() as tape:
        grads = tape.backward(graphtheta.ops.sum(test_straight(p, by=2.0)))
    np.testing.assert_array_equal(grads.of(p), [1, 1])
    with pytest.raises(UserFunctionError, match=r"'x' by position.*straight\(x\)"):
        test_straight(x=p)


def test_functions_of_users_cannot_change_what_others_read():
    """The gradient of a sum is one array for both of its terms."""

    def doubled(x):
        x *= 2
        return x

    own = primitive("test_own")(lambda x: 2 * x)
    changed = primitive("test_changed")(doubled)
    defvjp(own, x=lambda g, y, x: doubled(g))
    x = Parameter(np.ones(2))
    try:
        with Tape() as tape:
            out = own(x * 1.0) + x
        with pytest.raises(UserFunctionError, match="test_own changes an array that it was given"):
            tape.backward(out, np.ones(2))
        with Tape(), pytest.raises(UserFunctionError, match="test_changed changes an array"):
            changed(x)
        np.testing.assert_array_equal(x.value, [1, 1])
    finally:
        del PRIMITIVES["test_own"], PRIMITIVES["test_changed"]
