"""Batches as arrays: the nodes, columns and blocks of edges of a view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from graphtheta.engine.store.store import ColumnStore
from graphtheta.engine.strategy.task import IMPORTANCE
from graphtheta.engine.view.level import Level
from graphtheta.engine.view.view import GraphView
from graphtheta.graph.data.graph import Graph
from graphtheta.ops.kernels.sampling.listed import list_edges

# columns of a partition by the names that a graph has them under
NODE_FIELDS = {name: name for name in ("x", "y", "train", "val", "test")}
EDGE_FIELDS = {"edge_attr": "attr", "edge_weight": "weight", "edge_y": "y"}
# name of the weights of targets in the loss, which node-set samplers give
LOSS_WEIGHT = "loss_weight"


@dataclass(frozen=True)
class Block:
    """The edges of one hop.

    Attributes:
        nodes: The sending nodes, as in the batch, [n]. The receiving nodes come first.
        n_out: Number of receiving nodes.
        ends: Positions in ``nodes`` of the sending and of the receiving end of each edge, [2,
            n_edges] int64; the latter ascend and are below ``n_out``.
        edge: Position of each edge in the arrays of the graph, [n_edges] int64; ascends for each
            receiving node.
        weight: Importance weights, [n_edges] float64: an edge of weight w stands for w edges of its
            receiving node.
        columns: Values of the edges by name, [n_edges, ...]: ``edge_attr``, ``edge_weight``,
            ``edge_y`` and named columns of the graph.
    """

    nodes: np.ndarray
    n_out: int
    ends: np.ndarray
    edge: np.ndarray
    weight: np.ndarray
    columns: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Block({len(self.nodes)} -> {self.n_out} nodes, {len(self.edge)} edges)"

    @property
    def src(self) -> np.ndarray:
        """The first row of ``ends``."""
        return self.ends[0]

    @property
    def dst(self) -> np.ndarray:
        """The second row of ``ends``."""
        return self.ends[1]


@dataclass(frozen=True)
class LoaderBatch:
    """One batch on this worker.

    Attributes:
        nodes: Numbers of its nodes, [n] int64: the targets, then the further nodes that are one hop
            away, two hops away, and so on; ascending in each.
        n_targets: Number of targets.
        columns: Values of the nodes by name, [n, ...]: ``x``, ``y``, ``train``, ``val``, ``test``
            and named columns of the graph; ``x`` is sparse if that of the graph is.
        blocks: One for each hop, the hop furthest from the targets first: the receiving nodes of a
            block are the sending nodes of the next one, those of the last block are the targets.
    """

    nodes: np.ndarray
    n_targets: int
    columns: Mapping[str, Any]
    blocks: list[Block]

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {list(x.shape)}" for name, x in self.columns.items())
        return (
            f"LoaderBatch({self.n_targets} targets, {len(self.nodes)} nodes, {self.blocks},"
            f" columns: {columns})"
        )

    @cached_property
    def sizes(self) -> list[int]:
        """Number of nodes within 0, 1, 2 ... hops of the targets."""
        return [self.n_targets, *(len(block.nodes) for block in reversed(self.blocks))]


@dataclass(frozen=True)
class Fields:
    """Columns of nodes and edges that batches have: names in a partition by those in a batch."""

    node: Mapping[str, str]
    edge: Mapping[str, str]

    @classmethod
    def of(cls, graph: Graph) -> Fields:
        """All columns of a graph."""

        def given(fields: Mapping[str, str], named: Mapping[str, Any]) -> dict[str, str]:
            own = {name: at for name, at in fields.items() if getattr(graph, name) is not None}
            return own | {name: name for name in named}

        return cls(
            given(NODE_FIELDS, graph.node_columns) | {LOSS_WEIGHT: IMPORTANCE},
            given(EDGE_FIELDS, graph.edge_columns),
        )

    def batch(self, view: GraphView, first: np.ndarray | None = None) -> LoaderBatch:
        """The batch of a view whose levels have one pass each.

        Args:
            view: The view.
            first: The order of its targets, which are numbered by their order in the graph,
                [n_targets] int64; None for that order.
        """
        gid = view.space.gid
        sizes = np.unique([0, view.n_targets, *(level.n_in for level in view.levels)])
        rows = _in_order(gid, sizes)
        if first is not None:
            rows[: len(first)] = rows[first]
        at = np.empty(len(rows), np.int64)
        at[rows] = np.arange(len(rows))
        partition = view.partition
        stored = rows if view.rows is None else view.rows[rows]
        nodes = gid[rows]
        block_of = {
            id(level): _block(level, at, nodes, partition.edge, self.edge) for level in view.levels
        }
        return LoaderBatch(
            nodes=nodes,
            n_targets=view.n_targets,
            columns={
                name: partition.node.read(column, stored)
                for name, column in self.node.items()
                if column in partition.node
            },
            blocks=[block_of[id(level)] for level in view.levels],
        )


def _in_order(gid: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The rows of a view by hop and id, which no partition changes.

    Args:
        gid: Ids of the rows by hop, [n] int64.
        sizes: Bounds of the hops.
    """
    rows = np.arange(len(gid))
    for begin, end in pairwise(sizes):
        rows[begin:end] = begin + np.argsort(gid[begin:end])
    return rows


def _block(
    level: Level, at: np.ndarray, nodes: np.ndarray, store: ColumnStore, fields: Mapping[str, str]
) -> Block:
    """The block of a level.

    Args:
        at: Position in the batch of each row of the view.
        nodes: The nodes of the batch.
        store: Columns of the edges.
        fields: Those that are wanted, by their names in a batch.
    """
    (sweep,) = level.passes
    n = level.n_edges
    ends = np.empty((2, n), np.int64)
    order = np.empty(n, np.int64)
    weight = np.ones(n)
    stored = level.stored
    edge = sweep.relation.gid[stored]
    # views of one worker have no mirrors, so their edges are in one list, or there are none
    for s in sweep.selections:
        groups = np.argsort(at[s.row])
        list_edges(groups, s.row, s.ptr, s.other, at, edge, order, *ends)
        weight = weight if s.weight is None else s.weight[order]
    edge, stored = edge[order], stored[order]
    return Block(
        nodes=nodes[: level.n_in],
        n_out=level.n_out,
        ends=ends,
        edge=edge,
        weight=weight,
        columns={name: store.read(column, stored) for name, column in fields.items()},
    )
