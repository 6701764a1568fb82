"""Batches of graphs with types: their nodes by type and their edges by relation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.base.sparse import is_sparse
from graphtheta.base.typed_rows import TypedRows
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.typed import RELATION, TYPE
from graphtheta.graph.data.validation import labelled
from graphtheta.train.loader.batch import Block, LoaderBatch

Relation = tuple[str, str, str]
# columns that types without labels do not have
OF_TARGETS = ("y", "train", "val", "test")


@dataclass(frozen=True)
class TypeNodes:
    """The nodes of a type in a batch.

    Attributes:
        rows: Their positions in the batch, ascending, [n] int64.
        numbers: Their numbers within the type, [n] int64.
        columns: Their values by name, [n, ...]; ``x`` with the columns of the type.
    """

    rows: np.ndarray
    numbers: np.ndarray
    columns: Mapping[str, Any]


class TypedLayout:
    """The types and relations of a graph that was given as dicts.

    Args:
        graph: The graph.

    Attributes:
        types: Names of the types; empty for a graph without.
        relations: Names of the relations.
    """

    def __init__(self, graph: Graph):
        self.types = graph.node_types
        self.relations: tuple[Relation, ...] = graph.relations
        # the nodes of a type follow each other
        nodes = [graph.nodes_of(kind) for kind in self.types]
        self._first = np.array(
            [of_type[0] if len(of_type) else graph.n_nodes for of_type in nodes], np.int64
        )
        labels = labelled(graph.y) if graph.y is not None else np.ones(graph.n_nodes, bool)
        self._labelled = [bool(np.any(labels[of_type])) for of_type in nodes]
        self._lacks = (graph.meta.get("node_lacks", {}), graph.meta.get("edge_lacks", {}))
        self._widths = (graph.meta.get("type_widths"), graph.meta.get("relation_widths"))

    def nodes(self, batch: LoaderBatch) -> dict[str, TypeNodes]:
        """The nodes of each type."""
        kind = batch.columns[TYPE]
        by_type = {}
        for code, name in enumerate(self.types):
            rows = np.flatnonzero(kind == code)
            columns = {
                column: self._of_type(column, x, rows, code)
                for column, x in batch.columns.items()
                if column != TYPE and self._has(column, name, code)
            }
            by_type[name] = TypeNodes(rows, batch.nodes[rows] - self._first[code], columns)
        return by_type

    def edges(self, block: Block) -> dict[Relation, np.ndarray]:
        """The positions of the edges of each relation in a block, [n] int64. Edges of no relation,
        such as self loops, are in none.
        """
        code = block.columns[RELATION]
        return {name: np.flatnonzero(code == k) for k, name in enumerate(self.relations)}

    def edge_columns(self, block: Block, relation: Relation, at: np.ndarray) -> dict[str, Any]:
        """Values of some edges of a relation by name; ``edge_attr`` with its own columns."""
        code = self.relations.index(relation)
        columns = {
            name: self._of_relation(x[at], code) if name == "edge_attr" else x[at]
            for name, x in block.columns.items()
            if name != RELATION and not self._is_lacking(name, code)
        }
        return {name: x for name, x in columns.items() if x.ndim == 1 or x.shape[1]}

    def _of_relation(self, x: Any, code: int) -> Any:
        """The attributes of edges of a relation, in its columns; inverse relations have those of
        the relations that they reverse.
        """
        if isinstance(x, TypedRows):
            return x.blocks[code % len(x.blocks)]
        widths = self._widths[1]
        return x if widths is None else _part(x, widths, code % len(widths))

    def _is_lacking(self, column: str, code: int) -> bool:
        return any(tuple(name) == self.relations[code] for name in self._lacks[1].get(column, ()))

    def _has(self, column: str, kind: str, code: int) -> bool:
        if column == "x":
            return self._widths[0] is None or self._widths[0][code] > 0
        if column in OF_TARGETS:
            return self._labelled[code]
        return kind not in self._lacks[0].get(column, ())

    def _of_type(self, column: str, x: Any, rows: np.ndarray, code: int) -> Any:
        if isinstance(x, TypedRows):
            return x.blocks[code]
        return _part(x[rows], self._widths[0], code) if column == "x" else x[rows]


def dense(x: Any) -> np.ndarray:
    """Values as an array, also those of sparse rows."""
    return x.toarray() if is_sparse(x) else np.ascontiguousarray(x)


def _part(x: Any, widths: list[int] | None, code: int) -> Any:
    """The columns of a type or relation."""
    if widths is None:
        return x
    end = int(np.sum(widths[: code + 1]))
    return x[:, end - widths[code] : end]
