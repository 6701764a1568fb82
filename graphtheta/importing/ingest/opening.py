"""Finds what the edges and nodes of an import are: two tables, or a whole graph."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from graphtheta.errors import ConfigError
from graphtheta.importing.ingest.options import ImportOptions
from graphtheta.importing.tables.objects import Whole, whole_graph
from graphtheta.importing.tables.ogb import is_ogb, ogb
from graphtheta.importing.tables.opening import is_path, is_table, open_table, rename_columns, stem

WHOLE_FILES = (".npz", ".mtx")


@dataclass(frozen=True, kw_only=True)
class Tables(Whole):
    """The tables of an import.

    Attributes:
        options: What to do with them.
        source: What they are, in words.
        name: Name of the graph.
        of_tables: Whether they were given as tables, and not as a whole graph.
    """

    options: ImportOptions
    source: str
    name: str
    of_tables: bool = False


def open_tables(
    edges: Any,
    nodes: Any,
    options: ImportOptions,
    separator: str | None = None,
    header: bool = True,
    only_tables: bool = False,
) -> Tables:
    """Find the tables of an import; see ``import_graph``.

    Args:
        edges, nodes, separator, header: As of ``import_graph``.
        options: What to do with them.
        only_tables: Whether a whole graph is an error, since its columns are its own.

    Raises:
        ConfigError: Something that is no table; options that do not fit together.
        FormatError: There is no such file, or it is damaged.
    """
    if nodes is not None and options.n_nodes is not None:
        raise ConfigError(
            "n_nodes and a node table both state the number of nodes; give one of them"
        )
    names = [str(x) for x in (edges, nodes) if isinstance(x, (str, os.PathLike))]
    source = ", ".join(Path(name).name for name in names) or type(edges).__name__
    name = Path(names[0]).name.partition(".")[0] if names else "graph"
    if is_path(edges) and nodes is None and is_ogb(Path(edges)):
        whole: Whole | None = ogb(Path(edges), options.split)
        options = replace(options, split=())
    elif (is_path(edges) and stem(Path(edges)).suffix in WHOLE_FILES) or not is_table(edges):
        whole = whole_graph(edges, options.used)
    else:
        whole = None
    if whole is not None and only_tables:
        raise ConfigError(
            f"{source}: like (--like) is for tables, and this is a whole graph; import it without"
        )
    if whole is not None:
        if options.rename:
            raise ConfigError(
                f"{source}: rename (--rename) is for columns of tables, and this is a whole graph"
            )
        if nodes is not None:
            raise ConfigError(f"{source}: the graph has nodes of its own; leave the node table out")
        if twice := [
            key for key in whole.options if getattr(options, key) != getattr(ImportOptions(), key)
        ]:
            raise ConfigError(
                f"{source}: {twice[0]} names a column of a table, and the graph has its own parts;"
                " leave the option out"
            )
        if whole.meta.get("relations") and (
            options.duplicates == "drop" or options.reverse == "add"
        ):
            raise ConfigError(
                f"{source}: duplicates=drop and reverse=add compare edges without their relations;"
                " make a gt.Graph of the types, change it with deduplicated() or symmetrised(),"
                " and import that"
            )
        parts = {**vars(whole), "options": replace(options, **whole.options)}
        return Tables(**parts, source=source, name=name)
    used = {*options.used, *(old for old, new in options.rename.items() if new in options.used)}
    opened = partial(open_table, separator=separator, header=header, used=used)
    tables = [opened("edges", edges)]
    if nodes is not None:
        tables.append(opened("nodes", nodes))
    if options.rename:
        rename_columns(tables, options.rename)
    return Tables(
        edges=tables[0],
        nodes=tables[1] if len(tables) > 1 else None,
        options=options,
        source=source,
        name=name,
        of_tables=True,
    )
