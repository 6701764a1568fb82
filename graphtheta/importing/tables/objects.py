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
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.interop import from_scipy, ids_of
from graphtheta.graph.data.tensors import of_tensor
from graphtheta.graph.data.validation import is_column
from graphtheta.graph.datasets.reader_npz import read_npz
from graphtheta.graph.graph_level.whole_graphs import whole_graphs
from graphtheta.importing.tables.arrow import TEXT
from graphtheta.importing.tables.binary import MemorySource
from graphtheta.importing.tables.source import Source

MASKS = ("train", "val", "test")
# names of values of PyG and DGL, and the field they are
NODE_VALUES = {
    "x": "x",
    "feat": "x",
    "y": "y",
    "label": "y",
    **{f"{mask}_mask": mask for mask in MASKS},
}
EDGE_VALUES = {
    "edge_attr": "edge_attr",
    "feat": "edge_attr",
    "edge_weight": "edge_weight",
    "weight": "edge_weight",
    "w": "edge_weight",
}
# fields that stay matrices if they have one column
WIDE = ("x", "edge_attr")
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
# parts of the names of what PyG counts among attributes, but are numbers of nodes
TOPOLOGY = ("index", "adj", "face")
# our own columns beside named ones, which are identifiers
ID = "node id"
INDICES = "x indices"
VALUES = "x values"


@dataclass(frozen=True)
class Whole:
    """A whole graph.

    Attributes:
        edges, nodes: Its tables.
        options: Names of their columns.
        meta: What is kept with it.
        widths: Columns of each type of nodes, side by side in the sparse features, if each node has
            all of its type; empty otherwise.
        labels: n_classes and multilabel of a ``gt.Graph``, where its labels do not tell them.
        edge_widths, loop_width: As of ``Tables``.
    """

    edges: Source
    nodes: Source | None
    options: dict[str, Any] = field(default_factory=dict)
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
    if hasattr(graph, "edge_types") and hasattr(graph, "node_types"):
        return of_types(*pyg_types(graph), name)
    if len(getattr(graph, "ntypes", ())) > 1 or len(getattr(graph, "canonical_etypes", ())) > 1:
        return of_types(*dgl_types(graph), name)
    if (
        hasattr(graph, "ndata")
        and hasattr(graph, "edata")
        and callable(getattr(graph, "edges", None))
    ):
        return of_fields(of_dgl(graph), name)
    if isinstance(graph, GraphArrays):
        return of_graph(graph, name)
    if hasattr(graph, "node_attrs") and hasattr(graph, "num_nodes"):
        return of_pyg(graph, name)
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
            return pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), x.shape[1])
        return (
            pa.array(x.tolist(), TEXT)
            if isinstance(x, np.ndarray) and x.dtype.kind == "U"
            else pa.array(x, from_pandas=True)
        )
    except (pa.ArrowException, ValueError, OverflowError, TypeError) as error:
        kind = f" of type {x.dtype}" if hasattr(x, "dtype") else ""
        raise DataError(
            f"{what} has values{kind} that no table has ({error}); give all rows one type of real"
            " numbers or texts, or leave it out"
        ) from None


def array_of(value: Any) -> np.ndarray:
    """A list or array as an array that pyarrow takes: of this machine's byte order, and texts for
    integers beyond 64 bits.
    """
    try:
        x = np.atleast_1d(np.ascontiguousarray(of_tensor(value)))
    except ValueError:
        # lists of different lengths
        x = in_cells(value)
    whole = x.dtype.kind == "u" or (
        x.dtype.kind == "O" and all(isinstance(item, int) for item in x.flat)
    )
    if whole and x.size and x.max() > np.iinfo(np.int64).max:
        return x.astype(np.str_)
    return x.astype(x.dtype.newbyteorder("="), copy=False)


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


def of_pyg(data: Any, name: str) -> Whole:
    """The tables of a ``Data`` object of PyG; attributes of nodes and edges with other names are
    named columns.

    A ``Batch`` with a label for each of its graphs becomes a graph of whole graphs.

    Raises:
        ConfigError: It has no edges.
        ShapeError: There are neither as many labels as nodes nor as many as graphs.
    """
    nodes = pyg_values(data, data.node_attrs())
    edges = pyg_values(data, data.edge_attrs())
    ends = getattr(data, "edge_index", None)
    adjacency = getattr(data, "adj_t", None)
    if ends is None and adjacency is None:
        raise ConfigError(
            f"a {name} without edge_index; give one, of shape [2, 0] if there are no edges"
        )
    n_nodes = int(data.num_nodes)
    fields: dict[str, Any] = {"n_nodes": n_nodes}
    if ends is None:
        fields = from_scipy(of_tensor(adjacency).T, fields)
    else:
        fields["edge_index"] = of_tensor(ends)
    labels = None if data.y is None else of_tensor(data.y)
    if labels is None or len(labels) == n_nodes:
        return of_fields(
            {**fields, **_named(nodes | ({} if labels is None else {"y": labels}), edges)}, name
        )
    if len(labels) != getattr(data, "num_graphs", 1):
        raise ShapeError(
            f"{name}: y has {len(labels)} rows, expected one for each of the {n_nodes} nodes, or"
            " for each graph of a Batch"
        )
    graph_of = of_tensor(nodes.pop("batch", np.zeros(n_nodes, np.int64)))
    return of_graph(
        whole_graphs(Graph(**fields, **_named(nodes, edges)), labels, graph_of=graph_of), name
    )


