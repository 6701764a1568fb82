"""Edge programs: a traced gather, split into phases that each need one pass over the edges.

``trace`` calls the user's gather once with symbols. It then looks at how edge softmax is used. Where the
softmax weight enters a summed message linearly, score and value go into one softmax-weighted sum: one pass, one
message per mirror. Everywhere else a first phase computes the log-normaliser of the scores per destination, and the
softmax becomes exp(score - normaliser) in the phase after it.
"""
from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.errors import ColumnError, CommError, GraphThetaError, UserFunctionError, annotate

from .aggregator import LOG_SUM_EXP, SOFTMAX_SUM, Aggregator, Shape, aggregator
from .elementwise import exp, sub
from .expr import Expr, Tracer, ordered, replaced
from .primitive import defvjp, primitive

Schema = Mapping[str, tuple[Shape, Any, bool]]
Note = tuple[str, tuple[Expr, ...]]
# Python's own complaint about one of our values
_SYMBOL = re.compile(r"\b(Expr|Var)\b")
# linear in their first argument, alike for all edges
_LINEAR = ("reshape", "getitem", "expand_last", "neg", "div", "sum", "matmul")
_OURS = {Path(__file__).parent.parent / folder for folder in ("ops", "engine", "models")}


@primitive("edge_softmax")
def _edge_softmax(score: Any) -> Any:
    """Stands in the expression until the planner has replaced it."""
    return score


defvjp(_edge_softmax, score=lambda g, y, score: g)


@primitive("ones_like")
def ones_like(x: Any) -> Any:
    """Ones in the shape of x."""
    return np.ones_like(x)


defvjp(ones_like, x=None)


def softmax(score: Any) -> Any:
    """Softmax of an edge score over the in-edges of each destination; used inside ``gather`` only.

    Args:
        score: Edge expression, [edges, ...]; each trailing column is normalised by itself.

    Raises:
        UserFunctionError: Used outside of gather.
    """
    if not isinstance(score, Expr):
        raise UserFunctionError("gt.softmax normalises scores over the in-edges of a node, so it is used inside gather, on edge values")
    return _edge_softmax(score)


@dataclass
class Phase:
    """One pass over the edges.

    Attributes:
        message: Parts of the message (score and value for a softmax-weighted sum); empty if nothing is summed.
        aggregators: By name of the total; a single unnamed one has the name "".
        outputs: New edge values by name.
        result: Name of the destination column that the total becomes for the next phase; None in the last.
        order: All expressions needed, arguments first.
        reads: Columns read, by ("src" | "dst" | "edge").
    """

    message: list[Expr]
    aggregators: dict[str, Aggregator]
    outputs: dict[str, Expr]
    result: str | None = None
    order: list[Expr] = field(init=False)
    reads: dict[str, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.order = ordered([*self.message, *self.outputs.values()])
        leaves = [e.leaf for e in self.order if e.leaf is not None]
        self.reads = {kind: tuple(name for k, name in leaves if k == kind) for kind in ("src", "dst", "edge")}

    @property
    def operands(self) -> list[int]:
        """Numbers of the operands this phase uses."""
        return [e.leaf[1] for e in self.order if e.leaf is not None and e.leaf[0] == "operand"]

    @property
    def width(self) -> int:
        """Numbers held per edge while a chunk is computed."""
        return sum(prod(e.shape) for e in self.order if e.rows)


@dataclass
class EdgeProgram:
    """A traced gather.

    Attributes:
        phases: In order; all but the last produce a destination column for later ones.
        operands: Parameters, constants, and what the planner made of them, by number: one array for all edges each, or the
            expression of one.
        columns: Node columns to compute before the edges, by name: expressions over "node" leaves and operands.
        after: What is done to each total of the last phase, over a "total" leaf; None for nothing.
        notes: What the planner did and why: text with a place for each of some expressions.
        tracer: The scope its expressions were made in; the planner is the last to need it.
    """

    phases: list[Phase]
    operands: list[Any]
    columns: dict[str, Expr] = field(default_factory=dict)
    after: Expr | None = None
    notes: list[Note] = field(default_factory=list)
    tracer: Tracer | None = None


class _Columns:
    """``edge.src`` or ``edge.dst``: attribute access makes leaves."""

    def __init__(self, tracer: Tracer, end: str, schema: Schema, owner: str, sparse: Collection[str]):
        self._tracer, self._end, self._schema, self._owner, self._sparse = tracer, end, schema, owner, sparse

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._sparse:
            raise ColumnError(f"gather of {self._owner} reads edge.{self._end}.{name}, which is sparse, as large features are; edges read "
                              f"dense values: let transform multiply it by a weight, dict(z=gt.matmul(node.{name}, self.weight)), or "
                              f"return dict({name}=gt.to_dense(node.{name}))")
        if name not in self._schema:
            raise ColumnError(f"gather of {self._owner} reads edge.{self._end}.{name}, which does not exist; "
                              f"transform offers {', '.join(self._schema) or 'nothing'}")
        shape, dtype, live = self._schema[name]
        return self._tracer.leaf(self._end, name, shape, dtype, live=live)


class EdgeSymbols:
    """What gather is called with: ``src`` and ``dst`` columns, and edge values as attributes."""

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
                              f"have no such value (there are: {have})")
        shape, dtype, live = self._edges[name]
        return self._tracer.leaf("edge", name, shape, dtype, live=live)


