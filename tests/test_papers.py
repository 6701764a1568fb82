"""The page of published figures has an answer to each of them."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

PAPERS = Path(__file__).resolve().parent.parent / "bench" / "papers"


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The list of published figures."""
    monkeypatch.syspath_prepend(PAPERS)
    yield import_module("rows")
    for path in PAPERS.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_every_published_figure_is_answered(rows: Any) -> None:
    """As ``python bench/papers/rows.py`` shows."""
    assert rows.unanswered(rows.PAGE.read_text(encoding="utf-8")) == []


def test_figures_of_a_system_differ(rows: Any) -> None:
    """A row is found by its place, item and value, so two equal ones would answer each other."""
    for system, table in rows.SYSTEMS.items():
        figures = [(row.place, row.item, row.figure) for row in table.values()]
        assert len(set(figures)) == len(figures), system


def test_rows_that_no_table_shows_are_described(rows: Any) -> None:
    page = import_module("page")
    page.text()
    partly = {name for name, shown in page.SHOWN.items() if len(shown) < len(page.lines(name))}
    assert set(page.ELSE) == partly


@pytest.mark.parametrize("change", ["row", "answer", "heading"])
def test_what_is_missing_is_named(rows: Any, change: str) -> None:
    page = rows.PAGE.read_text(encoding="utf-8")
    figure = rows.SYSTEMS["BGL"]["features"].figure
    lines = page.splitlines()
    (at,) = [i for i, line in enumerate(lines) if f"| {figure} |" in line]
    if change == "row":
        del lines[at]
    elif change == "answer":
        lines[at] = lines[at].rpartition(" | ")[0] + " |  |"
    else:
        lines = [line for line in lines if line != "## BGL"]
    missing = rows.unanswered("\n".join(lines))
    assert missing[0].startswith("BGL: ") and "BGL: features" in missing
    assert len(missing) == (len(rows.SYSTEMS["BGL"]) if change == "heading" else 1)
