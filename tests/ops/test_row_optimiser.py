"""Sparse row-wise optimisers against their formulas."""

from __future__ import annotations

import numpy as np
import pytest

from graphtheta.ops.optimisers.row_optimiser import RowAdagrad, RowAdam, RowSGD

N = 300
WIDTH = 7
LR = 0.05
SCALE = 0.3


def adam(x, state, g, lr):
    state["updates"] += 1
    t = state["updates"][:, None].astype(float)
    state["mean"][:] = 0.9 * state["mean"] + 0.1 * g
    state["square"][:] = 0.999 * state["square"] + 0.001 * g * g
    return x - lr * (state["mean"] / (1 - 0.9**t)) / (
        np.sqrt(state["square"] / (1 - 0.999**t)) + 1e-8
    )


def adagrad(x, state, g, lr):
    state["sum"][:] += g * g
    return x - lr * g / (np.sqrt(state["sum"]) + 1e-10)


def sgd(x, state, g, lr):
    return x - lr * g


@pytest.mark.one_in(5)
@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize(
    "optimiser, formula", [(RowAdam(LR), adam), (RowAdagrad(LR), adagrad), (RowSGD(LR), sgd)]
)
def test_updates_are_those_of_the_formula(optimiser, formula, dtype, tolerance):
    rng = np.random.default_rng(0)
    dtype = np.dtype(dtype)
    values = rng.normal(size=(N, WIDTH)).astype(dtype)
    state = optimiser.start(N, WIDTH, dtype)
    expected = values.astype(float)
    wanted = {name: x.astype(x.dtype if x.ndim == 1 else float) for name, x in state.items()}
    for m in (N, 1, 0, 40, 200):
        rows = rng.permutation(N)[:m]
        g = rng.normal(size=(m, WIDTH)).astype(dtype)
        before = g.copy()
        optimiser.update(values, state, rows, g, 0.5 * LR, SCALE)
        np.testing.assert_array_equal(g, before)
        of = {name: x[rows] for name, x in wanted.items()}
        expected[rows] = formula(expected[rows], of, SCALE * g.astype(float), 0.5 * LR)
        for name, x in of.items():
            wanted[name][rows] = x
    np.testing.assert_allclose(values, expected, rtol=tolerance, atol=tolerance)
    for name, x in wanted.items():
        np.testing.assert_allclose(state[name], x, rtol=tolerance, atol=tolerance)