def trace(gather: Callable[[Any], Any], nodes: Schema, edges: Schema, sum: Any, owner: str, sparse: Collection[str] = ()) -> EdgeProgram:
    """Call gather once with symbols and plan its phases.

    Args:
        gather: The user's function; returns a message or (message, new edge values by name).
        nodes: Trailing shape, dtype and whether it needs a gradient, of each node column.
        edges: The same for edge values.
        sum: Name of the aggregator, several names, or None to return the message per edge.
        owner: Name of the layer, for messages.
        sparse: Names of node columns that edges cannot read because they are sparse.

    Raises:
        UserFunctionError: Gather returned something that is not an edge expression.
        ColumnError: It reads a column that does not exist.
        ShapeError: Shapes inside it do not fit.
    """
    with Tracer() as tracer:
        with naming(f"gather of {owner}"):
            returned = gather(EdgeSymbols(tracer, nodes, edges, owner, sparse))
        message, outputs = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, {})
        if not isinstance(message, Expr):
            raise UserFunctionError(f"gather of {owner} returned {type(message).__name__}; expected a message made from edge.src, "
                                    "edge.dst and edge values, or (message, {name: new edge value})")
        if not isinstance(outputs, dict) or not all(isinstance(e, Expr) for e in outputs.values()):
            raise UserFunctionError(f"gather of {owner}: new edge values must be a dict of edge expressions by name")
        for e in [message, *outputs.values()]:
            if not e.rows:
                raise UserFunctionError(f"gather of {owner} returned {e!r}, which does not depend on the edge; "
                                        "multiply it with an edge or node value")
            if e.dtype.kind != "f":
                raise UserFunctionError(f"gather of {owner} returned {e!r} of type {e.dtype}; sums are made of floats, "
                                        "so cast it with gt.cast")
        if sum is None:
            if _softmaxes([message, *outputs.values()]):
                raise UserFunctionError(f"gather of {owner} takes a softmax, but the layer has sum = None: its pairs have no destination "
                                        "to be normalised over; give it a sum, or take the softmax in a layer before it")
            phases, after = [Phase([], {}, {"": message, **outputs})], None
        else:
            names = (sum,) if isinstance(sum, str) else tuple(sum)
            aggregators = {"" if isinstance(sum, str) else n: aggregator(n) for n in names}
            phases, after = _plan(tracer, message, aggregators, outputs)
        return EdgeProgram(phases, tracer.operands, after=after, tracer=tracer)


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Name the user's function in errors raised inside it, unless a function inside it is named already.

    It is put in front of the messages of our errors. Others keep their traceback and get a note.
    """
    try:
        yield
    except CommError:
        raise
    except GraphThetaError as error:
        if error.located or where in str(error):
            error.located = True
            raise
        named = type(error)(f"{where}: {error}")
        named.located = True
        raise named from error
    except Exception as error:
        if isinstance(error, (TypeError, AttributeError)) and _SYMBOL.search(str(error)):
            named = UserFunctionError(f"{where}{_line(error)}: {error}; values of nodes and edges are known to the functions of gt and to "
                                      "+ - * / ** @, indexing, .sum .mean .max .min .reshape .flatten only")
            named.located = True
            raise named from error
        if not getattr(error, "located", False):
            annotate(error, f"raised in {where}")
            error.located = True  # type: ignore[attr-defined]
        raise


def _line(error: Exception) -> str:
    """Where the innermost function ran that is not ours, as " (FILE, line N)"."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).parent not in _OURS]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _plan(tracer: Tracer, message: Expr, aggregators: dict[str, Aggregator], outputs: dict[str, Expr]) -> tuple[list[Phase], Expr | None]:
    softmaxes = _softmaxes([message])
    plain = list(aggregators) == [""] and aggregators[""].name == "sum"
    if plain and len(softmaxes) == 1 and not _softmaxes([*outputs.values()]):
        found = _weighted(tracer, message, softmaxes[0])
        if found is not None:
            value, after = found
            return [Phase([softmaxes[0].args[0], value], {"": SOFTMAX_SUM}, outputs)], after
    return _softmax_phases(tracer, [message], aggregators, outputs), None


