"""Sums and gathers in rounds of doubling distances: any number of ranks, the same bits on all,
messages as predicted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.train import doubling
from graphtheta.engine.train.doubling import PendingSum, rounds, sent

SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 23]


def _summed(comm: Any, arrays: list[np.ndarray]) -> tuple[list[np.ndarray], list[tuple[int, int]]]:
    """Sums that are under way together, and bytes and messages of each if it is alone."""
    pending = sums = [PendingSum(comm, x.copy()) for x in arrays]
    while pending:
        pending = [one for one in pending if one.advance()]
    counts = []
    for x in arrays:
        before = comm.ledger.snapshot()
        alone = PendingSum(comm, x.copy())
        while alone.advance():
            pass
        since = comm.ledger.since(before)["other"]
        counts.append((since["bytes"], since["messages"]))
    return [one.total for one in sums], counts


@pytest.mark.parametrize("limit", [1 << 20, -1], ids=["gathered", "halved"])
@pytest.mark.parametrize("size", SIZES)
def test_sums_are_equal_on_all_ranks(
    size: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubling, "ONE_ROUND", limit)
    parts = [
        [
            np.random.default_rng((rank, n)).standard_normal(n) * 10.0 ** (rank % 5)
            for n in (0, 1, size - 1, size, 97)
        ]
        for rank in range(size)
    ]
    every = run_simulated(size, lambda comm: _summed(comm, parts[comm.rank]))
    for i, same in enumerate(zip(*(found for found, _ in every), strict=True)):
        assert len({x.tobytes() for x in same}) == 1
        np.testing.assert_allclose(
            same[0], np.sum([part[i] for part in parts], axis=0), rtol=1e-12, atol=1e-9
        )
        if limit > 0:
            total = parts[0][i].copy()
            for part in parts[1:]:
                total += part[i]
            assert (same[0] == total).all()
        predicted = np.stack(sent(len(same[0]), 8, size), axis=1)
        assert [counts[i] for _, counts in every] == [tuple(x) for x in predicted.tolist()]


@pytest.mark.parametrize("size", [*range(1, 40), 64, 1000, 1024])
def test_rounds_reach_all_ranks(size: int) -> None:
    found = rounds(size)
    assert (
        len(found) == int(np.ceil(np.log2(size)))
        and sum(high - low for low, high in found) == size - 1
    )
    n_bytes, messages = sent(1 << 22, 4, size)
    assert messages.max(initial=0) <= 2 * len(found) and n_bytes.max() < 2 << 24


@pytest.mark.parametrize("size", SIZES)
def test_rows_are_gathered_along_a_tree(size: int) -> None:
    def program(comm: Any) -> tuple[Any, int]:
        before = comm.ledger.receivers(size)
        found = comm.gather_rows(np.full((comm.rank % 3, 2), comm.rank))
        return found, int((comm.ledger.receivers(size) - before)[:, 1].sum())

    every = run_simulated(size, program)
    assert [part.tolist() for part in every[0][0]] == [[[q, q]] * (q % 3) for q in range(size)]
    assert all(found is None for found, _ in every[1:])
    # a rank sends to its parent only
    assert max(n for _, n in every) <= 1
