"""Products of pairs: kernels against NumPy, for all shapes of tiles and any blocks."""

from __future__ import annotations

import numpy as np
import pytest

from graphtheta.ops.edge.backend import pair_kernels
from graphtheta.ops.edge.backend.pair_kernels import PairBlocks, outer_sums, times
from graphtheta.ops.parallel.pool import set_threads, threads

pytestmark = [pytest.mark.fused, pytest.mark.second]
N, K = 41, 3
# of pairs: rows of a code are distinct
SIZES = [37, 0, 41]
# less than a vector; vectors and a rest; several panels
CASES = [(7, 3, np.float64), (9, 41, np.float32), (13, 150, np.float32)]


def divided(step: int) -> PairBlocks:
    """A share for each ``step`` pairs of a code."""
    ends = np.cumsum([0, *SIZES])
    return PairBlocks(
        [
            [(c, a, min(a + step, ends[c + 1]))]
            for c in range(K)
            for a in range(ends[c], ends[c + 1], step)
        ]
    )


def drawn(dtype, *shapes):
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.sort(rng.choice(N, m, replace=False)) for m in SIZES]).astype(
        np.int32
    )
    return rows, np.repeat(np.arange(K), SIZES), [rng.normal(size=s).astype(dtype) for s in shapes]


@pytest.mark.parametrize(("d", "d_out", "dtype"), CASES)
def test_rows_times_the_matrices_of_their_codes(d, d_out, dtype):
    rows, codes, (x, weight) = drawn(dtype, (N, d), (K, d, d_out))
    out = [np.empty((len(rows), d_out), dtype) for _ in range(2)]
    for made, step in zip(out, (4, 1000), strict=True):
        times(x, rows, weight, divided(step), made, None)
    np.testing.assert_allclose(
        out[0], np.einsum("pi,pij->pj", x[rows], weight[codes]), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_array_equal(out[0], out[1])


@pytest.mark.parametrize(("d", "d_out", "dtype"), CASES)
def test_products_are_added_to_rows(d, d_out, dtype):
    rows, codes, (x, weight, before) = drawn(dtype, (sum(SIZES), d), (K, d, d_out), (N, d_out))
    into = before.copy()
    expected = before.copy()
    ends = np.cumsum([0, *SIZES])
    # one share: codes have rows in common
    times(
        x,
        np.arange(len(rows), dtype=np.int32),
        weight,
        PairBlocks([[(c, ends[c], ends[c + 1]) for c in range(K)]]),
        into,
        rows,
    )
    np.add.at(expected, rows, np.einsum("pi,pij->pj", x, weight[codes]))
    np.testing.assert_allclose(into, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("height", "width", "dtype"), CASES)
def test_sums_of_outer_products(height, width, dtype, monkeypatch):
    monkeypatch.setattr(pair_kernels, "CHUNK", 16)
    pair_kernels._outer_sums.cache_clear()
    rows, codes, (x, y) = drawn(dtype, (N, height), (sum(SIZES), width))
    found = outer_sums(x, rows, y, np.arange(len(rows), dtype=np.int32), divided(1000))
    expected = [x[rows[codes == c]].T @ y[codes == c] for c in range(K) if SIZES[c]]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    pair_kernels._outer_sums.cache_clear()


@pytest.mark.parametrize("tile", [(6, 1), (24, 4)])
def test_tiles_for_other_processors_give_the_same_numbers(tile, monkeypatch):
    rows, _, (x, weight) = drawn(np.float32, (N, 9), (K, 9, 150))
    out = [np.empty((len(rows), 150), np.float32) for _ in range(2)]
    times(x, rows, weight, divided(1000), out[0], None)
    monkeypatch.setattr(pair_kernels, "_tile", lambda: tile)
    pair_kernels._times.cache_clear()
    times(x, rows, weight, divided(1000), out[1], None)
    pair_kernels._times.cache_clear()
    np.testing.assert_array_equal(out[0], out[1])


def test_the_number_of_threads_changes_nothing():
    rows, _, (x, weight) = drawn(np.float32, (N, 9), (K, 9, 41))
    before = threads()
    out = []
    for n in (1, min(2, before)):
        set_threads(n)
        out.append(np.empty((len(rows), 41), np.float32))
        times(x, rows, weight, divided(2), out[-1], None)
    set_threads(before)
    np.testing.assert_array_equal(*out)
