"""Tables that arrive as a stream of rows: queries, executed cursors, relations of DuckDB, and all
that gives Arrow batches.

Databases are recognised by what they have; no library is imported for it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from graphtheta.base.atomic import temporary_file
from graphtheta.errors import DataError, FormatError
from graphtheta.importing.tables.binary import TypedSource, types_of
from graphtheta.importing.tables.source import ROWS, Piece

# methods of cursors that give a reader of Arrow batches: of DuckDB from version 1.4 on, and of
# older ones and ADBC
ARROW = ("to_arrow_reader", "fetch_record_batch")
# batches, and what ends them
Stream = tuple[Any, Callable[[], None]]


@dataclass(frozen=True)
class Query:
    """The rows of a query, in the order in which the database returns them.

    Rank 0 runs it. Add ORDER BY if the order of nodes or edges should be the same in every import.

    Attributes:
        connection: A DB-API connection, such as of sqlite3 or psycopg; of DuckDB or ADBC, which
            give Arrow batches.
        sql: The query.
    """

    connection: Any
    sql: str


def is_stream(table: Any) -> bool:
    """Whether an object gives rows one after another: a query, an executed cursor, or an object
    that gives Arrow batches.
    """
    cursor = hasattr(table, "fetchmany") and hasattr(table, "description")
    return cursor or isinstance(table, Query) or hasattr(table, "__arrow_c_stream__")


def stream_source(name: str, table: Any, used: Collection[str]) -> StreamSource:
    """The table of an object of which ``is_stream`` holds.

    Args:
        name: For messages.
        table: The object.
        used: Names of the columns that something asks for; others may have values of any type.
    """
    if isinstance(table, Query):
        return StreamSource(name, lambda: run(table, used), True, f"check the query: {table.sql}")
    if hasattr(table, "__arrow_c_stream__"):
        return StreamSource(
            name,
            lambda: arrow_stream(table),
            not isinstance(table, pa.RecordBatchReader),
            "check what it computes",
        )
    return StreamSource(
        name,
        lambda: (cursor_batches(table, table, used), lambda: None),
        False,
        "execute a query first and pass its cursor, or give gt.Query(connection, sql)",
    )


def run(query: Query, used: Collection[str]) -> Stream:
    """Run a query; ``used`` as in ``stream_source``."""
    cursor = query.connection.cursor()
    try:
        # DuckDB gives batches of a relation without a copy of all rows
        done = (cursor.sql if callable(getattr(cursor, "sql", None)) else cursor.execute)(query.sql)
        return cursor_batches(done, cursor, used), cursor.close
    except BaseException:
        cursor.close()
        raise


def arrow_stream(table: Any) -> Stream:
    """The batches of an object. A DuckDB relation blocks its connection until they are closed."""
    reader = pa.RecordBatchReader.from_stream(table)
    return reader, reader.close


def cursor_batches(done: Any, cursor: Any, used: Collection[str]) -> Any:
    """The rows of a cursor: Arrow batches if it or its result has them, else those that
    ``fetchmany`` returns.

    Args:
        done: What ``execute`` returned.
        cursor: The cursor.
        used: Names of the columns that something asks for; others become columns without values.

    Returns:
        A reader of Arrow batches.
    """
    reader = next(
        (getattr(x, way) for way in ARROW for x in (done, cursor) if hasattr(x, way)), None
    )
    if reader is not None:
        return reader()
    if cursor.description is None:
        raise ValueError("the cursor has no result")
    names = [column[0] for column in cursor.description]

    def column(name: str, values: Sequence[Any], kind: Any) -> Any:
        try:
            return pa.array(values, kind) if name in used else pa.nulls(len(values))
        except (pa.ArrowException, OverflowError) as error:
            raise DataError(
                f"the column '{name}' has values of several types ({error}); let the query CAST it"
                " to one type"
            ) from None

    def batch(rows: list[Any], schema: Any = None) -> Any:
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        kinds = [None] * len(names) if schema is None else schema.types
        return pa.record_batch(list(map(column, names, columns, kinds)), names)

    first = batch(cursor.fetchmany(ROWS))
    more = (batch(rows, first.schema) for rows in iter(lambda: cursor.fetchmany(ROWS), []))
    return pa.RecordBatchReader.from_batches(first.schema, chain([first], more))


class StreamSource(TypedSource):
    """Rows of a stream. They wait in a temporary file, so that they can be read again in the same
    order.

    Args:
        name: For messages.
        make: Begins the stream.
        again: Whether it can begin several times; a stream that cannot stays open after its types
            are read.
        remedy: What to do if it fails.
    """

    typed = rank0 = True

    def __init__(self, name: str, make: Callable[[], Stream], again: bool, remedy: str):
        self.name = name
        self._make = make
        self._again = again
        self._remedy = remedy
        self._open: Stream | None = None
        self._types: dict[str, Any] | None = None
        self._file: Any = None

    def own_types(self) -> dict[str, Any]:
        """Names and types of the columns."""
        if self._types is None:
            self._open = self._guarded(self._make)
            self._types = types_of(self._open[0].schema)
            if self._again:
                self._close()
        return dict(self._types)

    def pieces(self) -> list[Piece]:
        """One piece."""
        return [Piece(0, self.name, (None, 0), 0)]

    def batches(self, piece: Piece, columns: list[str]) -> Iterator[pa.Table]:
        """All rows."""
        if self._file is None:
            self._guarded(self._spool)
        self._file.seek(0)
        for batch in pa.ipc.open_stream(self._file):
            for begin in range(0, batch.num_rows, ROWS):
                yield pa.Table.from_batches([batch.slice(begin, ROWS)])

    def _spool(self) -> None:
        self._open = self._open or self._make()
        # pyarrow writes into the open file; it disappears with this object
        file = temporary_file()
        with pa.ipc.new_stream(file, self._open[0].schema) as writer:
            for batch in self._open[0]:
                writer.write_batch(batch)
        self._close()
        self._file = file

    def _close(self) -> None:
        if self._open is not None:
            self._open[1]()
            self._open = None

    def _guarded(self, work: Callable[[], Any]) -> Any:
        """Some work with the database.

        Raises:
            DataError: It refuses the query, or a column has values of several types.
            FormatError: The temporary file cannot be written.
        """
        try:
            return work()
        except DataError as error:
            raise DataError(f"{self.name}: {error}; {self._remedy}") from None
        except pa.ArrowInvalid as error:
            raise DataError(
                f"{self.name}: {error}; let the query CAST columns to one type; {self._remedy}"
            ) from None
        except OSError as error:
            raise FormatError(
                f"{self.name}: rows cannot be written to {tempfile.gettempdir()}:"
                f" {error.strerror or error}; check the free space, or set TMPDIR to another folder"
            ) from None
        except Exception as error:
            raise DataError(
                f"{self.name}: {type(error).__name__}: {error}; {self._remedy}"
            ) from None
