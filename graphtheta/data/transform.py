"""Transformations of graphs: self loops, directions, subsets, scaling.

Edges keep their order; added ones come last.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphtheta.data.arrays import G, GraphArrays
from graphtheta.data.columns import added_rows, take_rows
from graphtheta.data.validation import is_column
from graphtheta.errors import ConfigError, DataError, ShapeError

EDGE_ROWS = ("edge_attr", "edge_weight", "edge_y", "edge_train", "edge_val", "edge_test")
NODE_ROWS = ("x", "y", "train", "val", "test")


def take_edges(graph: GraphArrays, edges: np.ndarray) -> dict[str, Any]:
    """The edge arrays at some edges (numbers, repeats allowed), by field."""
    rows = {field: getattr(graph, field)[edges] for field in EDGE_ROWS if getattr(graph, field) is not None}
    return {**rows, "edge_columns": take_rows(graph.edge_columns, edges)}


def take_nodes(graph: GraphArrays, nodes: np.ndarray) -> dict[str, Any]:
    """The node arrays at some nodes (numbers), by field, with the fields that describe labels."""
    if is_column(graph.x):
        raise DataError(f"{graph.name}: x is a feature store that is read by rows, and its rows cannot be selected; select the nodes "
                        "first and then set x")
    rows = {field: getattr(graph, field)[nodes] for field in NODE_ROWS if getattr(graph, field) is not None}
    return {**rows, "node_columns": take_rows(graph.node_columns, nodes), "node_ids": graph.original_ids[nodes], "n_nodes": len(nodes),
            "multilabel": graph.multilabel, "n_classes": graph.n_classes if graph.label_kind == "classes" else None}


def keep_edges(graph: G, keep: Any) -> G:
    """The graph with some of its edges, given by a mask [n_edges] or by edge numbers."""
    edges = rows_of(keep, graph.n_edges, "edge")
    return graph.replace(edge_index=(graph.src[edges], graph.dst[edges]), **take_edges(graph, edges))


def rows_of(chosen: Any, n: int, kind: str) -> np.ndarray:
    """Row numbers from a mask or from numbers; checked."""
    rows = np.asarray(chosen)
    if rows.dtype == np.bool_:
        if rows.shape != (n,):
            raise ShapeError(f"a mask over {n} {kind}s was expected, got shape {list(rows.shape)}; give one entry per {kind}")
        return np.flatnonzero(rows)
    if rows.size and rows.dtype.kind not in "iu":
        raise DataError(f"{kind} numbers have dtype {rows.dtype}; give a bool mask or integers")
    rows = rows.astype(np.int64).ravel()
    if rows.size and (rows.min() < 0 or rows.max() >= n):
        bad = int(rows[(rows < 0) | (rows >= n)][0])
        raise DataError(f"{kind} {bad} is outside 0..{n - 1}; give rows of this graph, not original ids")
    return rows


def pair_key(src: np.ndarray, dst: np.ndarray, n_nodes: int) -> np.ndarray:
    """One number per ordered pair of ends, [n_edges] int64."""
    if n_nodes >= 2**31:
        raise DataError(f"pairs of {n_nodes} nodes cannot be numbered in 64 bits; split the graph first")
    return src * n_nodes + dst


def first_of_each(key: np.ndarray) -> np.ndarray:
    """The first position of every distinct key, in order of position."""
    return np.sort(np.unique(key, return_index=True)[1])


def deduplicate(graph: G) -> G:
    """Keep the first of several edges with the same source and destination."""
    return keep_edges(graph, first_of_each(pair_key(graph.src, graph.dst, graph.n_nodes)))


def symmetrise(graph: G) -> G:
    """Add the reverse of every edge that has none, and merge duplicates.

    Where an edge is stored in both directions each keeps its own attributes; an added one copies attributes, columns,
    weight, target and masks of the edge it reverses. Of duplicates the first is kept.
    """
    src = np.concatenate((graph.src, graph.dst))
    dst = np.concatenate((graph.dst, graph.src))
    first = first_of_each(pair_key(src, dst, graph.n_nodes))
    return graph.replace(edge_index=(src[first], dst[first]), **take_edges(graph, first % max(1, graph.n_edges)))


def add_self_loops(graph: G, fill: str = "mean", columns: Mapping[str, Any] | None = None) -> G:
    """Add a self loop to every node that has none.

    Args:
        graph: The graph.
        fill: Attributes and float columns of an added loop: ``"mean"`` of those of the node's in-edges (zeros without any)
            or ``"zeros"``. Its weight is 1; it belongs to no edge mask and has no target.
        columns: Values of an added loop in edge columns, by name: a number, or k of them for a column [n_edges, k]. An
            integer column has no mean and needs one, for example a type of its own.

    Returns:
        A graph whose first n_edges edges are those of the input, in order; the same graph if no loop is missing.

    Raises:
        ConfigError: Another fill.
        DataError: An integer column has no value, a value does not fit its column, or there is no such column.
    """
    if fill not in ("mean", "zeros"):
        raise ConfigError(f"self loops are filled with 'mean' or 'zeros', not {fill!r}")
    missing = np.ones(graph.n_nodes, bool)
    missing[graph.src[graph.src == graph.dst]] = False
    nodes = np.flatnonzero(missing)
    changes: dict[str, Any] = {"edge_columns": _with_loops(graph, nodes, fill, columns or {})}
    if not len(nodes):
        return graph
    for field in EDGE_ROWS:
        old = getattr(graph, field)
        if old is None:
            continue
        added = np.zeros((len(nodes), *old.shape[1:]), old.dtype)
        if field == "edge_weight":
            added[:] = 1
        elif field == "edge_y":
            added[:] = np.nan
        elif field == "edge_attr" and fill == "mean":
            added[:] = mean_of_in_edges(graph, old)[nodes]
        changes[field] = np.concatenate((old, added))
    ends = tuple(np.concatenate((end, nodes)) for end in (graph.src, graph.dst))
    return graph.replace(edge_index=ends, **changes)


def _with_loops(graph: GraphArrays, nodes: np.ndarray, fill: str, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The edge columns, extended by rows for the added self loops of some nodes."""
    unknown = sorted(set(values) - set(graph.edge_columns))
    if unknown:
        raise DataError(f"with_self_loops: columns names {unknown[0]!r}, but the graph has no such edge column; "
                        f"it has {', '.join(graph.edge_columns) or 'none'}")
    made = {}
    for name, old in graph.edge_columns.items():
        if name in values:
            added = added_rows(graph.edge_columns, name, values[name], len(nodes))
        elif old.dtype.kind == "f":
            added = mean_of_in_edges(graph, old)[nodes] if fill == "mean" else np.zeros((len(nodes), *old.shape[1:]))
            added = added.astype(old.dtype)
        elif len(nodes):
            raise DataError(f"edge column {name!r} holds integers, which have no mean, and {len(nodes)} self loops are to be added; give "
                            f"their value with graph.with_self_loops(columns={{{name!r}: VALUE}})")
        else:
            added = old[:0]
        made[name] = np.concatenate((old, added))
    return made


