"""Heterogeneous graphs: nodes and edges of several types, given as dicts, joined to one graph.

Nodes of all types are numbered together, type after type in the order in which the dicts name them.
The node column ``type`` and the edge column ``relation`` hold codes, the positions of the names in
``meta["node_types"]`` and ``meta["relations"]``. The columns of the types in x, and of the
relations in edge_attr, are side by side: ``meta["type_widths"]`` and ``meta["relation_widths"]``
are their numbers. Named columns hold 0 for types and relations that have none;
``meta["node_lacks"]`` and ``meta["edge_lacks"]`` name these by column.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphtheta.base.arguments import is_whole
from graphtheta.base.npy import in_files
from graphtheta.base.sparse import is_sparse
from graphtheta.base.typed_rows import KIND, MOST_TYPES, WORTH, TypedRows
from graphtheta.base.wording import did_you_mean, shown
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.labels import LabelForm, label_form
from graphtheta.graph.data.validation import (
    SPARSE_BELOW,
    Origin,
    as_array,
    check_beside_floats,
    check_exact,
    is_column,
)

TYPE, RELATION = "type", "relation"
# the node column by which the engine knows readout nodes: 1 for a node that stands for a whole
# graph, 0 for others
READOUT = "readout"
NODE_FIELDS = ("x", "y", "train", "val", "test", "node_ids")
EDGE_FIELDS = ("edge_attr", "edge_weight", "edge_y", "edge_train", "edge_val", "edge_test")
LISTED = 12  # relations that a message lists


def joined(n_nodes: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a graph of one numbering.

    Args:
        n_nodes: Number of nodes by type; None, or types left out: rows of their arrays, else
            largest id + 1.
        fields: The other arguments of ``Graph``: sources and destinations, [n_edges] int64, by
            (source type, name, destination type), in numbers of the types; arrays of nodes by type,
            those of edges by relation, named columns by name and then so.

    Raises:
        DataError, ShapeError: They do not fit together.
    """
    where = fields["where"]
    edge_index = fields["edge_index"]
    names = [_triple(key, where) for key in edge_index]
    if not names:
        raise Origin(where, "edge_index").data(
            "there are no relations",
            'give at least one, perhaps without edges: {("author", "writes", "paper"): [[], []]}',
        )
    ends = list(edge_index.values())
    fields = {
        **fields,
        **{field: _arrays(field, fields[field], where) for field in NODE_FIELDS + EDGE_FIELDS},
    }
    for field in ("node_columns", "edge_columns"):
        fields[field] = _named(field, fields[field] or {}, where)
    counts = _counts(names, ends, n_nodes, fields)
    first = dict(zip(counts, np.cumsum([0, *counts.values()])[:-1].tolist(), strict=True))
    for name, pair in zip(names, ends, strict=True):
        _check_ends(name, pair, counts, where)
    sizes = {name: len(src) for name, (src, _) in zip(names, ends, strict=True)}
    out = dict(fields)
    for field in NODE_FIELDS + EDGE_FIELDS:
        if fields[field] is not None:
            out[field] = _together(
                field, fields[field], counts if field in NODE_FIELDS else sizes, where
            )
    lacks: dict[str, Any] = {}
    for field, code, of in (("node_columns", TYPE, counts), ("edge_columns", RELATION, sizes)):
        columns = fields[field]
        out[field] = _coded(field, columns, code, of, where)
        lacks[field.replace("columns", "lacks")] = {
            name: keys
            for name, x in columns.items()
            if (keys := [key for key, n in of.items() if n and key not in x])
        }
    widths = {
        meta: [_width(fields[field], key) for key in of]
        for field, meta, of in (
            ("x", "type_widths", counts),
            ("edge_attr", "relation_widths", sizes),
        )
        if fields[field] is not None
    }
    meta = {
        **(fields["meta"] or {}),
        "node_types": list(counts),
        "relations": [list(name) for name in names],
        **widths,
        **{key: columns for key, columns in lacks.items() if columns},
    }
    src, dst = (
        np.concatenate(
            [pair[end] + first[name[2 * end]] for name, pair in zip(names, ends, strict=True)]
        )
        for end in (0, 1)
    )
    for array in (src, dst, *(x for x in out.values() if isinstance(x, np.ndarray))):
        # nobody else has these, so that they need no copies
        array.flags.writeable = False
    return {**out, "edge_index": (src, dst), "n_nodes": sum(counts.values()), "meta": meta}


