"""Converts graphs from and to scipy and networkx, which are imported only when used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphtheta.base.sparse import is_sparse
from graphtheta.base.wording import shown
from graphtheta.errors import DataError, ShapeError
from graphtheta.graph.data.arrays import GraphArrays
from graphtheta.graph.data.tensors import with_whole
from graphtheta.graph.data.validation import is_column

if TYPE_CHECKING:
    import networkx as nx
    import scipy.sparse as sp


def from_scipy(matrix: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a graph from a square sparse matrix.

    Args:
        matrix: Any scipy sparse matrix or array, [n, n]; entry [i, j] is the edge from i to j.
            Explicit zeros are edges.
        fields: Further arguments of the graph. Values other than 1 become ``edge_weight`` unless it
            is given.

    Raises:
        ShapeError: Not a square sparse matrix.
    """
    if not hasattr(matrix, "tocoo"):
        raise ShapeError(
            f"expected a scipy sparse matrix, got {shown(matrix)}; wrap it in"
            " scipy.sparse.csr_array"
        )
    if matrix.shape[0] != matrix.shape[1]:
        raise ShapeError(
            f"an adjacency matrix is square, got {list(matrix.shape)}; for a bipartite graph,"
            " number the nodes of both sides together"
        )
    coo = matrix.tocoo()
    out = {"edge_index": (coo.row, coo.col), "n_nodes": matrix.shape[0], **fields}
    if "edge_weight" not in out and coo.nnz and not (coo.data == 1).all():
        out["edge_weight"] = coo.data
    return out


def to_scipy(graph: GraphArrays) -> sp.csr_array:
    """The CSR matrix of edge weights, row = source; duplicate edges add up."""
    import scipy.sparse as sp

    weight = np.ones(graph.n_edges, np.float32) if graph.edge_weight is None else graph.edge_weight
    return sp.csr_array(
        sp.coo_array((weight, (graph.src, graph.dst)), shape=(graph.n_nodes, graph.n_nodes))
    )


def from_networkx(
    g: nx.Graph,
    x: str | Sequence[str] | None,
    y: str | None,
    edge_attr: str | Sequence[str] | None,
    edge_weight: str | None,
    edge_y: str | None,
    node_columns: Sequence[str],
    edge_columns: Sequence[str],
    fields: dict[str, Any],
) -> dict[str, Any]:
    """Arguments of a graph from a networkx graph.

    Args:
        g: Any networkx graph. An undirected edge gives both directions (a self loop one edge).
            Nodes are numbered in its order; their names, all integers or all strings, become
            ``node_ids``.
        x: Name or names of node attributes (numbers or vectors), put side by side.
        y: Name of the node attribute holding the label.
        edge_attr: Name or names of edge attributes, put side by side.
        edge_weight: Name of the edge attribute holding the weight.
        edge_y: Name of the edge attribute holding the target.
        node_columns, edge_columns: Names of attributes that become named columns, or one name.
        fields: Further arguments of the graph.

    Raises:
        DataError: A node or edge lacks a named attribute, or node names are of mixed types.
    """
    if not (hasattr(g, "is_directed") and hasattr(g, "nodes")):
        raise DataError(
            f"expected a networkx graph, got {shown(g)}; gt.import_graph reads graphs of other"
            " libraries"
        )
    names = list(g.nodes)
    row = {name: i for i, name in enumerate(names)}
    edges = list(g.edges(data=True))
    src = np.array([row[u] for u, _, _ in edges], np.int64)
    dst = np.array([row[v] for _, v, _ in edges], np.int64)
    at = np.arange(len(edges))
    if not g.is_directed():
        both = src != dst
        src, dst, at = (
            np.concatenate((src, dst[both])),
            np.concatenate((dst, src[both])),
            np.concatenate((at, at[both])),
        )
    nodes = [(f"node {name!r}", data) for name, data in g.nodes(data=True)]
    links = [(f"edge {u!r} - {v!r}", data) for u, v, data in edges]
    out = {
        "edge_index": (src, dst),
        "n_nodes": len(names),
        "node_ids": ids_of(names),
        "name": g.name or "graph",
    }
    out |= {"x": columns(nodes, x), "y": column(nodes, y)}
    rows = {
        "edge_attr": columns(links, edge_attr),
        "edge_weight": column(links, edge_weight),
        "edge_y": column(links, edge_y),
    }
    out |= {field: None if value is None else value[at] for field, value in rows.items()}
    out["node_columns"] = named(nodes, node_columns)
    out["edge_columns"] = {name: value[at] for name, value in named(links, edge_columns).items()}
    return {**out, **fields}


