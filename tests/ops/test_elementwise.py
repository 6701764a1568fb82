import numpy as np
import pytest

import graphtheta as gt
import graphtheta.ops as ops
from graphtheta.errors import UserFunctionError
from graphtheta.ops import RowSpace, Tape, Var

EXTREME = np.array([-1000.0, -30, 0, 30, 1000])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "function", [ops.sigmoid, ops.tanh, ops.softplus, ops.gelu, ops.elu, ops.leaky_relu, ops.relu]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_activation_is_finite_everywhere(function, dtype):
    x = Var(EXTREME.astype(dtype), None, True)
    with Tape() as tape:
        y = function(x)
    assert np.all(np.isfinite(y.value))
    assert np.all(np.isfinite(tape.backward(y).of(x)))


def test_softmax_needs_an_axis_outside_of_gather():
    with pytest.raises(UserFunctionError, match=r"use gt.softmax\(x, axis=-1\)"):
        gt.softmax(Var(np.ones((2, 3)), RowSpace(np.arange(2))))
    assert np.allclose(
        gt.softmax(np.array([[1000.0, 1000.0], [-np.inf, 0.0]]), axis=-1), [[0.5, 0.5], [0, 1]]
    )


def test_power_keeps_the_type_with_numpy_exponent():
    assert ops.power(np.ones(2, np.float32), np.float64(0.5)).dtype == np.float32
