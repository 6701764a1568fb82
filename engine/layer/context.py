"""The graph that a model runs over: one forward pass over a view.

A model is written once against this class. It counts the supersteps, returns node and edge values
of the active rows, and carries new edge values from the layer that made them to later layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np

from graphtheta.base.typed_rows import TypedRows
from graphtheta.errors import ColumnError, ViewError

from ...ops.autodiff.space import RowSpace
from ...ops.autodiff.stored import StoredRows, holds_sparse
from ...ops.autodiff.tape import Var, current, needs_grad
from ...ops.edge.backend.reference import add_rows
from ...ops.edge.program import EdgeProgram, Phase
from ...ops.edge.symbolic import SymbolicTrace
from ...ops.functions.rows import prefix
from ...ops.parallel.buffers import LINE
from ...ops.rows.row_list import RowList
from ..partition.relation import READOUT, RELATION
from ..store.column import exact_column
from ..store.short import is_short
from ..view.level import NO_ROWS, Counts, Level
from ..view.view import GraphView
from .in_order import ExactColumn
from .opened import Opened
from .ordered import Ordered
from .product_order import ProductOrder
from .settings import pass_settings
from .stages import Stages
from .traffic import Traffic


@dataclass
class Superstep:
    """A layer that was run.

    Attributes:
        layer: Name of its class.
        program: Its planned gather, None with a precomputed total.
        traced: The trace that it was planned from.
        made_by: The layer.
        opened: Its gather and sums as they were traced; None with a precomputed total.
        counts: Size of the level it ran over.
        orders: Products that it may compute before or after its sum, by column and shape of the
            weight; decided once for transform and apply, which may see different columns.
        stored: Names of stored columns, by those under which edges read them.
        along: Code of the relation whose edges it runs over; None for all.
    """

    layer: str
    direction: str
    program: EdgeProgram | None = None
    traced: SymbolicTrace | None = None
    made_by: Stages | None = None
    opened: Opened | None = None
    counts: Counts = NO_ROWS
    orders: dict[tuple[str, tuple[int, ...]], ProductOrder] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)
    along: int | None = None

    @property
    def ordered(self) -> dict[str, Ordered]:
        """Its sums in order, by name of the total."""
        return {} if self.opened is None else self.opened.ordered

    def in_order(self, phase: Phase) -> dict[str, Ordered]:
        """The sums in order of a phase: the last one has them."""
        return self.ordered if phase.result is None else {}

    def order(self, counts: Counts) -> list[str]:
        """Whether product or sum comes first in a level of some size, one line for each product."""
        return [
            f"{'product before sum' if order.product_first(counts) else 'sum before product'},"
            f" {order.d_in} to {order.d_out} wide"
            for order in self.orders.values()
        ]


# directions and layers run so far, edge values carried on, code and share of the relation that
# layers run along
Progress = tuple[list[str], list[Superstep], dict[str, tuple[Var, Level]], tuple[int, float] | None]


def check_direction(layer: Stages, number: int, planned: str) -> None:
    """Check that a layer has the direction for which edges were chosen.

    Args:
        layer: The layer.
        number: Number of its call; 0 for the first layer that runs.
        planned: The direction.

    Raises:
        ViewError: It has another one.
    """
    if layer.direction != planned:
        raise ViewError(
            f"{type(layer).__name__}, called as layer {number + 1}, has direction"
            f" '{layer.direction}', but the edges of layer {number + 1} were chosen for direction"
            f" '{planned}'; directions and the order of layers are fixed when a trainer is made:"
            " set direction in the constructor and call the same layers in the same order in every"
            " forward pass, or make a new trainer"
        )


class ActiveGraph:
    """One forward pass over a view.

    Attributes:
        x: Input features of the nodes the first layer needs.
        n: Number of rows of node values before the first layer; transform runs for no others.
        directions: Directions of the layers run so far.
        supersteps: These layers, and decoders, in the order of calls.
        traffic: Bytes that this worker sends, for each phase of the supersteps.
        settings: Settings of the run for its passes.
        wanted: Number of the superstep whose result is stored; -1 for none.
        wanted_result: That result, once the superstep has run.
    """

    def __init__(self, view: GraphView, **inputs: Any):
        self.view = view
        self.directions: list[str] = []
        self.supersteps: list[Superstep] = []
        self.traffic: list[Traffic] = []
        self.settings = pass_settings()
        self.wanted = -1
        self.wanted_result: Var | None = None
        self.n = view.space.n
        self._inputs = inputs
        if READOUT in view.partition.node.readable():
            view.space.counted = view.node.read(READOUT, view.space.n) == 0
        self._spaces = {view.space.n: view.space}
        self._carried: dict[str, tuple[Var, Level]] = {}
        self._lent: dict[tuple[str, int], RowList | None] = {}
        self._along: tuple[int, float] | None = None

    @property
    def ledger(self) -> Any:
        return self.view.partition.halo_comm.ledger

    @cached_property
    def dtype(self) -> np.dtype:
        """The float type of the columns of the graph, and of the pass."""
        return np.dtype(self.view.partition.node.column("in_degree").dtype)

    @property
    def short(self) -> bool:
        """Whether the pass stores wide values of nodes as bfloat16."""
        return self.view.partition.short

    @cached_property
    def x(self) -> Any:
        return self.node("x")

    def node(self, name: str, n: int | None = None) -> Any:
        """A stored node column, [n, ...]: "x", "in_degree", "out_degree" or a named column of the
        graph.

        Raises:
            ColumnError: There is no such column, or it holds what the model predicts.
        """
        n = self.n if n is None else n
        if name in self._inputs:
            return prefix(self._inputs[name], n)
        if name not in self.node_names():
            raise ColumnError(
                f"the graph has no node column {name!r} for models; it has"
                f" {', '.join(self.node_names())}; give it with gt.Graph(...,"
                f" node_columns={{{name!r}: array}})"
            )
        column = self.view.partition.node.column(name)
        space = self.space(n)
        label = f"node.{name}"
        if column.sparse:
            return Var(self.view.node.read(name, n), space, name=label)
        # narrow rows are copied: together they are compact
        wide = prod(column.shape[1:]) * column.dtype.itemsize >= LINE
        return StoredRows(
            read=partial(self.view.node.read, name),
            shape=(n, *column.shape[1:]),
            dtype=column.dtype,
            listed=self.view.node.listed(name, n) if wide else None,
            space=space,
            name=label,
            lent=self._lent_rows(name, n),
            short=partial(self.view.node.short, name) if is_short(column) else None,
            decoding=partial(self.view.node.decoding, name),
        )

    def _lent_rows(self, name: str, n: int) -> RowList | None:
        """All rows of a column where they are in memory, if this pass is the first to read them."""
        if (name, n) not in self._lent:
            self._lent[name, n] = self.view.node.lent(name, n)
        return self._lent[name, n]

    def node_schema(
        self, columns: dict[str, Any]
    ) -> dict[str, tuple[tuple[int, ...], Any, bool, bool, bool]]:
        """Of all node columns the trailing shape, dtype, and whether they need a gradient, are
        sparse, are stored.
        """
        given = {
            **columns,
            **{
                n: self._inputs[n]
                for n in self.node_names()
                if n in self._inputs and n not in columns
            },
        }
        stored = {
            n: self.view.partition.node.column(n) for n in self.node_names() if n not in given
        }
        return {
            **{
                n: (x.shape[1:], x.dtype, needs_grad(x), holds_sparse(x), isinstance(x, StoredRows))
                for n, x in given.items()
            },
            **{n: (x.shape[1:], x.dtype, False, x.sparse, True) for n, x in stored.items()},
        }

    def node_names(self) -> tuple[str, ...]:
        """Names of the node columns a layer may read: the stored ones, and those that are given
        with the pass.
        """
        stored = self.view.partition.node.readable()
        return (
            *stored,
            *(name for name in self._inputs if name not in stored and not name.startswith("edge.")),
        )

    def read_begin(self, names: Iterable[str], n: int) -> None:
        """Begin to read the first n rows of the stored ones of some columns, for ``node``."""
        readable = self.node_names()
        self.view.node.read_begin(
            [name for name in names if name in readable and name not in self._inputs], n
        )

    def space(self, n: int) -> RowSpace:
        """The row space of the first n rows."""
        if n not in self._spaces:
            self._spaces[n] = self.view.space.prefix(n)
        return self._spaces[n]

    def next_level(self, layer: Stages) -> Level:
        """The level the next layer runs over.

        Raises:
            ViewError: The view was built for fewer layers, or for another direction.
        """
        if layer.sum is None:
            if self.view.pairs is None:
                raise ViewError(
                    f"{type(layer).__name__} is a decoder: it computes a value for each edge and"
                    " needs an edge or link task"
                )
            return self.view.pairs
        number = len(self.directions)
        if number >= len(self.view.levels):
            raise ViewError(
                f"the model runs more layers than the {len(self.view.levels)} this view was built"
                " for; a model must run the same layers in every forward pass"
            )
        level = self.view.levels[number]
        check_direction(layer, number, level.direction)
        self.directions.append(layer.direction)
        return level if self._along is None else level.of_code(self._stored(RELATION), *self._along)

    @property
    def along(self) -> int | None:
        """Code of the relation whose edges layers run over; None for all."""
        return None if self._along is None else self._along[0]

    @contextmanager
    def relation(self, code: int, share: float = 1.0) -> Iterator[None]:
        """Layers that are called inside run over the edges whose column "relation" has this code.

        ``share`` is the expected share of all edges, on which the order of a product and a sum
        depends.

        Raises:
            ColumnError: The graph has no relations.
        """
        if RELATION not in self.edge_schema(None):
            raise ColumnError(
                "the graph has no relations; give their codes with gt.Graph(...,"
                " edge_columns={'relation': codes})"
            )
        outside = self._along
        self._along = (code, share)
        try:
            yield
        finally:
            self._along = outside

    def ready_result(self, layer: Stages) -> Var | None:
        """The result of the next layer, if this pass need not compute it."""

    def record_result(self, number: int, out: Var) -> None:
        """Called with the result of a superstep, given its number."""
        if number == self.wanted:
            self.wanted_result = out

    def counts(self, level: Level) -> Counts:
        """The size of a level on which the order of a product and a sum depends."""
        return level.counts

    def sent(self, columns: dict[str, Any], names: list[str], level: Level) -> dict[str, Any]:
        """Columns for all rows of a level, given for the first ``n`` rows at most.

        Args:
            columns: Node columns of a superstep.
            names: Those that edges read at senders.
            level: The level it runs over.
        """
        return columns

    def given(self, x: Var, n: int) -> Var:
        """The first n rows of a value, as the input of a layer that needs n rows."""
        return prefix(x, n) if x.shape[0] > n else x

    # ---- recomputing a segment

    @property
    def progress(self) -> Progress:
        """State of the pass; set it to an earlier value to run the same layers again."""
        return list(self.directions), list(self.supersteps), dict(self._carried), self._along

    @progress.setter
    def progress(self, at: Progress) -> None:
        self.directions = list(at[0])
        self.supersteps = list(at[1])
        self._carried = dict(at[2])
        self._along = at[3]

    def carried_since(self, begin: Progress) -> list[Var]:
        """Edge values made since ``begin``, in the order in which layers made them."""
        return [
            value
            for name, (value, _) in self._carried.items()
            if name not in begin[2] or begin[2][name][0] is not value
        ]

    # ---- edge values

    def edge_space(self, level: Level) -> RowSpace:
        """The row space of the edges of a level."""
        return RowSpace(level.gid, "edge")

    def edge_schema(self, level: Level | None) -> dict[str, tuple[tuple[int, ...], Any, bool]]:
        """Trailing shape, dtype and need of a gradient of the edge values that gather may read.

        Those of a level with edges that have no stored values, such as pairs, are what it was
        given.
        """
        if level is not None and not level.columns:
            return {n: (x.shape[1:], x.dtype, False) for n, x in level.given.items()}
        edge = self.view.partition.edge
        stored = {n: self._inputs.get(f"edge.{n}", edge.column(n)) for n in edge.readable()}
        carried = {n: value for n, (value, _) in self._carried.items()}
        schema = {
            n: (self._own_shape(x), x.dtype, needs_grad(x))
            for n, x in {**stored, **carried}.items()
        }
        # a relation without attributes has none
        return {n: each for n, each in schema.items() if 0 not in each[0] or self.along is None}

    def edges(self, names: list[str], level: Level) -> tuple[dict[str, Any], frozenset[str]]:
        """Edge values for a level, and which of them are in the level's own order."""
        values: dict[str, Any] = {}
        for name in names:
            if name in level.given:
                values[name] = level.given[name]
            elif name in self._carried:
                values[name] = self._bring(name, level)
            else:
                values[name] = self._stored(name)
        return values, frozenset(n for n in names if n in self._carried or n in level.given)

    def exact(self, end: str, name: str, level: Level) -> ExactColumn | None:
        """A stored column as it was given with the graph; None if passes read it as it is, or if it
        is not stored.

        Args:
            end: "edge", or "src" for that of the sender.
            name: The name under which edges read it in the last layer that has begun.
            level: Gives the order of its values.
        """
        if end == "src":
            store = self.view.partition.node
            name = self.supersteps[-1].stored.get(name, "")
            computed = name in self._inputs
        else:
            store = self.view.partition.edge
            computed = f"edge.{name}" in self._inputs or name in (*self._carried, *level.given)
        if computed or name not in store.readable():
            return None
        column = exact_column(store.column(name))
        if column is store.column(name):
            return None

        def read() -> np.ndarray:
            if end == "edge":
                return np.asarray(store.exact(name))[level.stored]
            rows = self.view.rows
            return level.sent(store.exact(name, None if rows is None else rows[: level.n_in]))

        return ExactColumn(end, column.dtype, read)

    def _stored(self, name: str) -> Any:
        """An edge value in storage order."""
        given = self._inputs.get(f"edge.{name}")
        if given is not None:
            return given
        x = self.view.partition.edge.read(name)
        if self.along is not None and isinstance(x, TypedRows):
            # an inverse relation has the values of the one that it reverses
            return RowList(x.blocks[self.along % len(x.blocks)], x.positions)
        return x

    def _own_shape(self, x: Any) -> tuple[int, ...]:
        """The trailing shape of stored edge values: of a relation that layers run along its own."""
        widths = getattr(x, "widths", None)
        if self.along is None or widths is None:
            return tuple(x.shape[1:])
        return (widths[self.along % len(widths)],)

    def carry(self, outputs: dict[str, Var], level: Level) -> None:
        """Store new edge values for later layers."""
        if outputs and len(level.passes) > 1:
            raise ViewError(
                "a layer with direction 'both' cannot return new edge values, because each edge"
                " would get two; use direction 'in' or 'out'"
            )
        for name, value in outputs.items():
            self._carried[name] = (value, level)

    def _bring(self, name: str, level: Level) -> Var:
        """A carried edge value in the order of another level."""
        value, made_in = self._carried[name]
        if made_in is level:
            return value
        order = np.argsort(made_in.stored, kind="stable")
        at = np.searchsorted(made_in.stored, level.stored, sorter=order)
        matched = order[np.minimum(at, len(order) - 1)] if len(order) else np.zeros(0, np.int64)
        if len(matched) != level.n_edges or np.any(made_in.stored[matched] != level.stored):
            raise ViewError(
                f"edge.{name} was computed by a layer with another sample of edges than the layer"
                " that reads it; use one sample for all layers (--share-sample with equal"
                " fanouts), or disable sampling"
            )
        out = Var(value.value[matched], self.edge_space(level))

        def vjp(gs: list[Any]) -> list[Any]:
            back = np.zeros(value.shape, value.dtype)
            add_rows(back, matched, gs[0])
            return [back]

        current().add("carry", [value], [out], vjp)
        return out
