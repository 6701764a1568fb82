"""Gather and Sum without the edge compiler: gather is called with arrays of edges, and each
destination is summed by itself.

``gt.check`` compares it with the edge program of the same layer. It shares the operations and the
aggregators with it, but neither the tracer, nor the planner, nor kernels: every operation of gather
is recorded on the tape as it is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.layer.opened import Opened, message_of, order_of, part_of
from graphtheta.engine.layer.ordered import Concat, Ordered, Recurrent
from graphtheta.engine.layer.settings import PassSettings
from graphtheta.engine.view.level import Level
from graphtheta.errors import ColumnError
from graphtheta.ops.autodiff.space import RowSpace
from graphtheta.ops.autodiff.stored import rows_of
from graphtheta.ops.autodiff.tape import Var, current, needs_grad, value_of
from graphtheta.ops.edge.aggregator import Aggregator, Segments, State
from graphtheta.ops.edge.program import softmax_scope
from graphtheta.ops.functions.elementwise import mul
from graphtheta.ops.functions.rows import cast
from graphtheta.ops.functions.shape import stack


@dataclass
class _Edges:
    """The edges of a level.

    Attributes:
        src, dst: Sending and receiving row of each edge, [n].
        stored: Its position among the edge values of the partition, [n].
        tie: The number that decides between equal messages, [n].
        reverse: 1 where the message runs against the edge, [n] int32.
        weight: Importance weights, [n].
    """

    src: np.ndarray
    dst: np.ndarray
    stored: np.ndarray
    tie: np.ndarray
    reverse: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, level: Level) -> _Edges:
        """All edges of a level on one worker, in the order of the level."""
        parts = [(s, p.reverse) for p in level.passes for s in p.selections]
        each = [
            (
                s.other,
                np.repeat(s.row, np.diff(s.ptr)),
                s.stored,
                s.gid[s.stored] + s.tie_shift,
                np.full(s.n_edges, r, np.int32),
                np.ones(s.n_edges) if s.weight is None else s.weight,
            )
            for s, r in parts
        ]
        if not parts:
            return cls(*(np.zeros(0, np.int64),) * 4, np.zeros(0, np.int32), np.zeros(0))
        order = np.argsort(
            np.concatenate([np.arange(s.offset, s.offset + s.n_edges) for s, _ in parts]),
            kind="stable",
        )
        return cls(*(np.concatenate(column)[order] for column in zip(*each, strict=True)))

    def received(self) -> list[np.ndarray]:
        """For each destination that has edges, their numbers."""
        return [np.flatnonzero(self.dst == row) for row in np.unique(self.dst)]


def settings() -> PassSettings:
    """The settings of a pass on one worker in which layers are evaluated in this way."""
    return PassSettings(evaluate=totals_and_outputs)


def totals_and_outputs(
    opened: Opened, columns: dict[str, Any], graph: ActiveGraph, level: Level
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Call gather with arrays of edges, and sum its messages."""
    edges = _Edges.of(level)
    with softmax_scope(lambda score: _softmax(score, edges)):
        returned = opened.gather(_EdgeValues(columns, graph, level, edges))
    messages, outputs = returned if isinstance(returned, tuple) else (returned, {})
    sums = opened.sums or {}
    space = graph.space(level.n_out)
    each = messages if isinstance(messages, dict) else dict.fromkeys(sums, messages)
    totals = {
        name: _total(aggregator, each[name], edges, space) for name, aggregator in sums.items()
    }
    for name, accumulator in opened.ordered.items():
        message = outputs.pop(message_of(name))
        key = outputs.pop(order_of(name), None)
        totals |= {
            part_of(name, part): x
            for part, x in _taken(accumulator, message, key, edges, space).items()
        }
    return totals, outputs


class _Columns:
    """``edge.src`` or ``edge.dst``: the column of a node at the end of each edge."""

    def __init__(
        self,
        columns: dict[str, Any],
        graph: ActiveGraph,
        level: Level,
        rows: np.ndarray,
        space: RowSpace,
    ):
        self._columns = columns
        self._graph = graph
        self._level = level
        self._rows = rows
        self._space = space

    def __getattr__(self, name: str) -> Var:
        if name.startswith("__"):
            raise AttributeError(name)
        x = (
            self._columns[name]
            if name in self._columns
            else self._graph.node(name, min(self._level.n_in, self._graph.n))
        )
        return _at(x, self._rows, self._space)


class _EdgeValues:
    """The argument of gather."""

    def __init__(self, columns: dict[str, Any], graph: ActiveGraph, level: Level, edges: _Edges):
        self._graph = graph
        self._level = level
        self._edges = edges
        self._space = graph.edge_space(level)
        self.src = _Columns(
            columns=columns, graph=graph, level=level, rows=edges.src, space=self._space
        )
        self.dst = _Columns(
            columns=columns, graph=graph, level=level, rows=edges.dst, space=self._space
        )

    def __getattr__(self, name: str) -> Var:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "reversed":
            return Var(self._edges.reverse, self._space)
        if name not in self._graph.edge_schema(self._level):
            raise ColumnError(f"the edges of this graph have no value {name!r}")
        values, in_order = self._graph.edges([name], self._level)
        rows = np.arange(len(self._edges.src)) if in_order else self._edges.stored
        return _at(values[name], rows, self._space)


