"""The nodes of a training graph that learned features of their own, and where they are in other
graphs.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from pydantic import BaseModel, ConfigDict

from graphtheta.errors import DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.typed import TYPE


class LearnedNodes(BaseModel):
    """The nodes of a type, or all nodes.

    Nodes are the same by their original ids; without, by their number among the nodes of the type,
    because nodes that are appended to one type change the numbers of later ones.

    Attributes:
        type: Name of the type; empty for all nodes.
        runs: Their numbers in the training graph, as first number and number behind the last of
            each run.
        ids: A hash of what identifies them, in the order of their numbers.
    """

    model_config = ConfigDict(extra="forbid")

    type: str
    runs: list[tuple[int, int]]
    ids: str

    @classmethod
    def of(cls, graph: Graph, type: str = "") -> LearnedNodes:
        """Those of a graph."""
        nodes = _nodes(graph, type)
        begins = np.flatnonzero(np.diff(nodes, prepend=-2) != 1)
        ends = np.append(begins[1:], len(nodes)) - 1
        runs = (
            [(int(a), int(b) + 1) for a, b in zip(nodes[begins], nodes[ends], strict=True)]
            if len(nodes)
            else []
        )
        return cls(type=type, runs=runs, ids=_hash(_identities(graph, nodes)))

    def check(self, graph: Graph, trained_on: str) -> None:
        """Check that another graph has these nodes of the type, and no others.

        Args:
            graph: The graph.
            trained_on: Name of the training graph.

        Raises:
            DataError: It has more, fewer or other nodes.
        """
        ids = _identities(graph, _nodes(graph, self.type))
        n = sum(b - a for a, b in self.runs)
        if len(ids) == n and _hash(ids) == self.ids:
            return
        of = f" of the type {self.type!r}" if self.type else ""
        option = "--embedding-types" if self.type else "--embedding"
        if len(ids) > n and _hash(ids[:n]) == self.ids:
            name = "number" if self.type and graph.node_ids is None else "node"
            more = f" and {len(ids) - n - 1:,} more" if len(ids) > n + 1 else ""
            what = f"{name} {ids[n].item()!r}{more}{of}"
            remedy = f"leave {'it' if not more else 'them'} out, or train again with "
            remedy += "the new nodes"
        else:
            what = f"other nodes{of}"
            remedy = f"give the {n:,} nodes{of} it was trained on, in their order"
        raise DataError(
            f"{graph.name or 'the graph'} has {what}, for which the training on {trained_on}"
            f" learned no features ({option}); {remedy}, or train a model that reads features"
        )

    def rows(self, graph: Graph, nodes: np.ndarray) -> np.ndarray:
        """The numbers in the training graph of some of these nodes of another graph, for which
        ``check`` passes.

        Args:
            graph: The other graph.
            nodes: Their numbers in it, [m].

        Returns:
            [m] int64.
        """
        trained = np.concatenate([np.zeros(0, np.int64), *(np.arange(a, b) for a, b in self.runs)])
        return trained[np.searchsorted(_nodes(graph, self.type), nodes)]


def _nodes(graph: Graph, type: str) -> np.ndarray:
    """Numbers of the nodes of a type, ascending."""
    if not type:
        return np.arange(graph.n_nodes)
    code = graph.node_types.index(type) if type in graph.node_types else -1
    return np.flatnonzero(np.asarray(graph.node_columns.get(TYPE, ())) == code)


def _identities(graph: Graph, nodes: np.ndarray) -> np.ndarray:
    return (
        np.arange(len(nodes)) if graph.node_ids is None else np.asarray(graph.original_ids)[nodes]
    )


def _hash(ids: np.ndarray) -> str:
    return blake2b("\n".join(map(str, ids.tolist())).encode(), digest_size=16).hexdigest()