def _weighted(tracer: Tracer, message: Expr, weight: Expr) -> tuple[Expr, Expr | None] | None:
    """The value c and what is done to its total, for a message that is f(weight * c) with f linear and the same for all edges.

    Sums of heads are such an f: they may wait until the edges are summed.
    """
    done: list[Expr] = []
    while True:
        value = _coefficient(tracer, message, weight)
        if value is not None and message.shape[: len(weight.shape)] == weight.shape and value.shape == message.shape:
            break
        if message.prim is None or message.prim.name not in _LINEAR or any(a.rows for a in message.args[1:]):
            return None
        done.append(message)
        message = message.args[0]
    after = total_of(tracer, message)
    for e in reversed(done):
        assert e.prim is not None
        after = tracer.node(e.prim, (after, *e.args[1:]), e.static)
    return value, after if done else None


def total_of(tracer: Tracer, message: Expr) -> Expr:
    """The leaf that stands for the total of such messages."""
    return tracer.leaf("total", message.shape, message.shape, message.dtype, live=message.live)


def _softmax_phases(tracer: Tracer, message: list[Expr], aggregators: dict[str, Aggregator], outputs: dict[str, Expr]) -> list[Phase]:
    """Replace every softmax by exp(score - normaliser), innermost first, with one phase for each normaliser."""
    phases: list[Phase] = []
    roots = [*message, *outputs.values()]
    while True:
        left = _softmaxes(roots)
        if not left:
            break
        found = left[0]
        score, column = found.args[0], f"normaliser {len(phases)}"
        phases.append(Phase([score], {"": LOG_SUM_EXP}, {}, result=column))
        weight = exp(sub(score, tracer.leaf("dst", column, score.shape, score.dtype, live=score.live)))
        roots = [replaced(tracer, e, {found: weight}) for e in roots]
    phases.append(Phase(roots[: len(message)], aggregators, dict(zip(outputs, roots[len(message):], strict=True))))
    return phases


def _coefficient(tracer: Tracer, e: Expr, weight: Expr) -> Expr | None:
    """The factor c with e = weight * c, or None if e is not linear in weight."""
    if e is weight:
        return tracer.node(ones_like, (weight.args[0],), {})
    if e.prim is None:
        return None
    inside = [any(x is weight for x in ordered([a])) for a in e.args]
    name = e.prim.name
    linear_first = name in ("neg", "expand_last", "dropout", "div") or (name in _LINEAR and _keeps(e, len(weight.shape)))
    if (linear_first or name == "mul") and sum(inside) == 1 and (inside[0] or name == "mul"):
        at = inside.index(True)
        inner = _coefficient(tracer, e.args[at], weight)
        return None if inner is None else tracer.node(e.prim, (*e.args[:at], inner, *e.args[at + 1:]), e.static)
    if name in ("add", "sub") and all(inside):
        left, right = (_coefficient(tracer, a, weight) for a in e.args)
        return None if left is None or right is None else tracer.node(e.prim, (left, right), e.static)
    return None


def _keeps(e: Expr, n: int) -> bool:
    """Whether a sum, product or change of shape leaves the first n axes alone."""
    assert e.prim is not None
    x = e.args[0]
    if e.prim.name == "sum":
        return bool(min(e.static["axis"]) >= n - len(x.shape))
    if e.prim.name == "matmul":
        return len(x.shape) > n
    return e.prim.name == "reshape" and e.shape[:n] == x.shape[:n]


def _softmaxes(roots: list[Expr]) -> list[Expr]:
    """Every edge softmax below the roots, innermost first."""
    return [e for e in ordered(roots) if e.prim is _edge_softmax]
