"""Sums over rows and batch norm with given statistics: the numbers of NumPy, on any number of threads."""
import numpy as np
import pytest

from graphtheta.ops.kernels.pool import set_threads, threads
from graphtheta.ops.rows.columns import centred_gradient, normalised, row_products, row_sums

SHAPES = [(0, 3), (1, 1), (37, 5), (300, 129), (700, 4, 80), (5, 0)]


@pytest.fixture(params=[1, 2])
def several(request):
    """Numbers of threads."""
    before = threads()
    set_threads(min(request.param, before))
    yield
    set_threads(before)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("marked", [False, True])
def test_the_numbers_of_numpy(shape, dtype, marked):
    rng = np.random.default_rng(1)
    x, g, unit = (rng.normal(3, 2, shape).astype(dtype) for _ in range(3))
    mean, inverse, scale, shift = (rng.normal(size=shape[1:]).astype(dtype) for _ in range(4))
    counted = rng.random(len(x)) < 0.7 if marked else None
    rows = x if counted is None else x[counted]
    close = {"rtol": 1e-5 if dtype == "float32" else 1e-12, "atol": 1e-5 if dtype == "float32" else 1e-11}
    np.testing.assert_allclose(row_sums(x, counted), rows.sum(axis=0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(row_sums(x, counted, mean), np.square(rows - mean).sum(axis=0, dtype=np.float64), **close)
    for found, expected in zip(normalised(x, mean, inverse, scale, shift), ((x - mean) * inverse, (x - mean) * inverse * scale + shift),
                               strict=True):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, **close)
    for found, expected in zip(row_products(g, unit), (g.sum(axis=0), (g * unit).sum(axis=0)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype == "float32" else 1e-11, atol=1e-3 if dtype == "float32" else 1e-11)
    through = mean + unit * inverse
    if counted is not None:
        through[~counted] = 0
    np.testing.assert_allclose(centred_gradient(g, unit, np.stack([mean, inverse]), scale, counted), (g - through) * scale, **close)


def test_rows_that_are_not_adjacent():
    x = np.random.default_rng(2).normal(size=(40, 12)).astype(np.float32)[::2, ::3]
    np.testing.assert_allclose(row_sums(x, None), x.sum(axis=0, dtype=np.float64), rtol=1e-12)
    mean = np.zeros(4, np.float32)
    np.testing.assert_allclose(normalised(x, mean, mean + 2, mean + 1, mean)[1], 2 * x)


def test_results_do_not_depend_on_threads():
    x = np.random.default_rng(3).normal(size=(3000, 300)).astype(np.float32)
    before, found = threads(), []
    for n in (1, before):
        set_threads(n)
        found.append([row_sums(x, None), *row_products(x, x), *normalised(x, *(x[i] for i in range(4)))])
    set_threads(before)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
