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

from graphtheta.data.arrays import GraphArrays
from graphtheta.data.interop import from_scipy, ids_of
from graphtheta.data.validation import is_column
from graphtheta.datasets.reader_npz import read_npz
from graphtheta.errors import ConfigError, FormatError
from graphtheta.npy import UNREADABLE
from graphtheta.sparse import is_sparse
from graphtheta.tables.binary import MemorySource
from graphtheta.tables.source import Source
from graphtheta.typed_rows import TypedRows

MASKS = ("train", "val", "test")
# names of values of PyG and DGL, and the field they are
NODE_VALUES = {"x": "x", "feat": "x", "y": "y", "label": "y", **{f"{mask}_mask": mask for mask in MASKS}}
EDGE_VALUES = {"edge_attr": "edge_attr", "feat": "edge_attr", "edge_weight": "edge_weight", "weight": "edge_weight", "w": "edge_weight"}
# fields that stay matrices if they have one column
WIDE = ("x", "edge_attr")
# what is kept of the facts of a gt.Graph
KEPT = ("node_types", "relations", "class_names", "type_widths", "relation_widths", "graph_ids", "one_hot", "feature_scale",
        "edge_attr_scale", "relation_names", "node_categories", "edge_categories", "node_lacks", "edge_lacks", "node_units", "edge_units")
# edges of a ``Data`` object of PyG, which are no attributes of edges
TOPOLOGY = ("edge_index", "adj", "adj_t")
# our own columns beside named ones, which are identifiers
ID, INDICES, VALUES = "node id", "x indices", "x values"


@dataclass(frozen=True)
class Whole:
    """A whole graph.

    Attributes:
        edges, nodes: Its tables.
        options: Names of their columns.
        meta: What is kept with it.
        widths: Columns of each type of nodes, side by side in the sparse features, if each node has all of its type; empty otherwise.
        labels: n_classes and multilabel of a ``gt.Graph``, where its labels do not tell them.
    """

    edges: Source
    nodes: Source | None
    options: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    widths: tuple[int, ...] = ()
    labels: dict[str, Any] = field(default_factory=dict)


def whole_graph(graph: Any) -> Whole:
    """The tables of a graph.

    Args:
        graph: A path or an object.

    Raises:
        ConfigError: The object is none of those known.
        FormatError: The file is damaged.
    """
    if isinstance(graph, (str, os.PathLike)):
        path = Path(graph)
        return of_graph(read_npz(path), str(path)) if path.suffix == ".npz" else of_fields(from_scipy(read_market(path), {}), str(path))
    name = type(graph).__name__
    if hasattr(graph, "tocoo"):
        return of_fields(from_scipy(graph, {}), name)
    if hasattr(graph, "adj") and hasattr(graph, "is_directed") and hasattr(graph, "is_multigraph"):
        return of_networkx(graph, name)
    if hasattr(graph, "edge_types") and hasattr(graph, "node_types"):
        return of_types(*pyg_types(graph), name)
    if len(getattr(graph, "ntypes", ())) > 1 or len(getattr(graph, "canonical_etypes", ())) > 1:
        return of_types(*dgl_types(graph), name)
    if hasattr(graph, "ndata") and hasattr(graph, "edata") and callable(getattr(graph, "edges", None)):
        return of_fields(of_dgl(graph), name)
    if isinstance(graph, GraphArrays):
        return of_graph(graph, name)
    if getattr(graph, "edge_index", None) is not None and hasattr(graph, "num_nodes"):
        return of_fields(of_pyg(graph), name)
    raise ConfigError(f"cannot import a {name}; give paths, a table, gt.Query, or a graph of SciPy, networkx, PyG or DGL")


def of_graph(graph: GraphArrays, name: str) -> Whole:
    """The tables of a ``gt.Graph``, with what it knows of its labels."""
    kept: dict[str, Any] = {key: graph.meta[key] for key in KEPT if key in graph.meta}
    labels: dict[str, Any] = {} if graph.y is None else {"multilabel": graph.multilabel}
    if graph.label_kind == "classes":
        labels["n_classes"] = graph.n_classes
    return replace(of_fields(_fields(graph), name), meta=kept, labels=labels)


def read_market(path: Path) -> Any:
    """The matrix of a Matrix Market file."""
    from scipy.io import mmread

    try:
        return mmread(str(path))
    except UNREADABLE as error:
        raise FormatError(f"{path}: not a readable Matrix Market file ({error}); create it again with scipy.io.mmwrite") from None


