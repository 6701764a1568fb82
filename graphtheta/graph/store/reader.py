"""Reads a store: a graph whose arrays are mapped into memory."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.base.npy import map_npy
from graphtheta.base.sparse import csr
from graphtheta.base.typed_rows import KIND, TypedRows
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.store.mapped import MappedColumn
from graphtheta.engine.store.quantised import QuantisedColumn
from graphtheta.errors import FormatError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.store.checksum import PageSums, block_sum, share
from graphtheta.graph.store.manifest import AGAIN, Manifest, StoredColumn, file_name, read_manifest
from graphtheta.graph.store.text import StoredTexts

CSR_PARTS = (".data", ".indices", ".indptr", ".shape")
# columns of a group, and the fields of a graph that they become
FIELDS = {
    "node": {name: name for name in ("y", "train", "val", "test")},
    "edge": {name: f"edge_{name}" for name in ("weight", "y", "train", "val", "test")},
}


def read_store(folder: str | os.PathLike[str]) -> Graph:
    """A graph from a store.

    Arrays are mapped into memory and features are read by rows, so that the graph may be larger
    than memory. Sizes, types and shapes of all columns are checked, and the values of all but the
    features. Ends of edges are always inside 0..n_nodes-1.

    Args:
        folder: The store. It must not be changed while the graph is in use.

    Returns:
        The graph. Columns that are not used are listed in ``meta["unused_fields"]``.

    Raises:
        FormatError: The store is incomplete, damaged, or of another version.
        ShapeError, DataError: Its columns do not make a graph.
    """
    return StoreColumns(Path(folder)).graph()


def check_store(folder: str | os.PathLike[str], comm: Comm) -> Manifest:
    """Compare all bytes of a store with their checksums.

    Args:
        folder: The store.
        comm: The workers; each reads its share.

    Returns:
        The manifest.

    Raises:
        FormatError: The store is incomplete, damaged, or of another version; names the file and the
            rows.

    Collective: all ranks of comm.
    """
    with comm.agreed():
        manifest = read_manifest(Path(folder))
        for c in manifest.columns:
            _verify(Path(folder), c, share(len(c.checksums), comm.rank, comm.size))
    return manifest


class StoreColumns:
    """The columns of a store, mapped into memory and compared with the manifest.

    Args:
        folder: The store.

    Attributes:
        folder, manifest: Of the store.

    Raises:
        FormatError: The store is incomplete, damaged, or of another version.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.manifest = read_manifest(folder)
        self._by_name: dict[tuple[str, str], StoredColumn] = {
            (c.group, c.name): c for c in self.manifest.columns
        }
        self._unused = {f"{c.group}.{c.name}": None for c in self.manifest.columns}

    def graph(self) -> Graph:
        """The graph of all columns."""
        m = self.manifest
        fields: dict[str, Any] = {
            "edge_index": (self.array("edge", "src"), self.array("edge", "dst"))
        }
        fields |= {
            field: self.array(group, name)
            for group, names in FIELDS.items()
            for name, field in names.items()
        }
        fields["x"] = self.features("node", "x")
        fields["edge_attr"] = (
            self.array("edge", "attr")
            if ("edge", "attr") in self._by_name
            else self.typed("edge", "attr")
            if ("edge", "attr.type") in self._by_name
            else self.sparse("edge", "attr")
        )
        fields["node_ids"] = (
            self.texts("node", "ids")
            if ("node", "ids.bytes") in self._by_name
            else self.array("node", "ids")
        )
        for group in FIELDS:
            named = [
                name
                for kind, name in self._by_name
                if kind == group and name.startswith("columns.")
            ]
            fields[f"{group}_columns"] = {
                name.partition(".")[2]: self.array(group, name) for name in named
            }
        unused = {"unused_fields": list(self._unused)} if self._unused else {}
        return Graph(
            n_nodes=m.n_nodes,
            name=m.name,
            n_classes=m.n_classes,
            multilabel=m.multilabel,
            meta={**m.meta, **unused},
            where=str(self.folder),
            folder=str(self.folder),
            **fields,
        )

    def array(self, group: str, name: str) -> np.ndarray | None:
        """A mapped array whose bytes have been compared with the sums of their pages; None if there
        is no such column.
        """
        c = self._take(group, name)
        if c is None:
            return None
        values = _mapped(self.folder, c)
        if c.page_sums:
            _page_sums(self.folder, c, values).check(slice(0, len(values)))
        return values

    def features(self, group: str, name: str) -> Any:
        """Features in one of their forms: read by rows, as they are or as codes, or CSR; None if
        there are none.
        """
        if (group, name) in self._by_name:
            return self.column(group, name)
        if (group, f"{name}.type") in self._by_name:
            return self.typed(group, name)
        if (group, f"{name}.codes") not in self._by_name:
            return self.sparse(group, name)
        scale = self.array(group, f"{name}.scale")
        zero = self.array(group, f"{name}.zero")
        if scale is None or zero is None:
            raise FormatError(
                f"{self.folder}: column {group}.{name}.codes needs {name}.scale and {name}.zero;"
                f" {AGAIN}"
            )
        try:
            return QuantisedColumn(self.column(group, f"{name}.codes"), scale, zero)
        except FormatError as error:
            raise FormatError(f"{self.folder}: column {group}.{name}: {error}; {AGAIN}") from None

    def column(self, group: str, name: str) -> MappedColumn:
        """A column that is read by rows."""
        c = self._take(group, name)
        path = self.folder / file_name(group, name)
        column = MappedColumn(
            path, None if c is None or not c.page_sums else partial(_page_sums, self.folder, c)
        )
        _compare(self.folder, c, column)
        return column

    def sparse(self, group: str, name: str) -> Any:
        """A CSR array of mapped parts; None if there is none."""
        arrays = {part: self.array(group, name + part) for part in CSR_PARTS}
        parts = [values for values in arrays.values() if values is not None]
        if not parts:
            return None
        if len(parts) < len(arrays):
            missing = next(part for part, values in arrays.items() if values is None)
            raise FormatError(f"{self.folder}: column {group}.{name}{missing} is missing; {AGAIN}")
        if any(values.ndim != 1 for values in parts) or any(
            values.dtype.kind != "i" for values in parts[1:]
        ):
            raise FormatError(
                f"{self.folder}: the parts of column {group}.{name} need one axis each, and all but"
                f" {name}.data integers; {AGAIN}"
            )
        data, indices, indptr, shape = parts
        return csr(
            values=data,
            indices=indices,
            indptr=indptr,
            shape=shape,
            at=f"{self.folder}: column {group}.{name}",
        )

    def typed(self, group: str, name: str) -> TypedRows:
        """Rows of several types, mapped."""
        kind = self.array(group, f"{name}.type")
        blocks = list[np.ndarray]()
        while (block := self.array(group, f"{name}.{len(blocks)}.rows")) is not None:
            blocks.append(block)
        rest = self.array(group, f"{name}.rest.rows")
        parts = blocks if rest is None else [*blocks, rest]
        if (
            kind is None
            or kind.ndim != 1
            or kind.dtype != KIND
            or not blocks
            or any(x.ndim != 2 or x.dtype != blocks[0].dtype for x in parts)
            or np.bincount(kind, minlength=len(parts)).tolist() != [len(x) for x in parts]
            or (rest is not None and rest.shape[1] not in (0, sum(x.shape[1] for x in blocks)))
        ):
            raise FormatError(
                f"{self.folder}: columns {group}.{name}.type, {name}.0.rows, {name}.1.rows and so"
                f" on do not fit together; {AGAIN}"
            )
        return TypedRows(kind, blocks, rest)

    def texts(self, group: str, name: str) -> StoredTexts:
        """Texts, which are read when they are needed."""
        data = self.array(group, f"{name}.bytes")
        bounds = self.array(group, f"{name}.offsets")
        if (
            data is None
            or bounds is None
            or data.dtype != np.uint8
            or bounds.dtype != np.int64
            or data.ndim != 1
            or bounds.ndim != 1
        ):
            raise FormatError(
                f"{self.folder}: texts need {group}.{name}.bytes [n_bytes] of uint8 and"
                f" {group}.{name}.offsets [n + 1] of int64; {AGAIN}"
            )
        return StoredTexts(data, bounds, f"{self.folder}: column {group}.{name}")

    def _take(self, group: str, name: str) -> StoredColumn | None:
        self._unused.pop(f"{group}.{name}", None)
        return self._by_name.get((group, name))


