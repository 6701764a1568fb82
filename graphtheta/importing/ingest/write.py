"""Writes the rows of spools as columns of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.base.typed_rows import KIND
from graphtheta.engine.comm.communicator import Comm
from graphtheta.graph.data.typed import TYPE
from graphtheta.graph.store.writer import ColumnWriter, StoreWriter
from graphtheta.importing.fields.base import Field
from graphtheta.importing.fields.sparse import SparseRows
from graphtheta.importing.ingest.ids import text_parts
from graphtheta.importing.ingest.spool import begins
from graphtheta.importing.tables.arrow import WHOLE, integers, one

# where rows of a block go: first row in the column, and which rows of the block, [n] bool
Runs = Sequence[tuple[int, np.ndarray]]
# rows of different lengths: number of the first, their lengths, and what gives their entries
RaggedRows = tuple[int, np.ndarray, Callable[[], Sequence[np.ndarray]]]


# number of the first row, type of each, and its values by type, of a part of rows of several types
TypedPart = tuple[int, np.ndarray, Callable[[int], np.ndarray]]


class FieldWriter:
    """Writes fields of nodes or edges.

    Args:
        writer: The store.
        group: "node" or "edge".
        n: Number of nodes or edges.
        fields: The fields.

    Collective: all ranks.
    """

    def __init__(self, writer: StoreWriter, group: str, n: int, fields: Sequence[Field]):
        self._fields = fields
        self._columns = [
            [writer.column(group, out.name, n, out.trailing, out.dtype) for out in field.outputs()]
            for field in self._fields
        ]

    def write(self, table: pa.Table, runs: Runs) -> None:
        """Write rows of a block."""
        for field, columns in zip(self._fields, self._columns, strict=True):
            for column, rows in zip(columns, field.rows(table), strict=True):
                write_runs(column, rows, runs)


def write_runs(column: ColumnWriter, rows: np.ndarray, runs: Runs) -> None:
    """Write rows of a block into a column."""
    for begin, picked in runs:
        if picked.any():
            column.write(begin, rows if picked.all() else rows[picked])


def write_ids(
    writer: StoreWriter,
    comm: Comm,
    n: int,
    blocks: Callable[[], Iterable[tuple[int, Any]]],
    kind: Any,
) -> None:
    """Write the ids of nodes, unless they are the numbers of the nodes.

    Args:
        writer: The store.
        comm: The workers.
        n: Number of nodes.
        blocks: Gives first node and ids of each block of this worker.
        kind: Type of the ids.

    Raises:
        GraphThetaError: They cannot be written; on all ranks together.

    Collective: all ranks of comm.
    """
    if kind == WHOLE:
        same = all(
            np.array_equal(integers(ids), begin + np.arange(len(ids))) for begin, ids in blocks()
        )
        if all(comm.all_gather(same)):
            return
        column = writer.column("node", "ids", n, (), np.int64)
        with comm.agreed():
            for begin, ids in blocks():
                column.write(begin, integers(ids))
        return

    def runs() -> Iterator[RaggedRows]:
        for begin, ids in blocks():
            data, bounds = text_parts(ids)
            yield begin, np.diff(bounds), partial(list, (data,))

    write_ragged(
        writer=writer,
        comm=comm,
        group="node",
        bounds="ids.offsets",
        parts=[("ids.bytes", np.uint8)],
        runs=runs,
        n=n,
    )


def write_ragged(
    writer: StoreWriter,
    comm: Comm,
    group: str,
    bounds: str,
    parts: Sequence[tuple[str, Any]],
    runs: Callable[[], Iterator[RaggedRows]],
    n: int,
    smallest: Any = np.int64,
) -> None:
    """Write a column of rows of different lengths: the entries of CSR rows, or the bytes of texts.

    Args:
        writer: The store.
        comm: The workers.
        group: "node" or "edge".
        bounds: Name of the bounds of the rows.
        parts: Names and types of the entries; None is the type of the bounds.
        runs: Gives the rows of this worker; called twice.
        n: Number of rows.
        smallest: Type of the bounds, unless they need int64.

    Raises:
        GraphThetaError: They cannot be written; on all ranks together.

    Collective: all ranks of comm.
    """
    counts = [(begin, int(lengths.sum())) for begin, lengths, _ in runs()]
    starts, size = begins(
        comm, [(begin, i) for i, (begin, _) in enumerate(counts)], [m for _, m in counts]
    )
    whole = np.dtype(smallest if size <= np.iinfo(smallest).max else np.int64)
    columns = [writer.column(group, name, size, (), dtype or whole) for name, dtype in parts]
    index = writer.column(group, bounds, n + 1, (), whole)
    with comm.agreed():
        if comm.rank == 0:
            index.write(0, np.zeros(1, whole))
        for (begin, lengths, entries), start in zip(runs(), starts, strict=True):
            index.write(begin + 1, (start + np.cumsum(lengths)).astype(whole))
            for column, values in zip(columns, entries(), strict=True):
                column.write(start, values.astype(column.dtype, copy=False))


def write_sparse(
    writer: StoreWriter,
    comm: Comm,
    n: int,
    blocks: Callable[[], Iterable[tuple[pa.Table, int, np.ndarray]]],
    field: SparseRows,
) -> None:
    """Write the sparse features of nodes as the parts of a CSR matrix.

    Args:
        writer: The store.
        comm: The workers.
        n: Number of nodes.
        blocks: Gives rows, number of the first node, and which rows are nodes, for each block of
            this worker.
        field: Their field.

    Raises:
        GraphThetaError: They cannot be written; on all ranks together.

    Collective: all ranks of comm.
    """

    def runs() -> Iterator[RaggedRows]:
        for table, begin, stay in blocks():
            sizes, at, values = field.entries(table.filter(pa.array(stay)))
            yield begin, sizes, partial(list, (values, at))

    write_ragged(
        writer=writer,
        comm=comm,
        group="node",
        bounds="x.indptr",
        parts=[("x.data", np.float32), ("x.indices", None)],
        runs=runs,
        n=n,
        smallest=np.int32,
    )
    write_once(writer, comm, "node", "x.shape", np.array([n, field.width], np.int64))


def write_once(writer: StoreWriter, comm: Comm, group: str, name: str, values: np.ndarray) -> None:
    """Write a small column, from rank 0.

    Collective: all ranks of comm.
    """
    column = writer.column(group, name, len(values), values.shape[1:], values.dtype)
    with comm.agreed():
        if comm.rank == 0:
            column.write(0, values)


def write_typed(
    writer: StoreWriter,
    comm: Comm,
    column: tuple[str, str],
    n: int,
    parts: Callable[[], Iterable[TypedPart]],
    widths: Sequence[int],
    rest: int | None = None,
) -> None:
    """Write rows at the width of each type; see ``graphtheta.base.typed_rows``.

    Args:
        writer: The store.
        comm: The workers.
        column: Group and name, ("node", "x") or ("edge", "attr").
        n: Number of rows.
        parts: Gives the parts of this worker.
        widths: Columns of each type.
        rest: Columns of rows of no type; None if there are none.

    Raises:
        GraphThetaError: They cannot be written; on all ranks together.

    Collective: all ranks of comm.
    """
    group, name = column
    every = [*widths, *([] if rest is None else [rest])]
    sizes = [(begin, np.bincount(kind, minlength=len(every))) for begin, kind, _ in parts()]
    at = [(begin, i) for i, (begin, _) in enumerate(sizes)]
    placed = [
        begins(comm, at, [int(counts[code]) for _, counts in sizes]) for code in range(len(every))
    ]
    types = writer.column(group, f"{name}.type", n, (), KIND)
    columns = [
        writer.column(
            group,
            f"{name}.{code if code < len(widths) else 'rest'}.rows",
            size,
            (width,),
            np.float32,
        )
        for code, ((_, size), width) in enumerate(zip(placed, every, strict=True))
    ]
    with comm.agreed():
        for i, (begin, kind, rows) in enumerate(parts()):
            types.write(begin, kind.astype(KIND))
            for code in np.unique(kind).tolist():
                columns[code].write(placed[code][0][i], rows(code))


def sparse_parts(
    blocks: Callable[[], Iterable[tuple[pa.Table, int, np.ndarray]]],
    field: SparseRows,
    widths: Sequence[int],
) -> Iterator[TypedPart]:
    """Sparse features of nodes that have all columns of their type, for ``write_typed``.

    Args:
        blocks, field: As of ``write_sparse``; rows have their types too.
        widths: Columns of each type, side by side in the field.
    """
    for table, begin, stay in blocks():
        rows = table.filter(pa.array(stay))
        sizes, _, values = field.entries(rows)
        kind = integers(one(rows.column(TYPE)))

        def of_type(
            code: int,
            kind: np.ndarray = kind,
            sizes: np.ndarray = sizes,
            values: np.ndarray = values,
        ) -> np.ndarray:
            own = kind == code
            return values[np.repeat(own, sizes)].reshape(int(own.sum()), widths[code])

        yield begin, kind, of_type


def dense_parts(
    begin: int, rows: np.ndarray, kind: np.ndarray, widths: Sequence[int], rest: int | None
) -> TypedPart:
    """Rows with the columns of all types side by side, for ``write_typed``.

    Args:
        begin: Number of the first row.
        rows: [m, d].
        kind: Type of each, [m] int; the number of types for rows of none.
        widths, rest: As of ``write_typed``.
    """
    bounds = np.cumsum([0, *widths])

    def of_type(code: int) -> np.ndarray:
        columns = slice(bounds[code], bounds[code + 1]) if code < len(widths) else slice(0, rest)
        return np.ascontiguousarray(rows[kind == code][:, columns])

    return begin, kind, of_type
