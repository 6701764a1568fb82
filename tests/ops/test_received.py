"""Received edges: their positions, and those of a sweep by receiving row, as NumPy sorts them."""

from __future__ import annotations

import numpy as np
import pytest

from graphtheta.ops.kernels.sampling.received import NONE, by_receiver, place, positions

EDGES, ROWS = 200, 30


@pytest.mark.parametrize("n", [0, 1, 120, EDGES])
def test_edges_of_a_sweep_by_receiver_and_position(rng: np.random.Generator, n: int) -> None:
    receive, send = (rng.integers(0, ROWS, EDGES).astype(np.int32) for _ in range(2))
    chosen = rng.permutation(EDGES).astype(np.int32)
    uses = np.sort(rng.permutation(EDGES)[:n]).astype(np.int32)
    marks = np.full(EDGES, NONE, np.int32)
    row, ptr, other, edges, use = by_receiver(uses, chosen, receive, send, marks, ROWS + 5)
    at = chosen[uses]
    order = np.lexsort((at, receive[at]))
    np.testing.assert_array_equal(edges, at[order])
    np.testing.assert_array_equal(use, uses[order])
    np.testing.assert_array_equal(other, send[edges])
    np.testing.assert_array_equal(np.repeat(row, np.diff(ptr)), receive[edges])
    assert ptr[0] == 0 and ptr[-1] == n and (np.diff(ptr) > 0).all() and (np.diff(row) > 0).all()
    assert (marks == NONE).all()


def test_edges_are_numbered_among_those_of_their_sender(rng: np.random.Generator) -> None:
    edge_ptr = np.array([0, 4, 4, 9])
    ptr = np.array([0, 2, 2, 6])
    edge = np.array([3, 0, 4, 4, 0, 1], np.int32)
    position = rng.permutation(9).astype(np.int32)
    out = np.empty(6, np.int32)
    positions(edge, ptr, edge_ptr, position, out)
    np.testing.assert_array_equal(out, position[[3, 0, 8, 8, 4, 5]])


def test_ends_are_written_where_their_edges_are(rng: np.random.Generator) -> None:
    rows, new, position = (rng.permutation(9).astype(np.int32) for _ in range(3))
    out = np.empty(9, np.int32)
    place(rows, new, position, out)
    np.testing.assert_array_equal(out[position], new[rows])
