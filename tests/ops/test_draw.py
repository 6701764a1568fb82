"""Draws of positions against the straightforward forms, and how often they choose each edge."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheta.base.rng import bits, key
from graphtheta.ops.kernels.sampling import draw

NONE = np.zeros(0, np.int32)
MAX32 = (1 << 31) - 1


def drawn(
    counts, ids, k, replace, order=NONE, position=NONE, degree=None, edges=NONE, others=None, step=0
):
    """For each row the chosen edges with their weights."""
    ptr = np.append(0, np.cumsum(counts)).astype(np.int64)
    bounds = draw.room(ptr[:-1], ptr[1:], k)
    others = np.arange(ptr[-1], dtype=np.int32) if others is None else others
    out = (
        bounds,
        np.empty(len(counts), np.int64),
        *(np.empty(bounds[-1], t) for t in (np.int32, np.int32, np.float64)),
    )
    rows = (
        np.arange(len(counts)),
        np.asarray(ids, np.int64),
        np.zeros(0, np.int64) if degree is None else np.asarray(degree, np.int64),
    )
    at = edges[order] if len(edges) else order
    listed = np.stack((at, others[order]), axis=1) if len(order) else np.zeros((0, 2), np.int32)
    groups = (ptr[:-1], ptr[1:], edges, others)
    half = len(counts) // 2
    # of one view
    keys = np.array([key(3, step)], np.uint64)
    views = np.array([0, len(counts)])
    parts = (0, half), (half, len(counts))
    ends = [
        draw.choose(groups, (listed, position), rows, keys, views, k, replace, out, *part)
        for part in parts
    ]
    lists = [np.concatenate([x[: ends[0]], x[bounds[half] : ends[1]]]) for x in out[2:]]
    return (
        list(zip(*(np.split(x, np.cumsum(out[1])[:-1]) for x in lists), strict=True))
        if counts
        else []
    )


def below(h, j, d):
    """Draw j of a row in exact arithmetic."""
    return int(h[j]) * d >> 64


def naive(node, d, k, replace, step):
    """How often each position is drawn."""
    h = bits(key(3, step), np.array([node]), k)[0]
    times = np.zeros(d, int)
    if replace:
        for j in range(k):
            times[below(h, j, d)] += 1
    elif d <= k:
        times[:] = 1
    else:
        for j in range(k):
            x = below(h, j, d - k + j + 1)
            times[d - k + j if times[x] else x] = 1
    return times


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(0, 5) | st.just(70), max_size=6),
    st.integers(1, 9) | st.just(40),
    st.booleans(),
    st.integers(0, 99),
    st.integers(1, 4),
)
def test_edges_spread_over_workers_are_drawn_as_on_one(counts, k, replace, seed, workers):
    """Each edge keeps its position, wherever it is and in whatever order."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 1 << 40, len(counts))
    share = [rng.integers(0, workers, d) for d in counts]
    found = [np.zeros(d) for d in counts]
    for worker in range(workers):
        positions = [np.flatnonzero(s == worker).astype(np.int32) for s in share]
        here = [len(x) for x in positions]
        # stored in another order, under positions of the block
        order = np.concatenate(
            [NONE, *(sum(here[:g]) + rng.permutation(n) for g, n in enumerate(here))]
        ).astype(np.int32)
        edges = rng.permutation(sum(here)).astype(np.int32)
        position = np.concatenate([NONE, *positions])
        others = (7 * edges + 1).astype(np.int32)
        by_edge = np.empty(len(edges), np.int64)
        by_edge[edges[order]] = position
        for g, (at, far, weight) in enumerate(
            drawn(
                counts=here,
                ids=ids,
                k=k,
                replace=replace,
                order=order,
                position=position,
                degree=counts,
                edges=edges,
                others=others,
                step=seed,
            )
        ):
            np.testing.assert_array_equal(far, 7 * at + 1)
            found[g][by_edge[at]] += weight
    for d, node, weight in zip(counts, ids, found, strict=True):
        share_of = d / k if replace else max(d, k) / k
        np.testing.assert_allclose(weight, naive(node, d, k, replace, seed) * share_of if d else [])


def test_draws_of_large_rows_are_below_their_degree():
    (found,) = drawn(
        [3], [5], 64, True, position=np.array([0, 5, MAX32 - 1], np.int32), degree=[MAX32]
    )
    h = bits(key(3, 0), np.array([5]), 64)[0]
    assert set(found[0]) == {0, 1, 2} & {
        e for e, x in enumerate((0, 5, MAX32 - 1)) if x in {below(h, j, MAX32) for j in range(64)}
    }


@pytest.mark.parametrize(
    "d, k, replace", [(7, 3, False), (7, 3, True), (40, 6, False), (9, 8, False)]
)
def test_single_and_pair_inclusion_are_uniform(d, k, replace):
    """Chi-square statistics of single edges and pairs lie within five deviations of their means."""
    n = 4000
    single = np.zeros(d)
    pairs = np.zeros((d, d))
    for at, _, weight in drawn([d] * n, np.arange(n), k, replace):
        at = at % d
        times = weight * k / d
        single[at] += times
        if not replace:
            assert len(set(at.tolist())) == k
            pairs[np.ix_(at, at)] += 1
    expected = n * k / d
    # draws of one row exclude each other, so that counts vary less than those of a multinomial
    shrink = 1 if replace else (d - k) / (d - 1)
    x = ((single - expected) ** 2 / expected).sum() / shrink
    assert abs(x - (d - 1)) < 5 * np.sqrt(2 * (d - 1))
    if not replace:
        counts = np.array([pairs[i, j] for i, j in combinations(range(d), 2)])
        p = k * (k - 1) / d / (d - 1)
        z = (counts - n * p) / np.sqrt(n * p * (1 - p))
        assert np.abs(z).max() < 5
        assert abs(z.mean()) < 1e-9


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4) | st.just(50), max_size=8), st.integers(0, 99), st.booleans())
def test_rows_are_sorted_one_by_one(counts, seed, sort):
    ptr = np.append(0, np.cumsum(counts)).astype(np.int64)
    values = np.random.default_rng(seed).permutation(1000)[: ptr[-1]]
    values = np.sort(values) if sort else values
    order = np.empty(len(values), np.int32)
    ascending = [draw.sort_rows(ptr, values, order, r, r + 1) for r in range(len(counts))]
    expected = [a + np.argsort(values[a:b]) for a, b in pairwise(ptr)]
    np.testing.assert_array_equal(order, np.concatenate([NONE, *expected]))
    assert ascending == [bool((np.diff(values[a:b]) > 0).all()) for a, b in pairwise(ptr)]
