"""Vectors inside kernels: functions within their stated error, masked rows, sums over lanes."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import pytest

from graphtheta.ops.kernels import lane_math, lane_tools, lanes
from graphtheta.ops.rows.bfloat16 import rounded

pytestmark = [pytest.mark.fused, pytest.mark.second]
WIDE = np.float64
TRUE = {
    "exp": (np.exp, -87, 88),
    "log": (np.log, 1e-30, 1e30),
    "tanh": (np.tanh, -12, 12),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -87, 88),
    "softplus": (lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0), -80, 80),
    "sqrt": (np.sqrt, 0, 1e9),
    # further left 1 + erf cancels, in every implementation by erf
    "gelu": (lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x * math.sqrt(0.5))), -1, 8),
    "elu": (lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), -20, 20),
}
# units in the last place, single and double precision
BOUNDS = {
    "exp": 2,
    "log": 3,
    "tanh": 3,
    "sigmoid": 4,
    "softplus": 6,
    "sqrt": 1,
    "gelu": 8,
    "elu": 8,
}


def kernel(body: str, **names: Any) -> Any:
    """A compiled function of x and y."""
    scope = {
        **lane_math.VECTOR_FUNCTIONS,
        "lane": lane_tools.lane,
        "single": lane_tools.single,
        **names,
    }
    exec(f"def run(x, y):\n    {body}", scope)
    return numba.njit(error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})(
        scope["run"]
    )


def apply(name: str, x: np.ndarray) -> np.ndarray:
    """A function of vectors on all numbers of x."""
    n = 64 // x.itemsize
    y = np.empty_like(x).reshape(-1, n)
    call = f"{name}(load(x, i, 0){', one' if name == 'elu' else ''})"
    run = kernel(
        f"for i in range(x.shape[0]): store(y, i, 0, {call})",
        load=lanes.loader(n),
        store=lanes.storer(n),
        one=x.dtype.type(1),
    )
    run(x.reshape(-1, n), y)
    return y.ravel()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", TRUE)
def test_functions_are_within_their_error(name: str, dtype: type) -> None:
    function, low, high = TRUE[name]
    grid = np.geomspace(low, high, 1 << 14) if name == "log" else np.linspace(low, high, 1 << 14)
    x = np.concatenate(
        (grid, np.linspace(-1, 1, 1 << 10) if low < 0 else np.linspace(0.5, 2, 1 << 10))
    ).astype(dtype)
    expected = function(x.astype(np.longdouble if dtype is np.float64 and name != "gelu" else WIDE))
    unit = np.spacing(np.maximum(np.abs(expected), np.finfo(dtype).tiny).astype(dtype))
    assert np.max(np.abs(apply(name, x) - expected) / unit) <= BOUNDS[name]


SPECIAL = {
    "exp": [np.nan, np.inf, 0, 1],
    "log": [np.nan, np.inf, np.nan, -np.inf],
    "tanh": [np.nan, 1, -1, 0],
    "sigmoid": [np.nan, 1, 0, 0.5],
    "softplus": [np.nan, np.inf, 0, np.log(2)],
    "relu": [np.nan, np.inf, 0, 0],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_numbers(name: str, dtype: type) -> None:
    found = apply(name, np.array([np.nan, np.inf, -np.inf, 0.0] * 4, dtype))[:4]
    np.testing.assert_allclose(found, SPECIAL[name], rtol=1e-6)


def test_exp_reaches_subnormal_numbers_and_infinity() -> None:
    x = np.array([-100, -103, 89, -1000] * 4, np.float32)
    np.testing.assert_allclose(apply("exp", x)[:4], [3.8e-44, 1.4e-45, np.inf, 0], rtol=0.03)


@pytest.mark.parametrize("active", [1, 3, 5, 8, 16])
def test_rows_are_read_and_written_as_far_as_they_go(active: int) -> None:
    x = np.arange(64, dtype=np.float32).reshape(2, 32)
    y = np.full((2, 32), -1, np.float32)
    kernel("store(y, 1, 3, load(x, 1, 2))", load=lanes.loader(active), store=lanes.storer(active))(
        x, y
    )
    expected = np.full((2, 32), -1, np.float32)
    expected[1, 3 : 3 + active] = x[1, 2 : 2 + active]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 16])
def test_totals_over_lanes(count: int) -> None:
    x = np.arange(count * 16, dtype=np.float64).reshape(count, 16) ** 2
    y = np.zeros((1, 16))
    rows = ", ".join(f"cut(load(x, {i}, 0))" for i in range(count))
    names = {
        "load": lanes.loader(5),
        "cut": lane_tools.first(5, 16),
        "totals": lane_tools.totals(count),
        "store": lanes.storer(count),
    }
    kernel(f"store(y, 0, 0, totals({rows}))", **names)(x, y)
    np.testing.assert_allclose(y[0, :count], x[:, :5].sum(axis=1))


def test_vectors_of_different_lengths_do_not_mix() -> None:
    x = np.ones((1, 32))
    with pytest.raises(Exception, match="a vector of 4 lanes cannot be combined with one of 8"):
        kernel(
            "store(y, 0, 0, load8(x, 0, 0) + load4(x, 0, 0))",
            load8=lanes.loader(8),
            load4=lanes.loader(4),
            store=lanes.storer(8),
        )(x, x)


@pytest.mark.parametrize("active", [1, 3, 8, 16])
def test_numbers_stored_in_16_bits_are_the_nearest_bfloat16(active: int) -> None:
    n = 1 << 10
    bits = np.random.default_rng(3).integers(0, 1 << 32, n * active, dtype=np.uint32)
    bits[:5] = 0x7F800000, 0x7FC00000, 0x7F800001, 0x3F808000, 0x3F818000
    x = bits.view(np.float32).reshape(n, active)
    y = np.zeros((n, active + 1), np.uint16)
    run = kernel(
        "for i in range(x.shape[0]): store(y, i, 1, load(x, i, 0))",
        load=lanes.loader(active),
        store=lanes.storer(active),
    )
    run(x, y)
    assert np.array_equal(y[:, 1:], rounded(x).view(np.uint16))
    assert not y[:, 0].any()
