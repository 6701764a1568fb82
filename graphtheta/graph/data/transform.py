"""Transformations of graphs: self loops, directions, subsets, scaling.

Edges keep their order; added ones come last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from graphtheta.base.lazy_array import CHUNK, LazyArray
from graphtheta.base.typed_rows import EDGES, TypedRows, blocks_of, of_blocks
from graphtheta.errors import ConfigError, DataError, ShapeError
from graphtheta.graph.data.arrays import EDGE_FIELDS, EDGE_MASKS, G, GraphArrays
from graphtheta.graph.data.columns import added_rows, take_rows
from graphtheta.graph.data.lazy import Extended, MatchingNumbers, Read, Selected, Without
from graphtheta.graph.data.scale import Scale
from graphtheta.graph.data.typed import (
    RELATION,
    TYPE,
    relation_of_columns,
    relation_widths,
    type_widths,
)
from graphtheta.graph.data.validation import Origin, as_array, is_column

EDGE_ROWS = ("edge_attr", "edge_weight", "edge_y", "edge_train", "edge_val", "edge_test")
NODE_ROWS = ("x", "y", "train", "val", "test")


def take_edges(graph: GraphArrays, edges: np.ndarray) -> dict[str, Any]:
    """The edge arrays at some edges (numbers, repeats allowed), by field."""
    rows = {
        field: getattr(graph, field)[edges]
        for field in EDGE_ROWS
        if getattr(graph, field) is not None
    }
    return {**rows, "edge_columns": take_rows(graph.edge_columns, edges)}


def take_nodes(graph: GraphArrays, nodes: np.ndarray) -> dict[str, Any]:
    """The node arrays at some nodes (numbers), by field, with the fields that describe labels."""
    if is_column(graph.x):
        raise DataError(
            f"{graph.name}: x is a feature store that is read by rows, and its rows cannot be"
            " selected; select the nodes first and then set x"
        )
    rows = {
        field: getattr(graph, field)[nodes]
        for field in NODE_ROWS
        if getattr(graph, field) is not None
    }
    return {
        **rows,
        "node_columns": take_rows(graph.node_columns, nodes),
        "node_ids": graph.original_ids[nodes],
        "n_nodes": len(nodes),
        "multilabel": graph.multilabel,
        "n_classes": graph.n_classes if graph.label_kind == "classes" else None,
    }


def keep_edges(graph: G, keep: Any) -> G:
    """The graph with some of its edges, given by a mask [n_edges] or by edge numbers."""
    edges = rows_of(keep, graph.n_edges, "edge")
    return graph.replace(
        edge_index=(graph.src[edges], graph.dst[edges]),
        meta=graph.meta,
        **take_edges(graph, edges),
    )


def edges_in_memory(graph: G) -> G:
    """The graph with arrays of edges in memory, even if those of its store are mapped files."""
    if not graph.in_files:
        return graph
    edges = {field: getattr(graph, field) for field in EDGE_FIELDS}
    return graph.replace(
        edge_index=(np.array(graph.src), np.array(graph.dst)),
        edge_columns={name: np.array(x) for name, x in graph.edge_columns.items()},
        meta=graph.meta,
        **{field: None if x is None else _in_memory(x) for field, x in edges.items()},
    )


def _in_memory(x: Any) -> Any:
    return (
        x.mapped([np.array(part) for part in x.parts]) if isinstance(x, TypedRows) else np.array(x)
    )


def rows_of(chosen: Any, n: int, kind: str) -> np.ndarray:
    """Row numbers from a mask or from numbers; checked."""
    rows = as_array(chosen, Origin("", f"{kind}s"))
    if rows.dtype == np.bool_:
        if rows.shape != (n,):
            raise ShapeError(
                f"a mask over {n} {kind}s was expected, got shape {list(rows.shape)}; give one"
                f" entry per {kind}"
            )
        return np.flatnonzero(rows)
    if rows.size and rows.dtype.kind not in "iu":
        raise DataError(f"{kind} numbers have dtype {rows.dtype}; give a bool mask or integers")
    rows = rows.astype(np.int64).ravel()
    if rows.size and (rows.min() < 0 or rows.max() >= n):
        bad = int(rows[(rows < 0) | (rows >= n)][0])
        raise DataError(
            f"{kind} {bad} is outside 0..{n - 1}; give rows of this graph, not original ids"
        )
    return rows


def pair_key(src: np.ndarray, dst: np.ndarray, n_nodes: int) -> np.ndarray:
    """One number per ordered pair of ends, [n_edges] int64."""
    if n_nodes >= 2**31:
        raise DataError(
            f"pairs of {n_nodes} nodes cannot be numbered in 64 bits; split the graph first"
        )
    return src * n_nodes + dst


def edge_key(graph: GraphArrays, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """One number per ordered pair of ends and relation, [k * n_edges] int64, for ends of all edges
    k times.
    """
    key = pair_key(src, dst, graph.n_nodes)
    codes = graph.edge_columns.get(RELATION)
    if codes is None:
        return key
    # some edges may have codes of no relation, such as self loops
    different, of_edge = np.unique(np.asarray(codes), return_inverse=True)
    return np.unique(key, return_inverse=True)[1] * len(different) + np.tile(
        of_edge, len(src) // max(1, graph.n_edges)
    )


def first_of_each(key: np.ndarray) -> np.ndarray:
    """The first position of every distinct key, in order of position."""
    return np.sort(np.unique(key, return_index=True)[1])


def deduplicate(graph: G) -> G:
    """Keep the first of several edges with the same source, destination and relation."""
    return keep_edges(graph, first_of_each(duplicate_key(graph)))


def duplicate_key(graph: GraphArrays, times: np.ndarray | None = None) -> np.ndarray:
    """One number for each edge, equal for duplicates, [n_edges] int64.

    Args:
        graph: The graph.
        times: Of the edges, [n_edges]; those of different times are no duplicates of each other.
    """
    key = edge_key(graph, graph.src, graph.dst)
    if times is None:
        return key
    key, time = (np.unique(column, return_inverse=True)[1] for column in (key, times))
    return np.asarray(key * (1 + time.max(initial=0)) + time)


def symmetrise(graph: G) -> G:
    """Add the reverse of every edge that has none, and merge duplicates.

    Where an edge is stored in both directions each keeps its own attributes; an added one copies
    attributes, columns, weight, target and masks of the edge it reverses. Of duplicates the first
    is kept. Edges of several relations are no duplicates of each other.

    Raises:
        DataError: A relation leads from one type of nodes to another, so that the reverse of its
            edges is none of its edges.
    """
    if apart := [name for name in graph.relations if name[0] != name[2]]:
        raise DataError(
            f"{graph.name}: the reverse of an edge of {apart[0]!r} is not of this relation; add"
            " reverse edges with with_inverse_relations()"
        )
    src = np.concatenate((graph.src, graph.dst))
    dst = np.concatenate((graph.dst, graph.src))
    first = first_of_each(edge_key(graph, src, dst))
    return graph.replace(
        edge_index=(src[first], dst[first]),
        meta=graph.meta,
        **take_edges(graph, first % max(1, graph.n_edges)),
    )


def reverse(graph: G) -> G:
    """Reverse every edge. A relation (src, name, dst) is (dst, name, src) then."""
    meta = graph.meta
    if graph.relations:
        meta = meta | _of_relations(graph, lambda names: [(c, b, a) for a, b, c in names])
    return graph.replace(edge_index=(graph.dst, graph.src), meta=meta)


def _of_relations(graph: GraphArrays, changed: Callable[[Any], list[Any]]) -> dict[str, Any]:
    """What ``meta`` says of relations by name, with other names."""
    lacks = graph.meta.get("edge_lacks", {})
    return {
        "relations": changed(graph.relations),
        **(
            {"edge_lacks": {column: changed(names) for column, names in lacks.items()}}
            if lacks
            else {}
        ),
    }


def add_inverse_relations(graph: G) -> G:
    """Add the reverse of every edge, in a relation of its own: that of relation r is r +
    n_relations.

    If relations have names, the reverse of (src, name, dst) is (dst, rev_name, src). An added edge
    copies attributes, columns and weight of the edge that it reverses. It belongs to no edge mask
    and has no target. The reverse of an edge of no relation is of none either: negative codes stay,
    and those from the number of names on come behind the inverse relations. Self loops of no
    relation are their own reverse.

    Raises:
        DataError: The graph has no edge column "relation".
    """
    n = graph.n_relations
    if not n:
        raise DataError(
            f"{graph.name}: the graph has no relations to invert; give their codes as"
            " edge_columns={'relation': codes}, or add reverse edges with symmetrised()"
        )
    codes = np.asarray(graph.edge_columns[RELATION])
    related = (codes >= 0) & (codes < n)
    turned = np.flatnonzero(related | (graph.src != graph.dst))
    edges = np.append(np.arange(graph.n_edges), turned)
    rows = take_edges(graph, edges)
    for field in rows.keys() & {*EDGE_MASKS, "edge_y"}:
        rows[field][graph.n_edges :] = False if field in EDGE_MASKS else np.nan
    inverse = related[edges] & (np.arange(len(edges)) >= graph.n_edges)
    moved = inverse | (rows["edge_columns"][RELATION] >= n)
    rows["edge_columns"][RELATION] = rows["edge_columns"][RELATION] + np.where(moved, n, 0).astype(
        codes.dtype
    )
    rows["meta"] = graph.meta | ({"n_relations": 2 * n} if "n_relations" in graph.meta else {})
    if graph.relations:
        rows["meta"] |= _of_relations(
            graph, lambda names: [*names, *((c, f"rev_{b}", a) for a, b, c in names)]
        )
    ends = np.append(graph.src, graph.dst[turned]), np.append(graph.dst, graph.src[turned])
    return graph.replace(edge_index=ends, **rows)


def add_self_loops(
    graph: G, fill: str = "mean", columns: Mapping[str, Any] | None = None, every: bool = False
) -> G:
    """Add a self loop to every node that has none.

    Args:
        graph: The graph.
        fill: Attributes and float columns of an added loop: ``"mean"`` of those of the node's
            in-edges (zeros without any) or ``"zeros"``. Its weight is 1; it belongs to no edge mask
            and has no target.
        columns: Values of an added loop in edge columns, by name: a number, or k of them for a
            column [n_edges, k]. An integer column has no mean and needs one, for example a type of
            its own.
        every: Whether nodes that have a self loop get another one.

    Returns:
        A graph whose first n_edges edges are those of the input, in order; the same graph if no
        loop is missing.

    Raises:
        ConfigError: Another fill.
        DataError: An integer column has no value, a value does not fit its column, or there is no
            such column.
    """
    if fill not in ("mean", "zeros"):
        raise ConfigError(f"self loops are filled with 'mean' or 'zeros', not {fill!r}")
    searched = 0 if every else graph.n_edges
    loops = (
        graph.src[a : a + CHUNK][graph.src[a : a + CHUNK] == graph.dst[a : a + CHUNK]]
        for a in range(0, searched, CHUNK)
    )
    # np.unique hashes, which takes several times as long
    have = np.sort(np.concatenate([np.zeros(0, np.int64), *loops]))
    nodes = Without(graph.n_nodes, have[np.append(True, have[1:] != have[:-1])[: len(have)]])
    edge_columns = {
        name: _extended(
            graph,
            old,
            nodes,
            _column_rows(graph=graph, name=name, fill=fill, values=columns or {}, n=len(nodes)),
        )
        for name, old in graph.edge_columns.items()
    }
    unknown = sorted(set(columns or ()) - set(edge_columns))
    if unknown:
        raise DataError(
            f"with_self_loops: columns names {unknown[0]!r}, but the graph has no such edge column;"
            f" it has {', '.join(edge_columns) or 'none'}"
        )
    if not len(nodes):
        return graph
    fields = {
        field: _extended(graph, old, nodes, _field_rows(graph, field, fill))
        for field in EDGE_ROWS
        if (old := getattr(graph, field)) is not None
    }
    src, dst = (_extended(graph, end, nodes, lambda added: added) for end in (graph.src, graph.dst))
    if graph.in_files:
        return graph.derived(
            src=src, dst=dst, edge_columns=MappingProxyType(edge_columns), **fields
        )
    return graph.replace(
        edge_index=(src, dst), edge_columns=edge_columns, meta=graph.meta, **fields
    )


def _extended(graph: GraphArrays, old: Any, nodes: LazyArray, rows: Read) -> Any:
    """Values of edges, and those of added loops; for a graph in files they are computed when they
    are read.

    Args:
        graph: The graph.
        old: Values of its edges, [n_edges, ...].
        nodes: The nodes that get a loop.
        rows: From some of these nodes, [n] int64, to the values of their loops.
    """
    if isinstance(old, TypedRows):
        # of attributes at the widths of relations the loops are no view of a file
        return old.below(rows(np.asarray(nodes)))
    both = Extended(old, len(nodes), lambda k: rows(nodes[k]), rows(nodes[:0]).dtype)
    return both if graph.in_files else np.asarray(both)


def _field_rows(graph: GraphArrays, field: str, fill: str) -> Read:
    """The values of added loops in a field, by node."""
    old = getattr(graph, field)
    if field == "edge_attr" and fill == "mean":
        return lambda nodes: mean_of_in_edges(graph, old, nodes).astype(old.dtype)
    if isinstance(old, TypedRows):
        return lambda nodes: np.zeros((len(nodes), 0), old.dtype)
    value = {"edge_weight": 1, "edge_y": np.nan}.get(field, 0)
    return lambda nodes: np.full((len(nodes), *old.shape[1:]), value, old.dtype)


def _column_rows(
    graph: GraphArrays, name: str, fill: str, values: Mapping[str, Any], n: int
) -> Read:
    """The values of n added loops in an edge column, by node."""
    old = graph.edge_columns[name]
    if name in values:
        one = added_rows(graph.edge_columns, name, values[name], 1)
        dtype = np.result_type(old, one) if n else old.dtype
        return lambda nodes: np.broadcast_to(one, (len(nodes), *old.shape[1:])).astype(dtype)
    if old.dtype.kind == "f":
        if fill == "mean":
            return lambda nodes: mean_of_in_edges(graph, old, nodes).astype(old.dtype)
        return lambda nodes: np.zeros((len(nodes), *old.shape[1:]), old.dtype)
    if n:
        raise DataError(
            f"edge column {name!r} holds integers, which have no mean, and {n} self loops are to be"
            f" added; give their value with graph.with_self_loops(columns={{{name!r}: VALUE}})"
        )
    return lambda nodes: old[:0]


def mean_of_in_edges(graph: GraphArrays, values: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """The mean of values of each node's in-edges, [n] or [n, a] float64; zeros without any. Reads
    all edges.

    Args:
        graph: The graph.
        values: Of its edges, [n_edges] or [n_edges, a].
        nodes: Some nodes, [n] int64.
    """
    nodes, each = np.unique(nodes, return_inverse=True)
    width = int(np.prod(values.shape[1:]))
    total = np.zeros((len(nodes), width))
    count = np.zeros(len(nodes), np.int64)
    for a in range(0, graph.n_edges if len(nodes) else 0, CHUNK):
        dst = graph.dst[a : a + CHUNK]
        rows = values[a : a + CHUNK]
        rows = rows.toarray() if isinstance(rows, TypedRows) else rows
        at = np.minimum(np.searchsorted(nodes, dst), len(nodes) - 1)
        into = np.flatnonzero(nodes[at] == dst)
        at = at[into]
        rows = rows[into].reshape(len(into), width)
        count += np.bincount(at, minlength=len(nodes))
        for j in range(width):
            # one edge after another, so that the sum does not depend on the chunks
            np.add.at(total[:, j], at, rows[:, j])
    mean: np.ndarray = (total / np.maximum(1, count)[:, None]).reshape(
        len(nodes), *values.shape[1:]
    )[each]
    return mean


def drop_self_loops(graph: G) -> tuple[G, Any]:
    """The graph without self loops, and the numbers of the remaining edges; see ``keep_where``."""
    return keep_where(graph, lambda begin, end: graph.src[begin:end] != graph.dst[begin:end])


def keep_where(graph: G, rule: Callable[[int, int], np.ndarray]) -> tuple[G, Any]:
    """Some edges, and all nodes. For a graph in files, edges are selected when they are read.

    Args:
        graph: The graph.
        rule: From the bounds of a range of edges to a mask of those to keep.

    Returns:
        The graph, and the numbers of the edges; None if all are kept.
    """
    if not graph.in_files:
        edges = np.flatnonzero(rule(0, graph.n_edges))
        return (graph, None) if len(edges) == graph.n_edges else (keep_edges(graph, edges), edges)
    rows = MatchingNumbers(graph.n_edges, rule)
    if len(rows) == graph.n_edges:
        return graph, None
    fields = {
        field: old[np.asarray(rows)] if isinstance(old, TypedRows) else Selected(old, rows)
        for field in ("src", "dst", *EDGE_ROWS)
        if (old := getattr(graph, field)) is not None
    }
    columns = {name: Selected(x, rows) for name, x in graph.edge_columns.items()}
    return graph.derived(**fields, edge_columns=MappingProxyType(columns)), rows


def subset(graph: G, nodes: Any) -> G:
    """The graph of some nodes and the edges between them.

    Args:
        graph: The graph.
        nodes: A mask [n_nodes], or row numbers (not original ids) in the order wanted, without
            repeats.

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
    return graph.replace(
        edge_index=(row_of[graph.src[edges]], row_of[graph.dst[edges]]),
        meta=graph.meta,
        **take_nodes(graph, rows),
        **take_edges(graph, edges),
    )


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
    absolute = abs(x.tocsr() if isinstance(x, TypedRows) else x)
    # float64, and a quotient rather than a factor: sums may be above the largest float32, and
    # factors for the smallest ones too; SciPy would add float32 numbers first
    total = (
        absolute.sum(axis=1, dtype=np.float64)
        if isinstance(absolute, np.ndarray)
        else absolute @ np.ones(absolute.shape[1])
    )
    total[total == 0] = 1.0
    if isinstance(x, np.ndarray):
        return graph.replace(x=_quotient(x, total[:, None]))
    if isinstance(x, TypedRows):
        return graph.replace(
            x=x.mapped([_quotient(block, total[at, None]) for block, _, at in x.types()])
        )
    out = x.copy()
    out.data = _quotient(x.data, np.repeat(total, np.diff(x.indptr)))
    return graph.replace(x=out)


