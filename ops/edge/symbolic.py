"""The symbolic trace of a gather: the user's function called once with symbols instead of edges.

A trace is made in every pass of a layer. Everything that the function reads besides its argument
(settings of the layer, globals, other objects) is therefore read again, and a change takes effect
in the next pass. Planning and compiling are expensive; they depend on the ``structure`` of a trace
only, so passes of one structure share them (``program_cache``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.errors import ColumnError, UserFunctionError

from ..autodiff.expr import Expr, Tracer, keywords, ordered
from ..autodiff.naming import naming
from ..autodiff.tape import Var
from .aggregator import Aggregator, Shape

Schema = Mapping[str, tuple[Shape, Any, bool]]


@dataclass
class SymbolicTrace:
    """What one call of gather returned.

    Attributes:
        messages: What is summed, by name of the total; the single total, or the value of each pair
            for a layer without a sum, has the name "".
        outputs: New edge values by name.
        sums: Aggregators by name of the total; empty for a layer without a sum.
        tracer: The scope the expressions belong to; it holds the operands.
        owner: Name of the layer, for messages.
        stored: Names of node columns that are stored, and not computed by the pass.
    """

    messages: dict[str, Expr]
    outputs: dict[str, Expr]
    sums: dict[str, Aggregator]
    tracer: Tracer
    owner: str
    stored: frozenset[str] = frozenset()

    @property
    def operands(self) -> list[Any]:
        """Parameters and constants, by number."""
        return self.tracer.operands

    @property
    def order(self) -> list[Expr]:
        """All expressions, arguments first."""
        return ordered([*self.messages.values(), *self.outputs.values()])

    def structure(self) -> tuple[Any, ...]:
        """All that planning reads, as a key: equal for traces that differ in operands only.

        The planner compares constants with 0 and 1, so the outcome is part of the key. So are the
        aggregators themselves, because another one may be registered under the same name.
        """
        order = self.order
        number = {id(e): i for i, e in enumerate(order)}
        nodes = tuple(self._node(e, number) for e in order)
        outputs = tuple((name, number[id(e)]) for name, e in self.outputs.items())
        messages = tuple((name, number[id(e)]) for name, e in self.messages.items())
        return nodes, messages, outputs, tuple(self.sums.items()), len(self.operands)

    def _node(self, e: Expr, number: dict[int, int]) -> tuple[Any, ...]:
        what = (e.rows, e.dims, e.dtype, e.requires_grad)
        if e.prim is not None:
            return e.prim, tuple(number[id(a)] for a in e.args), keywords(e.static), what
        return e.leaf, what, self.tracer.neutral(e), e.leaf is not None and e.leaf[1] in self.stored


class _EndSymbols:
    """``edge.src`` or ``edge.dst``: attribute access makes leaves."""

    def __init__(
        self, tracer: Tracer, end: str, schema: Schema, owner: str, sparse: Collection[str]
    ):
        self._tracer = tracer
        self._end = end
        self._schema = schema
        self._owner = owner
        self._sparse = sparse

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._sparse:
            raise ColumnError(
                f"gather of {self._owner} reads edge.{self._end}.{name}, which is sparse; edges"
                " read dense values: multiply it by a weight in transform,"
                f" dict(z=gt.matmul(node.{name}, self.weight)), or return"
                f" dict({name}=gt.to_dense(node.{name}))"
            )
        if name not in self._schema:
            raise ColumnError(
                f"gather of {self._owner} reads edge.{self._end}.{name}, which does not exist; "
                f"transform offers {', '.join(self._schema) or 'nothing'}"
            )
        shape, dtype, requires_grad = self._schema[name]
        return self._tracer.leaf(self._end, name, shape, dtype, requires_grad=requires_grad)


class EdgeSymbols:
    """The argument of gather: ``src`` and ``dst`` columns, and edge values as attributes."""

    def __init__(
        self, tracer: Tracer, nodes: Schema, edges: Schema, owner: str, sparse: Collection[str]
    ):
        self._tracer = tracer
        self._edges = edges
        self._owner = owner
        self.src = _EndSymbols(tracer=tracer, end="src", schema=nodes, owner=owner, sparse=sparse)
        self.dst = _EndSymbols(tracer=tracer, end="dst", schema=nodes, owner=owner, sparse=sparse)

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "reversed":
            return self._tracer.leaf("edge", name, (), np.int32, requires_grad=False)
        if name not in self._edges:
            have = ", ".join(f"edge.{n}" for n in self._edges) or "none"
            raise ColumnError(
                f"gather of {self._owner} reads edge.{name}, but the edges of this graph have no"
                f" such value (there are: {have}); give it with gt.Graph(...,"
                f" edge_columns={{{name!r}: array}}), or return it from gather of an earlier layer"
            )
        shape, dtype, requires_grad = self._edges[name]
        return self._tracer.leaf("edge", name, shape, dtype, requires_grad=requires_grad)


def record(
    gather: Callable[[Any], Any],
    nodes: Schema,
    edges: Schema,
    sums: Mapping[str, Aggregator] | None,
    owner: str,
    sparse: Collection[str] = (),
    stored: Collection[str] = (),
) -> SymbolicTrace:
    """Call gather once with symbols.

    Args:
        gather: The user's function; returns a message, or several by the name of their total, or
            (message, new edge values by name).
        nodes: Trailing shape, dtype and whether it needs a gradient, of each node column.
        edges: The same for edge values.
        sums: Aggregators by name of the total, or None to return the message per edge.
        owner: Name of the layer, for messages.
        sparse: Names of node columns that edges cannot read because they are sparse.
        stored: Names of node columns that are stored, and not computed by the pass.

    Raises:
        UserFunctionError: Gather returned something that is not an edge expression, or one of an
            earlier call.
        ColumnError: It reads a column that does not exist.
        ShapeError: Shapes inside it do not fit.
    """
    with Tracer() as tracer, naming(f"gather of {owner}"):
        returned = gather(
            EdgeSymbols(tracer=tracer, nodes=nodes, edges=edges, owner=owner, sparse=sparse)
        )
    messages, outputs = message_and_outputs(returned, {"": None} if sums is None else sums, owner)
    for name, e in [*((None, e) for e in messages.values()), *outputs.items()]:
        with naming(f"gather of {owner}"):
            tracer.check_own(e)
        if not e.rows:
            raise UserFunctionError(
                f"gather of {owner} returned {e!r}, which does not depend on the edge; "
                "multiply it with an edge or node value"
            )
        if e.dtype.kind not in ("f" if name is None else "fiu"):
            problem = (
                f"{e!r} of type {e.dtype}; sums are made of floats"
                if name is None
                else f"{name} = {e!r} of type {e.dtype}; new edge values are floats or integers"
            )
            raise UserFunctionError(
                f"gather of {owner} returned {problem}, so cast it with gt.cast"
            )
    return SymbolicTrace(
        messages=messages,
        outputs=outputs,
        sums=dict(sums or {}),
        tracer=tracer,
        owner=owner,
        stored=frozenset(stored),
    )


def message_and_outputs(
    returned: Any, sums: Mapping[str, Any], owner: str, function: str = "gather"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The message of each total, and new edge values by name, from what a user's function returned.

    Args:
        returned: A message, messages by name, or one of these with new edge values.
        sums: What is keyed by the names of the totals.
        owner, function: Names of the function and of what it belongs to, for messages.

    Raises:
        UserFunctionError: It is none of these.
    """
    pair = isinstance(returned, tuple) and len(returned) == 2
    message, outputs = returned if pair else (returned, {})
    if not isinstance(outputs, dict) or not all(
        isinstance(e, (Expr, Var)) for e in outputs.values()
    ):
        raise UserFunctionError(
            f"{function} of {owner}: new edge values must be a dict of edge expressions by name"
        )
    if isinstance(message, dict) and all(isinstance(e, (Expr, Var)) for e in message.values()):
        if set(message) != set(sums):
            given = ", ".join(name for name in sums if name) or "one aggregator"
            raise UserFunctionError(
                f"{function} of {owner} returned the messages {', '.join(map(str, message))}, but"
                f" its sum has {given}; give an aggregator for each message, as in sum = {{'near':"
                " 'mean', 'far': 'max'}"
            )
        return {name: message[name] for name in sums}, outputs
    if not isinstance(message, (Expr, Var)):
        raise UserFunctionError(
            f"{function} of {owner} returned {type(message).__name__}; expected a message made from"
            " edge.src, edge.dst and edge values, a dict of messages by name, or (message, {name:"
            " new edge value})"
        )
    return dict.fromkeys(sums, message), outputs