def pyg_values(data: Any, keys: Collection[str]) -> dict[str, Any]:
    """Attributes of PyG that have a value for each node or edge, and not numbers of nodes, or
    labels of pairs of nodes.
    """
    pairs = {key.removesuffix("_index") for key in keys if "index" in key}
    return {
        key: data[key]
        for key in keys
        if key != "ptr" and key not in pairs and not any(part in key for part in TOPOLOGY)
    }


def of_dgl(graph: Any) -> dict[str, Any]:
    """Fields of a DGL graph; data of nodes and edges with other names are named columns."""
    src, dst = graph.edges()[:2]
    return {
        "edge_index": (of_tensor(src), of_tensor(dst)),
        "n_nodes": int(graph.num_nodes()),
        **_named(graph.ndata, graph.edata),
    }


def pyg_types(data: Any) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Of a ``HeteroData`` object of PyG: number and values of the nodes of each type, ends and
    values of the edges of each.
    """
    nodes = {
        kind: (int(data[kind].num_nodes), pyg_values(data[kind], data[kind].node_attrs()))
        for kind in data.node_types
    }
    edges = {
        relation: (
            data[relation].edge_index,
            pyg_values(data[relation], data[relation].edge_attrs()),
        )
        for relation in data.edge_types
    }
    return nodes, edges


def dgl_types(graph: Any) -> tuple[dict[str, Any], dict[Any, Any]]:
    """The same of a heterogeneous DGL graph."""
    nodes = {kind: (int(graph.num_nodes(kind)), graph.nodes[kind].data) for kind in graph.ntypes}
    edges = {
        relation: (graph.edges(etype=relation), graph.edges[relation].data)
        for relation in graph.canonical_etypes
    }
    return nodes, edges


def of_types(nodes: dict[str, Any], edges: dict[Any, Any], name: str) -> Whole:
    """The tables of a heterogeneous graph; see ``graphtheta.graph.data.typed`` for how types become
    columns.
    """
    fields: dict[str, Any] = {}
    named = {kind: _named(values, {}) for kind, (_, values) in nodes.items()} | {
        kind: _named({}, values) for kind, (_, values) in edges.items()
    }
    for kind, values in named.items():
        columns = {
            key: values.pop(key) for key in ("node_columns", "edge_columns") if key in values
        }
        for key, x in values.items():
            fields.setdefault(key, {})[kind] = x
        for key, named_columns in columns.items():
            for column, x in named_columns.items():
                fields.setdefault(key, {}).setdefault(column, {})[kind] = x
    ends = {relation: tuple(map(of_tensor, pair)) for relation, (pair, _) in edges.items()}
    return of_graph(
        GraphArrays(ends, {kind: n for kind, (n, _) in nodes.items()}, name=name, **fields), name
    )


def _named(nodes: Mapping[str, Any], edges: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors of nodes and edges by fields of ``gt.Graph``; other names are named columns."""
    fields: dict[str, Any] = {}
    for values, names, columns in (
        (nodes, NODE_VALUES, "node_columns"),
        (edges, EDGE_VALUES, "edge_columns"),
    ):
        for key, value in values.items():
            if names.get(key) in fields:
                raise ConfigError(
                    f"{key!r} is a second {names[key]!r} of the graph; leave out one of them, or"
                    " rename it"
                )
            if key in names:
                fields[names[key]] = (
                    of_tensor(value) if names[key] in WIDE else _flat(of_tensor(value))
                )
            # names with an underscore in front are numbers that DGL keeps of a larger graph
            elif not key.startswith("_"):
                fields.setdefault(columns, {})[key] = _flat(of_tensor(value))
    return fields


def _flat(x: np.ndarray) -> np.ndarray:
    """[n, 1] as [n]."""
    return x[:, 0] if x.ndim == 2 and x.shape[1] == 1 else x


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
