"""A graph in the form of another one: codes by name, scaled values, the same columns; or an error
that says what does not fit.

What was derived from the graph that a model was trained on is applied and not computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from graphtheta.base.npy import in_files
from graphtheta.base.sparse import is_sparse
from graphtheta.base.typed_rows import EDGES, KIND, MOST_TYPES, NODES, TypedRows
from graphtheta.errors import DataError
from graphtheta.graph.data.columns import TIME_UNITS, listed, unit_of
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.scale import Scale
from graphtheta.graph.data.typed import (
    RELATION,
    TYPE,
    attributes_apart,
    relation_of_columns,
    type_widths,
)
from graphtheta.graph.data.validation import frozen, labelled
from graphtheta.graph.schema.rescaled import Recoded, picked, rescaled
from graphtheta.graph.schema.schema import ColumnSchema, Schema

# columns of codes that tasks and samplers read, whether the model does or not
CODED = {"node": TYPE, "edge": RELATION}
# what has types, as of ``blocks_of``
Words = tuple[str, str, str, str]
ADDED = "with gt.Graph(..., {}=...) or as a column of the import"


def conformed(graph: Graph, schema: Schema, read: Collection[str]) -> Graph:
    """The graph in the form that a model was trained on.

    Codes of types, relations, categories and classes become those of the schema, by name. Features
    get the scale of the schema. Missing labels become unknown ones.

    Args:
        graph: The graph, without structural features.
        schema: The form.
        read: What the model reads: "node.NAME" and "edge.NAME", of named columns, "node.x",
            "edge.attr" and "edge.weight". Other columns may be missing, or differ.

    Raises:
        DataError: Something that the model reads is missing or has another form.
    """
    where = f"{graph.name or 'the graph'}, unlike {schema.name}, on which the model was trained"
    fields: dict[str, Any] = {"meta": _meta(graph, schema, read)}
    for group in ("node", "edge"):
        fields[f"{group}_columns"] = MappingProxyType(_columns(graph, schema, group, read, where))
    if "node.x" in read:
        fields["x"] = _features(graph, schema, where)
    if "edge.attr" in read:
        fields["edge_attr"] = _attributes(graph, schema, where)
    if "edge.weight" in read and (graph.edge_weight is not None) != schema.has_edge_weight:
        here, remedy = (
            ("no edge weights", "give them, or ones")
            if schema.has_edge_weight
            else ("edge weights", "drop them")
        )
        raise DataError(
            f"{where}, has {here}; {remedy}:"
            f" graph.replace(edge_weight={'ones' if schema.has_edge_weight else None})"
        )
    fields |= _labels(graph, schema, where) | _edge_labels(graph, schema, where)
    changed = {name: x for name, x in fields.items() if x is not getattr(graph, name)}
    return graph.derived(**changed)


def _meta(graph: Graph, schema: Schema, read: Collection[str]) -> dict[str, Any]:
    types = "node.type" in read
    relations = "edge.relation" in read
    names = {
        "node_types": _names(graph.node_types, schema.node_types, types),
        "relations": [list(r) for r in _names(graph.relations, schema.relations, relations)],
        "type_widths": schema.type_widths,
        "relation_widths": schema.relation_widths,
    }
    counts = {"n_types": schema.n_types, "n_relations": schema.n_relations}
    categories = {
        f"{group}_categories": {
            **graph.meta.get(f"{group}_categories", {}),
            **{
                name: _names(graph.categories(group, name), c.categories, f"{group}.{name}" in read)
                for name, c in columns.items()
                if c.categories and (f"{group}.{name}" in read or name == CODED[group])
            },
        }
        for group, columns in (("node", schema.node_columns), ("edge", schema.edge_columns))
    }
    triples = schema.meta.get("relation_names", ())
    relation_names = _names(graph.meta.get("relation_names", ()), triples, relations)
    return {
        **graph.meta,
        **{key: x for key, x in {**names, **counts, **categories}.items() if x},
        **schema.meta,
        **({"relation_names": relation_names} if triples else {}),
    }


def _names(own: Sequence[Any], wanted: Sequence[Any], read: bool) -> list[Any]:
    """Names of codes in the form of the schema: its own, and, if the model does not read the codes,
    those that only the graph has behind them.
    """
    return [*wanted, *(name for name in own if wanted and not read and name not in wanted)]


def _columns(
    graph: Graph, schema: Schema, group: str, read: Collection[str], where: str
) -> dict[str, Any]:
    """The named columns, those with codes of names in the codes of the schema."""
    columns = dict(graph.node_columns if group == "node" else graph.edge_columns)
    wanted_columns = schema.node_columns if group == "node" else schema.edge_columns
    for name, wanted in wanted_columns.items():
        reads = f"{group}.{name}" in read
        if not reads and (name != CODED[group] or name not in columns):
            continue
        if name not in columns:
            raise DataError(
                f"{where}, has no {group} column {name!r}, which the model reads as {wanted.text};"
                f" it has {', '.join(columns) or 'none'}; add it {ADDED.format(f'{group}_columns')}"
            )
        x = columns[name]
        form = ColumnSchema(
            whole=x.dtype.kind == "i", width=0 if x.ndim == 1 else int(x.shape[1]), categories=[]
        )
        if (form.whole, form.width) != (wanted.whole, wanted.width):
            raise DataError(
                f"{where}, has {form.text} of {x.dtype} in the {group} column {name!r}; expected"
                f" {wanted.text}; convert the column"
            )
        _check_unit(
            group=group,
            name=name,
            wanted=wanted.unit,
            unit=unit_of(graph, group, name),
            where=where,
        )
        columns[name] = _codes(
            graph=graph,
            schema=schema,
            group=group,
            name=name,
            wanted=wanted,
            where=where,
            read=reads,
        )
    return columns


def _check_unit(group: str, name: str, wanted: str, unit: str, where: str) -> None:
    """Check that times are in the unit of the training, as far as both are known.

    Raises:
        DataError: They are not.
    """
    if wanted and unit and wanted != unit:
        word = next(word for word, of_word in TIME_UNITS.items() if of_word == wanted)
        raise DataError(
            f"{where}, has times in {unit} in the {group} column {name!r}; expected {wanted}:"
            f" import its table with --types {name}:{word}, or import both tables with one type and"
            " train again"
        )


def _codes(
    graph: Graph,
    schema: Schema,
    group: str,
    name: str,
    wanted: ColumnSchema,
    where: str,
    read: bool,
) -> Any:
    """A column in the codes of the schema; ``read`` says whether the model reads it."""
    x = (graph.node_columns if group == "node" else graph.edge_columns)[name]
    if (group, name) == ("node", TYPE):
        return _translated(
            codes=x,
            own=graph.node_types,
            wanted=schema.node_types,
            what=f"{where}, has nodes of the type",
            n=schema.n_types,
            read=read,
        )
    if (group, name) == ("edge", RELATION) and not wanted.categories:
        own, names = (
            of.relations or meta.get("relation_names", ())
            for of, meta in ((graph, graph.meta), (schema, schema.meta))
        )
        return _translated(
            codes=x,
            own=own,
            wanted=names,
            what=f"{where}, has edges of the relation",
            n=schema.n_relations,
            read=read,
        )
    if wanted.categories:
        what = f"{where}, has in the {group} column {name!r} the value"
        return _translated(
            codes=x,
            own=graph.categories(group, name),
            wanted=wanted.categories,
            what=what,
            n=len(wanted.categories),
            read=read,
        )
    return x


def _translated(
    codes: Any, own: Sequence[Any], wanted: Sequence[Any], what: str, n: int, read: bool = True
) -> Any:
    """Codes of names in another order; codes without names must be below n.

    Args:
        codes: [n_rows] integers; negative ones stand for no name and stay.
        own: Names of the codes; empty if they have none.
        wanted: Names in the order of the new codes; empty if they have none.
        what: For messages.
        n: Number of codes that the model knows.
        read: Whether the model reads the codes; if not, it need not know all of them.

    Raises:
        DataError: A code that occurs has no name among the wanted ones.
    """
    own = list(own)
    wanted = _names(own, wanted, read)
    number = {name: code for code, name in enumerate(wanted)}
    named = bool(own) and bool(wanted)
    table = np.array([number.get(name, -1) for name in own] if named else range(n), np.int64)
    if (own == wanted[: len(own)] if named else not read) or not len(codes):
        return codes
    occurring = np.unique(np.asarray(codes))
    occurring = occurring[occurring >= 0]
    unknown = (
        occurring[(occurring >= len(table)) | (table[np.minimum(occurring, len(table) - 1)] < 0)]
        if len(table)
        else occurring
    )
    if len(unknown):
        code = int(unknown[0])
        shown = repr(own[code]) if code < len(own) else f"with code {code}"
        expected = listed([str(name) for name in wanted]) or f"the codes 0 to {n - 1}"
        raise DataError(
            f"{what} {shown}, which the model does not know; it knows {expected}; leave such rows"
            " out, or train with them"
        )
    if not named:
        return codes

    def translate(x: np.ndarray) -> np.ndarray:
        return np.where(x < 0, x, table[x]).astype(x.dtype)

    return Recoded(codes, translate) if in_files(codes) else frozen(translate(np.asarray(codes)))


def _features(graph: Graph, schema: Schema, where: str) -> Any:
    """x with the columns of each type where the model expects them, and in its scale."""
    x, own, kind = _unordered(graph, schema, NODES, where)
    x, own = _one_hot(
        x=x,
        own=own,
        names=graph.meta.get("one_hot"),
        wanted=schema.meta.get("one_hot"),
        where=where,
    )
    x = _blocks(
        x=x,
        own=graph.node_types,
        own_widths=type_widths(graph),
        wanted=schema.node_types,
        widths=schema.type_widths,
        what="x of type",
        where=where,
    )
    wanted = schema.n_features - len(schema.meta.get("structural_scale", ()))
    _check_width(x, wanted, f"{where}, has {{}} node features in x")
    return None if x is None else rescaled(x, own, schema.scale("x"), kind)


def _attributes(graph: Graph, schema: Schema, where: str) -> Any:
    """edge_attr with the columns of each relation where the model expects them, in its scale."""
    x, own, kind = _unordered(graph, schema, EDGES, where)
    x = _blocks(
        x=x,
        own=graph.relations,
        own_widths=graph.meta.get("relation_widths", []),
        wanted=schema.relations,
        widths=schema.relation_widths,
        what="edge_attr of relation",
        where=where,
    )
    _check_width(x, schema.n_edge_features, f"{where}, has {{}} edge attributes in edge_attr")
    if x is None:
        return None
    x = rescaled(x, own, schema.scale("edge_attr"), kind, EDGES)
    if not schema.relation_widths:
        return x
    codes = _kinds(graph, schema, EDGES, where)
    return attributes_apart(x, codes, len(schema.relation_widths), schema.relation_widths)


def _unordered(
    graph: Graph, schema: Schema, of: Words, where: str
) -> tuple[Any, Scale | None, np.ndarray | None]:
    """x or edge_attr, its scale, and the kinds of rows that scales need, None for others; values as
    they were before they were scaled if the scale has the columns in the order of other types or
    relations.
    """
    field = of[0]
    x = getattr(graph, field)
    own = Scale.of(graph.meta, field)
    scales = (own, schema.scale(field))
    apart = any(scale is not None and scale.widths for scale in scales)
    kind = _kinds(graph, schema, of, where) if apart else None
    names, wanted, codes = _sides(graph, schema, of)
    if own is None or names == wanted:
        return x, own, kind
    if of is EDGES and own.widths:
        codes = relation_of_columns(codes, graph.n_relations, len(own.widths))
    return rescaled(x, own, None, codes if own.widths else None), None, kind


def _sides(graph: Graph, schema: Schema, of: Words) -> tuple[list[Any], list[Any], Any]:
    """The types or relations of a graph and of the schema, and the code of each row of the graph;
    None without.
    """
    if of is NODES:
        return list(graph.node_types), schema.node_types, graph.node_columns.get(TYPE)
    return list(graph.relations), list(schema.relations), graph.edge_columns.get(RELATION)


def _check_width(x: Any, wanted: int, what: str) -> None:
    width = 0 if x is None else int(x.shape[1])
    if width != wanted:
        raise DataError(
            f"{what.format(width or 'no')}; expected {wanted}; give the same columns in the same"
            " order"
        )


def _kinds(graph: Graph, schema: Schema, of: Words, where: str) -> np.ndarray:
    """For each node its type, for each edge the relation that has its columns, in the codes of the
    schema; one that it does not have gets a code behind them.
    """
    names, wanted, column = _sides(graph, schema, of)
    if column is None:
        _, what, kind, values = of
        lacking = "types of nodes" if of is NODES else "relations"
        field, code = ("node_columns", TYPE) if of is NODES else ("edge_columns", RELATION)
        raise DataError(
            f"{where}, has no {lacking}, but the {values} of each {kind} have a scale of"
            f" their own; give the {kind}s of {what} {ADDED.format(field)} {code!r}, or the graph"
            f" as dicts by {kind}"
        )
    codes = np.asarray(column)
    if names and wanted and names != wanted[: len(names)]:
        number = {name: code for code, name in enumerate(wanted)}
        codes = np.array([number.get(name, len(number)) for name in names])[codes]
    if of is EDGES and schema.relation_widths:
        return relation_of_columns(codes, schema.n_relations, len(schema.relation_widths))
    return codes


def _one_hot(
    x: Any, own: Scale | None, names: Any, wanted: Any, where: str
) -> tuple[Any, Scale | None]:
    """x with the one-hot columns of the names that the model expects, in their order, and its
    scale.

    Args:
        x: The features.
        own: Their scale; None if they are as they were given.
        names: Names of each column of names of the graph, whose features are the last ones; None if
            unknown.
        wanted: Those that the model expects.
        where: For messages.

    Raises:
        DataError: There are other columns of names, or names that the model does not know.
    """
    if x is None or names is None or wanted is None or names == wanted:
        return x, own
    if list(names) != list(wanted):
        raise DataError(
            f"{where}, has one-hot features of {', '.join(names)}; expected {', '.join(wanted)};"
            " give the same columns in the same order"
        )
    begin = x.shape[1] - sum(map(len, names.values()))
    columns = list(range(begin))
    for column, own_names in names.items():
        unknown = [name for name in own_names if name not in wanted[column]]
        if unknown:
            raise DataError(
                f"{where}, has in the one-hot column {column!r} the value {unknown[0]!r}, which the"
                f" model does not know; it knows {listed(wanted[column])}; leave such rows out, or"
                " train with them"
            )
        at = {name: begin + k for k, name in enumerate(own_names)}
        columns += [at.get(name, -1) for name in wanted[column]]
        begin += len(own_names)
    order = np.array(columns, np.int64)
    scale = (
        None
        if own is None
        else Scale(
            np.where(order < 0, 0, own.mean[order]), np.where(order < 0, 1, own.deviation[order])
        )
    )
    return picked(x, order), scale


def _blocks(
    x: Any,
    own: Sequence[Any],
    own_widths: Sequence[int],
    wanted: Sequence[Any],
    widths: Sequence[int],
    what: str,
    where: str,
) -> Any:
    """Columns of types side by side, in the order that the model expects."""
    # inverse relations follow those whose columns they have
    own = list(own)[: len(own_widths)]
    wanted = list(wanted)[: len(widths)]
    if x is None or not own or not widths or own == wanted:
        return x
    at = dict(zip(own, np.cumsum([0, *own_widths]).tolist(), strict=False))
    picked_columns = []
    width_of = dict(zip(own, own_widths, strict=True))
    for name, width in zip(wanted, widths, strict=True):
        if width_of.get(name, 0) not in (0, width):
            raise DataError(
                f"{where}, has {width_of[name]} columns in {what} {name!r}; expected {width}; give"
                " the same columns in the same order"
            )
        picked_columns += (
            [at[name] + k for k in range(width)] if width_of.get(name, 0) else [-1] * width
        )
    if isinstance(x, TypedRows) and x.rest is None and len(wanted) < MOST_TYPES:
        return _reordered(x, own, wanted, widths)
    import scipy.sparse as sp

    # a last column of zeros, for types that the graph does not have
    padded = (
        sp.hstack([x.tocsr(), sp.csr_array((x.shape[0], 1), dtype=x.dtype)], format="csc")
        if is_sparse(x)
        else np.concatenate((np.asarray(x), np.zeros((x.shape[0], 1), x.dtype)), axis=1)
    )
    out = padded[:, picked_columns]
    return sp.csr_array(out) if is_sparse(out) else frozen(np.ascontiguousarray(out))


def _reordered(
    x: TypedRows, own: Sequence[Any], wanted: Sequence[Any], widths: Sequence[int]
) -> TypedRows:
    """Rows with the types in another order; those of types that are not wanted have no columns."""
    number = {name: code for code, name in enumerate(wanted)}
    kind = np.array([number.get(name, len(wanted)) for name in own], KIND)[x.kind]
    block_of = {name: block for name, block in zip(own, x.blocks, strict=True) if block.shape[1]}
    count = np.bincount(kind, minlength=len(wanted) + 1)
    blocks = [
        block_of.get(name, np.zeros((n, width), x.dtype))
        for name, width, n in zip(wanted, widths, count, strict=False)
    ]
    return TypedRows(kind, blocks, np.zeros((count[-1], 0), x.dtype) if count[-1] else None)


def _labels(graph: Graph, schema: Schema, where: str) -> dict[str, Any]:
    """Labels of nodes in the codes of the schema, or unknown ones; without masks, all nodes with
    labels are the test set.
    """
    if schema.label_kind == "none":
        return {}
    n = graph.n_nodes
    classes = schema.n_classes
    one = schema.label_kind == "classes"
    form = {"n_classes": schema.n_classes, "multilabel": schema.label_kind == "multilabel"}
    if graph.y is None:
        unknown = (
            np.broadcast_to(np.int64(-1), (n,))
            if one
            else np.broadcast_to(np.float32(np.nan), (n, classes))
        )
        return {"y": unknown, "train": None, "val": None, "test": None, **form}
    y = graph.y
    names = schema.meta.get("class_names", ())
    if (
        graph.label_kind == schema.label_kind == "multilabel"
        and graph.class_names
        and len(names) == classes
    ):
        y = _label_columns(y, graph.class_names, names, f"{where}, has nodes with the label")
    if graph.label_kind != schema.label_kind or (not one and y.shape[1] != classes):
        width = "" if graph.y.ndim == 1 else f" with {graph.y.shape[1]} columns"
        raise DataError(
            f"{where}, has labels of kind {graph.label_kind}{width}; expected {schema.label_kind},"
            f" {classes}; give such labels, or drop them to predict without: graph.replace(y=None)"
        )
    if one:
        y = _translated(
            codes=y,
            own=graph.class_names,
            wanted=names,
            what=f"{where}, has nodes of the class",
            n=classes,
        )
    masks = (graph.train, graph.val, graph.test)
    if any(mask is not None for mask in masks):
        return {"y": y, **form}
    return {"y": y, "test": labelled(y), **form}


def _label_columns(
    y: np.ndarray, own: Sequence[str], wanted: Sequence[str], what: str
) -> np.ndarray:
    """Several labels a node, [n, len(wanted)], in another order; no node has a label that the graph
    does not name.

    Raises:
        DataError: A node has a label that is not wanted.
    """
    if list(own) == list(wanted):
        return y
    at = {name: column for column, name in enumerate(own)}
    values = np.asarray(y)
    for name in sorted(at.keys() - set(wanted)):
        if (values[:, at[name]] == 1).any():
            raise DataError(
                f"{what} {name!r}, which the model does not know; it knows "
                f"{listed(list(wanted))}; leave the label out, or train with it"
            )
    unnamed = np.where(np.isnan(values).all(axis=1), np.float32(np.nan), np.float32(0))
    return frozen(
        np.stack([values[:, at[name]] if name in at else unnamed for name in wanted], axis=1)
    )


def _edge_labels(graph: Graph, schema: Schema, where: str) -> dict[str, Any]:
    """Targets of edges, or unknown ones; without masks, all edges with targets are the test set."""
    width = schema.edge_label_width
    if width < 0:
        return {}
    shape = (graph.n_edges, width) if width else (graph.n_edges,)
    if graph.edge_y is None:
        return {
            "edge_y": np.broadcast_to(np.float32(np.nan), shape),
            "edge_train": None,
            "edge_val": None,
            "edge_test": None,
        }
    if graph.edge_y.shape != shape:
        raise DataError(
            f"{where}, has edge targets of shape {list(graph.edge_y.shape)}; expected"
            f" {list(shape)}; give such targets, or drop them to predict without:"
            " graph.replace(edge_y=None)"
        )
    if any(mask is not None for mask in (graph.edge_train, graph.edge_val, graph.edge_test)):
        return {}
    complete = ~np.isnan(np.asarray(graph.edge_y))
    return {"edge_test": complete if complete.ndim == 1 else complete.all(axis=1)}