def of_fields(fields: Mapping[str, Any], name: str) -> Whole:
    """The tables of a graph given by fields of ``gt.Graph``.

    Raises:
        ConfigError: Sparse edge attributes, or features that are read by rows.
    """
    given = {key: value for key, value in fields.items() if value is not None}
    if is_sparse(given.get("edge_attr")):
        raise ConfigError(f"{name}: sparse edge attributes are no column of a table; make them dense with toarray()")
    if is_column(given.get("x")):
        raise ConfigError(f"{name}: features that are read by rows are no column of a table; the graph is in a store already, and "
                          "gt.transform_store makes another one of it")
    widths = tuple(block.shape[1] for block in given["x"].blocks) if isinstance(given.get("x"), TypedRows) else ()
    x = given.pop("x").tocsr() if is_sparse(given.get("x")) else None
    options: dict[str, Any] = {"src": "src", "dst": "dst", "id_type": "auto"}
    edges = {"src": np.asarray(given["edge_index"][0]), "dst": np.asarray(given["edge_index"][1])}
    edges |= {key.removeprefix("edge_"): value for key, value in given.items() if key.startswith("edge_") and key.endswith(MASKS)}
    options["edge_split"] = tuple(mask for mask in MASKS if mask in edges)
    for key, option in (("edge_attr", "edge_attr"), ("edge_weight", "edge_weight"), ("edge_y", "edge_label")):
        if key in given:
            edges[key], options[option] = given[key], (key,) if option != "edge_weight" else key
    edges |= given.get("edge_columns", {})
    options["edge_columns"] = tuple(given.get("edge_columns", {}))
    nodes = {key: given[key] for key in ("x", "y", *MASKS) if key in given} | dict(given.get("node_columns", {}))
    options |= {"features": ("x",) if "x" in nodes else (), "label": ("y",) if "y" in nodes else (),
                "split": tuple(mask for mask in MASKS if mask in nodes), "node_columns": tuple(given.get("node_columns", {}))}
    if x is not None:
        nodes |= {part: pa.LargeListArray.from_arrays(x.indptr.astype(np.int64), pa.array(values))
                  for part, values in ((INDICES, x.indices), (VALUES, x.data))}
        options |= {"sparse_features": (INDICES, VALUES), "n_features": x.shape[1]}
    ids = given.get("node_ids")
    if ids is not None:
        nodes[ID] = np.asarray(ids)
        options["id"] = ID
        edges |= {end: np.asarray(ids)[edges[end]] for end in ("src", "dst")}
    elif nodes:
        options["id"] = None
    else:
        options["n_nodes"] = int(given.get("n_nodes", 0)) or None
    node_table = MemorySource(f"{name}: nodes", table_of(nodes)) if nodes else None
    return Whole(MemorySource(f"{name}: edges", table_of(edges)), node_table, options, widths=widths)


def table_of(columns: Mapping[str, Any]) -> pa.Table:
    """Arrays [n] or [n, d] as columns of values or lists; columns of pyarrow as they are."""
    out = {}
    for name, value in columns.items():
        if isinstance(value, pa.Array):
            out[name] = value
            continue
        x = np.ascontiguousarray(value)
        if x.ndim == 2:
            out[name] = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), x.shape[1])
        else:
            out[name] = pa.array(x.tolist() if x.dtype.kind == "U" else x)
    return pa.table(out)


def of_networkx(graph: Any, name: str) -> Whole:
    """The tables of a networkx graph; attributes are columns, and an undirected edge has both directions."""
    links = list(graph.edges(data=True))
    ids = ids_of(list(graph.nodes)).tolist()
    ends = [(u, v, data) for u, v, data in links]
    if not graph.is_directed():
        ends += [(v, u, data) for u, v, data in links if u != v]
    edges, nodes = (_attributes(rows) for rows in ([data for _, _, data in ends], [data for _, data in graph.nodes(data=True)]))
    src, dst, key = _free("src", edges), _free("dst", edges), _free("id", nodes)
    edges |= {src: [u for u, _, _ in ends], dst: [v for _, v, _ in ends]}
    nodes[key] = ids
    return Whole(MemorySource(f"{name}: edges", pa.table(edges)), MemorySource(f"{name}: nodes", pa.table(nodes)),
                 {"src": src, "dst": dst, "id": key})


def of_pyg(data: Any) -> dict[str, Any]:
    """Fields of a ``Data`` object of PyG; attributes of nodes and edges with other names are named columns."""
    nodes, edges = ({key: data[key] for key in keys if key not in TOPOLOGY} for keys in (data.node_attrs(), data.edge_attrs()))
    nodes |= {"y": data.y} if data.y is not None else {}
    return {"edge_index": array(data.edge_index), "n_nodes": int(data.num_nodes), **_named(nodes, edges)}