def _mapped(folder: Path, c: StoredColumn) -> np.ndarray:
    values = map_npy(folder / c.file)
    _compare(folder, c, values)
    return values


def _compare(folder: Path, c: StoredColumn | None, values: Any) -> None:
    """Compare a file with what the manifest says about it."""
    if c is not None and (values.dtype != c.type or list(values.shape) != c.shape):
        raise FormatError(
            f"{folder / c.file}: holds {list(values.shape)} of {values.dtype}, but the manifest"
            f" says {c.shape} of {c.dtype}; {AGAIN}"
        )


def _verify(folder: Path, c: StoredColumn, blocks: range) -> None:
    """Compare blocks of a column with their checksums."""
    values = _mapped(folder, c)
    for block in blocks:
        begin = block * c.rows_per_block
        if block_sum(values[begin : begin + c.rows_per_block]) != c.checksums[block]:
            raise _damaged(folder, c, block)


def _page_sums(folder: Path, c: StoredColumn, values: np.ndarray) -> PageSums:
    """What compares blocks of a column with the sums of their pages."""
    return PageSums(values, c.rows_per_block, c.page_sums, partial(_damaged, folder, c))


def _damaged(folder: Path, c: StoredColumn, block: int) -> FormatError:
    """The error for a block of a column."""
    first = block * c.rows_per_block
    last = min(first + c.rows_per_block, c.shape[0]) - 1
    return FormatError(
        f"{folder / c.file}: rows {first} to {last} are damaged: their bytes differ from the"
        f" checksum; copy the folder again, or {AGAIN}"
    )
