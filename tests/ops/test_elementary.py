"""The forms of an elementary function are one function, and an operation takes its rules from its
texts.
"""

from __future__ import annotations

import inspect

import emulator
import numba
import numpy as np
import pytest

from graphtheta.errors import MissingRuleError
from graphtheta.inspect.checking.gradients import check_vjp
from graphtheta.ops import PRIMITIVES, Parameter, RowSpace, Scalar, Tape, Var, defvjp, primitive
from graphtheta.ops.compile.elementary import FUNCTIONS
from graphtheta.ops.kernels import number_header

VECTORS = [name for name, function in FUNCTIONS.items() if function.lanes is not None]
NUMBERS = [name for name, function in FUNCTIONS.items() if function.of_numbers]
OPERATIONS = [name for name, function in FUNCTIONS.items() if function.grads]
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 0.75])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", VECTORS)
def test_the_forms_for_arrays_and_for_vectors_agree(name: str, dtype: type) -> None:
    function = FUNCTIONS[name]
    n = len(inspect.signature(function.array).parameters)
    drawn = np.random.default_rng(0).uniform(0.1, 3.0, (n, 64)).astype(dtype)
    if name not in ("pow", "gelu", "gelu_slope"):
        drawn[0, :8] = SPECIAL
        drawn[0, 8:32] *= -1
        # beside special numbers, negative ones and positive ones
        drawn[-1, [*range(4, 12), *range(36, 44)]] = np.tile(SPECIAL, 2)
    with np.errstate(all="ignore"):
        arrays = function(*drawn)
        vectors = function.lanes(*map(emulator.V, drawn)).x
    assert vectors.dtype == dtype and np.result_type(arrays, dtype) == dtype
    tolerance = 2e-6 if dtype is np.float32 else 1e-14
    np.testing.assert_allclose(arrays, vectors, rtol=tolerance, atol=tolerance)


@pytest.mark.fused
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_loops_over_numbers_have_the_functions_of_arrays(dtype: type) -> None:
    header = number_header.names(np.dtype(dtype).name)
    x = np.linspace(0.1, 2.0, 7).astype(dtype)
    n_given = {name: len(inspect.signature(FUNCTIONS[name].array).parameters) for name in NUMBERS}
    lines = ["def kernel(x, y):", "    for i in range(len(x)):"]
    for row, (name, n) in enumerate(n_given.items()):
        lines.append(f"        y[{row}, i] = {name}({', '.join(['x[i]'] * n)})")
    scope = dict(header)
    exec("\n".join(lines), scope)
    y = np.zeros((len(n_given), len(x)), dtype)
    numba.njit(scope["kernel"])(x, y)
    tolerance = 2e-6 if dtype is np.float32 else 1e-14
    for found, (name, n) in zip(y, n_given.items(), strict=True):
        expected = FUNCTIONS[name](*[x] * n)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_has_the_name_of_its_function(name: str) -> None:
    assert PRIMITIVES[name].scalar is not None


def operation(name, scalar, forward):
    """An operation that is declared anew if the test runs again."""
    return primitive(name, scalar=scalar)(forward)


def test_the_gradients_of_a_scalar_form_are_the_rules() -> None:
    form = Scalar("({0} * square({1}))", ("{g} * square({1})", "{g} * T(2) * {0} * {1}"))
    ours = operation("test_form", form, lambda x, y: x * y * y)
    rng = np.random.default_rng(0)
    rows = Var(rng.normal(size=(5, 3)), RowSpace(np.arange(5)), True)
    # of a parameter that all rows share, the gradients are summed
    check_vjp(ours, rows, Parameter(rng.normal(size=3)))
    defvjp(ours, x=lambda g, y, x, w: 7 * g)
    with Tape() as tape:
        out = ours(rows, Parameter(np.ones(3)))
        assert np.all(tape.backward(out, np.ones((5, 3))).of(rows) == 7)


def test_an_argument_without_a_text_has_no_gradient() -> None:
    ours = operation("test_no_text", Scalar("{0}", ("{g}", None)), lambda x, y: x)
    assert ours.rule(0) is not None and ours.rule(1) is None


def test_keywords_without_a_form_need_a_rule() -> None:
    def form(*, how: str) -> Scalar | None:
        return Scalar("{0}", (None,)) if how == "constant" else None

    ours = operation("test_no_form", form, lambda x, *, how: x)
    x = Parameter(np.ones(2))
    for how in ("constant", "other"):
        with Tape() as tape:
            out = ours(x, how=how)
            if how == "constant":
                assert np.all(tape.backward(out, np.ones(2)).of(x) == 0)
            else:
                with pytest.raises(MissingRuleError, match="test_no_form has no scalar form"):
                    tape.backward(out, np.ones(2))
