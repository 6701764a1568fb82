"""Finds what a table is: files by their names, objects by what they have."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import pyarrow as pa

from graphtheta.errors import ConfigError, FormatError
from graphtheta.tables.binary import FeatherSource, MemorySource, ParquetSource
from graphtheta.tables.objects import table_of
from graphtheta.tables.query import is_stream, stream_source
from graphtheta.tables.source import Source
from graphtheta.tables.text import COMPRESSION, TextSource

PARQUET, FEATHER = (".parquet", ".pq"), (".feather", ".arrow", ".ipc")
TEXT = (".csv", ".tsv", ".tab", ".txt", ".edges", ".edgelist")


def open_table(what: str, table: Any, separator: str | None, header: bool) -> Source:
    """One table.

    Args:
        what: "edges" or "nodes", for messages.
        table: Files, an object or a query.
        separator, header: Of text files.
    """
    if isinstance(table, pa.Table):
        return MemorySource(what, table)
    if isinstance(table, Mapping):
        return MemorySource(what, table_of(table))
    if hasattr(table, "to_records") and hasattr(table, "columns"):
        return MemorySource(what, pa.Table.from_pandas(table, preserve_index=False))
    if is_stream(table):
        return stream_source(what, table)
    files = files_of(table)
    name = str(table) if is_path(table) else f"{files[0]}, ..." if len(files) > 1 else str(files[0])
    suffixes = {stem(path).suffix.lower() for path in files}
    kinds: dict[str, Any] = {**dict.fromkeys(PARQUET, ParquetSource), **dict.fromkeys(FEATHER, FeatherSource)}
    makers = {kinds.get(suffix, TextSource) for suffix in suffixes}
    packed = {path.suffix.lower() in COMPRESSION for path in files}
    if len(makers) > 1 or len(packed) > 1:
        raise ConfigError(f"{name}: files of several kinds, {', '.join(sorted(suffixes))}; import files of one kind, such as '*.parquet'")
    (maker,) = makers
    return TextSource(name, files, separator, header) if maker is TextSource else maker(name, files)


def files_of(table: Any) -> list[Path]:
    """The files of a table, in the order of their names, or as they are listed."""
    if not is_path(table):
        found = [path for item in table for path in files_of(item)]
        if not found:
            raise ConfigError("an empty list of files; give at least one")
        return found
    path = Path(table)
    if path.is_dir():
        known = (*PARQUET, *FEATHER, *TEXT)
        found = sorted(file for file in path.rglob("*") if file.is_file() and stem(file).suffix.lower() in known
                       and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts))
        if not found:
            raise FormatError(f"{path}: the folder has no tables; expected files {', '.join(known)}")
        return found
    if not path.exists() and any(mark in str(path) for mark in "*?["):
        found = sorted(map(Path, glob(str(path), recursive=True)))
        if not found:
            raise FormatError(f"{path}: no file has such a name; check the pattern")
        return found
    if not path.is_file():
        raise FormatError(f"{path}: the file does not exist; check the path")
    return [path]


def stem(path: Path) -> Path:
    """A path without the suffix of its compression."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSION else path


def is_path(table: Any) -> bool:
    """Whether an object is a path."""
    return isinstance(table, (str, os.PathLike))


def is_table(table: Any) -> bool:
    """Whether an object is files, a query or columns, and not a whole graph."""
    listed = isinstance(table, Sequence) and all(map(is_path, table))
    columns = isinstance(table, (pa.Table, Mapping)) or (hasattr(table, "to_records") and hasattr(table, "columns"))
    return is_path(table) or listed or columns or is_stream(table)
