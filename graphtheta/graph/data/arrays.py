"""The whole graph in the memory of one process: plain arrays, checked once and immutable.

Every rank loads the same graph and takes its share of it. Rows of node arrays are nodes
0..n_nodes-1 and rows of edge arrays are edges 0..n_edges-1 as given; nothing is sorted, merged or
added implicitly. Arrays are read-only and nobody else's, and every change makes a new graph.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from graphtheta.base.arguments import checked, is_whole
from graphtheta.base.memory import total_bytes
from graphtheta.base.npy import in_files
from graphtheta.base.sparse import is_sparse
from graphtheta.base.typed_rows import TypedRows
from graphtheta.base.wording import HintsAtNames, shown
from graphtheta.errors import DataError
from graphtheta.graph.data import typed, validation
from graphtheta.graph.data.columns import Columns, check_columns
from graphtheta.graph.data.scale import SCALES
from graphtheta.graph.data.tensors import without_tensors
from graphtheta.graph.data.typed import READOUT, RELATION, TYPE
from graphtheta.graph.data.validation import Origin, as_array, private

NODE_MASKS = ("train", "val", "test")
EDGE_MASKS = ("edge_train", "edge_val", "edge_test")
NODE_FIELDS = ("x", "y", *NODE_MASKS, "node_ids")
EDGE_FIELDS = ("edge_attr", "edge_weight", "edge_y", *EDGE_MASKS)
COLUMNS = ("node_columns", "edge_columns")
# bytes that every worker needs per node of any graph: the owner of the node, and its row there
NODE_BYTES = 8
# rows of a column that are read at a time to hash its values
ROWS_AT_ONCE = 1 << 14
# ends of edges that are read at a time to count them
ENDS_AT_ONCE = 1 << 22

G = TypeVar("G", bound="GraphArrays")


class GraphArrays(HintsAtNames):
    """The arrays of a graph, checked on construction; see ``Graph``."""

    __slots__ = (
        "dst",
        "edge_attr",
        "edge_columns",
        "edge_test",
        "edge_train",
        "edge_val",
        "edge_weight",
        "edge_y",
        "folder",
        "meta",
        "multilabel",
        "n_classes",
        "n_nodes",
        "name",
        "node_columns",
        "node_ids",
        "src",
        "test",
        "train",
        "val",
        "x",
        "y",
    )

    n_nodes: int
    n_classes: int
    multilabel: bool
    name: str
    meta: dict[str, Any]
    folder: str
    src: np.ndarray
    dst: np.ndarray
    x: Any
    y: np.ndarray | None
    edge_attr: np.ndarray | None
    edge_weight: np.ndarray | None
    edge_y: np.ndarray | None
    train: np.ndarray | None
    val: np.ndarray | None
    test: np.ndarray | None
    edge_train: np.ndarray | None
    edge_val: np.ndarray | None
    edge_test: np.ndarray | None
    node_ids: np.ndarray | None
    node_columns: Columns
    edge_columns: Columns

    @checked
    def __init__(
        self,
        edge_index: Any,
        n_nodes: Any = None,
        *,
        x: Any = None,
        y: Any = None,
        n_classes: int | None = None,
        multilabel: bool | None = None,
        edge_attr: Any = None,
        edge_weight: Any = None,
        edge_y: Any = None,
        train: Any = None,
        val: Any = None,
        test: Any = None,
        edge_train: Any = None,
        edge_val: Any = None,
        edge_test: Any = None,
        node_ids: Any = None,
        node_columns: Mapping[str, Any] | None = None,
        edge_columns: Mapping[str, Any] | None = None,
        name: str = "graph",
        meta: dict[str, Any] | None = None,
        where: str = "",
        folder: str = "",
    ):
        arrays = without_tensors(
            {
                "edge_index": edge_index,
                "x": x,
                "y": y,
                "edge_attr": edge_attr,
                "edge_weight": edge_weight,
                "edge_y": edge_y,
                "train": train,
                "val": val,
                "test": test,
                "edge_train": edge_train,
                "edge_val": edge_val,
                "edge_test": edge_test,
                "node_ids": node_ids,
                "node_columns": node_columns,
                "edge_columns": edge_columns,
            }
        )
        facts = {
            "n_classes": n_classes,
            "multilabel": multilabel,
            "name": str(name),
            "meta": dict(meta or {}),
            "folder": folder,
        }
        if isinstance(edge_index, Mapping):
            arrays["edge_index"] = {
                name: check_edges(pair, f"{where}: {name!r}" if where else repr(name))
                for name, pair in arrays["edge_index"].items()
            }
            arguments = typed.joined(n_nodes, {**arrays, **facts, "where": where})
            GraphArrays.__init__(self, **arguments)
            return
        fields = {**facts, **_checked(arrays, n_nodes, n_classes, multilabel, where)}
        if fields["edge_attr"] is not None:
            fields["edge_attr"] = _attributes_apart(**fields)
        for field, value in fields.items():
            object.__setattr__(self, field, value)

    def __setattr__(self, field: str, value: Any) -> None:
        raise AttributeError(
            f"a graph is immutable; create a changed copy with graph.replace({field}=...)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._fields())

    @property
    def n_edges(self) -> int:
        """Number of stored (directed) edges."""
        return len(self.src)

    @property
    def edge_index(self) -> np.ndarray:
        """Sources and destinations, a new [2, n_edges] int64 array."""
        return np.stack((self.src, self.dst))

    @property
    def n_features(self) -> int:
        """Width of the node features; 0 without."""
        return 0 if self.x is None else int(self.x.shape[1])

    @property
    def n_edge_features(self) -> int:
        """Width of the edge attributes; 0 without."""
        return 0 if self.edge_attr is None else int(self.edge_attr.shape[1])

    @property
    def node_types(self) -> tuple[str, ...]:
        """Names of the types of nodes, in the order of their codes; empty for a graph that was not
        made of types.
        """
        return tuple(self.meta.get("node_types", ()))

    @property
    def relations(self) -> tuple[tuple[str, str, str], ...]:
        """Source type, name and destination type of each relation, in the order of their codes;
        empty if they have no names.
        """
        return tuple((src, name, dst) for src, name, dst in self.meta.get("relations", ()))

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, or of several labels a node, in their order; empty if they have
        none.
        """
        names = tuple(map(str, self.meta.get("class_names") or ()))
        return names if len(names) == self.n_classes else ()

    def categories(self, group: str, column: str) -> tuple[str, ...]:
        """Texts that the codes of a named column stand for, in the order of the codes; empty if it
        has numbers.

        Args:
            group: "node" or "edge".
            column: Name of the column.
        """
        return tuple(self.meta.get(f"{group}_categories", {}).get(column, ()))

    @property
    def n_relations(self) -> int:
        """Number of relations: of those with names, else ``meta["n_relations"]`` or, if that is
        more, the largest code of the edge column "relation" + 1; 0 without the column."""
        return count_relations(self.edge_columns.get(RELATION), self.meta)

    def mean_log_degree(self, direction: str = "in") -> float:
        """Mean of log(degree + 1) over the nodes, by which ``gt.models.PNA`` scales; 0 without
        edges. Nodes that stand for whole graphs do not count.

        Args:
            direction: Edges that count: those into a node ("in"), out of it ("out"), or "both".
        """
        ends = {"in": (self.dst,), "out": (self.src,), "both": (self.src, self.dst)}[direction]
        count = np.zeros(self.n_nodes, np.int64)
        # an array in a file is read part by part
        size = max(self.n_nodes, ENDS_AT_ONCE)
        for end in ends:
            for begin in range(0, self.n_edges, size):
                count += np.bincount(end[begin : begin + size], minlength=self.n_nodes)
        stands = self.node_columns.get(READOUT)
        nodes = count if stands is None else count[np.asarray(stands) == 0]
        return float(np.log1p(nodes).mean()) if len(nodes) else 0.0

    @property
    def relation_names(self) -> tuple[Any, ...]:
        """The names of the relations in the order of their codes, or the codes themselves; empty
        without relations.
        """
        return self.relations or tuple(range(self.n_relations))

    @property
    def relation_widths(self) -> list[int]:
        """Number of columns of ``edge.attr`` along each relation, in the order of their codes: its
        own, or all if columns are those of all edges.
        """
        x = self.edge_attr
        own = x.widths if isinstance(x, TypedRows) else [self.n_edge_features]
        return [own[code % len(own)] for code in range(self.n_relations)]

    @property
    def n_types(self) -> int:
        """Number of types of nodes: of those with names, else ``meta["n_types"]`` or, if that is
        more, the largest code of the node column "type" + 1; 0 without the column."""
        codes = self.node_columns.get(TYPE)
        return (
            0
            if codes is None
            else len(self.node_types)
            or max(self.meta.get("n_types", 0), int(codes.max(initial=-1)) + 1)
        )

    def nodes_of(self, kind: str) -> np.ndarray:
        """The nodes of a type, ascending, in the order of the numbers within the type, [n] int64.

        Raises:
            DataError: There is no such type.
        """
        if kind not in self.node_types:
            raise DataError(
                f"{self.name}: there is no node type {kind!r}; it has"
                f" {', '.join(map(repr, self.node_types)) or 'no types'}"
            )
        return np.flatnonzero(self.node_columns[TYPE] == self.node_types.index(kind))

    @property
    def n_splits(self) -> int:
        """Number of splits, which are columns of the masks; 1 for masks without columns, or without
        masks.
        """
        return validation.count_splits(
            {mask: getattr(self, mask) for mask in (*NODE_MASKS, *EDGE_MASKS)}, self.name
        )

    @property
    def label_kind(self) -> str:
        """``"none"``, ``"classes"``, ``"multilabel"`` or ``"regression"``."""
        if self.y is None or self.multilabel:
            return "none" if self.y is None else "multilabel"
        return "classes" if self.y.dtype.kind == "i" else "regression"

    @property
    def original_ids(self) -> np.ndarray:
        """The users' ids of all nodes, [n_nodes]."""
        return np.arange(self.n_nodes) if self.node_ids is None else self.node_ids

    @property
    def nbytes(self) -> int:
        """Bytes of memory of all arrays."""
        return sum(a.nbytes for _, a in self.named_arrays())

    def _fields(self) -> dict[str, Any]:
        """Everything the constructor takes, by name."""
        fields = {
            field: getattr(self, field)
            for field in (
                "n_nodes",
                "multilabel",
                "name",
                "meta",
                "folder",
                *NODE_FIELDS,
                *EDGE_FIELDS,
            )
        }
        # for other kinds of labels the number of classes follows from the labels
        fields["n_classes"] = self.n_classes if self.label_kind in ("none", "classes") else None
        fields |= {field: dict(getattr(self, field)) for field in COLUMNS}
        return {"edge_index": (self.src, self.dst), **fields}

    @property
    def has_sparse_features(self) -> bool:
        """Whether x is stored as a sparse matrix."""
        return is_sparse(self.x) or (validation.is_column(self.x) and bool(self.x.sparse))

    def named_arrays(self) -> list[tuple[str, Any]]:
        """All arrays with their names; x may be a column, a sparse matrix is its three parts."""
        out = [("src", self.src), ("dst", self.dst)]
        for field in (*NODE_FIELDS, *EDGE_FIELDS):
            value = getattr(self, field)
            if isinstance(value, TypedRows):
                out += [
                    (f"{field}_type", value.kind),
                    *((f"{field}_of_{code}", x) for code, x in enumerate(value.parts)),
                ]
            elif is_sparse(value):
                out += [
                    (f"{field}_{part}", getattr(value, part))
                    for part in ("data", "indices", "indptr")
                ]
            elif value is not None:
                out.append((field, value))
        return out + [
            (f"{field}.{name}", x)
            for field in COLUMNS
            for name, x in sorted(getattr(self, field).items())
        ]

    def digest(self) -> str:
        """A short hash of all arrays and counts, the same for equal graphs on every machine."""
        h = hashlib.blake2b(digest_size=16)
        h.update(repr((self.n_nodes, self.n_features, self.n_classes, self.multilabel)).encode())
        for field, a in self.named_arrays():
            # the width of sparse indices is scipy's choice, not content
            a = a.astype(np.int64) if field.endswith(("_indices", "_indptr")) else a
            h.update(f"{field}{a.dtype.str}{a.shape}".encode())
            for part in _blocks(a) if validation.is_column(a) else (a,):
                h.update(np.ascontiguousarray(part).view(np.uint8).data if part.size else b"")
        return h.hexdigest()

    def replace(self: G, **changes: Any) -> G:
        """A graph with some fields changed, checked like a new one; fields are the arguments of the
        constructor.
        """
        fields = self._fields()
        unknown = sorted(set(changes) - set(fields) - {"where"})
        if unknown:
            raise DataError(
                f"a graph has no field '{unknown[0]}'; it has {', '.join(sorted(fields))}"
            )
        if "y" in changes:
            fields |= {"n_classes": None, "multilabel": None}
        # other values are in no scale, unless meta says so
        fields["meta"] = {
            key: value
            for key, value in self.meta.items()
            if not any(field in changes and key == scale for field, scale in SCALES.items())
        }
        return type(self)(**{**fields, **changes})

    def derived(self: G, **arrays: Any) -> G:
        """A graph with other edge arrays, by attribute, which come from checked ones and are not
        checked again.
        """
        graph: G = object.__new__(type(self))
        for field in GraphArrays.__slots__:
            object.__setattr__(graph, field, arrays.get(field, getattr(self, field)))
        return graph

    @property
    def in_files(self) -> bool:
        """Whether the ends of the edges are in mapped files, so that changes of the edges are
        computed when they are read.
        """
        dense = isinstance(self.edge_attr, TypedRows) or not is_sparse(self.edge_attr)
        return in_files(self.src) and in_files(self.dst) and dense

    def with_masks(self: G, train: Any, val: Any = None, test: Any = None) -> G:
        """The graph with other node masks, [n_nodes] bool each."""
        return self.replace(train=train, val=val, test=test)

    def require_training(self) -> None:
        """Check that there is something to train on.

        Raises:
            DataError: No training nodes and no training edges.
        """
        node, edge = (
            mask is not None and bool(mask.any()) for mask in (self.train, self.edge_train)
        )
        classes = self.y if self.label_kind == "classes" else None
        if not node and not edge and classes is not None and not (classes >= 0).any():
            raise DataError(
                f"{self.name}: no node has a label, so there is nothing to train on; give y, or"
                " import the column that has the labels with --label"
            )
        if not node and not edge:
            state = "has no training mask" if self.train is None else "has an empty training set"
            raise DataError(
                f'{self.name}: the graph {state}; give train=, load it with split="fraction", '
                "or make masks with class_split or fraction_split of graphtheta.graph.splits.nodes"
            )


