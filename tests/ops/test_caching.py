"""The compiled policies against plain ones, and Belady's against the best that any cache can do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from caching_model import Plain, PlainClock, PlainLfu, PlainLru, PlainS3, most_hits
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheta.engine.store.cached import CacheCounts, CachePolicy, RowCache
from graphtheta.engine.store.memory import MemoryColumn
from graphtheta.engine.store.slots import Slots
from graphtheta.train.reuse.caching.registry import CACHE_POLICIES

PLAIN: dict[str, Any] = {
    "fifo": Plain,
    "lru": PlainLru,
    "lfu": PlainLfu,
    "clock": PlainClock,
    "s3-fifo": PlainS3,
}
VALUES = np.arange(120.0).reshape(40, 3)
BATCHES = st.lists(st.lists(st.integers(0, 39), max_size=15, unique=True), max_size=25)


def read(policy: CachePolicy | None, capacity: int, batches: list[list[int]]) -> list[int]:
    """Hits of each batch; every read returns the rows asked for."""
    cache = RowCache(capacity, policy, Slots(capacity, {"x": MemoryColumn(VALUES)}))
    hits = []
    cache.foresee([np.array(batch, np.int64) for batch in batches])
    for batch in batches:
        keys = np.array(batch, np.int64)
        before = cache.counts.hits
        found = cache.look_up(keys)
        rows = found.joined({"x": VALUES[keys[found.rest]]})["x"]
        np.testing.assert_array_equal(rows, VALUES[keys])
        cache.store(keys[found.rest], {"x": VALUES[keys[found.rest]]})
        hits.append(cache.counts.hits - before)
    assert cache.counts.hits + cache.counts.misses == sum(map(len, batches))
    return hits


@pytest.mark.second
@settings(max_examples=40, deadline=None)
@given(batches=BATCHES, capacity=st.integers(1, 50))
def test_policies_equal_plain_ones_and_none_beats_belady(
    batches: list[list[int]], capacity: int
) -> None:
    belady = CACHE_POLICIES["belady"](capacity)  # type: ignore[call-arg]
    best = sum(read(belady, capacity, batches))
    assert best == most_hits(batches, capacity)
    for name, plain in PLAIN.items():
        model = plain(capacity)
        expected = [model.read(batch) for batch in batches]
        policy = CACHE_POLICIES[name](capacity)  # type: ignore[call-arg]
        assert read(policy, capacity, batches) == expected, name
        assert sum(expected) <= best


def test_an_empty_cache_holds_nothing() -> None:
    assert read(None, 0, [[1, 2], [1, 2]]) == [0, 0]


def test_a_row_that_two_reads_miss_is_stored_once() -> None:
    cache, keys = (
        RowCache(4, CACHE_POLICIES["lru"](4), Slots(4, {"x": MemoryColumn(VALUES)})),
        np.array([3, 5]),
    )  # type: ignore[call-arg]
    for _ in range(2):
        assert not len(cache.look_up(keys).at)
    for _ in range(2):
        cache.store(keys, {"x": VALUES[keys]})
    np.testing.assert_array_equal(cache.look_up(keys).rows["x"], VALUES[keys])


def test_one_thread_at_a_time_counts() -> None:
    """Views in flight share a cache, and would lose what they count at the same time."""

    class Counts(CacheCounts):
        def __setattr__(self, name: str, value: int) -> None:
            assert cache is None or cache._lock.locked()
            super().__setattr__(name, value)

    cache = None
    counts = Counts()
    cache = RowCache(0, None, Slots(0, {"x": MemoryColumn(VALUES)}))
    cache.counts = counts
    keys = np.array([3, 5])
    cache.look_up(keys)
    cache.store(keys, {"x": VALUES[keys]})
    cache.find(keys)
    assert (counts.hits, counts.misses) == (0, 4)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("policy", PLAIN)
def test_many_rows_are_evicted(policy: str) -> None:
    rng = np.random.default_rng(1)
    batches = [rng.choice(40, 30, replace=False).tolist() for _ in range(200)]
    model = PLAIN[policy](9)
    compiled = CACHE_POLICIES[policy](9)  # type: ignore[call-arg]
    assert read(compiled, 9, batches) == [model.read(batch) for batch in batches]
