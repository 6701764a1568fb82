"""Orders of rows by leader, and misses of a cache, against plain Python."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

from graphtheta.ops.kernels.partition import pairs, row_order
from graphtheta.ops.kernels.partition.row_order import (
    MOST_DEGREE,
    count_misses,
    ids_of,
    keys_of,
    leaders,
    misses,
    row_orders,
)


def plain_misses(pages, room):
    cache = OrderedDict()
    missed = 0
    for page in pages:
        missed += page not in cache
        cache[page] = None
        cache.move_to_end(page)
        if len(cache) > room:
            cache.popitem(last=False)
    return missed


@pytest.mark.parametrize("room", [1, 2, 7, 30, 100])
def test_misses_are_those_of_a_plain_cache(room):
    pages = (np.random.default_rng(room).zipf(1.3, 2_000) % 60).astype(np.int64)
    newer = np.full(61, -1, np.int32)
    assert count_misses(pages=pages, newer=newer, older=newer.copy(), room=room) == plain_misses(
        pages.tolist(), room
    )


def test_reads_follow_destinations_and_then_sources(monkeypatch):
    """Windows begin with a destination; the reads of other destinations are left out."""
    for name, value in {"PAGE": 1, "PAGES": 2, "WINDOW": 3, "SAMPLED": 6}.items():
        monkeypatch.setattr(row_order, name, value)
    # rows 0 to 4 read 2, 2, 4, 2 and 2 sources
    order = np.array([4, 3, 2, 1, 0])
    dst = np.array([0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4])
    src = np.array([4, 3, 4, 2, 0, 1, 2, 3, 4, 3, 0, 1])
    row = np.array([4, 3, 2, 1, 0], np.int32)
    # of each 6 reads, 3 are in a window: rows 0, 1 and 3 begin there, at reads 0, 2 and 8
    chosen = [0, 1, 3]
    sequence = [one for at in chosen for one in sorted(row[src[row[dst] == at]].tolist())]
    reads = np.bincount(dst)
    assert misses(order, row, reads, src, dst) == plain_misses(sequence, 2)
    shuffled = np.random.default_rng(0).permutation(len(src))
    assert misses(order, row, reads, src[shuffled], dst[shuffled]) == plain_misses(sequence, 2)


def test_rows_that_fit_into_the_cache_have_no_misses():
    n = row_order.PAGE * row_order.PAGES
    for rows, some in ((n, False), (n + 1, True)):
        ids = np.arange(rows)
        row = ids.astype(np.int32)
        assert (misses(ids, row, np.ones_like(ids), ids, ids[::-1]) > 0) == some


@pytest.mark.parametrize("threads", [1, 3])
def test_leaders_have_the_highest_degree_near_a_node(threads, monkeypatch):
    monkeypatch.setattr(pairs, "KEYS_PER_THREAD", 1)
    monkeypatch.setattr(row_order, "KEYS_PER_THREAD", 1)
    monkeypatch.setattr(pairs, "threads", lambda: threads)
    rng = np.random.default_rng(1)
    n = 40
    src, dst = rng.zipf(1.5, (2, 300)) % n
    degree = np.bincount(src, minlength=n) + np.bincount(dst, minlength=n)
    keys = keys_of(degree, np.arange(n))
    first = leaders(src, dst, keys)
    for v in range(n):
        near = {v, *src[dst == v].tolist(), *dst[src == v].tolist()}
        assert ids_of(first)[v] == min(near, key=lambda u: (-degree[u], u))
    second = first[ids_of(first)]
    by_degree, by_id, by_leader = row_orders(keys, lambda: (first, second))
    assert by_degree.tolist() == sorted(range(n), key=lambda v: (-degree[v], v))
    assert by_id.tolist() == list(range(n))
    place = np.argsort(by_degree)
    lead = ids_of(first)
    assert by_leader.tolist() == sorted(
        range(n), key=lambda v: (place[lead[lead[v]]], place[lead[v]], place[v])
    )


def test_keys_of_many_edges_and_nodes():
    """Degrees beyond the most are taken for equal; ids remain."""
    degree = np.array([0, MOST_DEGREE, 1 << 40, 5])
    ids = np.array([7, (1 << row_order.ID_BITS) - 1, 3, 0])
    keys = keys_of(degree, ids)
    np.testing.assert_array_equal(ids_of(keys), ids)
    assert np.argsort(keys).tolist() == [2, 1, 3, 0]
    assert keys.min() >= 0
