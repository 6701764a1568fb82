"""Gradients of a value that is read several times."""

from __future__ import annotations

import numpy as np
import pytest

from graphtheta.ops import Parameter, RowSpace, Tape, Var
from graphtheta.ops.autodiff.gradients import Gradients
from graphtheta.ops.functions.elementwise import add, mul

# rows of arrays that are recycled, and of others
ROWS = [5, 40_000]


@pytest.mark.parametrize("n", ROWS)
@pytest.mark.parametrize("order", ["fresh first", "fresh last", "both", "neither"])
def test_only_fresh_gradients_are_changed(n: int, order: str) -> None:
    rng = np.random.default_rng(1)
    x = Var(rng.normal(size=(n, 8)), RowSpace(np.arange(n)), True)
    parts = rng.normal(size=(3, n, 8))
    before = parts.copy()
    fresh = [order in ("fresh first", "both"), order in ("fresh last", "both"), False]
    grads = Gradients()
    for g, own in zip(parts, fresh, strict=True):
        grads.add(x, g, fresh=own)
    np.testing.assert_array_equal(grads.of(x), before[0] + before[1] + before[2])
    for g, g_before, own in zip(parts, before, fresh, strict=True):
        assert own or (g == g_before).all()


@pytest.mark.parametrize("n", ROWS)
def test_products_add_in_place_and_others_do_not(n: int) -> None:
    """h + h hands one array to both its arguments; a product hands on its own."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(n, 8))
    weights = [Parameter(rng.normal(size=(8, 8))) for _ in range(2)]

    def gradient(doubled: bool) -> np.ndarray:
        with Tape() as tape:
            tape.dtype = np.dtype(np.float64)
            space = RowSpace(np.arange(n))
            value = Var(x.copy(), space, True)
            other = Var(x.copy(), space, True)
            shared = add(value, other)
            out = add(add(value @ weights[0], shared), add(value @ weights[1], mul(value, 2.0)))
            out = add(out, shared) if doubled else out
        grads = tape.backward(out)
        np.testing.assert_array_equal(grads.of(other), 2.0 if doubled else 1.0)
        return np.asarray(grads.of(value))

    expected = sum(w.value.sum(axis=1) for w in weights) + 3
    np.testing.assert_allclose(gradient(False), np.broadcast_to(expected, (n, 8)), rtol=1e-12)
    np.testing.assert_allclose(gradient(True), np.broadcast_to(expected + 1, (n, 8)), rtol=1e-12)
