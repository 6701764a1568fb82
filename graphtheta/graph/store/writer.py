"""Writes a store: each worker writes the rows that it has, in any order, and the last step makes a
complete folder of them.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from graphtheta.base.atomic import (
    NEW,
    Taken,
    atomic_file,
    claim,
    create,
    file_errors,
    link_or_copy,
    make_new_folder,
    publish,
    remove_folder,
    reopen,
    unwritable,
)
from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import ConfigError, FormatError, GraphThetaError, ShapeError
from graphtheta.graph.store.checksum import file_sums, rows_per_block, share
from graphtheta.graph.store.manifest import (
    FILE,
    FORMAT,
    VERSION,
    StoredColumn,
    check_column,
    checked_manifest,
    file_name,
)

SHARED = "check the free space, and that all workers see the folder"
# files of a store, and the folders of workers for rows that wait
NAMES = re.compile(r"(node|edge)\.[\w.]+\.npy|" + re.escape(FILE) + r"|waiting-\d{5}(/\w+)?")


class ColumnWriter:
    """A column of a store that is being written. Made by ``StoreWriter.column``.

    Attributes:
        path: Its file.
        shape, dtype: Of the whole column.
        written: Rows that this rank has written.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype):
        self.path = path
        self.shape = shape
        self.dtype = dtype
        self.written = 0
        self._row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        self._begin = len(header(shape, dtype))
        self._file = reopen(path)

    def write(self, begin: int, rows: Any) -> None:
        """Write rows. Each row of the column is written once, by one rank.

        Args:
            begin: Number of the first row.
            rows: [m, ...] of the type of the column.

        Raises:
            ShapeError: The rows do not fit the column.
            FormatError: They cannot be written; on this rank only, so ``comm.agree`` must follow.
        """
        rows = np.ascontiguousarray(rows)
        if (
            rows.dtype != self.dtype
            or rows.ndim != len(self.shape)
            or rows.shape[1:] != self.shape[1:]
        ):
            raise ShapeError(
                f"{self.path.name}: got rows {list(rows.shape)} of {rows.dtype}, expected"
                f" {['m', *self.shape[1:]]} of {self.dtype}; convert them first"
            )
        if begin < 0 or begin + len(rows) > self.shape[0]:
            raise ShapeError(
                f"{self.path.name}: rows {begin} to {begin + len(rows) - 1} are outside of the"
                f" {self.shape[0]} rows of the column"
            )
        self.written += len(rows)
        data = rows.reshape(-1).view(np.uint8).data if rows.size else memoryview(b"")
        at = self._begin + begin * self._row_bytes
        try:
            while data:
                n = os.pwrite(self._file.fileno(), data, at)
                data = data[n:]
                at += n
        except OSError as error:
            raise unwritable(self.path, "the column", error, SHARED) from None

    def sums(self, rows: int, blocks: range) -> list[tuple[str, int]]:
        """Both checksums of some blocks of the column.

        Args:
            rows: Rows of a block.
            blocks: Their numbers.

        Raises:
            OSError: It cannot be read.
        """
        return file_sums(self.path, self._begin, rows * self._row_bytes, blocks)

    def close(self) -> None:
        """Flush the rows to disk and close the file.

        Raises:
            OSError: They cannot be flushed.
        """
        if not self._file.closed:
            with self._file as file:
                os.fsync(file.fileno())


