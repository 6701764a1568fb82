import numpy as np
import pytest

import graphtheta as gt
import graphtheta.ops as ops
from graphtheta.checking.gradients import check_vjp
from graphtheta.errors import UserFunctionError
from graphtheta.ops import Parameter, RowSpace, Tape, Var

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


@pytest.mark.parametrize("f", [
    lambda x, y: gt.power(x * x + 0.1, y), lambda x, y: gt.where(x > y, x * y, gt.sin(x)), lambda x, y: gt.cos(x) * gt.softmax(y, axis=-1),
    lambda x, y: gt.softmax(x * y, axis=(-1, -2))])
def test_gradients(f, rng):
    x, y = rng.standard_normal((2, 4, 2, 3))
    check_vjp(f, x, y)
    check_vjp(f, Var(x, RowSpace(np.arange(4)), True), Parameter(y[0]))


def test_a_power_of_zero_has_a_finite_gradient_in_the_exponent():
    x, p = Parameter(np.array([0.0, 2.0])), Parameter(np.array(1.5))
    with Tape() as tape:
        out = x ** p
    assert np.allclose(tape.backward(out).of(p), 2**1.5 * np.log(2))


def test_where_keeps_what_is_not_chosen_out_of_the_gradient():
    x = Parameter(np.array([-1.0, 0.0, 2.0]))
    with Tape() as tape, np.errstate(all="ignore"):
        out = gt.where(x > 0, gt.log(gt.where(x > 0, x, 1.0)), x)
    assert np.allclose(tape.backward(out).of(x), [1, 1, 0.5])


def test_stop_gradient():
    x = Parameter(np.array([1.0, 2.0]))
    with Tape() as tape:
        out = gt.stop_gradient(x * 2) * x
        assert not gt.stop_gradient(x).needs_grad
    assert np.array_equal(tape.backward(out).of(x), [2, 4])


def test_softmax_needs_an_axis_outside_of_gather():
    with pytest.raises(UserFunctionError, match=r"use gt.softmax\(x, axis=-1\)"):
        gt.softmax(Var(np.ones((2, 3)), RowSpace(np.arange(2))))
    assert np.allclose(gt.softmax(np.array([[1000.0, 1000.0], [-np.inf, 0.0]]), axis=-1), [[0.5, 0.5], [0, 1]])


def test_power_keeps_the_type_with_numpy_exponent():
    assert ops.power(np.ones(2, np.float32), np.float64(0.5)).dtype == np.float32
