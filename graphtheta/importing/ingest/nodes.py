"""Nodes and their numbers: rows of a node table, ids that edges have, or numbers that are ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.engine.comm.communicator import Comm
from graphtheta.importing.fields.base import Field
from graphtheta.importing.ingest.ids import IdDirectory
from graphtheta.importing.ingest.numbering import collect, first_of_each, number_sorted
from graphtheta.importing.ingest.options import ImportOptions
from graphtheta.importing.ingest.tables import ReadTable
from graphtheta.importing.tables.arrow import integers, one

# a block of node rows: the rows, the number of the first node, and which rows are nodes
Block = tuple[pa.Table, int, np.ndarray]


class NumberedNodes:
    """Nodes whose ids are their numbers.

    Args:
        n: Number of nodes.

    Attributes:
        n: Number of nodes.
        fields: None.
        directory: Finds the numbers of ids.
    """

    def __init__(self, n: int):
        self.n = n
        self.fields = list[Field]()
        self.directory: NumberedNodes | IdDirectory = self

    def find(self, ids: Any) -> np.ndarray:
        """Numbers of ids, [n] int64; -1 for ids that are not known."""
        numbers = integers(ids)
        return np.where((numbers >= 0) & (numbers < self.n), numbers, -1)

    def ids(self) -> Iterator[tuple[int, Any]]:
        """Nothing: ids are not stored."""
        return iter(())

    def blocks(self) -> Iterator[Block]:
        """Nothing: nodes have no fields."""
        return iter(())


class SortedIds(NumberedNodes):
    """Nodes in ascending order of the ids that edges have.

    Args:
        comm: The workers.
        blocks: Ids that this worker has read.
        kind: Type of the ids.

    Collective: all ranks of comm.
    """

    def __init__(self, comm: Comm, blocks: Iterator[Any], kind: Any):
        numbered = number_sorted(comm, collect(comm, blocks, kind))
        super().__init__(numbered.n)
        self.directory = numbered.directory
        self._range = (numbered.begin, numbered.ids)

    def ids(self) -> Iterator[tuple[int, Any]]:
        """First node and ids of the range of this worker."""
        return iter([self._range])


class NodeTable(NumberedNodes):
    """Rows of a node table, in their order.

    Args:
        comm: The workers.
        table: The table, which has been read.
        options: Name of the column of ids, and what to do with bad rows.
        kind: Type of the ids.

    Attributes:
        bad: Number of bad rows.

    Raises:
        DataError: There are bad rows that are not to be skipped; rows that are nodes by their
            position cannot be skipped.

    Collective: all ranks of comm.
    """

    def __init__(self, comm: Comm, table: ReadTable, options: ImportOptions, kind: Any):
        self._table = table
        self._id = options.id
        again = np.empty(0, np.int64)
        if options.id is not None:
            blocks = (
                (begin, one(rows.column(options.id)))
                for begin, rows in zip(table.begins, table.spool.blocks(), strict=True)
            )
            ids, first, again = first_of_each(comm, blocks, kind)
            self._add_faults(again)
        self._dropped = np.sort(np.concatenate(comm.all_gather(again)))
        self.bad = table.finish(
            comm,
            options.skip and options.id is not None,
            lambda: ((rows, stay) for rows, _, stay in self.blocks()),
        )
        super().__init__(table.n_rows - len(self._dropped))
        self.fields = table.fields
        if options.id is not None:
            self.directory = IdDirectory(comm, ids, first - np.searchsorted(self._dropped, first))

    def ids(self) -> Iterator[tuple[int, Any]]:
        """First node and ids of each block of this worker."""
        if self._id is not None:
            for rows, begin, stay in self.blocks():
                yield begin, one(rows.column(self._id)).filter(pa.array(stay))

    def blocks(self) -> Iterator[Block]:
        """Rows of each block of this worker, the number of the first node, and which rows are
        nodes.
        """
        for begin, rows in zip(self._table.begins, self._table.spool.blocks(), strict=True):
            stay = np.ones(rows.num_rows, bool)
            stay[_inside(self._dropped, begin, rows.num_rows)] = False
            yield rows, begin - int(np.searchsorted(self._dropped, begin)), stay

    def _add_faults(self, again: np.ndarray) -> None:
        """Count rows whose id is that of an earlier row."""
        if not len(again):
            return
        for i, (begin, rows) in enumerate(
            zip(self._table.begins, self._table.spool.blocks(), strict=True)
        ):
            ids = rows.column(self._id)
            self._table.add_fault(
                i,
                _inside(again, begin, rows.num_rows),
                lambda row, ids=ids: (
                    f"column '{self._id}': an earlier row has the id '{ids[row].as_py()}' too"
                ),
            )


def _inside(rows: np.ndarray, begin: int, n: int) -> np.ndarray:
    """Of ascending rows, those of a block, counted from its beginning."""
    return rows[slice(*np.searchsorted(rows, [begin, begin + n]))] - begin
