import numpy as np
import pytest

import graphtheta.ops as ops
from graphtheta.errors import UserFunctionError
from graphtheta.ops import Parameter, Tape, Var

EXTREME = np.array([-1000.0, -30, 0, 30, 1000])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("function", [ops.sigmoid, ops.tanh, ops.softplus, ops.gelu, ops.elu, ops.leaky_relu, ops.relu])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_activation_is_finite_everywhere(function, dtype):
    x = Var(EXTREME.astype(dtype), None, True)
    with Tape() as tape:
        y = function(x)
    assert np.all(np.isfinite(y.value))
    assert np.all(np.isfinite(tape.backward(y).of(x)))


def test_activation_values():
    x = np.array([-2.0, 0, 3])
    assert np.allclose(ops.leaky_relu(x), [-0.02, 0, 3])
    assert np.allclose(ops.leaky_relu(x, 0.2), [-0.4, 0, 3])
    assert np.allclose(ops.elu(x, 2), [2 * np.expm1(-2), 0, 3])
    assert np.allclose(ops.gelu(np.array([-1.0, 1.0])), [-0.15865525393145707, 0.8413447460685429])
    assert np.allclose(ops.softplus(x), np.log1p(np.exp(x)))


@pytest.mark.parametrize("function", [ops.maximum, ops.minimum])
def test_maximum_gives_ties_to_the_first(function):
    x, y = Parameter(np.ones(2)), Parameter(np.ones(2))
    with Tape() as tape:
        out = function(x, y)
    grads = tape.backward(out)
    assert np.array_equal(grads.of(x), [1, 1])
    assert np.array_equal(grads.of(y), [0, 0])


def test_relu_has_no_gradient_at_zero():
    x = Parameter(np.zeros(2))
    with Tape() as tape:
        out = ops.relu(x)
    assert np.array_equal(tape.backward(out).of(x), [0, 0])


def test_clip_passes_gradients_at_its_bounds():
    x = Parameter(np.array([-2.0, -1, 0, 1, 2]))
    with Tape() as tape:
        out = ops.clip(x, -1, np.float64(1))
    assert np.array_equal(tape.backward(out).of(x), [0, 1, 1, 1, 0])


def test_power_of_a_variable_exponent_is_refused():
    with pytest.raises(UserFunctionError, match="exponent must be a number"):
        ops.power(np.ones(2), Parameter(np.ones(2)))


def test_power_keeps_the_type_with_numpy_exponent():
    assert ops.power(np.ones(2, np.float32), np.float64(0.5)).dtype == np.float32
