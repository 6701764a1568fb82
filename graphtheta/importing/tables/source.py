"""What a table is to the import: pieces in a fixed order, which workers read independently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from graphtheta.importing.tables.faults import Faults

# bytes of text that are parsed at a time, and bytes of binary columns that are decoded at a time
BLOCK = 8 << 20
# rows of arrays in memory that make up a piece
ROWS = 1 << 18


class Piece(NamedTuple):
    """A part of a table.

    Attributes:
        number: Position in the order of the input.
        file: The file, for messages.
        part: What the source needs to find it.
        weight: Its size in bytes, to give all workers as much to read.
        whole: Whether its beginning cannot be found without reading all before it, as in a
            compressed file.
        rows: Number of rows, if the file states it; otherwise 0.
    """

    number: int
    file: str
    part: Any
    weight: int
    whole: bool = False
    rows: int = 0


class TableRows(NamedTuple):
    """Some rows of a table.

    Attributes:
        at: Position in the order of the input: the piece, and the block within it.
        place: File and unit of ``lines``, such as "a.csv, line".
        table: The columns asked for, in the types asked for.
        lines: Gives line or row in the file of each row, from 1, [n] int64.
        nbytes: Bytes read from the file.
    """

    at: tuple[int, int]
    place: str
    table: pa.Table
    lines: Callable[[], np.ndarray]
    nbytes: int

    def locate(self) -> tuple[str, np.ndarray]:
        """File and unit, and the line or row of each row."""
        return self.place, self.lines()


class Source(Protocol):
    """A table of edges or nodes.

    Attributes:
        name: For messages.
        typed: Whether columns have types of their own; if not, they are parsed as the types asked
            for.
        rank0: Whether only rank 0 can read it.
    """

    name: str
    typed: bool
    rank0: bool

    def types(self) -> dict[str, Any]:
        """Names and pyarrow types of all columns; found in the first rows of a table that has no
        types.
        """

    def with_line_breaks(self) -> None:
        """Expect line breaks in quoted values from now on; no effect where no text is read."""

    def pieces(self) -> list[Piece]:
        """All pieces, in the order of the input; the same on all workers."""

    def read(
        self, piece: Piece, columns: dict[str, Any], mine: Callable[[int], bool], faults: Faults
    ) -> Iterator[TableRows]:
        """Read a piece.

        Args:
            piece: One of ``pieces``.
            columns: The columns to read, and their types.
            mine: Whether to read a block, by its number in the piece.
            faults: Receives the rows that cannot be parsed.

        Raises:
            FormatError: The file is missing, damaged, or lacks a column.
        """


def share(
    pieces: list[Piece], rank: int, size: int, rank0: bool = False
) -> list[tuple[Piece, Callable[[int], bool]]]:
    """The pieces that a worker reads, and which of their blocks.

    Pieces are dealt in contiguous runs of about equal weight. If there are fewer compressed files
    than workers, every worker decompresses all, and parses the blocks of its turn.
    """
    every: Callable[[int], bool] = lambda block: True
    if rank0:
        return [(piece, every) for piece in pieces if rank == 0]
    if pieces and pieces[0].whole and len(pieces) < size:
        return [(piece, lambda block: block % size == rank) for piece in pieces]
    ends = np.cumsum([max(1, piece.weight) for piece in pieces])
    middles = ends - np.diff(ends, prepend=0) / 2
    owner = np.minimum(middles * size // max(1, ends[-1] if len(ends) else 1), size - 1).astype(int)
    return [(piece, every) for piece, q in zip(pieces, owner, strict=True) if q == rank]
