"""Whole graphs as tables: objects of SciPy, networkx, PyG and DGL, npz and Matrix Market files.

Objects are recognised by what they have; no library is imported for it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.base.npy import UNREADABLE
from graphtheta.base.sparse import is_sparse
from graphtheta.base.typed_rows import TypedRows
from graphtheta.errors import ConfigError, DataError, FormatError, ShapeError
from graphtheta.graph.data.arrays import GraphArrays
from graphtheta.graph.data.interop import from_scipy, ids_of
from graphtheta.graph.data.tensors import of_tensor, with_whole
from graphtheta.graph.data.validation import is_column
from graphtheta.graph.datasets.reader_npz import read_npz
from graphtheta.importing.tables.arrow import TEXT
from graphtheta.importing.tables.binary import MemorySource
from graphtheta.importing.tables.libraries import (
    MASKS,
    dgl_graph,
    has_types,
    is_dgl,
    pyg_graph,
)
from graphtheta.importing.tables.source import Source

# facts of a gt.Graph that its store has
META = (
    "node_types",
    "relations",
    "class_names",
    "type_widths",
    "relation_widths",
    "graph_ids",
    "one_hot",
    "feature_scale",
    "edge_attr_scale",
    "relation_names",
    "node_categories",
    "edge_categories",
    "node_lacks",
    "edge_lacks",
    "node_units",
    "edge_units",
)
# our own columns beside named ones, which are identifiers
ID = "node id"
INDICES = "x indices"
VALUES = "x values"


@dataclass(frozen=True)
class Whole:
    """A whole graph.

    Attributes:
        edges, nodes: Its tables.
        options: Names of their columns by the keys of ``Options``.
        meta: What is kept with it.
        widths: Columns of each type of nodes, side by side in the sparse features, if each node has
            all of its type; empty otherwise.
        labels: n_classes and multilabel of a ``gt.Graph``, where its labels do not tell them.
        edge_widths: Columns of each relation, side by side in the attributes of edges; empty if
            columns are those of all edges.
        loop_width: Columns of edges of no relation; None if there are none.
    """

    edges: Source
    nodes: Source | None
    options: Any = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    widths: tuple[int, ...] = ()
    labels: dict[str, Any] = field(default_factory=dict)
    edge_widths: tuple[int, ...] = ()
    loop_width: int | None = None


def whole_graph(graph: Any, used: Collection[str] = ()) -> Whole:
    """The tables of a graph.

    Args:
        graph: A path or an object.
        used: Names of attributes of a networkx graph that something asks for.

    Raises:
        ConfigError: The object is none of those known.
        FormatError: The file is damaged.
    """
    if isinstance(graph, (str, os.PathLike)):
        path = Path(graph)
        return (
            of_graph(read_npz(path), str(path))
            if path.suffix == ".npz"
            else of_fields(from_scipy(read_market(path), {}), str(path))
        )
    name = type(graph).__name__
    if hasattr(graph, "tocoo"):
        return of_fields(from_scipy(graph, {}), name)
    if hasattr(graph, "adj") and hasattr(graph, "is_directed") and hasattr(graph, "is_multigraph"):
        return of_networkx(graph, name, used)
    if isinstance(graph, GraphArrays):
        return of_graph(graph, name)
    if has_types(graph) or (hasattr(graph, "node_attrs") and hasattr(graph, "num_nodes")):
        return of_parts(pyg_graph(graph), name)
    if is_dgl(graph):
        return of_parts(dgl_graph(graph), name)
    raise ConfigError(
        f"cannot import a {name}; give paths, a table, gt.Query, or a graph of SciPy, networkx, PyG"
        " or DGL; many graphs of PyG are one Batch.from_data_list(graphs)"
    )


def of_graph(graph: GraphArrays, name: str) -> Whole:
    """The tables of a ``gt.Graph``, with what it knows of its labels."""
    meta: dict[str, Any] = {key: graph.meta[key] for key in META if key in graph.meta}
    labels: dict[str, Any] = {} if graph.y is None else {"multilabel": graph.multilabel}
    if graph.label_kind == "classes":
        labels["n_classes"] = graph.n_classes
    return replace(of_fields(_fields(graph), name), meta=meta, labels=labels)


def read_market(path: Path) -> Any:
    """The matrix of a Matrix Market file."""
    from scipy.io import mmread

    try:
        return mmread(str(path))
    except UNREADABLE as error:
        raise FormatError(
            f"{path}: not a readable Matrix Market file ({error}); create it again with"
            " scipy.io.mmwrite"
        ) from None


def of_fields(fields: Mapping[str, Any], name: str) -> Whole:
    """The tables of a graph given by fields of ``gt.Graph``.

    Raises:
        ConfigError: Sparse edge attributes, or features that are read by rows.
    """
    present = {key: value for key, value in fields.items() if value is not None}
    attr = present.get("edge_attr")
    edge_widths: tuple[int, ...] = ()
    loops = None
    if isinstance(attr, TypedRows):
        edge_widths = tuple(attr.widths)
        loops = attr.rest
        present["edge_attr"] = attr.toarray()
    elif is_sparse(attr):
        raise ConfigError(
            f"{name}: sparse edge attributes are no column of a table; make them dense with"
            " toarray()"
        )
    if is_column(present.get("x")):
        raise ConfigError(
            f"{name}: features that are read by rows are no column of a table; the graph is in a"
            " store already, and gt.transform_store makes another one of it"
        )
    widths = (
        tuple(block.shape[1] for block in present["x"].blocks)
        if isinstance(present.get("x"), TypedRows)
        else ()
    )
    x = present.pop("x").tocsr() if is_sparse(present.get("x")) else None
    options: dict[str, Any] = {"src": "src", "dst": "dst", "id_type": "auto"}
    edges = {
        "src": np.asarray(present["edge_index"][0]),
        "dst": np.asarray(present["edge_index"][1]),
    }
    edges |= {
        key.removeprefix("edge_"): value
        for key, value in present.items()
        if key.startswith("edge_") and key.endswith(MASKS)
    }
    edges |= {key: present[key] for key in ("edge_attr", "edge_weight", "edge_y") if key in present}
    edges |= present.get("edge_columns", {})
    nodes = {key: present[key] for key in ("x", "y", *MASKS) if key in present} | dict(
        present.get("node_columns", {})
    )
    options |= {
        "edge_split": tuple(mask for mask in MASKS if mask in edges),
        "edge_attr": ("edge_attr",) if "edge_attr" in edges else (),
        "edge_weight": "edge_weight" if "edge_weight" in edges else None,
        "edge_label": ("edge_y",) if "edge_y" in edges else (),
        "edge_columns": tuple(present.get("edge_columns", {})),
        "features": ("x",) if "x" in nodes else (),
        "label": ("y",) if "y" in nodes else (),
        "split": tuple(mask for mask in MASKS if mask in nodes),
        "node_columns": tuple(present.get("node_columns", {})),
    }
    if x is not None:
        nodes |= {
            part: pa.LargeListArray.from_arrays(x.indptr.astype(np.int64), pa.array(values))
            for part, values in ((INDICES, x.indices), (VALUES, x.data))
        }
        options |= {"sparse_features": (INDICES, VALUES), "n_features": x.shape[1]}
    ids = present.get("node_ids")
    if ids is not None:
        nodes[ID] = np.asarray(ids)
        options["id"] = ID
        edges |= {end: np.asarray(ids)[edges[end]] for end in ("src", "dst")}
    elif nodes:
        options["id"] = None
    else:
        options["n_nodes"] = int(present.get("n_nodes", 0)) or None
    node_table = memory_source(f"{name}: nodes", nodes) if nodes else None
    return Whole(
        memory_source(f"{name}: edges", edges),
        node_table,
        options,
        widths=widths,
        edge_widths=edge_widths,
        loop_width=None if loops is None else int(loops.shape[1]),
    )


def memory_source(
    name: str, columns: Mapping[str, Any], used: Collection[str] | None = None
) -> MemorySource:
    """A table of arrays [n], which become columns of values, or [n, d], which become columns of
    lists.

    Args:
        name: For messages.
        columns: Arrays, lists of values or columns of pyarrow, pandas or Polars, by name.
        used: Names of the columns that something asks for; others are not read and may hold
            anything. None uses all.

    Raises:
        DataError: A column has values of several types, or of a type that no table has.
        ShapeError: Columns have different lengths, or more than two axes.
    """
    read = {
        key: column_of(f"{name}: the column '{key}'", value)
        for key, value in columns.items()
        if used is None or key in used
    }
    sizes = {key: len(column) for key, column in read.items()}
    if len(set(sizes.values())) > 1:
        raise ShapeError(
            f"{name}: columns of different lengths,"
            f" {', '.join(f'{key} {n}' for key, n in sizes.items())}; give each a value for"
            " every row"
        )
    return MemorySource(name, pa.table(read), [key for key in columns if key not in read])


def column_of(what: str, value: Any) -> Any:
    """An array [n] or [n, d], a list of values or a column of another library as a column of
    pyarrow; see ``memory_source``.
    """
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        return value
    if is_sparse(value):
        raise DataError(f"{what} is a sparse matrix; make it dense with toarray()")
    x = (
        value
        if hasattr(value, "__arrow_c_stream__") or hasattr(value, "to_numpy")
        else array_of(value)
    )
    if isinstance(x, np.ndarray) and x.ndim > 2:
        raise ShapeError(
            f"{what} has shape {list(x.shape)}; give each row one list of values, such as"
            " x.reshape(len(x), -1)"
        )
    if isinstance(x, np.ndarray) and x.ndim == 2 and not x.shape[1]:
        raise ShapeError(f"{what} has shape {list(x.shape)}, rows without values; leave it out")
    try:
        if isinstance(x, np.ndarray) and x.ndim == 2:
            return pa.FixedSizeListArray.from_arrays(_values(x.reshape(-1)), x.shape[1])
        return _values(x)
    except (pa.ArrowException, ValueError, OverflowError, TypeError) as error:
        kind = f" of type {x.dtype}" if hasattr(x, "dtype") else ""
        raise DataError(
            f"{what} has values{kind} that no table has ({error}); give all rows one type of real"
            " numbers or texts, or leave it out"
        ) from None


def _values(x: Any) -> Any:
    """Values as a column of pyarrow; Python integers beyond 64 bits are decimals."""
    if isinstance(x, np.ndarray) and x.dtype.kind in "UT":
        return pa.array(x.tolist(), TEXT)
    try:
        return pa.array(x, from_pandas=True)
    except OverflowError:
        return pa.array(x, pa.decimal256(76, 0), from_pandas=True)


def array_of(value: Any) -> np.ndarray:
    """A list or array as an array that pyarrow takes: of this machine's byte order, with None for
    masked values.
    """
    if np.ma.is_masked(value):
        value = value.tolist()
    try:
        x = np.atleast_1d(np.ascontiguousarray(of_tensor(with_whole(value))))
    except ValueError:
        # lists of different lengths
        x = in_cells(value)
    if isinstance(value, (list, tuple)) and x.dtype.kind == "U" and x.ndim == 1:
        # NumPy makes texts of numbers beside texts, which pyarrow refuses
        x = in_cells(value)
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


def in_cells(values: Collection[Any]) -> np.ndarray:
    """Values as an array of Python objects, in which a list is one value."""
    x = np.empty(len(values), object)
    for i, value in enumerate(values):
        x[i] = value
    return x


def of_networkx(graph: Any, name: str, used: Collection[str]) -> Whole:
    """The tables of a networkx graph; attributes are columns, and an undirected edge has both
    directions.
    """
    links = list(graph.edges(data=True))
    names = list(graph.nodes)
    ids = dict(zip(names, ids_of(names).tolist(), strict=True))
    ends = [(ids[u], ids[v], data) for u, v, data in links]
    if not graph.is_directed():
        ends += [(v, u, data) for u, v, data in ends if u != v]
    edges, nodes = (
        _attributes(rows)
        for rows in ([data for _, _, data in ends], [data for _, data in graph.nodes(data=True)])
    )
    src = _free("src", edges)
    dst = _free("dst", edges)
    key = _free("id", nodes)
    edges |= {src: [u for u, _, _ in ends], dst: [v for _, v, _ in ends]}
    nodes[key] = list(ids.values())
    used = {*used, src, dst, key}
    return Whole(
        memory_source(f"{name}: edges", edges, used),
        memory_source(f"{name}: nodes", nodes, used),
        {"src": src, "dst": dst, "id": key},
    )


def of_parts(parts: GraphArrays | dict[str, Any], name: str) -> Whole:
    """The tables of a graph, or of fields of one."""
    return of_graph(parts, name) if isinstance(parts, GraphArrays) else of_fields(parts, name)


def _free(name: str, attributes: Collection[str]) -> str:
    """A name that no attribute has."""
    while name in attributes:
        name = f"{name}_"
    return name


def _attributes(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Attributes by name, None where a row has none; numpy values as plain ones, and lists as lists
    of any length.
    """
    names = dict.fromkeys(str(key) for row in rows for key in row)
    plain = [
        {
            str(key): value.tolist() if hasattr(value, "tolist") else value
            for key, value in row.items()
        }
        for row in rows
    ]
    return {name: in_cells([row.get(name) for row in plain]) for name in names}


def _fields(graph: Any) -> dict[str, Any]:
    """Fields of a ``gt.Graph``."""
    names = (
        "n_nodes",
        "x",
        "y",
        *MASKS,
        "edge_attr",
        "edge_weight",
        "edge_y",
        *(f"edge_{mask}" for mask in MASKS),
        "node_ids",
        "node_columns",
        "edge_columns",
    )
    return {"edge_index": (graph.src, graph.dst), **{name: getattr(graph, name) for name in names}}
