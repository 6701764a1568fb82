"""Progress of an import: a bar with rates on rank 0, or lines in a log file."""

from __future__ import annotations

import sys
from time import perf_counter

from tqdm import tqdm

from graphtheta.base.console import amount, say


class ReadProgress:
    """Shows what all workers read.

    Args:
        shown: Whether to show anything.

    Attributes:
        shown: Whether anything is shown.
    """

    def __init__(self, shown: bool):
        self.shown = shown
        self._clock = 0.0
        self._bar: tqdm | None = None
        self._bytes = self._rows = 0

    def begin(self, name: str, total: int) -> None:
        """Begin to read a table of so many bytes."""
        self._name = name
        self._clock = perf_counter()
        self._bytes = 0
        self._rows = 0
        if self.shown and sys.stderr.isatty():
            self._bar = tqdm(total=total, unit="B", unit_scale=True, desc=name, leave=False)

    def add(self, n_bytes: int, n_rows: int) -> None:
        """Some rows were read, by all workers together."""
        self._bytes += n_bytes
        self._rows += n_rows
        if self._bar is not None:
            self._bar.set_postfix_str(
                f"{self._rows / max(1e-9, perf_counter() - self._clock):,.0f} rows/s", refresh=False
            )
            self._bar.update(n_bytes)

    def end(self) -> None:
        """The table was read."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if self.shown:
            seconds = max(1e-9, perf_counter() - self._clock)
            say(
                f"{self._name}: {self._rows:,} rows in {seconds:.1f} s, {self._rows / seconds:,.0f}"
                f" rows/s, {amount(self._bytes / seconds)}/s"
            )

    def step(self, text: str) -> None:
        """Another step has begun."""
        if self.shown:
            say(text)
