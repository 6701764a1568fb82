"""Tables with types of their own: Parquet, Feather (Arrow IPC), and tables in memory."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from graphtheta.errors import FormatError
from graphtheta.tables.faults import Faults
from graphtheta.tables.files import reading
from graphtheta.tables.source import BLOCK, ROWS, Piece, Rows
from graphtheta.wording import did_you_mean


def converted(table: pa.Table, columns: dict[str, Any], where: str) -> pa.Table:
    """Some columns of a table, in the types asked for.

    Raises:
        FormatError: A column is missing, or cannot have the type.
    """
    out = {}
    for name, kind in columns.items():
        if name not in table.column_names:
            raise FormatError(f"{where}: the column '{name}' is missing; there are {', '.join(table.column_names)}"
                              f"{did_you_mean(name, table.column_names)}")
        column = table.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        try:
            out[name] = column if column.type == kind else column.cast(kind, safe=not pa.types.is_floating(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise FormatError(f"{where}: the column '{name}' has type {column.type} and cannot be read as {kind} ({error}); choose another "
                              "column, or convert it") from None
    return pa.table(out)


class TypedSource:
    """Base of tables with types; a piece is read in batches of rows."""

    typed, rank0 = True, False
    name: str

    def read(self, piece: Piece, columns: dict[str, Any], mine: Callable[[int], bool], faults: Faults) -> Iterator[Rows]:
        """Read a piece; see ``Source``."""
        first, begin = True, piece.part[1]
        for k, batch in enumerate(self.batches(piece, list(columns))):
            table, numbers = converted(batch, columns, piece.file), begin + 1 + np.arange(batch.num_rows)
            begin += batch.num_rows
            if batch.num_rows:
                yield Rows((piece.number, k), f"{piece.file}, row", table, partial(np.asarray, numbers), piece.weight if first else 0)
                first = False

    def batches(self, piece: Piece, columns: list[str]) -> Iterator[pa.Table]:
        """The rows of a piece, some at a time; at least the columns asked for that exist."""
        raise NotImplementedError


class TypedFiles(TypedSource):
    """Base of files with the same columns.

    Args:
        name: For messages.
        files: The files, in the order of their rows.
    """

    def __init__(self, name: str, files: list[Path]):
        self.name, self._files = name, files


class ParquetSource(TypedFiles):
    """Parquet files; a piece is a row group."""

    def types(self) -> dict[str, Any]:
        """Names and types of the columns of the first file."""
        with reading(self._files[0]):
            return {field.name: field.type for field in pq.read_schema(str(self._files[0]))}

    def pieces(self) -> list[Piece]:
        """All row groups. ``part`` is file, first row, row group."""
        found: list[Piece] = []
        for path in self._files:
            with reading(path):
                meta, begin = pq.read_metadata(str(path)), 0
            for i in range(meta.num_row_groups):
                group = meta.row_group(i)
                found.append(Piece(len(found), str(path), (path, begin, i), sum(group.column(c).total_compressed_size
                                                                              for c in range(group.num_columns))))
                begin += group.num_rows
        return found

    def batches(self, piece: Piece, columns: list[str]) -> Iterator[pa.Table]:
        """The rows of a row group."""
        path, _, i = piece.part
        with reading(path), pq.ParquetFile(str(path), pre_buffer=False) as file:
            group, known = file.metadata.row_group(i), set(file.schema_arrow.names)
            rows = max(1024, min(ROWS, BLOCK * 4 * group.num_rows // max(1, group.total_byte_size)))
            wanted = [name for name in columns if name in known]
            if len(wanted) < len(columns):
                yield file.schema_arrow.empty_table()
            for batch in file.iter_batches(rows, row_groups=[i], columns=wanted):
                yield pa.Table.from_batches([batch])


class FeatherSource(TypedFiles):
    """Files in Arrow's own format, such as Feather; a piece is a record batch."""

    def types(self) -> dict[str, Any]:
        """Names and types of the columns of the first file."""
        with reading(self._files[0]), pa.memory_map(str(self._files[0])) as f:
            return {field.name: field.type for field in pa.ipc.open_file(f).schema}

    def pieces(self) -> list[Piece]:
        """All record batches. ``part`` is file, first row, batch."""
        found: list[Piece] = []
        for path in self._files:
            begin = 0
            with reading(path), pa.memory_map(str(path)) as f:
                file = pa.ipc.open_file(f)
                for i in range(file.num_record_batches):
                    batch = file.get_batch(i)
                    found.append(Piece(len(found), str(path), (path, begin, i), batch.nbytes))
                    begin += batch.num_rows
        return found

    def batches(self, piece: Piece, columns: list[str]) -> Iterator[pa.Table]:
        """The rows of a record batch."""
        path, _, i = piece.part
        with reading(path), pa.memory_map(str(path)) as f:
            batch = pa.ipc.open_file(f).get_batch(i)
            for begin in range(0, batch.num_rows, ROWS):
                yield pa.Table.from_batches([batch.slice(begin, ROWS)])


class MemorySource(TypedSource):
    """A table in memory, the same on all ranks.

    Args:
        name: For messages.
        table: The columns.
    """

    def __init__(self, name: str, table: pa.Table):
        self.name, self._table = name, table

    def types(self) -> dict[str, Any]:
        """Names and types of the columns."""
        return {field.name: field.type for field in self._table.schema}

    def pieces(self) -> list[Piece]:
        """Ranges of rows. ``part`` is nothing and the first row."""
        width = self._table.nbytes // max(1, self._table.num_rows)
        return [Piece(i, self.name, (None, begin), width * min(ROWS, self._table.num_rows - begin))
                for i, begin in enumerate(range(0, self._table.num_rows, ROWS))]

    def batches(self, piece: Piece, columns: list[str]) -> Iterator[pa.Table]:
        """The rows of a range."""
        yield self._table.slice(piece.part[1], ROWS)
