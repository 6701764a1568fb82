"""Writes a graph in memory as a store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphtheta.base.sparse import is_sparse
from graphtheta.base.typed_rows import TypedRows
from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.validation import is_column
from graphtheta.graph.store.checksum import rows_per_block, share
from graphtheta.graph.store.manifest import FEATURES
from graphtheta.graph.store.narrow import Rounding, narrowed, rows_of
from graphtheta.graph.store.reader import CSR_PARTS, FIELDS
from graphtheta.graph.store.text import text_parts
from graphtheta.graph.store.writer import ColumnWriter, StoreWriter


def write_store(
    graph: Graph, folder: str | os.PathLike[str], comm: Comm, features: str = "stored"
) -> Rounding | None:
    """Write a graph as a store. Each worker writes its share of the rows.

    Args:
        graph: The same on every rank.
        folder: The store to make; missing or empty. All ranks must see it.
        comm: The workers.
        features: Type of the node features: "stored" (as they are), "float16", or "int8" with a
            scale and an offset for each column.

    Returns:
        By how much features changed; None if they are stored as they are.

    Raises:
        ConfigError: The folder has content, or there is no such type.
        DataError: The features are a column of sparse rows, or do not fit the type, or ``meta``
            cannot be stored as JSON.
        FormatError: The store cannot be written, or an id is a much longer text than the others.

    Collective: all ranks of comm.
    """
    if features not in FEATURES:
        raise ConfigError(f"features is {' or '.join(FEATURES)}, got {features!r}")
    if features != "stored" and graph.x is None:
        raise DataError(
            f"{graph.name}: the graph has no node features to store as {features}; leave"
            " --features out"
        )
    if is_column(graph.x) and graph.x.sparse:
        raise DataError(
            f"{graph.name}: x is a column of sparse rows, which a store does not take; give x as a"
            " SciPy matrix"
        )
    rounding = None
    narrow = list[tuple[str, Any]]()
    if features != "stored":
        narrow, rounding = narrowed(graph.x, features, comm, graph.name)
    with StoreWriter(folder, comm) as writer:
        for group, name, values in columns_of(graph, narrow):
            write_rows(
                values,
                writer.column(group, name, len_of(values), values.shape[1:], values.dtype),
                comm,
            )
        classes = graph.label_kind in ("none", "classes")
        writer.finish(
            graph.n_nodes,
            graph.n_edges,
            graph.meta,
            name=graph.name,
            n_classes=graph.n_classes if classes else None,
            multilabel=graph.multilabel,
        )
    return rounding


def write_rows(values: Any, writer: ColumnWriter, comm: Comm) -> None:
    """Write this worker's share of the rows of an array or column.

    Collective: all ranks of comm.
    """
    rows = share(len_of(values), comm.rank, comm.size)
    step = rows_per_block(writer.shape, writer.dtype)
    with comm.agreed():
        for a in range(rows.start, rows.stop, step):
            writer.write(a, rows_of(values, np.arange(a, min(a + step, rows.stop))))


def columns_of(graph: Graph, narrow: list[tuple[str, Any]]) -> Iterator[tuple[str, str, Any]]:
    """Group, name and values of all columns of a graph: arrays, or columns that are read by rows.

    Args:
        graph: The graph.
        narrow: Endings of the names and values of the columns that replace the features, if any.
    """
    yield from (("edge", name, getattr(graph, name)) for name in ("src", "dst"))
    for group, names in FIELDS.items():
        yield from (
            (group, name, getattr(graph, field))
            for name, field in names.items()
            if getattr(graph, field) is not None
        )
        yield from (
            (group, f"columns.{name}", x) for name, x in getattr(graph, f"{group}_columns").items()
        )
    yield from (("node", f"x{part}", values) for part, values in narrow)
    features: tuple[tuple[str, str, Any], ...] = (
        ("node", "x", None if narrow else graph.x),
        ("edge", "attr", graph.edge_attr),
    )
    for group, name, x in features:
        if isinstance(x, TypedRows):
            yield group, f"{name}.type", x.kind
            yield from (
                (group, f"{name}.{code}.rows", block) for code, block in enumerate(x.blocks)
            )
            if x.rest is not None:
                yield group, f"{name}.rest.rows", x.rest
        elif is_sparse(x):
            parts = (x.data, x.indices, x.indptr, np.array(x.shape, np.int64))
            yield from (
                (group, name + part, values) for part, values in zip(CSR_PARTS, parts, strict=True)
            )
        elif x is not None:
            yield group, name, x
    if graph.node_ids is not None and graph.node_ids.dtype.kind == "U":
        data, bounds = text_parts(graph.node_ids)
        yield from (("node", "ids.bytes", data), ("node", "ids.offsets", bounds))
    elif graph.node_ids is not None:
        yield "node", "ids", graph.node_ids


def len_of(values: Any) -> int:
    """Rows of an array or column."""
    return int(values.shape[0])
