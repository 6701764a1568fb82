import math
import re

import numpy as np
import pytest
from scipy import special

import graphtheta.ops as gt
from graphtheta.errors import UserFunctionError
from graphtheta.ops import Parameter, RowSpace, Tape, Var
from graphtheta.ops.autodiff.expr import Expr, Tracer

VALUES = np.array([[1.0, 2], [3, 4]])
EXPRESSIONS = [
    lambda x: 2 - x,
    lambda x: x - 2,
    lambda x: 2 + x * 3,
    lambda x: 1 / x,
    lambda x: x / 2,
    lambda x: -x,
    lambda x: x**2,
    lambda x: np.ones(2) * x,
    lambda x: np.float64(2) * x,
    lambda x: x @ np.eye(2),
]


@pytest.mark.parametrize("f", EXPRESSIONS)
def test_operators_follow_numpy(f):
    for x in (Var(VALUES, RowSpace(np.arange(2))), Parameter(VALUES)):
        assert isinstance(f(x), Var)
        assert np.allclose(f(x).value, f(VALUES))


@pytest.mark.parametrize("f", EXPRESSIONS)
def test_operators_inside_gather_make_expressions(f):
    with Tracer() as tracer:
        e = f(tracer.leaf("src", "x", (2,), np.float32))
    assert isinstance(e, Expr)
    assert (e.dims, e.dtype) == ((2,), np.float32)


COMPARISONS = [
    lambda x: x > 2,
    lambda x: x >= 2.0,
    lambda x: x < 2,
    lambda x: np.float64(2) >= x,
    lambda x: x == 2,
    lambda x: x != 2,
    lambda x: np.full(2, 2.0) < x,
    lambda x: (x > 1) & (x < 4),
    lambda x: (x < 2) | (x > 3),
    lambda x: ~(x > 2),
]


@pytest.mark.parametrize("f", COMPARISONS)
def test_comparisons_follow_numpy_and_give_masks(f):
    for x in (Var(VALUES, RowSpace(np.arange(2)), True), Parameter(VALUES)):
        with Tape() as tape:
            mask = f(x)
            assert not mask.needs_grad and not tape.nodes
        assert mask.dtype == bool and np.array_equal(mask.value, f(VALUES))
    with Tracer() as tracer:
        e = f(tracer.leaf("src", "x", (2,), np.float32))
    assert (e.dims, e.dtype, e.requires_grad) == ((2,), bool, False)


def test_integers_are_compared_exactly():
    """2^53 + 1 is no float64, and 2^24 + 1 no float32."""
    x = Var(np.array([2**53, 2**53 + 1]), RowSpace(np.arange(2)))
    assert (x == 2**53 + 1).value.tolist() == [False, True] and (x * 2 + 1).dtype == np.int64
    assert (Var(np.array([1], np.int32)) + 2**40).value.tolist() == [2**40 + 1]


def test_operators_do_not_iterate_over_rows():
    with pytest.raises(TypeError):
        iter(Parameter(VALUES))


REFUSED = [
    (lambda x: max(x, 0), "choose with gt.where"),
    (lambda x: 1 if x else 0, "condition"),
    (lambda x: 0 if x > 1 else 1, "condition"),
    (lambda x: x and x, "condition"),
    (float, "one Python number"),
    (int, "one Python number"),
    (math.exp, "gt.exp"),
    (list, "looped over"),
    (np.exp, "use gt.exp"),
    (np.sum, "use gt.sum"),
    (lambda x: np.concatenate([x, x]), "use gt.concat"),
    (np.arctan, "gt.primitive"),
    (lambda x: np.where(x > 0, 1, 0), "use gt.where"),
    (special.expit, "use gt.sigmoid"),
    (np.asarray, "NumPy array"),
    (lambda x: np.add(x, 1, where=True), "NumPy's add"),
    (lambda x: x == "all", "not with 'all'"),
    (lambda x: x < [1, 2], "not with [1, 2]"),
    (lambda x: x & (x > 0), "compare it with a number first"),
    (lambda x: ~x, "compare it with a number first"),
    (lambda x: gt.where(x, x, 0.0), "is no comparison"),
    (lambda x: gt.where(x > 0, 1.0, 0.0), "both values are numbers"),
    (lambda x: x != "all", "not with 'all'"),
]


@pytest.mark.parametrize(("f", "told"), REFUSED)
def test_what_needs_a_value_is_refused_with_what_to_do(f, told):
    with Tracer() as tracer, pytest.raises(UserFunctionError, match=re.escape(told)):
        f(tracer.leaf("src", "x", (2,), np.float32))
    for x in (Var(VALUES, RowSpace(np.arange(2))), Parameter(VALUES)):
        with pytest.raises(UserFunctionError, match=re.escape(told)):
            f(x)


def test_values_are_keys_and_differ_from_none():
    x = Parameter(VALUES)
    assert x in {x} and [x].index(x) == 0
    assert (x == None, x != None) == (False, True)  # noqa: E711


INSTEAD = (
    np.expm1,
    np.log1p,
    np.exp2,
    np.log2,
    np.log10,
    np.reciprocal,
    np.cbrt,
    np.abs,
    special.expit,
)


@pytest.mark.parametrize("function", INSTEAD, ids=lambda f: f.__name__)
def test_what_is_advised_computes_the_same(function):
    x = np.array([0.25, 2.0, 3.5])
    with pytest.raises(UserFunctionError) as caught:
        function(Var(x))
    told = str(caught.value).rpartition("; use ")[2]
    found = eval(told, {"gt": gt, "np": np, "x": Var(x)})
    np.testing.assert_allclose(
        (found(Var(x)) if callable(found) else found).value, function(x), rtol=1e-12
    )


def test_the_advice_for_logaddexp_computes_the_same():
    x = np.array([0.25, -2.0])
    y = np.array([1.0, 3.0])
    with pytest.raises(UserFunctionError) as caught:
        np.logaddexp(Var(x), Var(y))
    told = str(caught.value).rpartition("; use ")[2]
    np.testing.assert_allclose(
        eval(told, {"gt": gt, "x": Var(x), "y": Var(y)}).value, np.logaddexp(x, y), rtol=1e-12
    )
