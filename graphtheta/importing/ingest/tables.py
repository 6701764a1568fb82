"""Reads a table into a spool: each worker its share, rows checked, bad ones counted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.base.console import amount
from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import ConfigError, DataError, FormatError
from graphtheta.importing.fields.base import Field
from graphtheta.importing.ingest.spool import Spool, begins, in_step
from graphtheta.importing.tables.arrow import BOOL
from graphtheta.importing.tables.faults import Faults
from graphtheta.importing.tables.progress import ReadProgress
from graphtheta.importing.tables.source import Piece, Source, TableRows, share
from graphtheta.importing.tables.text import LineBreaks


class ReadTable:
    """The rows of a table that this worker has read.

    Args:
        source: The table.
        fields: What its columns become.
        path: File of the spool.
        may_be_empty: Whether it may have no rows.

    Attributes:
        name: For messages.
        fields: What its columns become.
        spool: The rows.
        faults: Bad rows of this worker.
        n_rows: Rows of all workers that are not bad.
        begins: First row of each block of the spool.
    """

    def __init__(
        self, source: Source, fields: Sequence[Field], path: Path, may_be_empty: bool = False
    ):
        self.name = source.name
        self.fields = list(fields)
        self._source = source
        self._may_be_empty = may_be_empty
        # before they observe any rows
        self._fresh = deepcopy(self.fields)
        self.spool = Spool(path)
        self.faults = Faults()
        self._folder = path.parent
        self.n_rows = 0
        self.begins = list[int]()
        # whether rows that the fields have observed turned out to be bad
        self._late = False
        self._inputs: dict[str, Any] = {}
        for field in fields:
            for column, kind in field.inputs.items():
                if self._inputs.setdefault(column, kind) != kind:
                    raise ConfigError(
                        f"{self.name}: the column '{column}' is used as {self._inputs[column]} and"
                        f" as {kind}; use it once"
                    )

    def read(self, comm: Comm, progress: ReadProgress, skip: bool) -> None:
        """Read this worker's share.

        Args:
            comm: The workers.
            progress: Shows how far it is.
            skip: Whether bad rows are left out; otherwise any is an error.

        Raises:
            GraphThetaError: A file is damaged, or there are bad rows that are not to be skipped; on
                all ranks together.

        Collective: all ranks of comm.
        """
        if not self._read_share(comm, progress):
            self._source.with_line_breaks()
            self.spool.clear()
            self.faults = Faults()
            self.fields = deepcopy(self._fresh)
            self._read_share(comm, progress)
        self.begins, self.n_rows = begins(comm, self.spool.at, self.spool.counts)
        progress.end()
        if not skip:
            self.faults.agree(comm, skip, self.name)

    def _read_share(self, comm: Comm, progress: ReadProgress) -> bool:
        """Read this worker's share into the spool; False if any worker found that lines are no
        rows, and stopped.

        Collective: all ranks of comm.
        """
        with comm.agreed():
            pieces = self._source.pieces()
            check_room(
                self.name, sum(piece.rows for piece in pieces), self._inputs.values(), self._folder
            )
            mine = share(pieces, comm.rank, comm.size, self._source.rank0)
        progress.begin(
            self.name, int(comm.all_sum(np.array([sum(piece.weight for piece, _ in mine)]))[0])
        )
        for done in in_step(comm, self._read(mine)):
            n_bytes, n_rows, broken = comm.all_sum(np.array(done or (0, 0, 0))).tolist()
            if broken:
                return False
            progress.add(n_bytes, n_rows)
        return True

    def finish(
        self, comm: Comm, skip: bool, used: Callable[[], Iterator[tuple[pa.Table, np.ndarray]]]
    ) -> int:
        """The number of bad rows; makes the fields ready.

        Args:
            comm: The workers.
            skip: Whether bad rows are left out; otherwise any is an error.
            used: Gives the blocks of the spool, and which of their rows are not bad, [n] bool.

        Raises:
            DataError: There are bad rows that are not to be skipped, no other rows, or values that
                fit no field; on all ranks.

        Collective: all ranks of comm.
        """
        bad = self.faults.agree(comm, skip, self.name, self.n_rows)
        if not self.n_rows and not self._may_be_empty:
            raise DataError(f"{self.name}: there are no rows; check the file")
        if comm.all_max(np.array([self._late]))[0]:
            self._observe_again(used())
        for field in self.fields:
            try:
                field.agree(comm, self.n_rows)
            except DataError as error:
                raise DataError(f"{self.name}: {error}") from None
        return bad

    def add_fault(self, block: int, rows: np.ndarray, text: Any) -> None:
        """Count rows of a block as bad that were taken for good.

        Args:
            block: Number of the block in the spool.
            rows: Numbers of the rows in it.
            text: What is wrong with a row, by its number.
        """
        self._late |= len(rows) > 0
        self.faults.add(
            self.spool.at[block], rows, lambda: self._locate(self.spool.at[block]), text
        )

    def _observe_again(self, blocks: Iterator[tuple[pa.Table, np.ndarray]]) -> None:
        """Let new fields observe the rows that are used alone; what is read of the spool is read
        once more.
        """
        self.fields = self._fresh
        for table, stay in blocks:
            rows = table.filter(pa.array(stay))
            for field in self.fields if rows.num_rows else ():
                field.observe(rows)

    def _read(
        self, pieces: list[tuple[Piece, Callable[[int], bool]]]
    ) -> Iterator[tuple[int, int, bool]]:
        """Read rows into the spool; yields the bytes and rows of each block, and whether lines
        turned out to be no rows.
        """
        try:
            for piece, turn in pieces:
                for rows in self._source.read(piece, self._inputs, turn, self.faults):
                    self._add(rows)
                    yield rows.nbytes, rows.table.num_rows, False
        except LineBreaks:
            yield 0, 0, True
        self.spool.close()

    def _add(self, rows: TableRows) -> None:
        table = rows.table
        bad = self._bad(rows, self.faults)
        if bad.any():
            table = table.filter(pa.array(~bad))
        if table.num_rows:
            for field in self.fields:
                field.observe(table)
            self.spool.add(rows.at, table)

    def _bad(self, rows: TableRows, faults: Faults) -> np.ndarray:
        """Rows that cannot be used, [n] bool."""
        bad = np.zeros(rows.table.num_rows, bool)
        for field in self.fields:
            for wrong, why in field.wrong(rows.table):
                faults.add(rows.at, np.flatnonzero(wrong & ~bad), rows.locate, why)
                bad |= wrong
        return bad

    def _locate(self, at: tuple[int, int]) -> tuple[str, np.ndarray]:
        """File and unit, and the lines of the rows of a block that are in the spool; reads the
        block again.
        """
        piece = self._source.pieces()[at[0]]
        rows = next(
            rows
            for rows in self._source.read(
                piece, self._inputs, lambda block: block == at[1], Faults()
            )
            if rows.at == at
        )
        place, lines = rows.locate()
        return place, lines[~self._bad(rows, Faults())]


def check_room(name: str, n_rows: int, kinds: Iterable[Any], folder: Path) -> None:
    """Check that rows that a file declares have room, before they are read: a small file may
    declare any number of them.

    Args:
        name: The table, for messages.
        n_rows: Number of rows that its files declare.
        kinds: Types of the columns that are read.
        folder: Where rows wait.

    Raises:
        FormatError: The disk has less room than they take at least.
    """
    needed = n_rows * sum(1 / 8 if kind == BOOL else 8 for kind in kinds)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise FormatError(
            f"{name}: {n_rows:,} rows are declared, which take {amount(needed)} or more in"
            f" {folder.parent} while they wait, where {amount(free)} are free; check the file, or"
            " write the store where there is more room"
        )
