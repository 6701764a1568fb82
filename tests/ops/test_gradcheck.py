import numpy as np
import pytest

from graphtheta.errors import CheckError
from graphtheta.inspect.checking.gradients import check_gradients, check_vjp
from graphtheta.ops import PRIMITIVES, Parameter, defvjp, dropout, mul, primitive, square, tanh
from graphtheta.ops.functions.shape import sum as total


def planted():
    if "test_wrong_rule" not in PRIMITIVES:
        primitive("test_wrong_rule")(lambda x, y: x * y)
        defvjp(
            PRIMITIVES["test_wrong_rule"],
            x=lambda g, out, x, y: g * y,
            y=lambda g, out, x, y: g * x * 1.001,
        )
    return PRIMITIVES["test_wrong_rule"]


def test_check_vjp_finds_a_wrong_rule_and_names_the_argument(rng):
    with pytest.raises(CheckError, match="argument 1 of"):
        check_vjp(planted(), rng.normal(size=4), rng.normal(size=4))
    check_vjp(mul, rng.normal(size=4), rng.normal(size=4))


def test_check_vjp_finds_a_missing_gradient(rng):
    with pytest.raises(CheckError, match="no gradient was computed"):
        check_vjp(lambda x: mul(Parameter(np.ones(3)), x.value), rng.normal(size=3))


def test_check_gradients_of_a_closure_with_dropout(rng):
    w, b = Parameter(rng.normal(size=(4, 3)), name="w"), Parameter(rng.normal(size=3), name="b")
    x = rng.normal(size=(5, 4))

    def loss():
        return total(square(dropout(tanh(x @ w + b), 0.3)), None)

    kept = w.value
    check_gradients(loss, [w, b])
    assert w.value is kept


def test_check_gradients_names_the_parameter(rng):
    good, bad = (
        Parameter(rng.normal(size=3), name="good"),
        Parameter(rng.normal(size=3), name="bad"),
    )
    with pytest.raises(CheckError, match="parameter bad"):
        check_gradients(lambda: total(planted()(good, bad)), [good, bad])


def test_check_gradients_sums_over_workers(rng):
    w = Parameter(rng.normal(size=3), name="w")
    check_gradients(lambda: total(square(w)), [w], all_sum=lambda x: 2 * x)