def _quotient(x: np.ndarray, divisor: np.ndarray) -> np.ndarray:
    """x / divisor, divided in the divisor's dtype and rounded to that of x."""
    return np.divide(x, divisor, out=np.empty_like(x), casting="same_kind")


def standardise(a: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    """Columns with mean 0 and deviation 1 over some rows (all if None); a constant column becomes
    0.
    """
    return Scale.over(a, rows).scaled(a) if len(a) else a


def standardise_features(graph: G) -> G:
    """Standardise x over the training nodes; sparse features become a plain array.

    The columns of a type of nodes are standardised over the training nodes of this type, over all
    of its nodes if none is in training, and stay 0 for other types.

    Raises:
        DataError: There are no features, they are in a feature store, or a graph with types has
            other columns than those of its types.
    """
    x = required(graph, "x")
    widths = type_widths(graph)
    if not widths:
        return _standardised(
            graph, "x", x if isinstance(x, np.ndarray) else x.toarray(), graph.train
        )
    kind = x.kind if isinstance(x, TypedRows) else graph.node_columns[TYPE]
    return _standardised_apart(
        graph=graph,
        field="x",
        kind=kind,
        blocks=blocks_of(x, kind, widths, graph.name),
        rows=graph.train,
    )


def standardise_edge_attr(graph: G) -> G:
    """Standardise edge_attr over the training edges.

    The columns of a relation are standardised over the training edges of this relation, over all of
    its edges if none is in training, and stay 0 for other relations. An inverse relation has the
    columns of the relation that it reverses.

    Raises:
        DataError: There are no attributes, or a graph with relations has other columns than those
            of its relations.
    """
    x = required(graph, "edge_attr")
    widths = relation_widths(graph)
    if not widths:
        return _standardised(graph, "edge_attr", x, graph.edge_train)
    kind = relation_of_columns(graph.edge_columns[RELATION], graph.n_relations, len(widths))
    return _standardised_apart(
        graph=graph,
        field="edge_attr",
        kind=kind,
        blocks=blocks_of(x=x, kind=kind, widths=widths, name=graph.name, of=EDGES),
        rows=graph.edge_train,
    )


def _standardised_apart(
    graph: G, field: str, kind: np.ndarray, blocks: list[np.ndarray], rows: np.ndarray | None
) -> G:
    """The graph with a field scaled by type, from the values of each type, and the scale in its
    meta.
    """
    scale = Scale.of_types(
        [
            Scale.over(block, None if rows is None else rows[kind == code])
            for code, block in enumerate(blocks)
        ]
    )
    blocks = [part.scaled(block) for part, block in zip(scale.parts, blocks, strict=True)]
    x = getattr(graph, field)
    values = (
        x.mapped([*blocks, *x.parts[len(blocks) :]])
        if isinstance(x, TypedRows)
        else of_blocks(kind, blocks, dense=isinstance(x, np.ndarray))
    )
    return graph.replace(**{field: values}, meta=scale.in_meta(graph.meta, field))


def _standardised(graph: G, field: str, values: np.ndarray, rows: np.ndarray | None) -> G:
    """The graph with a field scaled, and the scale in its meta."""
    scale = Scale.over(values, rows)
    return graph.replace(**{field: scale.scaled(values)}, meta=scale.in_meta(graph.meta, field))


def required(graph: GraphArrays, field: str) -> Any:
    """A field that must be present, and held in memory."""
    value = getattr(graph, field)
    if value is None:
        raise DataError(
            f"{graph.name}: the graph has no {field} to normalise; give {field}= or drop the"
            " normalisation"
        )
    if is_column(value):
        raise DataError(
            f"{graph.name}: {field} is a feature store that is read by rows and cannot be"
            " normalised; normalise the values before they are stored, or drop the normalisation"
        )
    return value
