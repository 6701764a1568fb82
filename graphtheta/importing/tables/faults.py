"""Bad rows: where they are, how many, and what happens then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import DataError

# bad rows that a message shows
SHOWN = 5
# what helps, by what a message says of a value
ADVICE = {
    "is not a number": (
        "texts of nodes become features with --one-hot, other texts and times named columns with"
        " --node-columns or --edge-columns; yes and no are read with --types COLUMN:bool"
    ),
    "is not true or false": (
        "true and false are true, false, yes, no, t, f, y, n, 1 and 0; other values are read as"
        " numbers with --types COLUMN:float, or as names with --one-hot"
    ),
    " does not know ": (
        "leave such rows out, or the label; or import the tables of the store again with these"
        " names, or with --missing COLUMN=own, and train again"
    ),
    "is not a whole number": (
        "ids that are names, or integers beyond 64 bits, are read as texts with --id-type text, and"
        " other columns with --types COLUMN:text"
    ),
    ", but one has '": (
        "zeros in front of ids are lost where they are read as numbers; read the ids as texts where"
        " the tables are made, as with dtype=str in pandas"
    ),
    "invalid UTF8 data": (
        "the file is in another encoding than UTF-8; convert it, for example with "
        "iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW"
    ),
    "is not a time in whole": (
        "state a finer unit of the times with --types COLUMN:time, which is nanoseconds"
    ),
    "has no value": (
        "say what stands for missing features with --missing, as in --missing mean or --missing"
        " COLUMN=own; only labels and splits may be missing without"
    ),
    "has no list": "say what stands for missing lists with --missing, as in --missing zero",
}


class Fault(NamedTuple):
    """A bad row.

    Attributes:
        piece: Position of its part of the table in the order of the input.
        line: Its line or row in the file, from 1.
        text: File, line, column and what is wrong.
    """

    piece: tuple[int, int]
    line: int
    text: str


class Faults:
    """The bad rows that a worker found in a table.

    Attributes:
        count: Number of bad rows.
    """

    def __init__(self) -> None:
        self.count = 0
        self._first: list[Fault] = []

    def add(
        self,
        piece: tuple[int, int],
        rows: np.ndarray,
        locate: Callable[[], tuple[str, np.ndarray]],
        text: Callable[[int], str],
    ) -> None:
        """Add rows of a piece.

        Args:
            piece: Position of the piece.
            rows: Their numbers in the piece, ascending.
            locate: Gives file and unit, such as "a.csv, line", and the lines or rows in it of all
                rows of the piece; called only for rows that may be shown.
            text: What is wrong with a row, by its number.
        """
        self.count += len(rows)
        if len(rows) and sum(fault.piece < piece for fault in self._first) < SHOWN:
            place, lines = locate()
            new = [
                Fault(piece, int(lines[row]), f"{place} {lines[row]}: {text(int(row))}")
                for row in rows[:SHOWN]
            ]
            self._first = sorted([*self._first, *new])[:SHOWN]

    def agree(self, comm: Comm, skip: bool, what: str, n_rows: int = 1) -> int:
        """The number of bad rows on all workers.

        Args:
            comm: The workers.
            skip: Whether bad rows are left out; otherwise any is an error.
            what: Name of the table.
            n_rows: Number of the other rows.

        Raises:
            DataError: There are bad rows, and they are not to be skipped, or there are no others;
                the same error on all ranks.

        Collective: all ranks of comm.
        """
        parts = comm.all_gather(
            [self.count, [[*fault.piece, fault.line, fault.text] for fault in self._first]]
        )
        count = sum(n for n, _ in parts)
        if count and not skip:
            raise DataError(
                f"{what}: {count:,} bad row{'s' * (count > 1)}; correct"
                f" {'them' if count > 1 else 'it'}, or leave bad rows out "
                f'with --on-bad-row skip (on_bad_row="skip")\n{_told(parts)}'
            )
        if count and not n_rows:
            raise DataError(
                f"{what}: there are no rows but {count:,} bad ones; check the file\n{_told(parts)}"
            )
        return count


def _told(parts: list[tuple[int, list[list[Any]]]]) -> str:
    """The first bad rows of all workers, and what helps."""
    count = sum(n for n, _ in parts)
    first = sorted(row for _, rows in parts for row in rows)[:SHOWN]
    more = f"\n... and {count - len(first):,} more" if count > len(first) else ""
    told = "\n".join(row[-1] for row in first) + more
    return told + "".join(f"\n{text}" for said, text in ADVICE.items() if said in told)
