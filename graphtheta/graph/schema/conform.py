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
from graphtheta.base.typed_rows import EDGES, KIND, MOST_TYPES, TypedRows
from graphtheta.errors import DataError
from graphtheta.graph.data.columns import TIME_UNITS, listed, unit_of
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.scale import Scale
from graphtheta.graph.data.typed import RELATION, TYPE, relation_of_columns, type_widths
from graphtheta.graph.data.validation import frozen
from graphtheta.graph.schema.rescaled import Recoded, picked, rescaled
from graphtheta.graph.schema.schema import Column, Schema

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
    fields: dict[str, Any] = {"meta": _meta(graph, schema)}
    for group, known in (("node", schema.node_columns), ("edge", schema.edge_columns)):
        fields[f"{group}_columns"] = MappingProxyType(
            _columns(graph=graph, schema=schema, group=group, known=known, read=read, where=where)
        )
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


def _meta(graph: Graph, schema: Schema) -> dict[str, Any]:
    names = {
        "node_types": schema.node_types,
        "relations": [list(r) for r in schema.relations],
        "type_widths": schema.type_widths,
        "relation_widths": schema.relation_widths,
    }
    counts = {"n_types": schema.n_types, "n_relations": schema.n_relations}
    categories = {
        f"{group}_categories": {name: c.categories for name, c in columns.items() if c.categories}
        for group, columns in (("node", schema.node_columns), ("edge", schema.edge_columns))
    }
    return {
        **graph.meta,
        **{key: x for key, x in {**names, **counts, **categories}.items() if x},
        **schema.meta,
    }


