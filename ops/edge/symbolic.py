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

from graphtheta.errors import ColumnError, UserFunctionError

from ..autodiff.expr import Expr, Tracer, ordered
from ..autodiff.naming import naming
from .aggregator import Shape, aggregator

Schema = Mapping[str, tuple[Shape, Any, bool]]


@dataclass
class SymbolicTrace:
    """What one call of gather returned.

    Attributes:
        message: What is summed, or the value of each pair for a layer without a sum.
        outputs: New edge values by name.
        sums: Names of the aggregators; a single one is a string, none is None.
        tracer: The scope the expressions belong to; it holds the operands.
        owner: Name of the layer, for messages.
        stored: Names of node columns that are stored, and not computed by the pass.
    """

    message: Expr
    outputs: dict[str, Expr]
    sums: str | tuple[str, ...] | None
    tracer: Tracer
    owner: str
    stored: frozenset[str] = frozenset()

    @property
    def operands(self) -> list[Any]:
        """Parameters and constants, by number."""
        return self.tracer.operands

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the aggregators."""
        return () if self.sums is None else (self.sums,) if isinstance(self.sums, str) else self.sums

    @property
    def order(self) -> list[Expr]:
        """All expressions, arguments first."""
        return ordered([self.message, *self.outputs.values()])

    def structure(self) -> tuple[Any, ...]:
        """All that planning reads, as a key: equal for traces that differ in operands only.

        The planner compares constants with 0 and 1, so the outcome is part of the key. So are the
        aggregators themselves, because another one may be registered under the same name.

        Raises:
            ConfigError: There is no aggregator of a name that the layer gives.
        """
        order = self.order
        number = {id(e): i for i, e in enumerate(order)}
        nodes = tuple(self._node(e, number) for e in order)
        outputs = tuple((name, number[id(e)]) for name, e in self.outputs.items())
        return nodes, number[id(self.message)], outputs, self.sums, tuple(map(aggregator, self.names)), len(self.operands)

    def _node(self, e: Expr, number: dict[int, int]) -> tuple[Any, ...]:
        what = (e.rows, e.dims, e.dtype, e.requires_grad)
        if e.prim is not None:
            return e.prim, tuple(number[id(a)] for a in e.args), tuple(e.static.items()), what
        return e.leaf, what, self.tracer.neutral(e), e.leaf is not None and e.leaf[1] in self.stored


class _Columns:
    """``edge.src`` or ``edge.dst``: attribute access makes leaves."""

    def __init__(self, tracer: Tracer, end: str, schema: Schema, owner: str, sparse: Collection[str]):
        self._tracer, self._end, self._schema, self._owner, self._sparse = tracer, end, schema, owner, sparse

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._sparse:
            raise ColumnError(f"gather of {self._owner} reads edge.{self._end}.{name}, which is sparse; edges read "
                              f"dense values: multiply it by a weight in transform, dict(z=gt.matmul(node.{name}, self.weight)), or "
                              f"return dict({name}=gt.to_dense(node.{name}))")
        if name not in self._schema:
            raise ColumnError(f"gather of {self._owner} reads edge.{self._end}.{name}, which does not exist; "
                              f"transform offers {', '.join(self._schema) or 'nothing'}")
        shape, dtype, requires_grad = self._schema[name]
        return self._tracer.leaf(self._end, name, shape, dtype, requires_grad=requires_grad)


class EdgeSymbols:
    """The argument of gather: ``src`` and ``dst`` columns, and edge values as attributes."""

    def __init__(self, tracer: Tracer, nodes: Schema, edges: Schema, owner: str, sparse: Collection[str]):
        self._tracer, self._edges, self._owner = tracer, edges, owner
        self.src = _Columns(tracer, "src", nodes, owner, sparse)
        self.dst = _Columns(tracer, "dst", nodes, owner, sparse)

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._edges:
            have = ", ".join(f"edge.{n}" for n in self._edges) or "none"
            raise ColumnError(f"gather of {self._owner} reads edge.{name}, but the edges of this graph "
                              f"have no such value (there are: {have}); give it with gt.Graph(..., edge_columns={{{name!r}: array}}), "
                              "or return it from gather of an earlier layer")
        shape, dtype, requires_grad = self._edges[name]
        return self._tracer.leaf("edge", name, shape, dtype, requires_grad=requires_grad)


def record(gather: Callable[[Any], Any], nodes: Schema, edges: Schema, sums: Any, owner: str,
           sparse: Collection[str] = (), stored: Collection[str] = ()) -> SymbolicTrace:
    """Call gather once with symbols.

    Args:
        gather: The user's function; returns a message or (message, new edge values by name).
        nodes: Trailing shape, dtype and whether it needs a gradient, of each node column.
        edges: The same for edge values.
        sums: Name of the aggregator, several names, or None to return the message per edge.
        owner: Name of the layer, for messages.
        sparse: Names of node columns that edges cannot read because they are sparse.
        stored: Names of node columns that are stored, and not computed by the pass.

    Raises:
        UserFunctionError: Gather returned something that is not an edge expression, or one of an earlier call.
        ColumnError: It reads a column that does not exist.
        ShapeError: Shapes inside it do not fit.
    """
    with Tracer() as tracer, naming(f"gather of {owner}"):
        returned = gather(EdgeSymbols(tracer, nodes, edges, owner, sparse))
    message, outputs = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, {})
    if not isinstance(message, Expr):
        raise UserFunctionError(f"gather of {owner} returned {type(message).__name__}; expected a message made from edge.src, "
                                "edge.dst and edge values, or (message, {name: new edge value})")
    if not isinstance(outputs, dict) or not all(isinstance(e, Expr) for e in outputs.values()):
        raise UserFunctionError(f"gather of {owner}: new edge values must be a dict of edge expressions by name")
    for name, e in [("", message), *outputs.items()]:
        with naming(f"gather of {owner}"):
            tracer.check_own(e)
        if not e.rows:
            raise UserFunctionError(f"gather of {owner} returned {e!r}, which does not depend on the edge; "
                                    "multiply it with an edge or node value")
        if e.dtype.kind not in ("fiu" if name else "f"):
            made = f"{name} = {e!r} of type {e.dtype}; new edge values are floats or integers" if name else \
                f"{e!r} of type {e.dtype}; sums are made of floats"
            raise UserFunctionError(f"gather of {owner} returned {made}, so cast it with gt.cast")
    return SymbolicTrace(message, outputs, sums if sums is None or isinstance(sums, str) else tuple(sums), tracer, owner,
                         frozenset(stored))
