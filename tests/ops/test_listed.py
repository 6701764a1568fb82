"""Edges listed by receiving row and id, as NumPy sorts them."""

from __future__ import annotations

import numpy as np
import pytest

from graphtheta.ops.kernels.sampling.listed import list_edges


@pytest.mark.parametrize(
    "counts", [[], [0, 0], [1], [3, 0, 5], [200, 1, 60], [3000, 2, 0, 700]], ids=str
)
def test_edges_are_listed_by_row_and_id(rng: np.random.Generator, counts: list[int]) -> None:
    n = sum(counts)
    ptr = np.cumsum([0, *counts])
    receiver = rng.permutation(40)[: len(counts)].astype(np.int32)
    sender = rng.integers(0, 40, n).astype(np.int32)
    new = rng.permutation(40)
    ids = rng.permutation(2 * n)[:n].astype(np.int64)
    order, src, dst = (np.empty(n, np.int64) for _ in range(3))
    groups = np.argsort(new[receiver])
    list_edges(groups, receiver, ptr, sender, new, ids, order, src, dst)
    to = new[np.repeat(receiver, counts)]
    expected = np.lexsort((ids, to))
    np.testing.assert_array_equal(order, expected)
    np.testing.assert_array_equal(src, new[sender[expected]])
    np.testing.assert_array_equal(dst, to[expected])
