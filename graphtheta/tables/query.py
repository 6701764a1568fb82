"""Tables from a database: the rows of a query over any DB-API connection, or one that gives Arrow batches."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.errors import DataError
from graphtheta.tables.binary import converted
from graphtheta.tables.faults import Faults
from graphtheta.tables.source import ROWS, Piece, Rows


@dataclass(frozen=True)
class Query:
    """The rows of a query, in the order in which the database returns them.

    Rank 0 runs it. Add ORDER BY if the order of nodes or edges should be the same in every import.

    Attributes:
        connection: A DB-API connection, such as of sqlite3 or psycopg; of DuckDB or ADBC, which give Arrow batches.
        sql: The query.
    """

    connection: Any
    sql: str


class QuerySource:
    """The rows of a query; read once for the types and once for the rows.

    Args:
        name: For messages.
        query: The query.
    """

    typed = rank0 = True

    def __init__(self, name: str, query: Query):
        self.name, self._query = name, query
        self._types: dict[str, Any] | None = None

    def types(self) -> dict[str, Any]:
        """Names and types of the columns, as the first rows have them."""
        if self._types is None:
            first = next(self._batches(), None)
            if first is None:
                raise DataError(f"{self.name}: the query returns no rows; check it: {self._query.sql}")
            self._types = {field.name: field.type for field in first.schema}
        return dict(self._types)

    def pieces(self) -> list[Piece]:
        """One piece."""
        return [Piece(0, self.name, None, 0)]

    def read(self, piece: Piece, columns: dict[str, Any], mine: Callable[[int], bool], faults: Faults) -> Iterator[Rows]:
        """All rows; see ``Source``."""
        begin = 0
        for k, batch in enumerate(self._batches(columns)):
            table, numbers = converted(batch, columns, self.name), begin + 1 + np.arange(batch.num_rows)
            begin += batch.num_rows
            if batch.num_rows:
                yield Rows((0, k), f"{self.name}, row", table, partial(np.asarray, numbers), batch.nbytes)

    def _batches(self, columns: dict[str, Any] | None = None) -> Iterator[pa.Table]:
        """The rows, some at a time.

        Raises:
            DataError: The database refuses the query, or a column has values of several types.
        """
        cursor = None
        try:
            cursor = self._query.connection.cursor()
            done = cursor.execute(self._query.sql)
            given = next((x for x in (done, cursor) if hasattr(x, "fetch_record_batch")), None)
            if given is not None:
                for batch in given.fetch_record_batch():
                    yield pa.Table.from_batches([batch])
                return
            names = [column[0] for column in cursor.description]
            types = self._types or {}
            first = cursor.fetchmany(ROWS)
            for rows in chain([first], iter(lambda: cursor.fetchmany(ROWS), [])):
                if rows:
                    yield pa.table({name: pa.array(values, None if columns is None else types.get(name))
                                    for name, values in zip(names, zip(*rows, strict=True), strict=True)})
        except GeneratorExit:
            raise
        except pa.ArrowInvalid as error:
            raise DataError(f"{self.name}: {error}; let the query CAST columns to one type: {self._query.sql}") from None
        except Exception as error:
            raise DataError(f"{self.name}: {type(error).__name__}: {error}; check the query: {self._query.sql}") from None
        finally:
            if cursor is not None:
                cursor.close()
