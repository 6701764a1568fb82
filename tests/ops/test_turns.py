"""Turns of edges: each edge once, in the order of its row, rows with more edges first."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheta.ops.edge import turns
from graphtheta.ops.edge.turns import blocks_of


def lists(blocks):
    """The edges of each row, in the order of its turns."""
    taken = {}
    for block in blocks:
        for turn in block.turns:
            for row, edge in zip(block.rows, block.edges[turn.begin : turn.end], strict=False):
                taken.setdefault(int(row), []).append(int(edge))
    return taken


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_each_row_takes_its_edges_in_order(data):
    n = data.draw(st.integers(0, 40))
    rows = np.array(data.draw(st.lists(st.integers(0, 6), min_size=n, max_size=n)), np.int64)
    key = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), np.float64)
    tie = np.array(data.draw(st.permutations(range(n))), np.int64)
    most = data.draw(st.sampled_from([None, 1, 2, 5]))
    width = data.draw(st.sampled_from([1, 2, 5]))
    numbers = data.draw(st.sampled_from([1, 3, 7, 1 << 15]))
    with patch.object(turns, "NUMBERS", numbers):
        blocks = blocks_of(rows, (key, tie), most, width)
    expected = {
        int(row): sorted(np.flatnonzero(rows == row).tolist(), key=lambda e: (key[e], tie[e]))[
            :most
        ]
        for row in np.unique(rows)
    }
    assert lists(blocks) == expected
    for block in blocks:
        counts = np.diff(block.bounds)
        assert np.all(np.diff(counts) <= 0) and counts[0] == len(block.rows)
        assert len(block.edges) * width <= numbers or len(block.rows) == 1
        # the rows that leave in a turn are the last of those that take part
        assert sum(turn.end - turn.begin - turn.stays for turn in block.turns) == len(block.rows)


@pytest.mark.parametrize("key", [np.array([1.0, np.nan, 0.0]), np.array([2, 1 << 60, -5])])
def test_keys_of_any_type(key):
    order = lists(blocks_of(np.zeros(3, np.int64), (key, np.arange(3))))[0]
    assert order == [2, 0, 1]