def mean_of_in_edges(graph: GraphArrays, values: np.ndarray) -> np.ndarray:
    """The mean of values of each node's in-edges, [n_nodes] or [n_nodes, a] float64; zeros without any.

    Args:
        graph: The graph.
        values: Of its edges, [n_edges] or [n_edges, a].
    """
    wide = values[:, None] if values.ndim == 1 else values
    columns = [np.bincount(graph.dst, weights=column, minlength=graph.n_nodes) for column in wide.T]
    total = np.stack(columns, axis=1) if columns else np.zeros((graph.n_nodes, 0))
    mean = total / np.maximum(1, np.bincount(graph.dst, minlength=graph.n_nodes))[:, None]
    return mean.reshape(graph.n_nodes, *values.shape[1:])


def subset(graph: G, nodes: Any) -> G:
    """The graph of some nodes and the edges between them.

    Args:
        graph: The graph.
        nodes: A mask [n_nodes], or row numbers (not original ids) in the order wanted, without repeats.

    Returns:
        Nodes renumbered 0, 1, ... in the order given; ``node_ids`` still hold the original ids.

    Raises:
        ShapeError, DataError: A mask of another size, numbers out of range or repeated, no nodes.
    """
    rows = rows_of(nodes, graph.n_nodes, "node")
    row_of = np.full(graph.n_nodes, -1, np.int64)
    row_of[rows] = np.arange(len(rows))
    if len(rows) and not np.array_equal(row_of[rows], np.arange(len(rows))):
        raise DataError("the subset lists a node twice; list each node once")
    edges = np.flatnonzero((row_of[graph.src] >= 0) & (row_of[graph.dst] >= 0))
    return graph.replace(edge_index=(row_of[graph.src[edges]], row_of[graph.dst[edges]]), **take_nodes(graph, rows),
                         **take_edges(graph, edges))