def _coded(
    field: str, columns: Mapping[str, Any], code: str, sizes: Mapping[Any, int], where: str
) -> dict[str, Any]:
    """Named columns of one numbering, and the column of the codes of types or relations.

    Args:
        field: The argument of ``Graph``, for messages.
        columns: Arrays by name, and by type or relation.
        code: Name of the column of codes.
        sizes: Rows of each type or relation.

    Raises:
        DataError: A column has this name, or rows do not fit together.
    """
    if code in columns:
        raise Origin(where, f"{field}[{code!r}]").data(
            f"a graph with types has a column {code!r} of its own, of their codes",
            f"choose another name, such as '{code}_code'",
        )
    return {
        **{name: _together(f"{field}[{name!r}]", x, sizes, where) for name, x in columns.items()},
        code: np.repeat(np.arange(len(sizes), dtype=np.int32), list(sizes.values())),
    }


def _arrays(field: str, values: Any, where: str) -> Any:
    """Values of types or relations as arrays by their names; None for nothing."""
    if not isinstance(values, Mapping):
        return values
    return {
        key: (
            rows
            if is_sparse(rows) or is_column(rows)
            else as_array(rows, Origin(where, f"{field}[{key!r}]"))
        )
        for key, rows in values.items()
    } or None


def _named(field: str, columns: Any, where: str) -> dict[str, Any]:
    """Named columns as arrays by their names and types."""
    if not isinstance(columns, Mapping):
        raise Origin(where, field).data(f"got {shown(columns)}", "give arrays by name and type")
    return {name: _of_types(f"{field}[{name!r}]", x, where) for name, x in columns.items()}


def _of_types(field: str, values: Any, where: str) -> dict[Any, Any]:
    """A named column, as arrays by the names of types or relations."""
    if not isinstance(values, Mapping):
        raise Origin(where, field).data(
            f"got {shown(values)}", "a graph with types takes a dict of arrays by type"
        )
    return dict(_arrays(field, values, where) or {})


def lacking(graph: Any, group: str, column: str) -> np.ndarray | None:
    """Which rows hold 0 in a named column because their type or relation has no values in it, [n]
    bool; None if all have values.

    Args:
        graph: The graph.
        group: "node" or "edge".
        column: Name of the column.
    """
    keys = {
        tuple(key) if isinstance(key, (list, tuple)) else key
        for key in graph.meta.get(f"{group}_lacks", {}).get(column, ())
    }
    names, codes = names_and_codes(graph, group)
    without = [code for code, name in enumerate(names) if name in keys]
    return np.isin(codes, without) if without and codes is not None else None


def names_and_codes(graph: Any, group: str) -> tuple[tuple[Any, ...], Any]:
    """Names of types of nodes or of relations, and the code of each node or edge; None without
    codes.
    """
    if group == "node":
        return graph.node_types, graph.node_columns.get(TYPE)
    return graph.relations, graph.edge_columns.get(RELATION)