class StoreWriter:
    """Writes a store into a folder that appears when it is complete.

    Until then the files are in FOLDER.part, which the next attempt empties if it is an earlier
    one's.

    Args:
        folder: The store to make; it must be missing or empty. All ranks must see it.
        comm: The workers.

    Raises:
        ConfigError: The folder has content, or is being written by another process.
        FormatError: It cannot be made, or FOLDER.part holds something else.

    Collective: all ranks of comm.
    """

    def __init__(self, folder: str | os.PathLike[str], comm: Comm):
        # the part lies beside the folder that a link points to
        self.folder = Path(os.path.realpath(folder))
        self._part = self.folder.with_name(self.folder.name + ".part")
        self._comm = comm
        self._lock = -1
        self._columns: dict[tuple[str, str], ColumnWriter] = {}
        self._linked: list[dict[str, Any]] = []
        with self._agreed():
            if comm.rank == 0:
                self._make_folder()

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.abort()

    def column(
        self, group: str, name: str, n_rows: int, trailing_shape: Sequence[int], dtype: Any
    ) -> ColumnWriter:
        """Add a column.

        Args:
            group: "node" or "edge".
            name: Its name there; see the page Files and trust.
            n_rows: Rows of the whole column.
            trailing_shape: Shape of a row: () or (width,).
            dtype: Type of the values.

        Raises:
            FormatError: A store takes no such column, or the file cannot be made.

        Collective: all ranks of comm.
        """
        kind = np.dtype(dtype).newbyteorder("<")
        shape = (int(n_rows), *map(int, trailing_shape))
        check_column(group, name, shape, kind.name)
        path = self._part / file_name(group, name)
        if (group, name) in self._columns:
            raise ConfigError(
                f"{self.folder}: the column {group}.{name} is added twice; choose another name"
            )
        with self._agreed():
            if self._comm.rank == 0:
                _make_file(path, shape, kind)
        with self._agreed():
            column = self._columns[group, name] = ColumnWriter(path, shape, kind)
        return column

    def waiting_folder(self) -> Path:
        """A folder of this worker for rows that wait; the worker removes it before ``finish``.

        Raises:
            FormatError: It cannot be made; on all ranks together.

        Collective: all ranks of comm.
        """
        folder = self._part / f"waiting-{self._comm.rank:05}"
        with self._agreed():
            make_new_folder(folder)
        return folder

    def link(self, source: Path, column: StoredColumn) -> None:
        """Add a column of another store as it is: both stores share its file, or it is copied where
        the file system cannot share files.

        Args:
            source: Its file.
            column: What the manifest of the other store says about it.

        Raises:
            FormatError: The file cannot be made.

        Collective: all ranks of comm.
        """
        with self._agreed():
            if self._comm.rank == 0:
                link_or_copy(source, self._part / column.file)
        self._linked.append(column.model_dump())

    def finish(
        self,
        n_nodes: int,
        n_edges: int,
        meta: dict[str, Any] | None = None,
        *,
        name: str = "graph",
        n_classes: int | None = None,
        multilabel: bool | None = None,
    ) -> None:
        """Compute the checksums, write the manifest, and give the folder its name.

        Args:
            n_nodes, n_edges: Size of the graph.
            meta: Anything worth keeping, such as class names; plain values, stored as JSON.
            name: Name of the graph.
            n_classes, multilabel: As in ``Graph``; None if they follow from the labels.

        Raises:
            FormatError: A column is incomplete, or does not fit the others; a file cannot be
                written.
            DataError: ``meta`` cannot be stored as JSON.

        Collective: all ranks of comm.
        """
        with self._agreed():
            for c in self._columns.values():
                c.close()
        written = self._comm.all_sum(
            np.array([c.written for c in self._columns.values()], np.int64)
        )
        for c, n in zip(self._columns.values(), written.tolist(), strict=True):
            if n != c.shape[0]:
                raise FormatError(
                    f"{self.folder}: {n} rows of {c.path.name} were written, expected {c.shape[0]},"
                    " each once"
                )
        records = self._linked + [
            self._record(group, column, c) for (group, column), c in self._columns.items()
        ]
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "n_nodes": n_nodes,
            "n_edges": n_edges,
            "name": name,
            "n_classes": n_classes,
            "multilabel": multilabel,
            "meta": meta or {},
            "columns": records,
        }
        with self._agreed():
            if self._comm.rank == 0:
                self._publish(checked_manifest(manifest, str(self.folder)).text())

    def abort(self) -> None:
        """Close all files and remove what was written; nothing after ``finish``. Not collective:
        every rank calls it for itself.
        """
        for c in self._columns.values():
            with suppress(OSError):
                c.close()
        if self._lock >= 0:
            with suppress(OSError):
                remove_folder(self._part, NAMES)
            self._unlock()

    @contextmanager
    def _agreed(self) -> Iterator[None]:
        """A block that writes; an error in it ends the store on all ranks.

        Collective: all ranks of comm.
        """
        try:
            with self._comm.agreed(), file_errors(self.folder, "the store", SHARED):
                yield
        except GraphThetaError:
            self.abort()
            raise

    def _make_folder(self) -> None:
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise ConfigError(f"{self.folder}: exists already; choose another folder, or remove it")
        try:
            self._lock = claim(self._part, NAMES)
        except Taken:
            raise ConfigError(
                f"{self._part}: another process writes this store; wait until it ends, or choose"
                " another folder"
            ) from None

    def _record(self, group: str, name: str, c: ColumnWriter) -> dict[str, Any]:
        """What the manifest says about a column. Each rank computes its share of the checksums.

        Collective: all ranks of comm.
        """
        rows = rows_per_block(c.shape, c.dtype)
        blocks = share(-(-c.shape[0] // rows), self._comm.rank, self._comm.size)
        with self._agreed():
            sums = c.sums(rows, blocks)
        pairs = [pair for part in self._comm.all_gather(sums) for pair in part]
        return {
            "group": group,
            "name": name,
            "file": c.path.name,
            "dtype": c.dtype.name,
            "shape": list(c.shape),
            "rows_per_block": rows,
            "checksums": [checksum for checksum, _ in pairs],
            "page_sums": [page_sum for _, page_sum in pairs],
        }

    def _publish(self, text: str) -> None:
        with atomic_file(self._part / FILE, NEW) as f:
            f.write(text.encode())
        publish(self._part, self.folder)
        self._unlock()

    def _unlock(self) -> None:
        lock = self._lock
        self._lock = -1
        os.close(lock)


def header(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    """The beginning of a .npy file."""
    stream = io.BytesIO()
    npy.write_array_header_1_0(
        stream, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    return stream.getvalue()


def _make_file(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """A file with its header and space for all rows."""
    data = header(shape, dtype)
    with create(path) as f:
        f.write(data)
        f.truncate(len(data) + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
