"""A dry run of a model on no nodes at all: how many supersteps it has, what they read, and how wide its values are.

A rank that owns nothing still runs every stage, so a model runs on an empty graph as well. That tells what a view
must offer before the first view is built.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ops.space import RowSpace
from ..ops.tape import Tape, Var
from .active import ActiveGraph
from .exchange import MovePlan
from .layer import Layer, Model
from .pair import PairPlan, Pairs
from .partition import EdgeBlock, Partition
from .serial import SerialComm
from .view import GraphView, Level, directions, full_pass


@dataclass
class Probe:
    """What a model does.

    Attributes:
        layers: Direction of each superstep, first to last.
        output: Trailing shape of the outputs.
        per_edge: Whether the outputs belong to edges.
        node_width, edge_width: Numbers kept per node and per edge from forward to backward.
        halo_width: Numbers kept per mirror, for the columns gather reads.
        widest: Numbers per node of the widest value.
        parameters: Numbers in all parameters.
    """

    layers: list[str]
    output: tuple[int, ...]
    per_edge: bool
    node_width: int
    edge_width: int
    halo_width: int
    widest: int
    parameters: int


class _EndlessGraph(ActiveGraph):
    """An empty graph on which any number of layers may run."""

    def next_level(self, layer: Layer) -> Any:
        if layer.sum is None:
            return super().next_level(layer)
        self.directions.append(layer.direction)
        return Level(0, 0, [full_pass(self.view.partition, reverse) for reverse in directions(layer.direction)])


def probe(model: Model, partition: Partition) -> Probe:
    """Run the model on an empty graph with the columns of a partition."""
    empty = _empty_like(partition)
    none = np.zeros(0, np.int64)
    pairs = PairPlan(empty, Pairs(none, none, none, none, np.zeros(0)))
    view = GraphView(empty, [], None, RowSpace(empty.masters), pairs=pairs.level(None, 0))
    graph = _EndlessGraph(view)
    with Tape() as tape:
        out = model.run(graph)
    width, halo, widest = {"node": 0, "edge": 0}, 0, 1
    for node in tape.nodes:
        for y in node.outputs:
            if y.space is not None:
                width[y.space.kind] += _size(y)
                widest = max(widest, _size(y))
        if node.name == "gather":
            halo += sum(_size(x) for x in node.inputs if isinstance(x, Var) and x.space is not None and x.space.kind == "node")
    return Probe(graph.directions, out.shape[1:], isinstance(out, Var) and out.space is not None and out.space.kind == "edge",
                 width["node"], width["edge"], halo, widest, sum(p.value.size for p in model.parameters()))


def _size(x: Var) -> int:
    """Numbers per row."""
    return int(np.prod(x.shape[1:]))


def _empty_like(partition: Partition) -> Partition:
    """A partition of the empty graph on one rank, with the same columns."""
    comm, none, ptr = SerialComm(), np.zeros(0, np.int64), np.zeros(1, np.int64)
    blocks = [EdgeBlock(number & 1, number >> 1, 0, ptr, none, ptr, none, none) for number in range(4)]
    plan = MovePlan(0, none, np.zeros(2, np.int64), np.zeros(2, np.int64), False)
    return Partition(comm, 0, 0, none, 0, none, none, blocks, none, plan, plan, none, none,
                     {n: x[:0] for n, x in partition.node.items()}, {n: x[:0] for n, x in partition.edge.items()})