def _checked(
    arrays: Mapping[str, Any],
    n_nodes: Any,
    n_classes: int | None,
    multilabel: bool | None,
    where: str,
) -> dict[str, Any]:
    """The arrays of a graph of one numbering in their canonical form, by attribute, with what
    follows from them.

    Raises:
        ShapeError, DataError: As of ``Graph``.
    """
    src, dst = check_edges(arrays["edge_index"], where)
    columns = arrays["node_columns"]
    n = _count_nodes(
        n_nodes=n_nodes,
        arrays=(
            *(arrays[field] for field in NODE_FIELDS),
            *(columns.values() if isinstance(columns, Mapping) else ()),
        ),
        src=src,
        dst=dst,
        where=where,
    )
    _check_range(src, dst, n, where)
    e = len(src)
    x = validation.check_features(x=arrays["x"], n=n, kind="node", field="x", where=where)
    y, n_classes, multilabel = validation.check_labels(
        y=arrays["y"], n=n, n_classes=n_classes, multilabel=multilabel, where=where
    )
    edges = {
        "edge_attr": validation.check_features(
            x=arrays["edge_attr"], n=e, kind="edge", field="edge_attr", where=where
        ),
        "edge_weight": validation.check_vector(
            x=arrays["edge_weight"], n=e, kind="edge", field="edge_weight", where=where
        ),
        "edge_y": validation.check_targets(arrays["edge_y"], e, where),
    }
    node_masks, edge_masks = (
        {field: validation.check_mask(arrays[field], m, kind, field, where) for field in masks}
        for masks, kind, m in ((NODE_MASKS, "node", n), (EDGE_MASKS, "edge", e))
    )
    validation.count_splits(node_masks | edge_masks, where)
    for masks, kind, targets, what in (
        (node_masks, "node", y, "label"),
        (edge_masks, "edge", edges["edge_y"], "target"),
    ):
        validation.check_disjoint(masks, kind, where)
        validation.check_labelled(y=targets, masks=masks, kind=kind, field=what, where=where)
    return {
        "n_nodes": n,
        "src": src,
        "dst": dst,
        "x": x,
        "y": y,
        "n_classes": n_classes,
        "multilabel": multilabel,
        **edges,
        **node_masks,
        **edge_masks,
        "node_ids": validation.check_node_ids(arrays["node_ids"], n, where),
        "node_columns": check_columns(columns, n, "node", where),
        "edge_columns": check_columns(arrays["edge_columns"], e, "edge", where),
    }