def components(graph: GraphArrays) -> np.ndarray:
    """The weakly connected component of each node, [n_nodes]."""
    import scipy.sparse as sp
    from scipy.sparse.csgraph import connected_components

    ones = np.ones(graph.n_edges, np.int8)
    matrix = sp.coo_array((ones, (graph.src, graph.dst)), shape=(graph.n_nodes, graph.n_nodes))
    return connected_components(matrix, directed=True, connection="weak")[1]


def largest_component(graph: G) -> G:
    """The largest weakly connected component; of several, the one that has the lowest node."""
    of = components(graph)
    sizes = np.bincount(of)
    best = of[np.argmax(sizes[of])]
    return graph if sizes[best] == graph.n_nodes else subset(graph, of == best)


def row_normalise(graph: G) -> G:
    """Divide each row of x by the sum of its absolute values; rows of zeros stay.

    Source: preprocess_features of https://github.com/tkipf/gcn
    """
    x = required(graph, "x")
    total = np.asarray(abs(x).sum(axis=1), np.float64).ravel()
    scale = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0).astype(np.float32)
    if isinstance(x, np.ndarray):
        return graph.replace(x=x * scale[:, None])
    out = x.copy()
    out.data *= np.repeat(scale, np.diff(x.indptr))
    return graph.replace(x=out)


def standardise(a: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    """Columns with mean 0 and deviation 1 over some rows (all if None); a constant column becomes 0."""
    known = a if rows is None or not rows.any() else a[rows]
    if not len(known):
        return a
    mean, deviation = known.mean(axis=0, dtype=np.float64), known.std(axis=0, dtype=np.float64)
    # rounding leaves a constant column a deviation of some 1e-8 of its size
    varies = deviation > 1e-6 * np.maximum(np.abs(mean), 1e-30)
    return ((a - mean) * np.where(varies, 1 / np.where(varies, deviation, 1), 0)).astype(np.float32)


def standardise_features(graph: G) -> G:
    """Standardise x over the training nodes; sparse features become a plain array."""
    x = required(graph, "x")
    return graph.replace(x=standardise(x if isinstance(x, np.ndarray) else x.toarray(), graph.train))


def standardise_edge_attr(graph: G) -> G:
    """Standardise edge_attr over the training edges."""
    return graph.replace(edge_attr=standardise(required(graph, "edge_attr"), graph.edge_train))


def required(graph: GraphArrays, field: str) -> Any:
    """A field that must be present, and held in memory."""
    value = getattr(graph, field)
    if value is None:
        raise DataError(f"{graph.name}: the graph has no {field} to normalise; give {field}= or drop the normalisation")
    if is_column(value):
        raise DataError(f"{graph.name}: {field} is a feature store that is read by rows and cannot be normalised; normalise the values "
                        "before they are stored, or drop the normalisation")
    return value
