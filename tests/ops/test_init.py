import threading

import numpy as np
import pytest

from graphtheta.errors import ConfigError
from graphtheta.ops import Parameter, default_dtype, dtype_scope, init_scope


def made(seed):
    with init_scope(seed):
        return [
            Parameter.glorot(4, 3).value,
            Parameter.glorot(4, 3).value,
            Parameter.normal(5).value,
        ]


def test_init_scope_repeats_and_seeds_differ():
    for a, b in zip(made(1), made(1), strict=True):
        assert np.array_equal(a, b)
    assert not np.array_equal(made(1)[0], made(1)[1])
    assert not np.array_equal(made(1)[0], made(2)[0])


def test_init_outside_of_scopes_is_the_same_in_every_thread():
    found = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append(Parameter.glorot(3, 3).value))
        thread.start()
        thread.join()
    assert np.array_equal(*found)


def test_init_inner_scope_does_not_disturb_the_outer():
    with init_scope(1):
        Parameter.glorot(4, 3)
        with init_scope(2):
            Parameter.glorot(4, 3)
        second = Parameter.glorot(4, 3).value
    assert np.array_equal(second, made(1)[1])


@pytest.mark.parametrize(("rule", "fans"), [(Parameter.glorot, 100 + 60), (Parameter.he, 100)])
def test_init_limits_follow_the_fans(rule, fans):
    with init_scope(0):
        value = rule(100, 3, 20).value
    limit = (6 / fans) ** 0.5
    assert value.shape == (100, 3, 20)
    assert np.abs(value).max() <= limit
    assert value.std() == pytest.approx(limit / 3**0.5, rel=0.02)
    assert abs(value.mean()) < 0.02 * limit


def test_init_normal_has_the_asked_deviation():
    with init_scope(0):
        value = Parameter.normal(10_000, std=0.3).value
    assert value.std() == pytest.approx(0.3, rel=0.03)


def test_init_constants_and_decay():
    assert np.array_equal(Parameter.zeros(2).value, [0, 0])
    assert np.array_equal(Parameter.ones(2, decay=False).value, [1, 1])
    assert Parameter.ones(2, decay=False).decay == 0.0
    assert Parameter.zeros().shape == ()


def test_init_of_no_axis_is_refused():
    with pytest.raises(ConfigError, match="at least one axis"):
        Parameter.glorot()


def test_dtype_scope_switches_everything_made_inside():
    assert default_dtype() == np.float32
    with dtype_scope("float64"):
        assert [Parameter.glorot(2, 2).dtype, Parameter.zeros(2).dtype] == [np.float64] * 2
    assert Parameter.normal(2).dtype == np.float32
    with pytest.raises(ConfigError, match="float32 or float64"), dtype_scope("int64"):
        pass
