"""A dry run of a model on an empty graph: supersteps, their dependencies, widths of values.

Every stage runs on a rank without nodes, so a model runs on an empty graph as well. The result
says what a view must contain before the first view is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from graphtheta.errors import UserFunctionError

from ...ops.autodiff.checkpoint import Segment
from ...ops.autodiff.gradients import Gradients
from ...ops.autodiff.space import RowSpace
from ...ops.autodiff.stored import StoredRows
from ...ops.autodiff.tape import (
    Called,
    Node,
    Parameter,
    Tape,
    Var,
    Vjp,
    space_of,
)
from ..partition.partition import Partition, empty_partition
from ..view.hop import Flow, Hop
from ..view.level import NO_ROWS, Counts, Level, full_pass, passes_of
from ..view.scored_pairs import no_pairs
from ..view.view import GraphView
from .context import ActiveGraph, Superstep
from .layer import Model
from .module import lost, refuse_parameters
from .stages import Stages
from .traffic import Traffic


@dataclass
class RowOperation:
    """One operation of the forward pass on values that have rows.

    Attributes:
        name: Name of the primitive.
        superstep: Number of the layer it belongs to or follows; -1 before the first.
        stage: "transform", "gather", "apply", or "other" between layers.
        inputs, outputs: Trailing shapes of values with rows, whole shapes of values without.
    """

    name: str
    superstep: int
    stage: str
    inputs: list[tuple[int, ...]]
    outputs: list[tuple[int, ...]]


class _Watching(Tape):
    """A tape that lists every operation, whether it needs a gradient or not."""

    def __init__(self, graph: _EndlessGraph):
        super().__init__()
        self.seen: list[RowOperation] = []
        self._graph = graph

    def add(
        self,
        name: str,
        inputs: Sequence[Any],
        outputs: Sequence[Var],
        vjp: Vjp,
        call: Called = None,
    ) -> None:
        if outputs[0].space is not None:
            self.seen.append(
                RowOperation(
                    name=name,
                    superstep=len(self._graph.supersteps) - 1,
                    stage=self._graph.ledger.current,
                    inputs=[_shape(x) for x in inputs],
                    outputs=[_shape(y) for y in outputs],
                )
            )
        self._graph.follow(name, inputs, outputs)
        super().add(name, inputs, outputs, vjp, call)


class _ManyRows(Tape):
    """A tape that also fuses functions of few rows, and lists the results at nodes into which no
    gradients flow.
    """

    def __init__(self) -> None:
        super().__init__()
        self.large = True
        self.constants: list[Var] = []

    def add(
        self,
        name: str,
        inputs: Sequence[Any],
        outputs: Sequence[Var],
        vjp: Vjp,
        call: Called = None,
    ) -> None:
        super().add(name, inputs, outputs, vjp, call)
        self.constants += [
            y
            for y in outputs
            if y.space is not None and y.space.kind == "node" and not y.needs_grad
        ]


def _shape(x: Any) -> tuple[int, ...]:
    shape = tuple(getattr(x, "shape", ()))
    return shape[1:] if space_of(x) is not None else shape


@dataclass
class Probe:
    """The result of a dry run.

    Attributes:
        layers: The hop of each superstep, in the order of calls.
        output: Trailing shape of the outputs.
        per_edge: Whether the outputs belong to edges.
        node_width, edge_width: Largest number of values stored at once for backward, per node and
            per edge.
        halo_width: The same per mirror, for the columns that gather reads.
        deferred_width: Most further numbers per node, and per mirror, if sums come before products.
        widest: Numbers per node of the widest value.
        parameters: Numbers in all parameters.
        unread: Names of the parameters that no operation reads; they are never trained.
        stored: Names of the stored node columns that ``forward`` reads for all rows of a view.
        supersteps: Every layer and decoder, with its planned gather.
        operations: Operations at nodes and in the layers' gathers, in order.
        traffic: Widths of what each phase of the supersteps sends, in order.
        again: The same of the forward passes that checkpoint segments run again in backward.
    """

    layers: list[Hop]
    output: tuple[int, ...]
    per_edge: bool
    node_width: int
    edge_width: int
    halo_width: int
    deferred_width: int
    widest: int
    parameters: int
    unread: list[str]
    stored: list[str]
    supersteps: list[Superstep]
    operations: list[RowOperation]
    traffic: list[Traffic]
    again: list[Traffic]

    @property
    def summing(self) -> list[Superstep]:
        """The supersteps that run over a level of the view, in the order of the levels."""
        return [
            step
            for step in self.supersteps
            if step.program is not None
            and step.made_by is not None
            and step.made_by.sum is not None
        ]

    @property
    def layer_numbers(self) -> list[int]:
        """Numbers among all supersteps of those that sum messages, or whose totals were computed
        before.
        """
        return [
            i
            for i, step in enumerate(self.supersteps)
            if step.made_by is not None and step.made_by.sum is not None
        ]


class StoredNumbers(NamedTuple):
    """What a step stores at once for backward, in numbers per node.

    Attributes:
        learned: Of results into which gradients flow.
        constant, sparse: Of results into which none flow: of dense ones, and of sparse ones with
            their zeros.
    """

    learned: int
    constant: int
    sparse: int


class _EndlessGraph(ActiveGraph):
    """An empty graph on which any number of layers may run.

    Attributes:
        flow: The layers that each value depends on.
        stored: Names of the columns that were read for all rows of the view, each once.
    """

    def __init__(self, view: GraphView, counts: Sequence[Counts] = ()):
        super().__init__(view)
        self.flow = Flow()
        self.stored: dict[str, None] = {}
        self._running: int | None = None
        self._counts = counts

    def node(self, name: str, n: int | None = None) -> Any:
        x = super().node(name, n)
        if name in self.view.partition.node.learned():
            # training gives it to the pass as a variable
            x = Var(x.value, x.space, True, x.name)
        elif n is None:
            self.stored[name] = None
        # a layer gets the rows that it needs, which are too few for layers before it
        self.flow.write([x], (), None if n is None else self._running)
        return x

    def next_level(self, layer: Stages) -> Level:
        self._running = None
        if layer.sum is None:
            return super().next_level(layer)
        self.directions.append(layer.direction)
        self._running = self.flow.begin()
        partition = self.view.partition
        direction = layer.direction
        counts = self._counts[len(self.directions) - 1] if self._counts else NO_ROWS
        return Level(
            0,
            0,
            [full_pass(partition, *key) for key in passes_of(partition, direction)],
            direction,
            counts=counts,
        )

    def given(self, x: Var, n: int) -> Var:
        if self._running is None:
            return super().given(x, n)
        self.flow.read(self._running, [x])
        # a value of its own, so that the rows that later layers read are told from those of earlier
        # ones
        fresh = (
            x.cut(self.space(x.shape[0]))
            if isinstance(x, StoredRows)
            else Var(x.value, x.space, x.needs_grad)
        )
        self.flow.write([fresh], (), self._running)
        return fresh

    def follow(self, name: str, inputs: Sequence[Any], outputs: Sequence[Var]) -> None:
        """Record the data flow of an operation, of the running layer or between layers."""
        sums = name == "gather"
        step = self._running
        # a stage may read values that another layer has stored elsewhere, such as in an attribute
        if step is not None and (sums or self.ledger.current != "other"):
            self.flow.read(step, inputs)
        self.flow.write(outputs, inputs, step if sums else None)


class _FusedGraph(_EndlessGraph):
    """The same, of which layers read the very values that they are given, as those of a pass do: to
    tell them apart, as the flow of values needs, they would be computed.
    """

    def given(self, x: Var, n: int) -> Var:
        return x


def probe(model: Model, partition: Partition, counts: Sequence[Counts] = ()) -> Probe:
    """Run the model on an empty graph with the columns of a partition.

    Args:
        counts: Size of the level of each summing superstep, which decides the order of its product
            and sum; by default the order for as many rows before as after it.

    Raises:
        UserFunctionError: The model uses a parameter that is not among its parameters, or an
            aggregator holds one.
    """
    graph = _empty_graph(partition, counts)
    tape = _Watching(graph)
    with tape:
        out = _result(model, graph)
    for step in graph.supersteps:
        sums = None if step.opened is None else step.opened.sums
        for aggregator in (sums or {}).values():
            refuse_parameters(aggregator, step.layer)
    # before _stored_widths runs checkpoint segments again
    operations = list(tape.seen)
    traffic = list(graph.traffic)
    unread = _unread(model, tape)
    layers = graph.flow.hops(graph.directions)
    (node, edge, halo), widest = _stored_widths(tape, out.dtype.itemsize)
    per_edge = isinstance(out, Var) and out.space is not None and out.space.kind == "edge"
    deferred = sum(
        order.deferred_width
        for step in graph.supersteps
        if step.program
        for order in step.orders.values()
    )
    return Probe(
        layers=layers,
        output=out.shape[1:],
        per_edge=per_edge,
        node_width=int(node),
        edge_width=int(edge),
        halo_width=int(halo),
        deferred_width=deferred,
        widest=widest,
        parameters=sum(p.value.size for p in model.parameters()),
        unread=unread,
        stored=list(graph.stored),
        supersteps=graph.supersteps,
        operations=operations,
        traffic=traffic,
        again=graph.traffic[len(traffic) :],
    )


def stored_numbers(model: Model, partition: Partition, counts: Sequence[Counts]) -> StoredNumbers:
    """What a step over many rows stores, of which functions are fused; arguments as for ``probe``.

    All results into which no gradients flow are counted, as if each were read in backward.
    """
    tape = _ManyRows()
    with tape:
        out = _result(model, _FusedGraph(_empty_view(partition), counts))
    itemsize = out.dtype.itemsize
    constants = [(y.sparse, _size(y, y.stored_bytes, itemsize)) for y in tape.constants]
    (learned, _, _), _ = _stored_widths(tape, itemsize)
    return StoredNumbers(
        learned=int(learned),
        constant=sum(width for sparse, width in constants if not sparse),
        sparse=sum(width for sparse, width in constants if sparse),
    )


def gradient_order(model: Model, partition: Partition) -> list[Parameter]:
    """The parameters that a backward pass reaches, in the order in which their gradients are final;
    columns are those of a partition.
    """
    order: list[Parameter] = []
    with Tape() as tape:
        out = _result(model, _empty_graph(partition, ()))
    tape.backward(out, final=lambda p, gradient: order.append(p))
    return order


def sums_of_a_pass(model: Model, partition: Partition) -> int:
    """How often a forward and a backward pass add numbers of all workers, such as the statistics of
    a batch norm.
    """
    sums: list[np.ndarray] = []

    def all_sum(x: np.ndarray) -> np.ndarray:
        sums.append(x)
        return x

    grads = Gradients()
    with Tape(all_sum=all_sum) as tape:
        _result(model, _empty_graph(partition, ()))
        # on an empty graph gradients flow through no sum over edges
        for y in (y for step in tape.nodes for y in step.outputs if y.needs_grad):
            grads.add(y, np.ones_like(y.value))
        tape.backpropagate(grads)
    return len(sums)


def _result(model: Model, graph: ActiveGraph) -> Var:
    """The result of a model, computed if it was deferred, and so recorded."""
    out = model.run(graph)
    _ = out.value
    return out


def _empty_graph(partition: Partition, counts: Sequence[Counts]) -> _EndlessGraph:
    return _EndlessGraph(_empty_view(partition), counts)


def _empty_view(partition: Partition) -> GraphView:
    empty = empty_partition(partition)
    pairs = no_pairs(empty).level(None, 0)
    return GraphView(empty, [], None, RowSpace(empty.masters), pairs=pairs)


def _unread(model: Model, tape: Tape) -> list[str]:
    """Trained parameters that a pass did not read; those it read must be the model's."""
    read = dict.fromkeys(p for step in tape.nodes for p in step.parameters)
    names = {p: name for name, p in model.named_parameters()}
    for p in read:
        if p not in names:
            raise UserFunctionError(lost(model, p))
    return [name for p, name in names.items() if p.needs_grad and p not in read]


