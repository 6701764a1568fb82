import numpy as np
import pytest

from graphtheta.ops import Parameter, RowSpace, Var
from graphtheta.ops.expr import Expr, Tracer

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
    assert (e.shape, e.dtype) == ((2,), np.float32)


def test_operators_do_not_iterate_over_rows():
    with pytest.raises(TypeError):
        iter(Parameter(VALUES))
