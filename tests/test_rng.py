"""Keyed permutations: bijections in both directions for any n, and as good as shuffles."""

from __future__ import annotations

import numpy as np
import pytest

from graphtheta.base.rng import Permutation


def test_every_n_is_permuted_and_back():
    for n in [*range(70), 127, 128, 129, 1000, 1023, 1024, 1025, 4095, 4097, 5000]:
        order = Permutation(n * 7 + 1, n)
        items = order.item(np.arange(n))
        assert items.dtype == np.int64
        np.testing.assert_array_equal(np.sort(items), np.arange(n))
        np.testing.assert_array_equal(order.position(items), np.arange(n))
        np.testing.assert_array_equal(order.item(order.position(np.arange(n))), np.arange(n))


@pytest.mark.parametrize("n", [10**6 + 3, 2**31 + 1, 2**40, 10**15 + 37, 2**62])
def test_large_n(n):
    order = Permutation(5, n)
    some = np.unique(
        np.concatenate(([0, 1, 2, n - 2, n - 1], np.random.default_rng(0).integers(0, n, 20_000)))
    )
    items = order.item(some)
    assert items.min() >= 0 and items.max() < n and len(np.unique(items)) == len(some)
    np.testing.assert_array_equal(order.position(items), some)
    np.testing.assert_array_equal(order.item(order.position(some)), some)
    # spread over the whole range
    assert abs(items.mean() / n - 0.5) < 0.01


def test_a_million_is_a_bijection():
    items = Permutation(9, 1_000_000).item(np.arange(1_000_000))
    assert np.all(np.bincount(items, minlength=1_000_000) == 1)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("n", [2, 5, 8, 50])
def test_every_item_comes_everywhere_equally_often(n):
    keys = 2000
    counts = np.zeros((n, n))
    for key in range(keys):
        counts[np.arange(n), Permutation(key, n).item(np.arange(n))] += 1
    expected = keys / n
    # chi squared of (n - 1) ** 2 degrees of freedom, within five deviations
    freedom = (n - 1) ** 2
    assert ((counts - expected) ** 2 / expected).sum() < freedom + 5 * np.sqrt(2 * freedom) + 5


def test_batches_of_two_keys_share_no_more_than_chance():
    n, size = 10_000, 1000
    first, second = (Permutation(key, n).item(np.arange(size)) for key in (1, 2))
    assert abs(len(np.intersect1d(first, second)) - size * size / n) < 5 * np.sqrt(size * size / n)
    # neighbours do not stay neighbours
    assert np.count_nonzero(np.abs(np.diff(first)) == 1) < 5
