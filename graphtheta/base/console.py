"""Text output; this is the only module that prints.

All output is plain text, so that a log file is as readable as a terminal.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress

# control characters but for line ends and tabs, marks that change the direction of text, and halves
# of characters, which names of files and classes may have: a terminal would obey them
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def say(text: str = "") -> None:
    """Print lines for the user."""
    print(printable(text, sys.stdout), flush=True)


def complain(text: str) -> None:
    """Print lines to standard error; nothing if it cannot be written to."""
    with suppress(OSError, ValueError):
        print(printable(text, sys.stderr), file=sys.stderr, flush=True)


def printable(text: str, stream: object = None) -> str:
    """Text in which characters that a terminal would obey, or that a stream cannot encode, are
    escapes such as ``\\x1b``.
    """
    shown = UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
    coding = getattr(stream, "encoding", None) or "utf-8"
    return shown.encode(coding, "backslashreplace").decode(coding)


def open_streams() -> None:
    """Point standard streams that the caller has closed to the null device.

    Otherwise a file that is opened later gets their number, and messages are written to it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # the lowest number that is free
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns of equal width, the first ones flush left and the others flush right.

    Args:
        header: Titles.
        rows: Cells, as many per row as titles.
        left: Number of columns that are flush left.

    Returns:
        Lines without a newline at the end.
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    text = [
        "  ".join(
            cell.ljust(w) if i < left else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    return "\n".join(
        [
            text[0].rstrip(),
            "  ".join("-" * w for w in widths),
            *(line.rstrip() for line in text[1:]),
        ]
    )


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
    value, unit = in_unit(n_bytes, 1024, ("B", "KiB", "MiB", "GiB"))
    return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"


def in_unit(value: float, step: int, units: Sequence[str]) -> tuple[float, str]:
    """A number in the first of some units in which it is below ``step``, or in the last one; each
    unit is ``step`` times the one before.
    """
    for unit in units[:-1]:
        if value < step:
            return value, unit
        value /= step
    return value, units[-1]