def of_dgl(graph: Any) -> dict[str, Any]:
    """Fields of a DGL graph; data of nodes and edges with other names are named columns."""
    src, dst = graph.edges()[:2]
    return {"edge_index": (array(src), array(dst)), "n_nodes": int(graph.num_nodes()), **_named(graph.ndata, graph.edata)}


def pyg_types(data: Any) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Of a ``HeteroData`` object of PyG: number and values of the nodes of each type, ends and values of the edges of each."""
    nodes = {kind: (int(data[kind].num_nodes), {key: data[kind][key] for key in data[kind].node_attrs()}) for kind in data.node_types}
    edges = {relation: (data[relation].edge_index, {key: data[relation][key] for key in data[relation].edge_attrs() if key not in TOPOLOGY})
             for relation in data.edge_types}
    return nodes, edges


def dgl_types(graph: Any) -> tuple[dict[str, Any], dict[Any, Any]]:
    """The same of a heterogeneous DGL graph."""
    nodes = {kind: (int(graph.num_nodes(kind)), graph.nodes[kind].data) for kind in graph.ntypes}
    edges = {relation: (graph.edges(etype=relation), graph.edges[relation].data) for relation in graph.canonical_etypes}
    return nodes, edges


def of_types(nodes: dict[str, Any], edges: dict[Any, Any], name: str) -> Whole:
    """The tables of a heterogeneous graph; see ``graphtheta.data.typed`` for how types become columns."""
    fields: dict[str, Any] = {}
    named = {kind: _named(values, {}) for kind, (_, values) in nodes.items()} | {
        kind: _named({}, values) for kind, (_, values) in edges.items()}
    for kind, values in named.items():
        columns = {key: values.pop(key) for key in ("node_columns", "edge_columns") if key in values}
        for key, x in values.items():
            fields.setdefault(key, {})[kind] = x
        for key, found in columns.items():
            for column, x in found.items():
                fields.setdefault(key, {}).setdefault(column, {})[kind] = x
    ends = {relation: tuple(map(array, pair)) for relation, (pair, _) in edges.items()}
    return of_graph(GraphArrays(ends, {kind: n for kind, (n, _) in nodes.items()}, name=name, **fields), name)


def array(tensor: Any) -> np.ndarray:
    """A tensor as an array."""
    tensor = tensor.detach() if hasattr(tensor, "detach") else tensor
    return np.asarray(tensor.cpu() if hasattr(tensor, "cpu") else tensor)


def _named(nodes: Mapping[str, Any], edges: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors of nodes and edges by fields of ``gt.Graph``; those of other names are named columns."""
    fields: dict[str, Any] = {}
    for values, names, columns in ((nodes, NODE_VALUES, "node_columns"), (edges, EDGE_VALUES, "edge_columns")):
        for key, value in values.items():
            if names.get(key) in fields:
                raise ConfigError(f"{key!r} is a second {names[key]!r} of the graph; leave out one of them, or rename it")
            if key in names:
                fields[names[key]] = array(value) if names[key] in WIDE else _flat(array(value))
            # names with an underscore in front are numbers that DGL keeps of a larger graph
            elif not key.startswith("_"):
                fields.setdefault(columns, {})[key] = _flat(array(value))
    return fields


def _flat(x: np.ndarray) -> np.ndarray:
    """[n, 1] as [n]."""
    return x[:, 0] if x.ndim == 2 and x.shape[1] == 1 else x


def _free(name: str, taken: Collection[str]) -> str:
    """A name that no attribute has."""
    while name in taken:
        name = f"{name}_"
    return name


def _attributes(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Attributes by name, None where a row has none; numpy values as plain ones."""
    names = dict.fromkeys(str(key) for row in rows for key in row)
    plain = [{str(key): value.tolist() if hasattr(value, "tolist") else value for key, value in row.items()} for row in rows]
    return {name: [row.get(name) for row in plain] for name in names}


def _fields(graph: Any) -> dict[str, Any]:
    """Fields of a ``gt.Graph``."""
    names = ("n_nodes", "x", "y", *MASKS, "edge_attr", "edge_weight", "edge_y", *(f"edge_{mask}" for mask in MASKS), "node_ids",
             "node_columns", "edge_columns")
    return {"edge_index": (graph.src, graph.dst), **{name: getattr(graph, name) for name in names}}
