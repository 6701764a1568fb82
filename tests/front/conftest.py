"""Fixtures of the tests of the package and its commands."""

from __future__ import annotations

import pytest

from graphtheta.inspect.reports import chart


@pytest.fixture
def without_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have no charts, which take most of their time; for tests of what else they do."""
    for name in ("curves", "audits", "precision_recall", "time_bars", "memory_bars"):
        monkeypatch.setattr(chart, name, lambda *given: "")