def _columns(
    graph: Graph,
    schema: Schema,
    group: str,
    known: dict[str, Column],
    read: Collection[str],
    where: str,
) -> dict[str, Any]:
    """The named columns, those with codes of names in the codes of the schema."""
    given = graph.node_columns if group == "node" else graph.edge_columns
    found = dict(given)
    for name, wanted in known.items():
        if f"{group}.{name}" not in read:
            continue
        if name not in given:
            raise DataError(
                f"{where}, has no {group} column {name!r}, which the model reads as {wanted.text};"
                f" it has {', '.join(given) or 'none'}; add it {ADDED.format(f'{group}_columns')}"
            )
        x = given[name]
        form = Column(
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
        found[name] = _codes(
            graph=graph, schema=schema, group=group, name=name, wanted=wanted, where=where
        )
    return found


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


def _codes(graph: Graph, schema: Schema, group: str, name: str, wanted: Column, where: str) -> Any:
    """A column in the codes of the schema."""
    x = (graph.node_columns if group == "node" else graph.edge_columns)[name]
    if (group, name) == ("node", TYPE):
        return _translated(
            codes=x,
            own=graph.node_types,
            wanted=schema.node_types,
            what=f"{where}, has nodes of the type",
            n=schema.n_types,
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
        )
    if wanted.categories:
        what = f"{where}, has in the {group} column {name!r} the value"
        return _translated(
            codes=x,
            own=graph.categories(group, name),
            wanted=wanted.categories,
            what=what,
            n=len(wanted.categories),
        )
    return x


def _translated(codes: Any, own: Sequence[Any], wanted: Sequence[Any], what: str, n: int) -> Any:
    """Codes of names in another order; codes without names must be below n.

    Args:
        codes: [n_rows] integers; negative ones stand for no name and stay.
        own: Names of the codes; empty if they have none.
        wanted: Names in the order of the new codes; empty if they have none.
        what: For messages.
        n: Number of codes that the model knows.

    Raises:
        DataError: A code that occurs has no name among the wanted ones.
    """
    own = list(own)
    wanted = list(wanted)
    number = {name: code for code, name in enumerate(wanted)}
    named = bool(own) and bool(wanted)
    table = np.array([number.get(name, -1) for name in own] if named else range(n), np.int64)
    if (named and own == wanted[: len(own)]) or not len(codes):
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
        known = listed([str(name) for name in wanted]) or f"the codes 0 to {n - 1}"
        raise DataError(
            f"{what} {shown}, which the model does not know; it knows {known}; leave such rows out,"
            " or train with them"
        )
    if not named:
        return codes

    def translate(x: np.ndarray) -> np.ndarray:
        return np.where(x < 0, x, table[x]).astype(x.dtype)

    return Recoded(codes, translate) if in_files(codes) else frozen(translate(np.asarray(codes)))


def _features(graph: Graph, schema: Schema, where: str) -> Any:
    """x with the columns of each type where the model expects them, and in its scale."""
    wanted = schema.n_features - len(schema.meta.get("structural_scale", ()))
    x = graph.x
    own = Scale.of(graph.meta, "x")
    scale = schema.scale("x")
    kind = (
        _types(graph, schema, where)
        if any(s is not None and s.widths for s in (own, scale))
        else None
    )
    if own is not None and list(graph.node_types) != schema.node_types:
        # its columns are in the order of its own types
        x = rescaled(x, own, None, graph.node_columns[TYPE] if own.widths else None)
        own = None
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
    width = 0 if x is None else int(x.shape[1])
    if width != wanted:
        raise DataError(
            f"{where}, has {width or 'no'} node features in x; expected {wanted}; give the same"
            " columns in the same order"
        )
    return None if x is None else rescaled(x, own, scale, kind)


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


def _types(graph: Graph, schema: Schema, where: str) -> np.ndarray:
    """Type of each node in the codes of the schema; a type that it does not have gets a code behind
    them.
    """
    if TYPE not in graph.node_columns:
        raise DataError(
            f"{where}, has no types of nodes, but the features of each type have a scale of their"
            f" own; give the types of nodes {ADDED.format('node_columns')} {TYPE!r}, or the graph"
            " as dicts by type"
        )
    codes = np.asarray(graph.node_columns[TYPE])
    own = list(graph.node_types)
    if not own or not schema.node_types or own == schema.node_types[: len(own)]:
        return codes
    number = {name: code for code, name in enumerate(schema.node_types)}
    return np.array([number.get(name, len(number)) for name in own])[codes]


def _attributes(graph: Graph, schema: Schema, where: str) -> Any:
    """edge_attr with the columns of each relation where the model expects them, in its scale."""
    x = graph.edge_attr
    own = Scale.of(graph.meta, "edge_attr")
    scale = schema.scale("edge_attr")
    kind = (
        _relations(graph, schema, where)
        if any(s is not None and s.widths for s in (own, scale))
        else None
    )
    if own is not None and list(graph.relations) != schema.relations:
        # its columns are in the order of its own relations
        codes = (
            relation_of_columns(graph.edge_columns[RELATION], graph.n_relations, len(own.widths))
            if own.widths
            else None
        )
        x = rescaled(x, own, None, codes)
        own = None
    x = _blocks(
        x=x,
        own=graph.relations,
        own_widths=graph.meta.get("relation_widths", []),
        wanted=schema.relations,
        widths=schema.relation_widths,
        what="edge_attr of relation",
        where=where,
    )
    width = 0 if x is None else int(x.shape[1])
    if width != schema.n_edge_features:
        raise DataError(
            f"{where}, has {width or 'no'} edge attributes in edge_attr; expected"
            f" {schema.n_edge_features}; give the same columns in the same order"
        )
    return None if x is None else rescaled(x, own, scale, kind, EDGES)


def _relations(graph: Graph, schema: Schema, where: str) -> np.ndarray:
    """For each edge the relation that has its columns, in the codes of the schema; one that it does
    not have gets a code behind them.
    """
    if RELATION not in graph.edge_columns:
        raise DataError(
            f"{where}, has no relations, but the attributes of each relation have a scale of their"
            f" own; give the relations of edges {ADDED.format('edge_columns')} {RELATION!r}, or the"
            " graph as dicts by relation"
        )
    codes = np.asarray(graph.edge_columns[RELATION])
    own = list(graph.relations)
    widths = schema.relation_widths
    if own and schema.relations and own != schema.relations[: len(own)]:
        number = {name: code for code, name in enumerate(schema.relations)}
        codes = np.array([number.get(name, len(number)) for name in own])[codes]
    return relation_of_columns(codes, schema.n_relations, len(widths)) if widths else codes


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
    taken = []
    width_of = dict(zip(own, own_widths, strict=True))
    for name, width in zip(wanted, widths, strict=True):
        if width_of.get(name, 0) not in (0, width):
            raise DataError(
                f"{where}, has {width_of[name]} columns in {what} {name!r}; expected {width}; give"
                " the same columns in the same order"
            )
        taken += [at[name] + k for k in range(width)] if width_of.get(name, 0) else [-1] * width
    if isinstance(x, TypedRows) and len(wanted) < MOST_TYPES:
        return _reordered(x, own, wanted, widths)
    import scipy.sparse as sp

    # a last column of zeros, for types that the graph does not have
    padded = (
        sp.hstack([x.tocsr(), sp.csr_array((x.shape[0], 1), dtype=x.dtype)], format="csc")
        if is_sparse(x)
        else np.concatenate((np.asarray(x), np.zeros((x.shape[0], 1), x.dtype)), axis=1)
    )
    found = padded[:, taken]
    return sp.csr_array(found) if is_sparse(found) else frozen(np.ascontiguousarray(found))


def _reordered(
    x: TypedRows, own: Sequence[Any], wanted: Sequence[Any], widths: Sequence[int]
) -> TypedRows:
    """Rows with the types in another order; those of types that are not wanted have no columns."""
    number = {name: code for code, name in enumerate(wanted)}
    kind = np.array([number.get(name, len(wanted)) for name in own], KIND)[x.kind]
    given = {name: block for name, block in zip(own, x.blocks, strict=True) if block.shape[1]}
    count = np.bincount(kind, minlength=len(wanted) + 1)
    blocks = [
        given.get(name, np.zeros((n, width), x.dtype))
        for name, width, n in zip(wanted, widths, count, strict=False)
    ]
    return TypedRows(kind, [*blocks, *([np.zeros((count[-1], 0), x.dtype)] if count[-1] else [])])


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
    return {"y": y, "test": y >= 0 if one else ~np.isnan(np.asarray(y)).all(axis=1), **form}


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
    known = np.asarray(y)
    for name in sorted(at.keys() - set(wanted)):
        if (known[:, at[name]] == 1).any():
            raise DataError(
                f"{what} {name!r}, which the model does not know; it knows "
                f"{listed(list(wanted))}; leave the label out, or train with it"
            )
    unnamed = np.where(np.isnan(known).all(axis=1), np.float32(np.nan), np.float32(0))
    return frozen(
        np.stack([known[:, at[name]] if name in at else unnamed for name in wanted], axis=1)
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
    known = ~np.isnan(np.asarray(graph.edge_y))
    return {"edge_test": known if known.ndim == 1 else known.all(axis=1)}
