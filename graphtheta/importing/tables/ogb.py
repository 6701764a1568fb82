"""OGB's raw layout of a node dataset: edges, features, labels and splits without headers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.errors import ConfigError, FormatError
from graphtheta.importing.tables.arrow import WHOLE, integers
from graphtheta.importing.tables.binary import MemorySource
from graphtheta.importing.tables.faults import Faults
from graphtheta.importing.tables.objects import Whole
from graphtheta.importing.tables.source import Piece, Source, TableRows
from graphtheta.importing.tables.text import TextSource

MASKS = ("train", "val", "test")
EDGES = "edge.csv.gz"
COUNT = "num-node-list.csv.gz"
FEATURES = "node-feat.csv.gz"
LABELS = "node-label.csv.gz"
SPLITS = dict(zip(MASKS, ("train.csv.gz", "valid.csv.gz", "test.csv.gz"), strict=True))


def is_ogb(folder: Path) -> bool:
    """Whether a folder is the raw folder of a dataset, or the folder that has it."""
    return (raw_of(folder) / EDGES).is_file()


def raw_of(folder: Path) -> Path:
    """The raw folder of a dataset."""
    return folder / "raw" if (folder / "raw" / EDGES).is_file() else folder


def ogb(folder: Path, split: Sequence[str]) -> Whole:
    """The tables of a dataset.

    Args:
        folder: Its raw folder, or the folder above, which has the splits too.
        split: Name of one of several folders of splits, or nothing.

    Raises:
        FormatError: A file is damaged, or has another number of rows than there are nodes.
    """
    raw = raw_of(folder)
    n = int(columns_of(raw / COUNT)[0][0].as_py())
    edges = TextSource(str(raw / EDGES), [raw / EDGES], ",", header=False)
    extra: dict[str, Any] = {}
    if (raw / LABELS).is_file():
        labels = columns_of(raw / LABELS)
        extra |= {
            "label" if len(labels) == 1 else f"label{i}": column for i, column in enumerate(labels)
        }
    label = tuple(extra)
    masks = splits_of(raw.parent / "split", n, split)
    extra |= masks
    for name, column in extra.items():
        if len(column) != n:
            raise FormatError(
                f"{raw}: {len(column)} rows of {name} for {n} nodes; copy or download it again"
            )
    names = {"src": "0", "dst": "1", "id": None, "label": label, "split": tuple(masks)}
    if (raw / FEATURES).is_file():
        inner = TextSource(str(raw / FEATURES), [raw / FEATURES], ",", header=False)
        return Whole(edges, Beside(inner, extra), {**names, "features": tuple(inner.types())})
    nodes = MemorySource(str(raw / LABELS), pa.table(extra)) if extra else None
    return Whole(edges, nodes, names if extra else {"src": "0", "dst": "1", "n_nodes": n})


def columns_of(path: Path) -> list[Any]:
    """All columns of a small file."""
    source = TextSource(str(path), [path], ",", header=False)
    types = source.types()
    faults = Faults()
    tables = [
        rows.table
        for piece in source.pieces()
        for rows in source.read(piece, types, lambda block: True, faults)
    ]
    if faults.count or not tables:
        raise FormatError(f"{path}: {faults.count} bad rows; copy or download it again")
    return [pa.concat_tables(tables).column(name).combine_chunks() for name in types]


def splits_of(folder: Path, n: int, names: Sequence[str]) -> dict[str, Any]:
    """Masks from the files of a folder of splits."""
    splits = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    chosen = [path for path in splits if not names or path.name in names]
    if len(chosen) > 1 or (splits and not chosen):
        raise ConfigError(
            f"{folder}: choose one of the splits {', '.join(path.name for path in splits)} with"
            " --split"
        )
    masks = {}
    for mask, file in SPLITS.items() if chosen else ():
        rows = integers(columns_of(chosen[0] / file)[0].cast(WHOLE))
        if len(rows) and not 0 <= rows.min() <= rows.max() < n:
            raise FormatError(
                f"{chosen[0] / file}: node {rows.max()} of {n}; copy or download it again"
            )
        masks[mask] = np.zeros(n, bool)
        masks[mask][rows] = True
    return {mask: pa.array(values) for mask, values in masks.items()}


class Beside:
    """A table with further columns beside it, which are in memory. Rank 0 reads it, since rows are
    counted from the first.

    Args:
        inner: The table.
        extra: The columns, by name.
    """

    typed = False
    rank0 = True

    def __init__(self, inner: Source, extra: dict[str, Any]):
        self.name = inner.name
        self._inner = inner
        self._extra = extra

    def types(self) -> dict[str, Any]:
        """Names and types of all columns."""
        return {
            **self._inner.types(),
            **{name: column.type for name, column in self._extra.items()},
        }

    def with_line_breaks(self) -> None:
        """As of the table."""
        self._inner.with_line_breaks()

    def pieces(self) -> list[Piece]:
        """The pieces of the table."""
        return self._inner.pieces()

    def read(
        self, piece: Piece, columns: dict[str, Any], mine: Callable[[int], bool], faults: Faults
    ) -> Iterator[TableRows]:
        """Read a piece; see ``Source``."""
        inner = {name: kind for name, kind in columns.items() if name not in self._extra}
        begin = 0
        for rows in self._inner.read(piece, inner, lambda block: True, faults):
            table = rows.table
            n = rows.table.num_rows
            for name in columns:
                if name in self._extra and begin + n <= len(self._extra[name]):
                    table = table.append_column(
                        name, self._extra[name].slice(begin, n).cast(columns[name])
                    )
            begin += n
            yield rows._replace(table=table)
        if not faults.count and any(len(column) != begin for column in self._extra.values()):
            raise FormatError(
                f"{self.name}: {begin} rows of features for {len(next(iter(self._extra.values())))}"
                " nodes; download it again"
            )