def _stored_widths(tape: Tape, itemsize: int) -> tuple[np.ndarray, int]:
    """Most numbers that a tape stores at once, per node, edge and mirror; and the largest width.

    A number has ``itemsize`` bytes; an integer of twice that size counts as two, and one that was
    rounded to bfloat16 as half of one.
    """
    now = np.zeros(3, np.int64)
    most = np.zeros(3, np.int64)
    widest = 1
    for step in tape.nodes:
        for y in step.outputs:
            if y.space is not None:
                now[int(y.space.kind == "edge")] += _size(y, y.stored_bytes, itemsize)
                # a gradient is as wide as its value was before it was rounded
                widest = max(widest, _size(y, y.dtype.itemsize, itemsize))
        if isinstance(step, Segment):
            # one segment at a time is recomputed, when values recorded after it have been freed
            inside, wide = _stored_widths(step.rerun()[0], itemsize)
            most = np.maximum(most, now + inside)
            widest = max(widest, wide)
        elif isinstance(step, Node) and step.name == "gather":
            now[2] += sum(
                _size(x, x.dtype.itemsize, itemsize)
                for x in step.inputs
                if isinstance(x, Var) and x.space is not None and x.space.kind == "node"
            )
    return np.maximum(most, now), widest


def _size(x: Var, number_bytes: int, itemsize: int) -> int:
    """Width of a value, of which a number has some bytes, in numbers of ``itemsize`` bytes, rounded
    up.
    """
    return -(-int(np.prod(x.shape[1:])) * number_bytes // itemsize)