def check_edges(edge_index: Any, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Split ``edge_index`` [2, n_edges], or a pair (src, dst), into two int64 arrays."""
    origin = Origin(where, "edge_index")
    if isinstance(edge_index, (tuple, list)) and len(edge_index) == 2:
        src, dst = edge_index
        src = as_array(src, origin)
        dst = as_array(dst, origin)
        if src.ndim != 1 or src.shape != dst.shape:
            raise origin.shape(
                f"src has shape {list(src.shape)} and dst {list(dst.shape)}",
                "both must be [n_edges]",
            )
    else:
        if not isinstance(edge_index, (np.ndarray, list, tuple)) and not hasattr(
            edge_index, "__array__"
        ):
            raise origin.data(
                f"{shown(edge_index)} is no array",
                "give the pair (src, dst); a graph of another library is read by "
                "gt.load(gt.import_graph(graph, to='my.store')), a file by gt.load(path)",
            )
        pair = as_array(edge_index, origin)
        if pair.ndim != 2 or pair.shape[0] != 2:
            hint = (
                "transpose it"
                if pair.ndim == 2 and pair.shape[1] == 2
                else "give row 0 = sources and row 1 = destinations"
            )
            raise origin.shape(f"expected shape [2, n_edges], got {list(pair.shape)}", hint)
        src, dst = pair
    return _check_ids(src, origin, "sources"), _check_ids(dst, origin, "destinations")


def _check_ids(ids: np.ndarray, origin: Origin, what: str) -> np.ndarray:
    """Integer ids as int64; an empty array of any dtype is accepted."""
    if ids.size and ids.dtype.kind not in "iu":
        raise origin.data(
            f"{what} have dtype {ids.dtype}",
            "node ids must be integers; number the nodes 0..n_nodes-1 "
            "and give the original names as node_ids",
        )
    if ids.size and ids.dtype == np.uint64 and int(ids.max()) > np.iinfo(np.int64).max:
        raise origin.data(f"{what} reach {int(ids.max())}", "ids must fit into int64")
    return private(ids.astype(np.int64, copy=False), ids)


def _count_nodes(
    n_nodes: Any, arrays: tuple[Any, ...], src: np.ndarray, dst: np.ndarray, where: str
) -> int:
    """The stated number of nodes, else the rows of the first node array given, else the largest id
    + 1.
    """
    if n_nodes is not None:
        if not is_whole(n_nodes):
            raise Origin(where, "n_nodes").data(f"got {shown(n_nodes)}", "give a whole number")
        return int(n_nodes)
    for a in arrays:
        # what has no rows is rejected by the check of its field
        if len(getattr(a, "shape", ())):
            return int(a.shape[0])
        if isinstance(a, (list, tuple)):
            return len(a)
    return max(int(src.max(initial=-1)), int(dst.max(initial=-1))) + 1


def _check_range(src: np.ndarray, dst: np.ndarray, n_nodes: int, where: str) -> None:
    """Both ends of every edge lie in 0..n_nodes-1."""
    if n_nodes < 1:
        raise Origin(where, "n_nodes").data(
            f"the graph has {n_nodes} nodes", "a graph needs at least one"
        )
    if n_nodes * NODE_BYTES > total_bytes():
        raise Origin(where, "n_nodes").data(
            f"the graph has {n_nodes} nodes, which do not fit into memory, and its largest node"
            f" number is {max(int(src.max(initial=-1)), int(dst.max(initial=-1)))}",
            "number the nodes from 0 without gaps and give the original numbers as node_ids",
        )
    for name, ids in (("source", src), ("destination", dst)):
        # as unsigned numbers, negative ones are larger than any number of nodes
        if ids.view(np.uint64).max(initial=0) < n_nodes:
            continue
        edge = int(np.flatnonzero((ids < 0) | (ids >= n_nodes))[0])
        raise Origin(where, "edge_index").data(
            f"edge {edge} has {name} {int(ids[edge])}, outside 0..{n_nodes - 1}",
            f"the graph has {n_nodes} nodes; number them from 0, or state a larger n_nodes",
        )


def _attributes_apart(
    edge_attr: Any, edge_columns: Columns, meta: Mapping[str, Any], **_: Any
) -> Any:
    """The attributes of edges at the width of each relation, if their columns are those of
    relations.
    """
    codes = edge_columns.get(RELATION)
    return typed.attributes_apart(
        edge_attr, codes, count_relations(codes, meta), meta.get("relation_widths", ())
    )


def count_relations(codes: np.ndarray | None, meta: Mapping[str, Any]) -> int:
    """Number of relations of edges with these codes; see ``GraphArrays.n_relations``."""
    if codes is None:
        return 0
    return len(meta.get("relations", ())) or max(
        meta.get("n_relations", 0), int(codes.max(initial=-1)) + 1
    )


def _rebuild(kind: type[G], fields: dict[str, Any]) -> G:
    """Rebuild a pickled graph through the constructor and its checks."""
    return kind(**fields)


def _blocks(column: Any) -> Iterator[np.ndarray]:
    """The values of a column in plain arrays, a few rows at a time."""
    for first in range(0, column.shape[0], ROWS_AT_ONCE):
        rows = column.read_begin(np.arange(first, min(first + ROWS_AT_ONCE, column.shape[0]))).end()
        yield rows.toarray() if is_sparse(rows) else rows
