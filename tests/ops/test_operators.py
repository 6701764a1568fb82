import math
import re

import numpy as np
import pytest
from scipy import special

import graphtheta.ops as gt
from graphtheta.errors import UserFunctionError
from graphtheta.ops import Parameter, RowSpace, Var
from graphtheta.ops.autodiff.expr import Expr, Tracer

VALUES = np.array([[1.0, 2], [3, 4]])
EXPRESSIONS = [lambda x: 2 - x, lambda x: x - 2, lambda x: 2 + x * 3, lambda x: 1 / x, lambda x: x / 2, lambda x: -x, lambda x: x**2,
               lambda x: np.ones(2) * x, lambda x: np.float64(2) * x, lambda x: x @ np.eye(2)]


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


def test_operators_do_not_iterate_over_rows():
    with pytest.raises(TypeError):
        iter(Parameter(VALUES))


REFUSED = [
    (lambda x: x > 0, "compared with >"), (lambda x: x == 1, "compared with =="), (lambda x: x >= 0, "compared with >="),
    (lambda x: np.ones(2) > x, "gt.maximum"), (lambda x: max(x, 0), "gt.maximum"), (lambda x: 1 if x else 0, "condition"),
    (lambda x: x and x, "condition"), (float, "one Python number"), (int, "one Python number"), (math.exp, "gt.exp"), (list, "looped over"),
    (np.exp, "use gt.exp"), (np.sum, "use gt.sum"), (lambda x: np.concatenate([x, x]), "use gt.concat"), (np.arctan, "gt.primitive"),
    (lambda x: np.where(x, 1, 0), "gt.clip"), (special.expit, "use gt.sigmoid"), (np.asarray, "NumPy array"),
    (lambda x: np.add(x, 1, where=True), "NumPy's add"),
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


INSTEAD = (np.expm1, np.log1p, np.exp2, np.log2, np.log10, np.reciprocal, np.cbrt, np.abs, special.expit)


@pytest.mark.parametrize("function", INSTEAD, ids=lambda f: f.__name__)
def test_what_is_advised_computes_the_same(function):
    x = np.array([0.25, 2.0, 3.5])
    with pytest.raises(UserFunctionError) as caught:
        function(Var(x))
    told = str(caught.value).rpartition("; use ")[2]
    found = eval(told, {"gt": gt, "np": np, "x": Var(x)})
    np.testing.assert_allclose((found(Var(x)) if callable(found) else found).value, function(x), rtol=1e-12)


def test_the_advice_for_logaddexp_computes_the_same():
    x, y = np.array([0.25, -2.0]), np.array([1.0, 3.0])
    with pytest.raises(UserFunctionError) as caught:
        np.logaddexp(Var(x), Var(y))
    told = str(caught.value).rpartition("; use ")[2]
    np.testing.assert_allclose(eval(told, {"gt": gt, "x": Var(x), "y": Var(y)}).value, np.logaddexp(x, y), rtol=1e-12)
