"""Positions of ids by hash tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheta.ops.kernels.lookup import distinct, fill, find

ANY = st.integers(-(1 << 62), (1 << 62) - 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.integers(0, 5), ANY)), st.integers(0, 40))
def test_distinct_ids_are_those_of_unique(ids, most):
    ids = np.array(ids, np.int64)
    for found, expected in zip(
        distinct(ids, most), np.unique(ids, return_inverse=True), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


@settings(max_examples=60, deadline=None)
@given(st.lists(ANY, unique=True), st.lists(ANY))
def test_positions_of_ids(ids, others):
    bits = (2 * len(ids) + 1).bit_length()
    slots = np.full(1 << bits, -1, np.int32)
    place = {x: i for i, x in enumerate(ids)}
    fill(np.array(ids, np.int64), slots, 64 - bits)
    wanted = np.array(ids + others, np.int64)
    out = np.empty(len(wanted), np.int32)
    find(np.array(ids, np.int64), slots, 64 - bits, wanted, out, 0, len(wanted))
    assert out.tolist() == [place.get(x, -1) for x in wanted.tolist()]


@pytest.mark.parametrize("most", [999, 1000, 10**12])
def test_many_ids(most):
    ids = np.random.default_rng(0).permutation(np.repeat(np.arange(1000) * 7919, 50))
    for found, expected in zip(
        distinct(ids, most), np.unique(ids, return_inverse=True), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
