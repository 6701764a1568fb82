"""``gt.from_pyg`` and ``gt.from_dgl``: graphs of PyTorch Geometric and DGL in memory.

What an object is follows from what it has; no library is imported for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.wording import did_you_mean, shown
from graphtheta.errors import ConfigError, ShapeError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.interop import from_scipy
from graphtheta.graph.data.tensors import of_tensor
from graphtheta.graph.graph_level.whole_graphs import whole_graphs
from graphtheta.graph.splits.several import choose_split

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
    **{f"{mask}_mask": f"edge_{mask}" for mask in MASKS},
}
# fields that stay matrices if they have one column
WIDE = ("x", "edge_attr")
# parts of the names of what PyG counts among attributes, but are numbers of nodes
TOPOLOGY = ("index", "adj", "face")


@checked
def from_pyg(
    data: Any,
    *,
    x: str | None = None,
    y: str | None = None,
    edge_attr: str | None = None,
    edge_weight: str | None = None,
    edge_y: str | None = None,
    split_index: int | None = None,
    name: str | None = None,
) -> Graph:
    """A graph of a ``Data``, ``Batch`` or ``HeteroData`` object of PyTorch Geometric, in memory.

    Tensors of any device become arrays. ``x``, ``y``, ``edge_attr`` and ``edge_weight`` have their
    meaning, as have ``train_mask``, ``val_mask`` and ``test_mask`` of nodes and of edges, and all
    other tensors with a row for each node or edge, such as times, are named columns. Types and
    relations stay apart. A ``Batch`` with a label for each of its graphs becomes a graph of whole
    graphs.

    Args:
        data: The object.
        x, y, edge_attr, edge_weight, edge_y: Names of the tensors that have this meaning, instead
            of the usual ones, which are left out; no tensor is edge_y, the targets of edges, unless
            it is named.
        split_index: Of masks [n, S] of several splits, the one to keep; None keeps all, of which
            training uses the one that its key ``split_index`` says, by default the first.
        name: Name of the graph; by default that of the class.

    Returns:
        The graph, with arrays of its own.

    Raises:
        ConfigError: It is another object, has no edges, has two tensors of one meaning, lacks one
            that is named, or has no such split.
        ShapeError, DataError: Tensors do not fit together; see ``gt.Graph``.
    """
    if not (hasattr(data, "node_attrs") and hasattr(data, "num_nodes")) and not has_types(data):
        raise ConfigError(
            f"from_pyg: got {shown(data)}; expected a Data, Batch or HeteroData object of PyTorch"
            " Geometric; many graphs are one Batch.from_data_list(graphs)"
        )
    meanings = Meanings.of(x=x, y=y, edge_attr=edge_attr, edge_weight=edge_weight, edge_y=edge_y)
    return _graph(pyg_graph(data, meanings), data, split_index, name)


@checked
def from_dgl(
    graph: Any,
    *,
    x: str | None = None,
    y: str | None = None,
    edge_attr: str | None = None,
    edge_weight: str | None = None,
    edge_y: str | None = None,
    split_index: int | None = None,
    name: str | None = None,
) -> Graph:
    """A graph of a ``DGLGraph`` of one or several types, in memory.

    ``feat`` and ``label`` of nodes, ``feat``, ``weight`` and ``w`` of edges, and the masks of both
    have their meaning, as have the names of PyTorch Geometric; all other tensors are named columns,
    except those whose names begin with an underscore.

    Args:
        graph: The DGL graph.
        x, y, edge_attr, edge_weight, edge_y, split_index, name: As of ``gt.from_pyg``.

    Returns:
        The graph, with arrays of its own.

    Raises:
        ConfigError, ShapeError, DataError: As of ``gt.from_pyg``.
    """
    if not is_dgl(graph):
        raise ConfigError(f"from_dgl: got {shown(graph)}; expected a graph of DGL")
    meanings = Meanings.of(x=x, y=y, edge_attr=edge_attr, edge_weight=edge_weight, edge_y=edge_y)
    return _graph(dgl_graph(graph, meanings), graph, split_index, name)


def _graph(fields: Graph | dict[str, Any], data: Any, index: int | None, name: str | None) -> Graph:
    """The graph of its fields, with one of its splits if that is asked for."""
    title = name or type(data).__name__
    graph = fields.replace(name=title) if isinstance(fields, Graph) else Graph(**fields, name=title)
    return graph if index is None else choose_split(graph, index)


@dataclass(frozen=True)
class Meanings:
    """Which tensors of nodes and edges are which fields of a graph.

    Attributes:
        nodes, edges: Fields by the names of tensors.
            An empty one leaves a tensor out.
        named: Names that something asks for.
    """

    nodes: Mapping[str, str]
    edges: Mapping[str, str]
    named: Collection[str] = ()

    @classmethod
    def of(cls, **given: str | None) -> Meanings:
        """The usual ones, but for fields whose tensor is given; others of them are left out."""
        names = {field: name for field, name in given.items() if name is not None}
        nodes, edges = (
            {
                **{name: "" if field in names else field for name, field in usual.items()},
                **{name: field for field, name in names.items() if field in fields},
            }
            for usual, fields in (
                (NODE_VALUES, ("x", "y")),
                (EDGE_VALUES, ("edge_attr", "edge_weight", "edge_y")),
            )
        )
        return cls(nodes, edges, tuple(names.values()))

    def check(self, tensors: Collection[str]) -> None:
        """Check that there is a tensor of each name that something asks for.

        Raises:
            ConfigError: There is none.
        """
        for name in self.named:
            if name not in tensors:
                raise ConfigError(
                    f"there is no tensor '{name}' of all nodes or edges"
                    f"{did_you_mean(name, tensors)}; there are {', '.join(sorted(tensors))}"
                )


USUAL = Meanings.of()


def has_types(graph: Any) -> bool:
    """Whether an object is a graph of several types of PyG."""
    return hasattr(graph, "edge_types") and hasattr(graph, "node_types")


def is_dgl(graph: Any) -> bool:
    """Whether an object is a graph of DGL."""
    typed = hasattr(graph, "ntypes") and hasattr(graph, "canonical_etypes")
    plain = hasattr(graph, "ndata") and hasattr(graph, "edata")
    return typed or (plain and callable(getattr(graph, "edges", None)))


def pyg_graph(data: Any, meanings: Meanings = USUAL) -> Graph | dict[str, Any]:
    """A graph of an object of PyG that has types or whole graphs, or else the fields of a graph;
    attributes of nodes and edges with other names are named columns.

    Raises:
        ConfigError: It has no edges.
        ShapeError: There are neither as many labels as nodes nor as many as graphs.
    """
    if has_types(data):
        return _of_types(*_pyg_types(data), meanings, type(data).__name__)
    name = type(data).__name__
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
    labels = None if data.y is None or meanings.nodes["y"] != "y" else of_tensor(data.y)
    for values in (nodes, edges):
        # PyG tells values of edges by their number, of which a Batch may have as many labels
        values.pop("y", None)
    # a single number has no rows, and a sparse matrix no length
    n_labels = () if labels is None else labels.shape[:1]
    if n_labels == (n_nodes,):
        nodes["y"] = labels
    meanings.check([*nodes, *edges])
    if labels is None or n_labels == (n_nodes,):
        return {**fields, **fields_of(nodes, edges, meanings)}
    if n_labels != (getattr(data, "num_graphs", 1),):
        raise ShapeError(
            f"{name}: y has shape {list(labels.shape)}, expected a row for each of the {n_nodes}"
            " nodes, or for each graph of a Batch"
        )
    graph_of = of_tensor(nodes.pop("batch", np.zeros(n_nodes, np.int64)))
    return whole_graphs(
        Graph(**fields, **fields_of(nodes, edges, meanings)), labels, graph_of=graph_of
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


def dgl_graph(graph: Any, meanings: Meanings = USUAL) -> Graph | dict[str, Any]:
    """A graph of a DGL graph of several types, or else the fields of a graph; data of nodes and
    edges with other names are named columns.
    """
    if len(getattr(graph, "ntypes", ())) > 1 or len(getattr(graph, "canonical_etypes", ())) > 1:
        return _of_types(*_dgl_types(graph), meanings, type(graph).__name__)
    src, dst = graph.edges()[:2]
    meanings.check([*graph.ndata, *graph.edata])
    return {
        "edge_index": (of_tensor(src), of_tensor(dst)),
        "n_nodes": int(graph.num_nodes()),
        **fields_of(graph.ndata, graph.edata, meanings),
    }


def _pyg_types(data: Any) -> tuple[dict[str, Any], dict[Any, Any]]:
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


def _dgl_types(graph: Any) -> tuple[dict[str, Any], dict[Any, Any]]:
    """The same of a heterogeneous DGL graph."""
    nodes = {kind: (int(graph.num_nodes(kind)), graph.nodes[kind].data) for kind in graph.ntypes}
    edges = {
        relation: (graph.edges(etype=relation), graph.edges[relation].data)
        for relation in graph.canonical_etypes
    }
    return nodes, edges


def _of_types(nodes: dict[str, Any], edges: dict[Any, Any], meanings: Meanings, name: str) -> Graph:
    """A heterogeneous graph; see ``graphtheta.graph.data.typed`` for how types become columns."""
    meanings.check({key for _, values in (*nodes.values(), *edges.values()) for key in values})
    fields: dict[str, Any] = {}
    named = {kind: fields_of(values, {}, meanings) for kind, (_, values) in nodes.items()} | {
        kind: fields_of({}, values, meanings) for kind, (_, values) in edges.items()
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
    return Graph(ends, {kind: n for kind, (n, _) in nodes.items()}, name=name, **fields)


def fields_of(
    nodes: Mapping[str, Any], edges: Mapping[str, Any], meanings: Meanings
) -> dict[str, Any]:
    """Tensors of nodes and edges by fields of ``gt.Graph``; other names are named columns."""
    fields: dict[str, Any] = {}
    for values, names, columns in (
        (nodes, meanings.nodes, "node_columns"),
        (edges, meanings.edges, "edge_columns"),
    ):
        for key, value in values.items():
            field = names.get(key)
            if field in fields:
                raise ConfigError(
                    f"{key!r} is a second {field!r} of the graph; leave out one of them, or rename"
                    " it"
                )
            if field:
                fields[field] = of_tensor(value) if field in WIDE else _flat(of_tensor(value))
            # names with an underscore in front are numbers that DGL keeps of a larger graph
            elif field is None and not key.startswith("_"):
                fields.setdefault(columns, {})[key] = _flat(of_tensor(value))
    return fields


def _flat(x: np.ndarray) -> np.ndarray:
    """[n, 1] as [n]."""
    return x[:, 0] if x.ndim == 2 and x.shape[1] == 1 else x
