"""One forward pass that computes some layers for a block of nodes and reads the others' values from
files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphtheta.engine.layer.context import ActiveGraph, Superstep
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.layer.stages import Stages
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.view.hop import Layers
from graphtheta.engine.view.level import NO_ROWS, Counts, Level
from graphtheta.engine.view.view import GraphView
from graphtheta.inference.forward.empty import empty_view
from graphtheta.inference.forward.spill import RowValues
from graphtheta.ops.autodiff.stored import StoredRows
from graphtheta.ops.autodiff.tape import Tape, Var
from graphtheta.ops.parallel.buffers import empty


class LayerOutput(NamedTuple):
    """What a layer makes.

    Attributes:
        value: Trailing shape and type of its node values.
        edges: The same of its new edge values, by name.
        sent: The same of the columns that its edges read at senders, by name, without stored ones.
    """

    value: tuple[tuple[int, ...], np.dtype]
    edges: dict[str, tuple[tuple[int, ...], np.dtype]]
    sent: dict[str, tuple[tuple[int, ...], np.dtype]]


class _Shapes(ActiveGraph):
    """A pass that lists what each layer makes."""

    def __init__(self, view: GraphView):
        super().__init__(view)
        self.layers: list[LayerOutput] = []
        self._edges: dict[str, Var] = {}
        self._sent: dict[str, tuple[tuple[int, ...], np.dtype]] = {}

    def sent(self, columns: dict[str, Any], names: list[str], level: Level) -> dict[str, Any]:
        self._sent = {
            name: (columns[name].shape[1:], columns[name].dtype)
            for name in names
            if not isinstance(columns[name], StoredRows)
        }
        return columns

    def carry(self, outputs: dict[str, Var], level: Level) -> None:
        super().carry(outputs, level)
        self._edges = outputs

    def record_result(self, number: int, out: Var) -> None:
        if len(self.directions) > len(self.layers):
            edges = {name: (x.shape[1:], x.dtype) for name, x in self._edges.items()}
            self.layers.append(LayerOutput((out.shape[1:], out.dtype), edges, self._sent))
        self._edges = {}


def shapes(model: Model, partition: Partition, layers: Layers) -> list[LayerOutput]:
    """What each layer that runs over edges makes, from a pass over an empty graph."""
    graph = _Shapes(empty_view(partition, layers))
    with Tape(record=False, training=False):
        model.run(graph)
    return graph.layers


class Sent(NamedTuple):
    """What becomes of the columns that the edges of layers read at senders.

    Attributes:
        keeps: Whether they are written to the spill.
        fresh: Returns the masters whose columns a pass of some hop computes, [n_masters] bool,
            beside the receivers; the spill has those of all others. None if a pass computes all.
    """

    keeps: bool
    fresh: Callable[[int], np.ndarray] | None = None


class Finished(BaseException):
    """All layers that a pass computes have run. No error: it ends ``forward`` early."""


def value_name(layer: int) -> str:
    """The name of a layer's node values in a spill."""
    return f"layer-{layer}"


def edge_name(layer: int, name: str) -> str:
    """The name of new edge values of a layer in a spill."""
    return f"layer-{layer}-edge-{name}"


def sent_name(layer: int, name: str) -> str:
    """The name of a column in a spill that the edges of a layer read at senders."""
    return f"layer-{layer}-sent-{name}"


