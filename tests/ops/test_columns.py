"""Sums over rows and gradients through them: the numbers of NumPy, on any number of threads."""

import numpy as np
import pytest

from graphtheta.ops.parallel.pool import set_threads, threads
from graphtheta.ops.rows.columns import row_sums, through_statistics

SHAPES = [(0, 3), (1, 1), (37, 5), (300, 129), (700, 4, 80), (5, 0)]


@pytest.fixture(params=[1, 2])
def several(request):
    """Numbers of threads."""
    before = threads()
    set_threads(min(request.param, before))
    yield
    set_threads(before)


@pytest.mark.one_in(5)
@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("marked", [False, True])
def test_the_numbers_of_numpy(shape, dtype, marked):
    rng = np.random.default_rng(1)
    x, g = (rng.normal(3, 2, shape).astype(dtype) for _ in range(2))
    mean, shift, slope = (rng.normal(size=shape[1:]).astype(dtype) for _ in range(3))
    counted = rng.random(len(x)) < 0.7 if marked else None
    rows = x if counted is None else x[counted]
    close = {
        "rtol": 1e-5 if dtype == "float32" else 1e-12,
        "atol": 1e-5 if dtype == "float32" else 1e-11,
    }
    np.testing.assert_allclose(row_sums(x, counted), rows.sum(axis=0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(
        row_sums(x, counted, mean), np.square(rows - mean).sum(axis=0, dtype=np.float64), **close
    )
    through = shift + (x - mean) * slope
    if counted is not None:
        through[~counted] = 0
    found = through_statistics(g=g, x=x, mean=mean, shift=shift, slope=slope, counted=counted)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, g + through, **close)


def test_rows_that_are_not_adjacent():
    x = np.random.default_rng(2).normal(size=(40, 12)).astype(np.float32)[::2, ::3]
    np.testing.assert_allclose(row_sums(x, None), x.sum(axis=0, dtype=np.float64), rtol=1e-12)
    mean = np.zeros(4, np.float32)
    np.testing.assert_allclose(
        through_statistics(g=x, x=x, mean=mean, shift=mean, slope=mean + 1, counted=None), 2 * x
    )


def test_results_do_not_depend_on_threads():
    x = np.random.default_rng(3).normal(size=(3000, 300)).astype(np.float32)
    before = threads()
    found = []
    for n in (1, before):
        set_threads(n)
        found.append([row_sums(x, None), through_statistics(x, x[::-1], *x[:3], None)])
    set_threads(before)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
