"""Compiled edge lists and samples against plain NumPy forms, on odd groups of edges."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from graphtheta.base.rng import bits, key
from graphtheta.ops.kernels import batch
from graphtheta.ops.kernels.sampling import sample
from graphtheta.ops.rows.row_list import take_rows

NONE = np.zeros(0, np.int32)
# no group, groups without edges, a hub among small ones, as many duplicates as there are rows to
# choose from
GROUPS = st.lists(st.integers(0, 4) | st.just(40), max_size=8)


def edges_of(counts, rows, seed):
    """Bounds of the groups, and a row at the other end of each edge."""
    ptr = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    return ptr, np.random.default_rng(seed).integers(0, rows, ptr[-1]).astype(np.int32)


def per_group(ptr):
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


@settings(max_examples=60, deadline=None)
@given(GROUPS, st.integers(0, 99), st.booleans())
def test_expanding_copies_groups_in_their_order(counts, seed, in_order):
    ptr, others = edges_of(counts, 9, seed)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(counts))[: rng.integers(0, len(counts) + 1)]
    edges = NONE if in_order else rng.permutation(len(others)).astype(np.int32)
    bounds, at, far = batch.expand(ptr[chosen], ptr[chosen + 1], edges, others)
    where = np.concatenate([NONE, *(np.arange(ptr[g], ptr[g + 1]) for g in chosen)]).astype(
        np.int64
    )
    np.testing.assert_array_equal(np.diff(bounds), np.diff(ptr)[chosen])
    np.testing.assert_array_equal(at, where if in_order else edges[where])
    np.testing.assert_array_equal(far, others[where])


@settings(max_examples=60, deadline=None)
@given(GROUPS, st.integers(0, 99), st.integers(1, 12))
def test_grouping_by_the_other_end_is_a_stable_sort(counts, seed, n):
    ptr, other = edges_of(counts, n, seed)
    row = np.random.default_rng(seed).permutation(50)[: len(counts)].astype(np.int32)
    bounds, first, at = batch.group(ptr, row, other, n)
    order = np.argsort(other, kind="stable")
    np.testing.assert_array_equal(bounds, np.searchsorted(other[order], np.arange(n + 1)))
    np.testing.assert_array_equal(at, order)
    np.testing.assert_array_equal(first, row[per_group(ptr)][order])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.integers(0, 60), st.integers(0, 40), st.integers(0, 99))
def test_rows_without_a_number_are_numbered_in_ascending_order(n, m, known, seed):
    rng = np.random.default_rng(seed)
    old = rng.permutation(n)[:known]
    found = rng.integers(0, n, m).astype(np.int32)
    number_of = np.full(n, batch.NONE, np.int32)
    words = np.zeros(-(-n // batch.WORD), np.uint64)
    number_of[old] = np.arange(len(old))
    for part in (slice(0, m // 2), slice(m // 2, m)):
        batch.mark(found[part], words)
    new = np.setdiff1d(found, old)
    rows = np.append(old, np.zeros(len(new) + 1, np.int64))
    assert batch.number(number_of, words, rows, len(old)) == len(rows) - 1
    rows = rows[:-1]
    np.testing.assert_array_equal(rows, np.append(old, new))
    np.testing.assert_array_equal(number_of[rows], np.arange(len(rows)))
    assert (number_of >= 0).sum() == len(rows) and not words.any()
    out = np.empty(m, np.int32)
    batch.numbers(number_of, found, out, 0, m)
    np.testing.assert_array_equal(rows[out], found)


@pytest.mark.parametrize(
    "shape, dtype",
    [
        ((), np.float32),
        ((3,), np.float32),
        ((2, 5), np.float64),
        ((4,), np.int8),
        ((0,), np.float32),
    ],
)
def test_rows_are_taken_as_numpy_takes_them(shape, dtype, rng):
    x = (rng.standard_normal((30, *shape)) * 50).astype(dtype)
    for rows in (np.zeros(0, np.int64), rng.integers(0, 30, 100), np.array([29])):
        for given_ in (x, np.asfortranarray(x)):
            found = take_rows(given_, rows)
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, x[rows])
    wide = rng.standard_normal((40, 1 << 15))
    np.testing.assert_array_equal(take_rows(wide, np.arange(40)[::-1].copy()), wide[::-1])
    sparse = csr_array(x.reshape(30, -1)) if x.size else csr_array((30, 2))
    np.testing.assert_array_equal(
        take_rows(sparse, np.array([4, 4, 0])).toarray(), sparse.toarray()[[4, 4, 0]]
    )


def naive(ptr, gid, k, fanout, each):
    """How often each edge is chosen, by sorting all draws of each group."""
    times = np.zeros(len(gid), int)
    for a, b in pairwise(ptr):
        if each and b > a:
            np.add.at(times, a + bits(k, gid[a:b], fanout).argmin(axis=0), 1)
        else:
            times[a + np.argsort(bits(k, gid[a:b]))[:fanout]] = 1
    return times


@pytest.mark.second
@settings(max_examples=80, deadline=None)
@given(GROUPS, st.integers(0, 99), st.integers(1, 6), st.booleans(), st.booleans())
def test_samples_equal_those_of_sorted_draws(counts, seed, fanout, each, in_order):
    ptr, others = edges_of(counts, 9, seed)
    rng = np.random.default_rng(seed)
    # positions may be anything, and global ids belong to positions
    edges = NONE if in_order else rng.permutation(len(others)).astype(np.int32)
    positions = np.arange(len(others)) if in_order else edges
    gid = rng.permutation(1000)[: len(others)]
    k = np.uint64(key(seed, 4, 1))
    wanted = naive(ptr, gid[positions], int(k), fanout, each)

    ranks = (edges, gid, edges, gid, k, True, sample.LAST, np.zeros(0, np.float32))
    bounds, at, far, often = sample.shortlist(
        begin=ptr[:-1], end=ptr[1:], others=others, ranks=ranks, fanout=fanout, each=each
    )
    # one worker has all edges of a row, so that its shortlist is the sample
    np.testing.assert_array_equal(at, positions[wanted > 0])
    np.testing.assert_array_equal(far, others[wanted > 0])
    np.testing.assert_array_equal(often, wanted[wanted > 0])
    np.testing.assert_array_equal(
        np.diff(bounds), np.bincount(per_group(ptr)[wanted > 0], minlength=len(counts))
    )

    ranks = (at, gid, at, gid, k, True, sample.LAST, np.zeros(0, np.float32))
    low = np.full((len(counts), fanout), sample.LAST)
    (sample.lowest_each if each else sample.lowest)(bounds, ranks, low)
    cut = low if each else np.ascontiguousarray(low[:, -1])
    times = (sample.times_each if each else sample.times_low)(bounds, ranks, cut)
    np.testing.assert_array_equal(times, wanted[wanted > 0])

    # a cut that another worker's edges have lowered
    times[::2] = 0
    less, kept_at, kept_far, often = sample.keep(bounds, times, at, far)
    np.testing.assert_array_equal(kept_at, at[times > 0])
    np.testing.assert_array_equal(kept_far, far[times > 0])
    np.testing.assert_array_equal(often, times[times > 0])
    np.testing.assert_array_equal(
        np.diff(less), np.bincount(per_group(bounds)[times > 0], minlength=len(counts))
    )
