"""Tables with types of their own: Parquet, Feather (Arrow IPC), and tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from os import fsencode
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from graphtheta.base.wording import did_you_mean
from graphtheta.errors import FormatError
from graphtheta.importing.tables.arrow import (
    BOOL,
    TEXT,
    WHOLE,
    as_bools,
    cast,
    in_words,
    is_text,
    one,
    parsed,
    plain,
    plain_type,
    with_misfits,
)
from graphtheta.importing.tables.faults import Faults
from graphtheta.importing.tables.files import reading
from graphtheta.importing.tables.formats import ARROW_STREAM
from graphtheta.importing.tables.source import BLOCK, ROWS, Piece, TableRows


def types_of(schema: Any) -> dict[str, Any]:
    """Names of columns, and the types of their values."""
    return {field.name: plain_type(field.type) for field in schema}


def converted(
    table: pa.Table, columns: dict[str, Any], where: str
) -> tuple[pa.Table, dict[int, str]]:
    """Some columns of a table, in the types asked for.

    Returns:
        The columns, and what is wrong with rows whose texts or bools cannot have their types.

    Raises:
        FormatError: A column is missing or not the only one of its name, or cannot have the type.
    """
    out = {}
    wrong = dict[int, str]()
    for name, kind in columns.items():
        count = table.column_names.count(name)
        if not count:
            raise FormatError(
                f"{where}: the column '{name}' is missing; there are"
                f" {', '.join(table.column_names)}{did_you_mean(name, table.column_names)}"
            )
        if count > 1:
            raise FormatError(
                f"{where}: {count} columns have the name '{name}'; rename all but one"
            )
        column = plain(table.column(name))
        try:
            out[name], bad = _cast(column, kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            remedy = (
                "whole numbers have 64 bits and no fractions: round them, or read ids as texts with"
                ' --id-type text (id_type="text"), and other columns with --types COLUMN:text'
                if kind == WHOLE
                else "choose another column, or convert it"
            )
            raise FormatError(
                f"{where}: the column '{name}' has type {column.type} and cannot be read as {kind}"
                f" ({error}); {remedy}"
            ) from None
        for row in bad:
            value = column[row].cast(TEXT).as_py()
            wrong.setdefault(row, f"column '{name}': '{value}' is not {in_words(str(kind))}")
    return pa.table(out), wrong


def _cast(column: Any, kind: Any) -> tuple[Any, Sequence[int]]:
    """A column in another type, and the rows whose values cannot have it. Floats become integers if
    they are whole, and not so large that others were rounded to them.

    Raises:
        ArrowInvalid, ArrowNotImplementedError: It cannot have the type.
    """
    if column.type == kind:
        return column, ()
    if is_text(column.type) and not is_text(kind):
        return parsed(column, kind)
    if kind == BOOL:
        return with_misfits(column, as_bools(one(column)))
    if kind == WHOLE and pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
        largest = pc.max(pc.abs(column)).as_py()
        if largest is not None and largest >= 2 << np.finfo(column.type.to_pandas_dtype()).nmant:
            raise pa.ArrowInvalid(f"{largest:.0f} may stand for other integers that floats round")
    if kind == WHOLE or pa.types.is_timestamp(kind):
        return cast(column, kind)
    return column.cast(kind, safe=not pa.types.is_floating(kind)), ()


class TypedSource:
    """Base of tables with types; a piece is read in batches of rows."""

    typed = True
    rank0 = False
    name: str
    # new names of columns, by those that the table has
    _renamed: Mapping[str, str] = MappingProxyType({})

    def rename_columns(self, new: Mapping[str, str]) -> None:
        """Give columns other names; see ``TextSource``."""
        self._renamed = new

    def types(self) -> dict[str, Any]:
        """Names and types of the columns."""
        return {self._renamed.get(name, name): kind for name, kind in self.own_types().items()}

    def own_types(self) -> dict[str, Any]:
        """The same under the names that the table has."""
        raise NotImplementedError

    def with_line_breaks(self) -> None:
        """Nothing is read as text."""

    def read(
        self, piece: Piece, columns: dict[str, Any], mine: Callable[[int], bool], faults: Faults
    ) -> Iterator[TableRows]:
        """Read a piece; see ``Source``."""
        first = True
        begin = piece.part[1]
        old_names = {new: old for old, new in self._renamed.items()}
        own = {old_names.get(name, name): kind for name, kind in columns.items()}
        for k, batch in enumerate(self.batches(piece, list(own))):
            at = (piece.number, k)
            place = f"{piece.file}, row"
            table, wrong = converted(batch, own, piece.file)
            table = table.rename_columns(list(columns))
            numbers = begin + 1 + np.arange(batch.num_rows)
            begin += batch.num_rows
            if wrong:
                rows = np.array(sorted(wrong))
                faults.add(at, rows, partial(tuple, (place, numbers)), wrong.__getitem__)
                table = table.filter(pa.array(~np.isin(np.arange(batch.num_rows), rows)))
                numbers = np.delete(numbers, rows)
            if table.num_rows:
                yield TableRows(
                    at,
                    place,
                    table,
                    partial(np.asarray, numbers),
                    piece.weight if first else 0,
                )
                first = False

    def pieces(self) -> list[Piece]:
        """All pieces; see ``Source``."""
        raise NotImplementedError

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
        self.name = name
        self._files = files


class ParquetSource(TypedFiles):
    """Parquet files; a piece is a row group."""

    def own_types(self) -> dict[str, Any]:
        """Names and types of the columns of the first file."""
        with reading(self._files[0]):
            return types_of(pq.read_schema(pa.OSFile(fsencode(self._files[0]))))

    def pieces(self) -> list[Piece]:
        """All row groups. ``part`` is file, first row, row group."""
        pieces: list[Piece] = []
        for path in self._files:
            with reading(path):
                meta = pq.read_metadata(pa.OSFile(fsencode(path)))
                size = path.stat().st_size
            # pyarrow ends the process at damaged metadata of a column, so that its compressed size
            # is not asked for
            groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
            unpacked = sum(group.total_byte_size for group in groups)
            begin = 0
            for i, group in enumerate(groups):
                weight = size * group.total_byte_size // max(1, unpacked)
                pieces.append(
                    Piece(len(pieces), str(path), (path, begin, i), weight, rows=group.num_rows)
                )
                begin += group.num_rows
        return pieces

    def batches(self, piece: Piece, columns: list[str]) -> Iterator[pa.Table]:
        """The rows of a row group."""
        path, _, i = piece.part
        with (
            reading(path),
            pa.OSFile(fsencode(path)) as raw,
            pq.ParquetFile(raw, pre_buffer=False) as file,
        ):
            group = file.metadata.row_group(i)
            names = set(file.schema_arrow.names)
            rows = max(1024, min(ROWS, BLOCK * 4 * group.num_rows // max(1, group.total_byte_size)))
            wanted = [name for name in columns if name in names]
            if len(wanted) < len(columns):
                yield file.schema_arrow.empty_table()
            for batch in file.iter_batches(rows, row_groups=[i], columns=wanted):
                yield pa.Table.from_batches([batch])


class FeatherSource(TypedFiles):
    """Files in Arrow's own format, such as Feather; a piece is a record batch, or a whole file of
    the stream format.
    """

    def own_types(self) -> dict[str, Any]:
        """Names and types of the columns of the first file."""
        with reading(self._files[0]), pa.memory_map(fsencode(self._files[0])) as f:
            return types_of(
                (pa.ipc.open_stream(f) if in_stream_form(f) else pa.ipc.open_file(f)).schema
            )

    def pieces(self) -> list[Piece]:
        """All record batches. ``part`` is file, first row, batch; no batch if the file has no list
        of them, as a stream.
        """
        pieces: list[Piece] = []
        for path in self._files:
            begin = 0
            with reading(path), pa.memory_map(fsencode(path)) as f:
                if in_stream_form(f):
                    pieces.append(
                        Piece(len(pieces), str(path), (path, 0, None), path.stat().st_size)
                    )
                    continue
                file = pa.ipc.open_file(f)
                for i in range(file.num_record_batches):
                    batch = file.get_batch(i)
                    pieces.append(
                        Piece(
                            len(pieces),
                            str(path),
                            (path, begin, i),
                            batch.nbytes,
                            rows=batch.num_rows,
                        )
                    )
                    begin += batch.num_rows
        return pieces

    def batches(self, piece: Piece, columns: list[str]) -> Iterator[pa.Table]:
        """The rows of a record batch; their bytes are checked, since a damaged file may point
        anywhere.
        """
        path, _, i = piece.part
        with reading(path), pa.memory_map(fsencode(path)) as f:
            for batch in pa.ipc.open_stream(f) if i is None else [pa.ipc.open_file(f).get_batch(i)]:
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    if name in columns:
                        column.validate(full=True)
                for begin in range(0, batch.num_rows, ROWS):
                    yield pa.Table.from_batches([batch.slice(begin, ROWS)])


def in_stream_form(file: Any) -> bool:
    """Whether an open file of Arrow begins as the stream format does."""
    begin = file.read(len(ARROW_STREAM))
    file.seek(0)
    return bool(begin == ARROW_STREAM)


class MemorySource(TypedSource):
    """A table in memory, the same on all ranks.

    Args:
        name: For messages.
        table: The columns.
        others: Names of further columns, which are not used.
    """

    def __init__(self, name: str, table: pa.Table, others: Sequence[str] = ()):
        self.name = name
        self._table = table
        self._others = others

    def own_types(self) -> dict[str, Any]:
        """Names and types of the columns, nothing for those that are not used."""
        return {**types_of(self._table.schema), **dict.fromkeys(self._others, pa.null())}

    def pieces(self) -> list[Piece]:
        """Ranges of rows. ``part`` is nothing and the first row."""
        width = self._table.nbytes // max(1, self._table.num_rows)
        return [
            Piece(i, self.name, (None, begin), width * min(ROWS, self._table.num_rows - begin))
            for i, begin in enumerate(range(0, self._table.num_rows, ROWS))
        ]

    def batches(self, piece: Piece, columns: list[str]) -> Iterator[pa.Table]:
        """The rows of a range."""
        yield self._table.slice(piece.part[1], ROWS)
