"""Finds what a table is: files by their names, objects by what they have."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import pyarrow as pa

from graphtheta.base.wording import did_you_mean, shown
from graphtheta.errors import ConfigError, FormatError
from graphtheta.importing.tables.binary import (
    FeatherSource,
    MemorySource,
    ParquetSource,
    TypedSource,
)
from graphtheta.importing.tables.formats import (
    ARROW,
    ARROW_STREAM,
    PARQUET,
    begin_of,
    compression,
    refuse_foreign,
)
from graphtheta.importing.tables.objects import memory_source
from graphtheta.importing.tables.query import is_stream, stream_source
from graphtheta.importing.tables.text import TextSource

PARQUET_FILES = (".parquet", ".pq")
ARROW_FILES = (".feather", ".arrow", ".arrows", ".ipc")
PACKED = (".gz", ".gzip", ".zst", ".zstd", ".bz2", ".lz4")
TEXT = (".csv", ".tsv", ".tab", ".txt", ".edges", ".edgelist")


def rename_columns(sources: Sequence[TextSource | TypedSource], rename: Mapping[str, str]) -> None:
    """Give columns of tables other names, before anything is read.

    Args:
        sources: The tables.
        rename: New names, by the old ones, which one of the tables has at least.

    Raises:
        ConfigError: No table has a column, or one has the new name already.
    """
    every = {name: None for source in sources for name in source.types()}
    for old, new in rename.items():
        if old not in every:
            raise ConfigError(
                f"--rename {old}={new}: no table has the column '{old}'{did_you_mean(old, every)};"
                f" there are {', '.join(every)}"
            )
    for source in sources:
        names = source.types()
        own = {old: new for old, new in rename.items() if old in names}
        for old, new in own.items():
            if new in names and new not in own:
                raise ConfigError(
                    f"{source.name}: --rename {old}={new}: there is a column '{new}' already;"
                    f" rename it as well, as in --rename {old}={new},{new}=old_{new}"
                )
        source.rename_columns(own)


def open_table(
    what: str, table: Any, separator: str | None, header: bool, used: Collection[str]
) -> TextSource | TypedSource:
    """One table.

    Args:
        what: "edges" or "nodes", for messages.
        table: Files, an object or a query.
        separator, header: Of text files.
        used: Names of the columns that something asks for; others may hold anything.
    """
    if isinstance(table, pa.Table):
        return MemorySource(what, table)
    if isinstance(table, Mapping):
        return memory_source(what, table, used)
    if is_frame(table):
        return memory_source(what, columns_of(what, table, used), used)
    if is_stream(table):
        return stream_source(what, table, used)
    files = files_of(table)
    name = str(table) if is_path(table) else f"{files[0]}, ..." if len(files) > 1 else str(files[0])
    suffixes = {stem(path).suffix.lower() for path in files}
    makers = {maker_of(path) for path in files}
    packed = {bool(compression(path)) for path in files}
    if len(makers) > 1 or len(packed) > 1:
        raise ConfigError(
            f"{name}: files of several kinds, {', '.join(sorted(suffixes))}; import files of one"
            " kind, such as '*.parquet'"
        )
    (maker,) = makers
    return TextSource(name, files, separator, header) if maker is TextSource else maker(name, files)


def maker_of(path: Path) -> Any:
    """The class that reads a file: by its first bytes, so that a wrong name does no harm, or else
    by its name.
    """
    begin = begin_of(path)
    if begin.startswith(PARQUET):
        return ParquetSource
    if begin.startswith((ARROW, ARROW_STREAM)):
        return FeatherSource
    if compression(path):
        return TextSource
    refuse_foreign(path, begin)
    # a damaged file says what it should be by its name
    named = {
        **dict.fromkeys(PARQUET_FILES, ParquetSource),
        **dict.fromkeys(ARROW_FILES, FeatherSource),
    }
    return named.get(path.suffix.lower(), TextSource)


def files_of(table: Any) -> list[Path]:
    """The files of a table, in the order of their names, or as they are listed."""
    if not is_path(table):
        if not isinstance(table, Sequence):
            raise ConfigError(
                f"got {shown(table)} as a table; give a path, a list of paths, a table or a dict of"
                " arrays"
            )
        files = [path for item in table for path in files_of(item)]
        if not files:
            raise ConfigError("an empty list of files; give at least one")
        return files
    path = Path(table)
    if path.is_dir():
        suffixes = (*PARQUET_FILES, *ARROW_FILES, *TEXT)
        files = sorted(
            file
            for file in path.rglob("*")
            if file.is_file()
            and stem(file).suffix.lower() in suffixes
            and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
        )
        if not files:
            raise FormatError(
                f"{path}: the folder has no tables; expected files {', '.join(suffixes)}"
            )
        return files
    if not path.exists() and any(mark in str(path) for mark in "*?["):
        files = sorted(map(Path, glob(str(path), recursive=True)))
        if not files:
            raise FormatError(f"{path}: no file has such a name; check the pattern")
        return files
    if not path.is_file():
        raise FormatError(f"{path}: the file does not exist; check the path")
    return [path]


def stem(path: Path) -> Path:
    """A path without the suffix of its compression."""
    return path.with_suffix("") if path.suffix.lower() in PACKED else path


def is_path(table: Any) -> bool:
    """Whether an object is a path."""
    return isinstance(table, (str, os.PathLike))


def is_table(table: Any) -> bool:
    """Whether an object is files, a query or columns, and not a whole graph."""
    listed = isinstance(table, Sequence) and all(map(is_path, table))
    columns = isinstance(table, (pa.Table, Mapping)) or is_frame(table)
    return is_path(table) or listed or columns or is_stream(table)


def is_frame(table: Any) -> bool:
    """Whether an object is a table of pandas."""
    return hasattr(table, "to_records") and hasattr(table, "columns")


def columns_of(what: str, frame: Any, used: Collection[str]) -> dict[str, Any]:
    """The columns of a table of pandas by name.

    Raises:
        FormatError: Several have a name that is asked for.
    """
    names = list(map(str, frame.columns))
    again = next((name for name in names if name in used and names.count(name) > 1), None)
    if again is not None:
        raise FormatError(
            f"{what}: {names.count(again)} columns have the name '{again}'; rename all but one"
        )
    return {name: frame.iloc[:, i] for i, name in enumerate(names)}