def ids_of(names: list[Any]) -> np.ndarray:
    """Node names as an array of integers or strings; integers beyond int64 are strings of their
    digits.
    """
    if all(isinstance(name, (int, np.integer)) and not isinstance(name, bool) for name in names):
        limits = np.iinfo(np.int64)
        fit = all(limits.min <= name <= limits.max for name in names)
        return np.array(names, np.int64) if fit else np.array(list(map(str, names)))
    if all(isinstance(name, str) for name in names):
        return np.array(names, np.str_)
    raise DataError(
        "networkx node names must be all integers or all strings; rename them with "
        "networkx.relabel_nodes(g, str) or networkx.convert_node_labels_to_integers(g)"
    )


def named(
    items: list[tuple[str, dict[str, Any]]], names: str | Sequence[str]
) -> dict[str, np.ndarray]:
    """Attributes by name."""
    arrays = {name: column(items, name) for name in ([names] if isinstance(names, str) else names)}
    return {name: value for name, value in arrays.items() if value is not None}


def column(items: Iterable[tuple[str, dict[str, Any]]], name: str | None) -> np.ndarray | None:
    """One attribute of all nodes or edges, [n] or [n, k]."""
    if name is None:
        return None
    values = []
    for what, data in items:
        if name not in data:
            raise DataError(
                f"{what} has no attribute {name!r}; it has {sorted(map(str, data)) or 'none'}; set"
                " it on all"
            )
        values.append(data[name])
    try:
        return np.array(with_whole(values))
    except ValueError as error:
        raise DataError(
            f"attribute {name!r} has values of different lengths; give every node or edge as many"
            " numbers"
        ) from error


def columns(
    items: list[tuple[str, dict[str, Any]]], names: str | Sequence[str] | None
) -> np.ndarray | None:
    """Attributes side by side, [n, d]."""
    if names is None:
        return None
    parts = [column(items, name) for name in ([names] if isinstance(names, str) else names)]
    if not parts:
        return None
    return np.concatenate(
        [part.reshape(len(items), -1) for part in parts if part is not None], axis=1
    )


def to_networkx(graph: GraphArrays) -> nx.MultiDiGraph:
    """A networkx MultiDiGraph under the original ids, with the arrays as attributes."""
    import networkx as nx

    g = nx.MultiDiGraph(name=graph.name)
    names = graph.original_ids.tolist()
    g.add_nodes_from(names)
    x = graph.x.read_begin(None).end() if is_column(graph.x) else graph.x
    x = x.toarray() if graph.has_sparse_features else x
    for field, rows in (("x", x), ("y", graph.y), *graph.node_columns.items()):
        if rows is not None:
            nx.set_node_attributes(g, dict(zip(names, rows.tolist(), strict=True)), field)
    fields = {
        field: getattr(graph, field) for field in ("edge_attr", "edge_weight", "edge_y")
    } | dict(graph.edge_columns)
    present = {
        field: rows.toarray() if is_sparse(rows) else rows
        for field, rows in fields.items()
        if rows is not None
    }
    rows = (
        zip(*(rows.tolist() for rows in present.values()), strict=True)
        if present
        else ((),) * graph.n_edges
    )
    ends = zip(graph.src.tolist(), graph.dst.tolist(), rows, strict=True)
    g.add_edges_from(
        (names[s], names[d], dict(zip(present, values, strict=True))) for s, d, values in ends
    )
    return g