def _at(x: Any, rows: np.ndarray, space: RowSpace) -> Var:
    """The row of a value for each edge."""
    values = rows_of(x) if isinstance(x, Var) else np.asarray(x)
    out = Var(values[rows], space)

    def vjp(gs: list[Any]) -> list[Any]:
        back = np.zeros(values.shape, gs[0].dtype)
        np.add.at(back, rows, gs[0])
        return [back]

    if isinstance(x, Var):
        current().add("edges_of_rows", [x], [out], vjp)
    return out


def _softmax(score: Any, edges: _Edges) -> Any:
    """The softmax of scores over the edges of each destination."""
    score = score if score.dtype.kind == "f" else cast(score, current().dtype)
    z = score.value
    received = edges.received()
    weight = edges.weight.reshape(-1, *[1] * (z.ndim - 1)).astype(z.dtype)
    p = np.zeros_like(z)
    for at in received:
        top = z[at].max(axis=0)
        # a score of -inf is masked, also where all are
        e = np.exp(z[at] - np.where(np.isneginf(top), 0, top))
        mass = (weight[at] * e).sum(axis=0)
        p[at] = e / np.where(mass == 0, 1, mass)
    out = Var(p, score.space)

    def vjp(gs: list[Any]) -> list[Any]:
        back = np.zeros_like(z)
        for at in received:
            back[at] = p[at] * (gs[0][at] - weight[at] * (gs[0][at] * p[at]).sum(axis=0))
        return [back]

    current().add("softmax_of_edges", [score], [out], vjp)
    return out


def _total(aggregator: Aggregator, message: Any, edges: _Edges, space: RowSpace) -> Var:
    """The totals of all destinations, of each by itself."""
    x = message.value
    received = edges.received()
    states = [_state(aggregator, x[at], edges, at) for at in received]
    finished = [aggregator.finish(state) for state in states]
    empty = aggregator.finish(aggregator.start(1, [x.shape[1:]], x.dtype))
    total = np.repeat(empty, space.n, axis=0)
    for at, one in zip(received, finished, strict=True):
        total[edges.dst[at[0]]] = one[0]
    out = Var(total, space)

    def vjp(gs: list[Any]) -> list[Any]:
        back = np.zeros_like(x)
        for at, state, one in zip(received, states, finished, strict=True):
            row = edges.dst[at[0]]
            columns = aggregator.backward_state(state, one, gs[0][row : row + 1])
            each = {name: np.repeat(column, len(at), axis=0) for name, column in columns.items()}
            back[at] = aggregator.backward(each, [x[at]], edges.tie[at], edges.weight[at])[0]
        return [back]

    if needs_grad(message):
        current().add("total_of_edges", [message], [out], vjp)
    return out


def _taken(
    accumulator: Ordered, message: Any, key: Any, edges: _Edges, space: RowSpace
) -> dict[str, Var]:
    """The totals of a sum in order, of each destination by itself."""
    order = np.lexsort((edges.tie, *(() if key is None else (value_of(key),)), edges.dst))
    rows = np.unique(edges.dst)
    ends = [_ended(accumulator, message, order[edges.dst[order] == row]) for row in rows]
    parts = accumulator.turns(message.shape[1:], message.dtype, 0).parts
    totals = {}
    for part, (dims, dtype) in parts.items():
        last = [end[part] for end in ends]
        total = np.zeros((space.n, *dims), dtype)
        for row, x in zip(rows, last, strict=True):
            total[row] = x.value[0]
        totals[part] = Var(total, space)
        current().add(
            "totals_in_order",
            last,
            [totals[part]],
            lambda gs: [gs[0][row : row + 1] for row in rows],
        )
    return totals


def _ended(accumulator: Ordered, message: Any, at: np.ndarray) -> dict[str, Any]:
    """What one destination ends with, after the messages of some edges in turn."""
    one = RowSpace(np.zeros(1, np.int64))
    messages = [_at(message, at[i : i + 1], one) for i in range(len(at))]
    if isinstance(accumulator, Concat):
        nothing = [mul(messages[0], 0.0)] * accumulator.k
        first = stack([*messages, *nothing][: accumulator.k], -1 - len(messages[0].shape[1:]))
        return {"": first}
    assert isinstance(accumulator, Recurrent)
    state = None
    for x in messages:
        state = accumulator.step(state, x)
    return state if isinstance(state, dict) else {"": state}


def _state(aggregator: Aggregator, x: np.ndarray, edges: _Edges, at: np.ndarray) -> State:
    """The state of one destination after all its messages."""
    state = aggregator.start(1, [x.shape[1:]], x.dtype)
    one = Segments(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(len(at), np.int64))
    for number in range(aggregator.passes(x.dtype)):
        if number:
            aggregator.refine(state, number)
        aggregator.accumulate(state, one, [x], edges.tie[at], edges.weight[at])
    return state
