"""Writes the rows of spools as columns of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.base.sparse import WIDEST
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
    at = [(begin, 0) for begin, _ in blocks()]
    starts, size = begins(comm, at, [int(text_parts(ids)[1][-1]) for _, ids in blocks()])
    data = writer.column("node", "ids.bytes", size, (), np.uint8)
    offsets = writer.column("node", "ids.offsets", n + 1, (), np.int64)
    with comm.agreed():
        if comm.rank == 0:
            offsets.write(0, np.zeros(1, np.int64))
        for (begin, ids), start in zip(blocks(), starts, strict=True):
            raw, bounds = text_parts(ids)
            data.write(start, raw)
            offsets.write(begin + 1, start + bounds[1:])


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

    def parts() -> Iterator[tuple[int, tuple[np.ndarray, np.ndarray, np.ndarray]]]:
        for table, begin, kept in blocks():
            yield begin, field.entries(table.filter(pa.array(kept)))

    counts = [(begin, len(at)) for begin, (_, at, _) in parts()]
    starts, size = begins(
        comm, [(begin, i) for i, (begin, _) in enumerate(counts)], [m for _, m in counts]
    )
    whole = np.int32 if size <= WIDEST else np.int64
    data, indices = (
        writer.column("node", f"x.{part}", size, (), kind)
        for part, kind in (("data", np.float32), ("indices", whole))
    )
    indptr = writer.column("node", "x.indptr", n + 1, (), whole)
    shape = writer.column("node", "x.shape", 2, (), np.int64)
    with comm.agreed():
        if comm.rank == 0:
            indptr.write(0, np.zeros(1, whole))
            shape.write(0, np.array([n, field.width], np.int64))
        for (begin, (sizes, at, value)), start in zip(parts(), starts, strict=True):
            data.write(start, value)
            indices.write(start, at.astype(whole))
            indptr.write(begin + 1, (start + np.cumsum(sizes)).astype(whole))


def write_typed(
    writer: StoreWriter,
    comm: Comm,
    n: int,
    blocks: Callable[[], Iterable[tuple[pa.Table, int, np.ndarray]]],
    field: SparseRows,
    widths: Sequence[int],
) -> None:
    """Write features of nodes that have all columns of their type at the width of each type; see
    ``graphtheta.base.typed_rows``.

    Args:
        writer, comm, n, blocks: As of ``write_sparse``; rows have their types too.
        field: Their field.
        widths: Columns of each type, side by side in the field.

    Raises:
        GraphThetaError: They cannot be written; on all ranks together.

    Collective: all ranks of comm.
    """

    def parts() -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
        for table, begin, kept in blocks():
            rows = table.filter(pa.array(kept))
            sizes, _, values = field.entries(rows)
            yield begin, integers(one(rows.column(TYPE))), sizes, values

    found = [(begin, np.bincount(kind, minlength=len(widths))) for begin, kind, _, _ in parts()]
    at = [(begin, i) for i, (begin, _) in enumerate(found)]
    placed = [
        begins(comm, at, [int(counts[code]) for _, counts in found]) for code in range(len(widths))
    ]
    types = writer.column("node", "x.type", n, (), KIND)
    columns = [
        writer.column("node", f"x.{code}.rows", size, (width,), np.float32)
        for code, ((_, size), width) in enumerate(zip(placed, widths, strict=True))
    ]
    with comm.agreed():
        for i, (begin, kind, sizes, values) in enumerate(parts()):
            types.write(begin, kind.astype(KIND))
            for code in np.unique(kind).tolist():
                own = kind == code
                rows = values[np.repeat(own, sizes)].reshape(int(own.sum()), widths[code])
                columns[code].write(placed[code][0][i], rows)
