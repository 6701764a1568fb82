"""The tables of bench/README.md are those of bench/results, and every script has its section."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCH)
    yield import_module("tables")
    sys.modules.pop("tables", None)


def table(tables: Any, tmp_path: Path, rows: list[dict[str, Any]], **how: Any) -> list[str]:
    """The lines of a table of some rows, without its rule."""
    tables.RESULTS = tmp_path
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "some.jsonl").write_text(text, encoding="utf-8")
    head, _, *lines = tables.Table("some", **how).text().splitlines()
    return [head, *lines]


def test_tables_are_those_of_the_results(tables: Any) -> None:
    page = tables.PAGE.read_text(encoding="utf-8")
    assert tables.filled(page) == page, "run python bench/tables.py"


def test_every_table_and_every_file_of_results_is_shown(tables: Any) -> None:
    page = tables.PAGE.read_text(encoding="utf-8")
    assert sorted(place[2] for place in tables.PLACE.finditer(page)) == sorted(tables.TABLES)
    stored = {path.stem for path in tables.RESULTS.glob("*.jsonl")}
    assert {table.file for table in tables.TABLES.values()} == stored


def test_every_script_has_a_section(tables: Any) -> None:
    page = tables.PAGE.read_text(encoding="utf-8")
    scripts = [
        path.name
        for path in BENCH.glob("*.py")
        if "__main__" in path.read_text(encoding="utf-8") and path.name != "tables.py"
    ]
    assert len(scripts) > 40
    assert [name for name in scripts if f"\n### {name}\n" not in page] == []


def test_numbers_are_short_and_cells_without_a_value_are_empty(tables: Any, tmp_path: Path) -> None:
    rows = [
        {"name": "rmat:scale=4,edge_factor=2,classes=3", "x": 1234.5, "n": 7, "exact": True},
        {"name": "one", "x": 2.0, "n": None, "exact": False},
        {"name": "two", "x": 1.25e-5, "exact": False},
    ]
    columns = {"name": "{name}", "x": "{x}", "n": "{n}", "exact": "{exact}"}
    assert table(tables, tmp_path, rows, columns=columns) == [
        "| name | x | n | exact |",
        "| rmat 4 x 2 | 1,234 | 7 | yes |",
        "| one | 2.00 |  | no |",
        "| two | 1.3e-05 |  | no |",
    ]


def test_values_become_columns(tables: Any, tmp_path: Path) -> None:
    rows = [
        {"job": "a", "link": "slow", "s": 1.0},
        {"job": "a", "link": "fast", "s": 0.5},
        {"job": "b", "link": "fast", "s": 0.25},
        {"job": "b", "link": "fast", "s": 0.125},
    ]
    shown = table(
        tables, tmp_path, rows, columns={"job": "{job}"}, across="{link}", cell="{s:.2f} s"
    )
    assert shown == ["| job | slow | fast |", "| a | 1.00 s | 0.50 s |", "| b |  | 0.12 s |"]


def test_seeds_of_a_setting_are_one_row(tables: Any, tmp_path: Path) -> None:
    rows = [
        {"task": "a", "mean": 80.0, "deviation": 0.0, "figures": [80.0], "runs": 1},
        {"task": "a", "mean": 82.0, "deviation": 0.0, "figures": [82.0], "runs": 1},
        {"task": "b", "mean": 5.0, "deviation": 1.0, "figures": [4.0, 6.0], "runs": 2},
    ]
    columns = {"task": "{task}", "runs": "{runs}", "test": "{mean:.1f} +- {deviation:.1f}"}
    assert table(tables, tmp_path, rows, columns=columns, seeds=("task",)) == [
        "| task | runs | test |",
        "| a | 2 | 81.0 +- 1.4 |",
        "| b | 2 | 5.0 +- 1.4 |",
    ]


def test_a_table_without_rows_is_an_error(tables: Any, tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=r"some\.jsonl has no rows"):
        table(tables, tmp_path, [{"x": 1}], columns={"x": "{x}"}, where=lambda row: row["x"] > 1)
