"""A dry run of a model on no nodes at all: how many supersteps it has, what they read, and how wide its values are.

A rank that owns nothing still runs every stage, so a model runs on an empty graph as well. That tells what a view
must offer before the first view is built.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ops.piece import Piece
from ..ops.space import RowSpace
from ..ops.tape import Node, Tape, Var, Vjp, space_of, value_of
from .active import ActiveGraph, Superstep
from .exchange import MovePlan
from .layer import Layer, Model
from .pair import PairPlan, Pairs
from .partition import EdgeBlock, Partition
from .serial import SerialComm
from .view import GraphView, Level, directions, full_pass


@dataclass
class Operation:
    """One operation of the forward pass on values that have rows.

    Attributes:
        name: Of the primitive.
        superstep: Number of the layer it belongs to or follows; -1 before the first.
        stage: "transform", "gather", "apply", or "other" between layers.
        inputs, outputs: Trailing shapes of what has rows, whole shapes of what has none.
    """

    name: str
    superstep: int
    stage: str
    inputs: list[tuple[int, ...]]
    outputs: list[tuple[int, ...]]


class _Watching(Tape):
    """A tape that notes every operation, whether it needs a gradient or not."""

    def __init__(self, graph: ActiveGraph):
        super().__init__()
        self.seen: list[Operation] = []
        self._graph = graph

    def add(self, name: str, inputs: Sequence[Any], outputs: Sequence[Var], vjp: Vjp) -> None:
        if outputs[0].space is not None:
            self.seen.append(Operation(name, len(self._graph.supersteps) - 1, self._graph.ledger.current,
                                       [_shape(x) for x in inputs], [_shape(y) for y in outputs]))
        super().add(name, inputs, outputs, vjp)


def _shape(x: Any) -> tuple[int, ...]:
    shape = tuple(getattr(value_of(x), "shape", ()))
    return shape[1:] if space_of(x) is not None else shape


@dataclass
class Probe:
    """What a model does.

    Attributes:
        layers: Direction of each superstep, first to last.
        output: Trailing shape of the outputs.
        per_edge: Whether the outputs belong to edges.
        node_width, edge_width: Numbers kept per node and per edge from forward to backward, at most at once.
        halo_width: The same per mirror, for the columns gather reads.
        widest: Numbers per node of the widest value.
        parameters: Numbers in all parameters.
        supersteps: Every layer and decoder, with its planned gather.
        operations: What was computed at nodes and by the layers' gathers, in order.
    """

    layers: list[str]
    output: tuple[int, ...]
    per_edge: bool
    node_width: int
    edge_width: int
    halo_width: int
    widest: int
    parameters: int
    supersteps: list[Superstep]
    operations: list[Operation]


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
    tape = _Watching(graph)
    with tape:
        out = model.run(graph)
    operations, ((node, edge, halo), widest) = list(tape.seen), _kept(tape)
    return Probe(graph.directions, out.shape[1:], isinstance(out, Var) and out.space is not None and out.space.kind == "edge",
                 int(node), int(edge), int(halo), widest, sum(p.value.size for p in model.parameters()), graph.supersteps, operations)


def _kept(tape: Tape) -> tuple[np.ndarray, int]:
    """The most a tape holds while it is walked back, in numbers per node, edge and mirror; and numbers per row of the widest value."""
    now, most, widest = np.zeros(3, np.int64), np.zeros(3, np.int64), 1
    for step in tape.nodes:
        for y in step.outputs:
            if y.space is not None:
                now[int(y.space.kind == "edge")] += _size(y)
                widest = max(widest, _size(y))
        if isinstance(step, Piece):
            # one piece at a time has an inside, and what comes after it is gone by then
            inside, wide = _kept(step.again()[0])
            most, widest = np.maximum(most, now + inside), max(widest, wide)
        elif isinstance(step, Node) and step.name == "gather":
            now[2] += sum(_size(x) for x in step.inputs if isinstance(x, Var) and x.space is not None and x.space.kind == "node")
    return np.maximum(most, now), widest


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