class BlockGraph(ActiveGraph):
    """A pass over a block of nodes.

    Layers are counted in the order of calls, without those whose totals were precomputed.

    Args:
        view: Of the block; its levels are those of the layers in ``running``.
        layer_outputs: What each layer makes.
        running: The layers that it computes, which do not read each other.
        spill: Values of all layers that these layers read; unwritten ones are zeros.
        sent: Columns that edges read at senders; None if they stay within the pass.
        n: Rows that the pass computes such columns for; those of other senders are in the spill.
            All by default.

    Attributes:
        sent_results: These columns by their name in a spill, if they are wanted.
        results: Node values by layer.
        edge_results: New edge values by their name in a spill, with the storage positions of their
            edges.
    """

    def __init__(
        self,
        view: GraphView,
        layer_outputs: Sequence[LayerOutput],
        running: Sequence[int],
        spill: RowValues,
        sent: Sent | None = None,
        n: int | None = None,
    ):
        super().__init__(view)
        self.n = self.n if n is None else n
        self.sent_results: dict[str, Var] = {}
        self._sent = sent
        self.results: dict[int, Var] = {}
        self.edge_results: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._layer_outputs = layer_outputs
        self._running = list(running)
        self._spill = spill
        self._levels = dict(zip(running, view.levels, strict=True))
        self._rows = np.arange(view.partition.n_masters) if view.rows is None else view.rows

    def ready_result(self, layer: Stages) -> Var | None:
        number = len(self.directions)
        if (
            layer.sum is None
            or self.settings.ingredients(layer) is not None
            or number in self._levels
        ):
            return None
        self.directions.append(layer.direction)
        self.supersteps.append(Superstep(type(layer).__name__, layer.direction, made_by=layer))
        if self._levels:
            self._carry_stored(number, next(iter(self._levels.values())))
        shape, dtype = self._layer_outputs[number].value
        name = value_name(number)
        n = self.n
        value = (
            self._spill.read(name, self._rows[:n])
            if name in self._spill
            else np.broadcast_to(np.zeros((), dtype), (n, *shape))
        )
        return Var(value, self.space(n))

    def counts(self, level: Level) -> Counts:
        # columns that are kept are the same for all blocks
        return super().counts(level) if self._sent is None else NO_ROWS

    def sent(self, columns: dict[str, Any], names: list[str], level: Level) -> dict[str, Any]:
        read = dict(columns)
        number = len(self.directions) - 1
        if self._sent is None or number not in self._levels:
            return read
        for name in names:
            x = columns[name]
            file = sent_name(number, name)
            stored = isinstance(x, StoredRows)
            if self._sent.keeps and not stored:
                self.sent_results[file] = x
            if x.shape[0] < level.n_in:
                read[name] = (
                    self.node(x.name.removeprefix("node."), level.n_in)
                    if stored
                    else self._with_kept(x, file, level.n_in)
                )
        return read

    def _with_kept(self, x: Var, file: str, n: int) -> Var:
        """The first n rows of a column, of which the spill has those that are not given."""
        first = x.shape[0]
        out = empty((n, *x.shape[1:]), x.dtype)
        out[:first] = x.value
        self._spill.read(file, self._rows[first:n], out[first:])
        return Var(out, self.space(n))

    def _carry_stored(self, number: int, level: Level) -> None:
        """Carry the stored edge values of a layer on, in the order of a level."""
        for name in self._layer_outputs[number].edges:
            stored = edge_name(number, name)
            if stored in self._spill:
                self._carried[name] = (
                    Var(self._spill.read(stored, level.stored), self.edge_space(level)),
                    level,
                )

    def next_level(self, layer: Stages) -> Level:
        number = len(self.directions)
        if layer.sum is None:
            return super().next_level(layer)
        self.directions.append(layer.direction)
        level = self._levels[number]
        return (
            level if self._along is None else level.of_code(self._stored("relation"), *self._along)
        )

    def carry(self, outputs: dict[str, Var], level: Level) -> None:
        super().carry(outputs, level)
        number = len(self.directions) - 1
        for name, x in outputs.items():
            self.edge_results[edge_name(number, name)] = level.stored, x.value

    def record_result(self, number: int, out: Any) -> None:
        super().record_result(number, out)
        layer = len(self.directions) - 1
        if layer in self._levels and layer not in self.results:
            self.results[layer] = out
            if len(self.results) == len(self._running):
                raise Finished
