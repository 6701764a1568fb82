"""``gt.whole_graphs``: many graphs as one, with labels of whole graphs.

Every graph gets one further node, its readout node, of the type "graph", and its own nodes are
joined to it by edges of the relation "member". A task of whole graphs is then a task of nodes:
targets, batches, masks and predictions are those of readout nodes, and strategies, partitioners and
samplers know nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.sparse import is_sparse
from graphtheta.errors import DataError, ShapeError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.typed import READOUT
from graphtheta.graph.data.validation import (
    Origin,
    as_array,
    check_beside_floats,
    check_node_ids,
    is_column,
)

NODE, GRAPH = "node", "graph"
# in ``meta``, whether ids of graphs are "int" or "text"
IDS = "graph_ids"
# in ``meta``, what the numbers of columns stand for
FACTS = (
    "node_categories",
    "edge_categories",
    "node_units",
    "edge_units",
    "one_hot",
    "feature_scale",
    "edge_attr_scale",
)
EDGE, MEMBER = (NODE, "edge", NODE), (NODE, "member", GRAPH)


@checked
def whole_graphs(
    graphs: Graph | Sequence[Graph],
    y: Any = None,
    *,
    graph_of: Any = None,
    n_graphs: int | None = None,
    ids: Any = None,
    train: Any = None,
    val: Any = None,
    test: Any = None,
    multilabel: bool | None = None,
    n_classes: int | None = None,
    name: str = "",
    meta: dict[str, Any] | None = None,
) -> Graph:
    """One graph of many, whose labels and masks are those of whole graphs.

    Args:
        graphs: The graphs, with equal columns; or all of them as one graph, with ``graph_of``.
        y: Labels of the graphs, as those of nodes in ``gt.Graph``.
        graph_of: Number of the graph of each node, [n_nodes] integers.
        n_graphs: Number of graphs; by default that of the labels, of the ids, of the list, else the
            largest number + 1.
        ids: Ids of the graphs, [n_graphs] unique integers or strings, under which predictions are
            reported; by default their numbers.
        train, val, test: Masks of the graphs, [n_graphs] bool.
        multilabel, n_classes: As in ``gt.Graph``.
        name: Name for reports; by default that of the graph.
        meta: Anything else worth keeping; by default that of the graph.

    Returns:
        A graph of the types "node" and "graph". ``graph.nodes_of("graph")`` are the readout nodes
        in the order of the graphs. The node column "readout" is 1 at these; batch norm does not
        count them. ``node_ids`` are "graph:ID" for a graph and "node:ID" for its nodes, or
        "node:GRAPH:ID" for nodes of graphs in a list, if there are any ids.

    Raises:
        ShapeError: ``graph_of`` has not one number for each node.
        DataError: An edge joins two graphs, a number is out of range, the graph has types or
            relations already, or its features are read from a file.
    """
    fields = {"y": y, "ids": ids, "train": train, "val": val, "test": test}
    of_graphs = {
        field: as_array(rows, Origin("", field))
        for field, rows in fields.items()
        if rows is not None
    }
    if isinstance(graphs, Graph):
        base = graphs
        of = graph_of
        names: Any = base.node_ids
    else:
        base, of = _union(graphs)
        names = _ids_in(graphs, of_graphs.get("ids"))
        n_graphs = len(graphs) if n_graphs is None else n_graphs
    where = base.name or "the graph"
    remedy = f"give the number of the graph of each of the {base.n_nodes} nodes"
    if of is None:
        raise ShapeError(f"{where}: graph_of is missing; {remedy}")
    of = as_array(of, Origin(where, "graph_of"))
    if of.shape != (base.n_nodes,) or of.dtype.kind not in "iu":
        raise ShapeError(
            f"{where}: graph_of has shape {list(of.shape)} and type {of.dtype}; {remedy}"
        )
    rows = [of_graphs[field] for field in ("y", "ids") if field in of_graphs]
    lengths = [len(x) for x in rows if x.ndim]
    total = n_graphs
    if total is None:
        total = lengths[0] if lengths else int(of.max(initial=-1)) + 1
    _check(base, of, total, where)
    ids = check_node_ids(of_graphs.pop("ids", None), total, f"{where}: graphs")
    numbered = ids is None or ids.dtype.kind == "i"
    ids_of = {NODE: names, GRAPH: ids}
    targets: dict[str, Any] = {field: {GRAPH: rows} for field, rows in of_graphs.items()}
    # edges to readout nodes have the weight of an edge without one
    weight = (
        None
        if base.edge_weight is None
        else {EDGE: base.edge_weight, MEMBER: np.ones(base.n_nodes)}
    )
    return Graph(
        {EDGE: (base.src, base.dst), MEMBER: (np.arange(base.n_nodes), of)},
        {NODE: base.n_nodes, GRAPH: total},
        x=None if base.x is None else {NODE: base.x},
        edge_weight=weight,
        edge_attr=None if base.edge_attr is None else {EDGE: base.edge_attr},
        **targets,
        node_ids={kind: x for kind, x in ids_of.items() if x is not None} or None,
        node_columns={
            **{key: {NODE: x} for key, x in base.node_columns.items()},
            READOUT: {GRAPH: np.ones(total, np.int32)},
        },
        edge_columns={key: {EDGE: x} for key, x in base.edge_columns.items()},
        multilabel=multilabel,
        n_classes=n_classes,
        name=name or base.name,
        meta={**(base.meta if meta is None else meta), IDS: "int" if numbered else "text"},
    )


def graph_ids(graph: Graph) -> tuple[np.ndarray, np.ndarray] | None:
    """The readout nodes of a graph of whole graphs, ascending, and the ids of the graphs,
    [n_graphs] each; None for other graphs.
    """
    if READOUT not in graph.node_columns:
        return None
    nodes = np.flatnonzero(np.asarray(graph.node_columns[READOUT]) == 1)
    if graph.node_ids is None:
        return nodes, np.arange(len(nodes))
    ids = np.asarray(graph.node_ids[nodes])
    if ids.dtype.kind != "U":
        return nodes, ids
    texts = np.array([text.removeprefix(f"{GRAPH}:") for text in ids.tolist()], dtype=np.str_)
    return nodes, texts.astype(np.int64) if graph.meta.get(IDS) == "int" else texts


def _check(base: Graph, of: np.ndarray, total: int, where: str) -> None:
    reserved = [key for key in ("type", READOUT) if key in base.node_columns]
    reserved += [key for key in ("relation",) if key in base.edge_columns]
    if reserved:
        raise DataError(
            f"{where} has the column {reserved[0]!r} already; rename it: whole graphs have types"
            " and relations of their own"
        )
    if is_column(base.x):
        raise DataError(
            f"{where}: x is a feature store that is read by rows, and cannot have rows for readout"
            " nodes; give x as an array"
        )
    bad = np.flatnonzero((of < 0) | (of >= total))
    if len(bad):
        raise DataError(
            f"{where}: node {bad[0]} is in graph {of[bad[0]]}, outside 0..{total - 1}; correct"
            " graph_of, or give n_graphs"
        )
    across = np.flatnonzero(of[base.src] != of[base.dst])
    if len(across):
        src = int(base.src[across[0]])
        dst = int(base.dst[across[0]])
        raise DataError(
            f"{where}: edge {across[0]} joins node {src} of graph {of[src]} and node {dst} of graph"
            f" {of[dst]}; graphs have no edges between them"
        )


def _ids_in(graphs: Sequence[Graph], ids: np.ndarray | None) -> list[str] | None:
    """Ids of the nodes of graphs side by side, which are unique within a graph alone; None if no
    graph has any.
    """
    if all(graph.node_ids is None for graph in graphs):
        return None
    checked_ids = check_node_ids(ids, len(graphs), "graphs")
    names = range(len(graphs)) if checked_ids is None else checked_ids.tolist()
    return [
        f"{name}:{node}"
        for name, graph in zip(names, graphs, strict=True)
        for node in graph.original_ids.tolist()
    ]


def _union(graphs: Sequence[Graph]) -> tuple[Graph, np.ndarray]:
    """Graphs side by side as one, and the number of the graph of each node."""
    if not graphs:
        raise DataError("whole_graphs: there are no graphs; give at least one")
    sizes = np.array([g.n_nodes for g in graphs])
    first = np.cumsum(sizes) - sizes
    kinds = [_columns(g) for g in graphs]
    for i, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise DataError(
                f"graph {i} has the columns {', '.join(sorted(kind))}, graph 0"
                f" {', '.join(sorted(kinds[0]))}; give all graphs the same"
            )
    facts = [{key: g.meta[key] for key in FACTS if key in g.meta} for g in graphs]
    for i, of_graph in enumerate(facts):
        if of_graph != facts[0]:
            key = next(key for key in FACTS if of_graph.get(key) != facts[0].get(key))
            raise DataError(
                f"graph {i} and graph 0 have different {key} in meta, so that the same numbers"
                " stand for other values; import all graphs together"
            )

    def joined(field: str) -> Any:
        parts = [getattr(g, field) for g in graphs]
        if parts[0] is None:
            return None
        if any(map(is_column, parts)):
            raise DataError(
                f"whole_graphs: {field} of a graph is read from a file; give it as an array"
            )
        return _below(field, parts)

    def named(field: str) -> dict[str, np.ndarray]:
        return {
            key: _below(f"{field}[{key!r}]", [getattr(g, field)[key] for g in graphs])
            for key in getattr(graphs[0], field)
        }

    ends = tuple(
        np.concatenate([getattr(g, end) + a for g, a in zip(graphs, first, strict=True)])
        for end in ("src", "dst")
    )
    union = Graph(
        ends,
        int(sizes.sum()),
        **{field: joined(field) for field in ("x", "edge_attr", "edge_weight")},
        node_columns=named("node_columns"),
        edge_columns=named("edge_columns"),
        name=graphs[0].name,
        meta=facts[0],
    )
    return union, np.repeat(np.arange(len(graphs)), sizes)


def _below(what: str, parts: Sequence[Any]) -> Any:
    """Values of graphs below each other."""
    for i, rows in enumerate(parts):
        if rows.shape[1:] != parts[0].shape[1:]:
            raise ShapeError(
                f"{what} of graph {i} has rows of shape {list(rows.shape[1:])}, of graph 0 "
                f"{list(parts[0].shape[1:])}; give all graphs the same"
            )
    if any(map(is_sparse, parts)):
        import scipy.sparse as sp

        return sp.vstack(parts, format="csr")
    if np.result_type(*parts).kind == "f":
        for i, rows in enumerate(parts):
            kind = "edge" if what.startswith("edge") else "node"
            check_beside_floats(rows, kind, Origin(f"graph {i}", what))
    return np.concatenate(parts)


def _columns(graph: Graph) -> set[str]:
    return {
        *(
            field
            for field in ("x", "edge_attr", "edge_weight")
            if getattr(graph, field) is not None
        ),
        *graph.node_columns,
        *(f"edge column {name}" for name in graph.edge_columns),
    }
