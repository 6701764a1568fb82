"""Random programs of rows on a tape, drawn by ``bench/fuzz_tapes.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphtheta.ops.rows.computed import ComputedRows

BENCH = str(Path(__file__).resolve().parents[2] / "bench")


@pytest.mark.second
def test_drawn_programs_have_the_same_numbers_as_large_ones_and_as_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    from fuzz_tapes import search

    counts, faults = search(range(25))
    assert not faults
    assert counts["accepted"] == 25


@pytest.mark.second
def test_a_product_that_reads_rows_in_full_in_place_of_rounded_ones_is_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    from fuzz_tapes import search

    monkeypatch.setattr(ComputedRows, "_in_memory", lambda self: self.stored())
    _, faults = search([1346])
    assert len(faults) == 1 and "bfloat16, gradient" in faults[0]