def relation_code(names: Sequence[Any], text: str, where: str) -> int:
    """The code of a relation that is given by its code, its name, or the name between the types of
    its ends.

    Args:
        names: ``Graph.relation_names``.
        text: What was given.
        where: The setting it was given in, for messages.

    Raises:
        ConfigError: No relation or several have this name.
    """
    parts = [name if isinstance(name, tuple) else (str(name),) for name in names]
    codes = [code for code, name in enumerate(parts) if text in (str(code), name[len(name) // 2])]
    if len(codes) == 1:
        return codes[0]
    listed = [f"{code} ({' '.join(name)})" for code, name in enumerate(parts)]
    if codes:
        raise ConfigError(
            f"{where}: relation {text!r} is not unique; give the code of"
            f" {' or '.join(listed[code] for code in codes)}"
        )
    near = did_you_mean(text, [name[len(name) // 2] for name in parts])
    rest = len(listed) - LISTED
    listed[LISTED:] = [f"and {rest} more"] * (rest > 0)
    raise ConfigError(
        f"{where}: relation {text!r} is not known{near}; the relations are"
        f" {', '.join(listed) or 'none'}"
    )


def first_of_types(types: np.ndarray, name: str) -> tuple[int, ...]:
    """The first node of each type but the first, ascending.

    Args:
        types: Codes of the types, [n_nodes].
        name: Name of the graph, for messages.

    Raises:
        DataError: Nodes of a type are not numbered together.
    """
    starts = np.flatnonzero(types[1:] != types[:-1]) + 1
    if len(starts) >= len(np.unique(types)):
        raise DataError(
            f"{name}: nodes of one type are not numbered together, so that negatives of a type"
            f" cannot be drawn; sort the nodes by the column {TYPE!r}, or give the graph as dicts"
            " by type"
        )
    return tuple(starts.tolist())


def _triple(key: Any, where: str) -> tuple[str, str, str]:
    if not (
        isinstance(key, tuple) and len(key) == 3 and all(isinstance(part, str) for part in key)
    ):
        raise Origin(where, "edge_index").data(
            f"the key {key!r} is no relation", 'write {("author", "writes", "paper"): edges}'
        )
    return key


def _counts(
    names: list[tuple[str, str, str]],
    ends: list[tuple[np.ndarray, np.ndarray]],
    n_nodes: Any,
    fields: Mapping[str, Any],
) -> dict[str, int]:
    """Number of nodes of each type."""
    stated = dict(n_nodes or {}) if n_nodes is None or isinstance(n_nodes, Mapping) else None
    if stated is None:
        raise Origin(fields["where"], "n_nodes").data(
            f"got {shown(n_nodes)}", 'give the number of each type, {"paper": 10, "author": 20}'
        )
    for kind, n in stated.items():
        if not is_whole(n):
            raise Origin(fields["where"], f"n_nodes[{kind!r}]").data(
                f"got {shown(n)}", "give a whole number"
            )
    counts = {kind: int(n) for kind, n in stated.items()}
    ends_of = {kind for name in names for kind in name[::2]}
    for field, values in [
        *((field, fields[field]) for field in NODE_FIELDS),
        *fields["node_columns"].items(),
    ]:
        for kind, rows in values.items() if isinstance(values, Mapping) else ():
            if kind not in ends_of | stated.keys():
                raise Origin(fields["where"], field).data(
                    f"no relation has nodes of type {kind!r}",
                    "correct the name, or state its n_nodes",
                )
            counts.setdefault(kind, _length(rows))
    largest: dict[str, int] = {}
    for name, pair in zip(names, ends, strict=True):
        for kind, end in zip((name[0], name[2]), pair, strict=True):
            largest[kind] = max(largest.get(kind, 0), int(end.max(initial=-1)) + 1)
    return counts | {kind: n for kind, n in largest.items() if kind not in counts}


def _length(rows: Any) -> int:
    return int(rows.shape[0]) if rows.shape else 0


def _check_ends(
    name: tuple[str, str, str],
    pair: tuple[np.ndarray, np.ndarray],
    counts: Mapping[str, int],
    where: str,
) -> None:
    for kind, end in zip((name[0], name[2]), pair, strict=True):
        bad = np.flatnonzero((end < 0) | (end >= counts[kind]))
        if len(bad):
            raise Origin(where, f"edge_index[{name!r}]").data(
                f"edge {bad[0]} has {kind} {end[bad[0]]}, outside 0..{counts[kind] - 1}",
                f"there are {counts[kind]} nodes of type {kind!r}; number them from 0, or state a"
                " larger n_nodes",
            )


def _together(field: str, values: Any, sizes: Mapping[Any, int], where: str) -> Any:
    """One array over all types: features and attributes side by side, ids as texts, and other
    values below each other.
    """
    if not isinstance(values, Mapping):
        raise Origin(where, field).data(
            f"got {type(values).__name__}",
            f"a graph with types takes a dict by {', '.join(map(repr, sizes))}",
        )
    for key, rows in values.items():
        if key not in sizes:
            raise Origin(where, field).data(
                f"there is no {key!r}", f"choose from {', '.join(map(repr, sizes))}"
            )
        n = _length(rows)
        if n != sizes[key]:
            raise Origin(where, f"{field}[{key!r}]").shape(
                f"expected {sizes[key]} rows, got {n}", "give one row for each"
            )
    if field in ("x", "edge_attr"):
        return _side_by_side(field, values, sizes, where)
    for key, rows in values.items():
        if is_sparse(rows):
            raise Origin(where, f"{field}[{key!r}]").data(
                "a sparse matrix cannot be a column", "make it dense with toarray()"
            )
    if field == "node_ids":
        return np.concatenate(
            [[f"{key}:{i}" for i in values.get(key, range(n))] for key, n in sizes.items()]
        )
    if field == "y" and len(values) > 1:
        raise Origin(where, field).data(
            f"labels of {len(values)} types",
            "give those of one; the targets of a job are nodes of one type",
        )
    parts = {key: np.asarray(rows) for key, rows in values.items()}
    try:
        dtype = np.result_type(*parts.values())
    except TypeError:
        raise Origin(where, field).data(
            f"values of the types {', '.join(str(rows.dtype) for rows in parts.values())}",
            "give all types of nodes or relations numbers",
        ) from None
    shape, *others = [rows.shape[1:] for rows in parts.values()]
    if any(other != shape for other in others):
        raise Origin(where, field).shape(
            f"rows of shapes {list(map(list, (shape, *others)))}",
            "give all types rows of one shape",
        )
    # what is not values: no label, no target, no mask, weight 1, else 0
    empty = {"y": np.nan, "edge_y": np.nan, "edge_weight": 1}.get(field, 0)
    if field == "y" and label_form(dtype.kind, math.prod(shape)) is LabelForm.CLASSES:
        dtype = np.dtype(np.int64)
        empty = -1
    elif field in ("y", "edge_y"):
        # integers have no NaN
        dtype = np.result_type(dtype, np.float32)
    if dtype.kind == "f":
        for key, rows in parts.items():
            _check_integers(rows, field, Origin(where, f"{field}[{key!r}]"))
    return np.concatenate(
        [
            parts.get(key, np.full((n, *shape), empty, dtype)).astype(dtype)
            for key, n in sizes.items()
        ]
    )


def _width(values: Mapping[Any, Any], key: Any) -> int:
    """Number of columns that a type has in the joined matrix."""
    if key not in values:
        return 0
    shape = values[key].shape if hasattr(values[key], "shape") else np.shape(values[key])
    return int(np.prod(shape[1:], dtype=np.int64))


def _check_integers(values: Any, field: str, origin: Origin) -> None:
    """Check that integers of a type remain what they are when others of the field are floats."""
    kind = "edge" if field.startswith("edge") else "node"
    if field not in NODE_FIELDS + EDGE_FIELDS:
        check_beside_floats(values, kind, origin)
    elif values.dtype.kind in "iu":
        check_exact(values, kind, origin)


def _side_by_side(
    field: str, values: Mapping[Any, Any], sizes: Mapping[Any, int], where: str
) -> Any:
    """A matrix in which the columns of each type are 0 for the others."""
    import scipy.sparse as sp

    blocks: list[Any] = []
    for key, n in sizes.items():
        rows = values.get(key, np.zeros((n, 0), np.float32))
        if is_column(rows):
            raise DataError(
                f"{field}[{key!r}] is a feature store that is read by rows; a graph with types"
                " needs arrays"
            )
        if is_sparse(rows):
            blocks.append(rows if field == "x" else rows.toarray())
        else:
            dense = np.asarray(rows).reshape(n, _width(values, key))
            # of which SciPy has no matrices
            blocks.append(dense.astype(np.float32) if dense.dtype == np.float16 else dense)
    if _apart(blocks) if field == "x" else _fits(len(blocks)):
        return TypedRows(
            np.repeat(np.arange(len(blocks), dtype=KIND), [len(x) for x in blocks]), blocks
        )
    for key, x in zip(sizes, blocks, strict=True):
        _check_integers(x, field, Origin(where, f"{field}[{key!r}]"))
    whole = sp.block_diag([sp.csr_array(x) for x in blocks], format="csr")
    return whole if field == "x" else whole.toarray()


def _fits(owners: int) -> bool:
    """Whether attributes of so many relations are stored at the width of each; a number is left for
    edges of no relation.
    """
    return 1 < owners < MOST_TYPES


def attributes_apart(x: Any, codes: np.ndarray | None, n: int, widths: Sequence[int]) -> Any:
    """Attributes of edges at the width of each relation, if their columns are those of relations.

    Args:
        x: The attributes, [n_edges, d]: an array, or ``TypedRows``.
        codes: Relation of each edge, [n_edges] int; None without relations.
        n: Number of relations.
        widths: Number of columns of each relation that has columns of its own, side by side.

    Returns:
        ``TypedRows``, whose rest are the edges of no relation; an array if there are other columns,
        or an edge has values in the columns of another relation. Of an array in a file, the parts
        whose edges follow each other are views.
    """
    owners = len(widths)
    apart = _fits(owners) and codes is not None and n % owners == 0 and sum(widths) == x.shape[1]
    kind = relation_of_columns(np.asarray(codes), n, owners).astype(KIND) if apart else None
    if isinstance(x, TypedRows):
        if kind is not None and np.array_equal(kind, x.kind) and x.widths == list(widths):
            return x
        x = x.toarray()
    if kind is None:
        return x
    parts = []
    mapped = in_files(x)
    for code, (end, width) in enumerate(zip(np.cumsum(widths), widths, strict=True)):
        part = x[_run(np.flatnonzero(kind == code))][:, end - width : end]
        parts.append(part if mapped else np.array(part, order="C"))
    rest = np.flatnonzero(kind == owners)
    others = x[rest]
    if sum(map(np.count_nonzero, (*parts, others))) < np.count_nonzero(x):
        return x
    empty = np.zeros((len(rest), 0), x.dtype)
    return TypedRows(kind, parts, (others if others.any() else empty) if len(rest) else None)


def _run(rows: np.ndarray) -> Any:
    """Ascending numbers of rows, as a slice if they follow each other."""
    follow = len(rows) and rows[-1] - rows[0] == len(rows) - 1
    return slice(int(rows[0]), int(rows[-1]) + 1) if follow else rows


def _apart(blocks: Sequence[Any]) -> bool:
    """Whether the features of each type are stored at their own width: they are dense, and a matrix
    of all would be larger.
    """
    if (
        len(blocks) > MOST_TYPES
        or any(is_sparse(x) for x in blocks)
        or any(np.count_nonzero(x) < SPARSE_BELOW * x.size for x in blocks)
    ):
        return False
    return sum(x.size for x in blocks) < WORTH * sum(map(len, blocks)) * sum(
        x.shape[1] for x in blocks
    )


def relation_widths(graph: Any) -> list[int]:
    """Number of columns that each relation has in edge_attr; empty if columns are those of all
    edges.
    """
    return list(graph.meta.get("relation_widths", [])) if RELATION in graph.edge_columns else []


def relation_of_columns(codes: np.ndarray, n: int, owners: int) -> np.ndarray:
    """The relation whose columns of edge_attr an edge has: that of the edge, or the one of which it
    is the inverse; ``owners`` for an edge of no relation.

    Args:
        codes: Relation of each edge, [n_edges] int.
        n: Number of relations, of which each ``owners`` are inverse to the ones before.
        owners: Number of relations that have columns of their own.
    """
    return np.where((codes >= 0) & (codes < n), codes % owners, owners)


def type_widths(graph: Any) -> list[int]:
    """Number of columns in x of each type of nodes; empty if all types have all columns."""
    if isinstance(graph.x, TypedRows):
        return [block.shape[1] for block in graph.x.blocks]
    return list(graph.meta.get("type_widths", [])) if TYPE in graph.node_columns else []
