"""The schema of a graph: what a model that was trained on it expects of other graphs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from graphtheta.graph.data.columns import unit_of
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.scale import Scale
from graphtheta.graph.schema.learned import LearnedNodes

# entries of ``meta`` that a graph in this form has too
META_ENTRIES = (
    "class_names",
    "one_hot",
    "feature_scale",
    "edge_attr_scale",
    "structural_scale",
    "relation_names",
)


class ColumnSchema(BaseModel):
    """A named column.

    Attributes:
        whole: Whether it holds integers, and not floats.
        width: Numbers of a row; 0 for one without an axis of its own.
        categories: The texts that its codes stand for; empty if it has numbers.
        unit: Unit of its times, "s", "ms", "us" or "ns"; empty if it has no times, or nothing
            states their unit.
    """

    model_config = ConfigDict(extra="forbid")

    whole: bool
    width: int
    categories: list[str]
    unit: str = ""

    @property
    def text(self) -> str:
        """In words."""
        kind = "integers" if self.whole else "floats"
        return f"{kind} [{self.width}]" if self.width else kind


class Schema(BaseModel):
    """The form of a graph, without what differs from one graph to the next: numbers of nodes and
    edges, edges, values.

    Attributes:
        name: Name of the graph.
        n_features, n_edge_features: Widths of x and edge_attr; 0 without.
        has_edge_weight: Whether edges have weights.
        node_columns, edge_columns: Named columns.
        node_types, relations: Names of the types and relations in the order of their codes; empty
            if they have none.
        n_types, n_relations: Numbers of them.
        type_widths, relation_widths: Columns of x of each type, and of edge_attr of each relation;
            empty if unknown.
        label_kind: Kind of labels, see ``Graph.label_kind``.
        n_classes: Number of classes; of other kinds of labels, labels of a node.
        edge_label_width: Targets of an edge; 0 for one without an axis of its own, -1 without
            targets.
        meta: What else is carried: names of classes, means and deviations.
        n_nodes: Number of nodes.
        learned: The nodes that learned features, by the name of their embedding; empty without.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    n_features: int
    n_edge_features: int
    has_edge_weight: bool
    node_columns: dict[str, ColumnSchema]
    edge_columns: dict[str, ColumnSchema]
    node_types: list[str]
    relations: list[tuple[str, str, str]]
    n_types: int
    n_relations: int
    type_widths: list[int]
    relation_widths: list[int]
    label_kind: str
    n_classes: int
    edge_label_width: int
    meta: dict[str, Any]
    n_nodes: int
    learned: dict[str, LearnedNodes]

    @classmethod
    def of(cls, graph: Graph, learned: dict[str, str] | None = None) -> Schema:
        """The schema of a graph.

        Args:
            graph: The graph.
            learned: The type of the nodes of each embedding, by its name; an empty one stands for
                all nodes.
        """
        several = graph.label_kind in ("multilabel", "regression") and graph.y is not None
        return cls(
            name=graph.name or "the graph",
            n_features=graph.n_features,
            n_edge_features=graph.n_edge_features,
            has_edge_weight=graph.edge_weight is not None,
            node_columns=_columns(graph, "node"),
            edge_columns=_columns(graph, "edge"),
            node_types=list(graph.node_types),
            relations=list(graph.relations),
            n_types=graph.n_types,
            n_relations=graph.n_relations,
            type_widths=graph.meta.get("type_widths", []),
            relation_widths=graph.meta.get("relation_widths", []),
            label_kind=graph.label_kind,
            n_classes=graph.y.shape[1] if several and graph.y is not None else graph.n_classes,
            edge_label_width=(
                -1
                if graph.edge_y is None
                else 0
                if graph.edge_y.ndim == 1
                else graph.edge_y.shape[1]
            ),
            meta={key: graph.meta[key] for key in META_ENTRIES if key in graph.meta},
            n_nodes=graph.n_nodes,
            learned={name: LearnedNodes.of(graph, type) for name, type in (learned or {}).items()},
        )

    def scale(self, field: str) -> Scale | None:
        """Means and deviations of a field; None if its values are as they were given."""
        return Scale.of(self.meta, field)


def _columns(graph: Graph, group: str) -> dict[str, ColumnSchema]:
    columns = graph.node_columns if group == "node" else graph.edge_columns
    return {
        name: ColumnSchema(
            whole=x.dtype.kind == "i",
            width=0 if x.ndim == 1 else int(x.shape[1]),
            categories=list(graph.categories(group, name)),
            unit=unit_of(graph, group, name),
        )
        for name, x in columns.items()
    }
