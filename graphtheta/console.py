"""Text output; this is the only module that prints.

All output is plain text, so that a log file is as readable as a terminal.
"""
from __future__ import annotations

import sys
from collections.abc import Sequence


def say(text: str = "") -> None:
    """Print lines for the user."""
    print(text, flush=True)


def complain(text: str) -> None:
    """Print lines to standard error."""
    print(text, file=sys.stderr, flush=True)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of equal width, the first flush left and the others flush right.

    Args:
        header: Titles.
        rows: Cells, as many per row as titles.

    Returns:
        Lines without a newline at the end.
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    text = ["  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True)))
            for line in lines]
    return "\n".join([text[0].rstrip(), "  ".join("-" * w for w in widths), *(line.rstrip() for line in text[1:])])


def pairs(rows: Sequence[tuple[str, str]]) -> str:
    """Names and values, one pair a line, values flush left."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)


def figure(value: object) -> str:
    """A number as people write it: 12,345 or 0.8123."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def amount(n_bytes: float) -> str:
    """Bytes in a unit that fits."""
    for unit in ("B", "KiB", "MiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.1f} GiB"
