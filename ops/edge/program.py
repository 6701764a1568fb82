"""Edge programs: a traced gather, split into phases that each need one pass over the edges.

How a gather is split depends on how it uses edge softmax. Where the softmax weight enters a summed message linearly,
score and value go into one softmax-weighted sum: one pass, one message per mirror. Everywhere else a first phase
computes the log-normaliser of the scores per destination, and the softmax becomes exp(score - normaliser) in the phase
after it.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from graphtheta.errors import UserFunctionError

from ..autodiff.expr import Expr, Tracer, ordered, replaced
from ..autodiff.primitive import defvjp, primitive
from ..autodiff.traits import Traits
from ..compile.scalar import Scalar
from ..functions.elementwise import exp, sub
from ..functions.shape import softmax_over
from .aggregator import LOG_SUM_EXP, SOFTMAX_SUM, SUM, Aggregator, aggregator
from .symbolic import SymbolicTrace

Note = tuple[str, tuple[Expr, ...]]


@primitive("edge_softmax")
def _edge_softmax(score: Any) -> Any:
    """A placeholder in expressions until ``split`` replaces it."""
    return score


defvjp(_edge_softmax, score=lambda g, y, score: g)


@primitive("ones_like", scalar=Scalar("single(ONE)", (None,)), traits=Traits(free=True, constant=1))
def ones_like(x: Any) -> Any:
    """Ones in the shape of x."""
    return np.ones_like(x)


defvjp(ones_like, x=None)


def softmax(score: Any, axis: int | tuple[int, ...] | None = None) -> Any:
    """Softmax of an edge score over the in-edges of each destination, inside ``gather``; with an axis, over that axis, anywhere.

    Args:
        score: Without ``axis`` an edge expression, [edges, ...], of which each trailing column is
            normalised by itself; with it any value, [..., d].
        axis: Negative axis or axes to normalise over, so that each row is normalised by itself.

    Raises:
        UserFunctionError: Used outside of gather without an axis.
        ShapeError: An axis is the row axis or does not exist.
    """
    if axis is not None:
        return softmax_over(score, axis)
    if not isinstance(score, Expr):
        raise UserFunctionError("gt.softmax normalises scores over the in-edges of a node, so it is used inside gather, on edge values; "
                                "for the softmax over the last axis of a value use gt.softmax(x, axis=-1)")
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
    def dtype(self) -> np.dtype:
        """The float type it computes in; new edge values may be integers besides."""
        # all floats have one type; without a sum, the first output is the value of the layer
        return next(e.dtype for e in (*self.message, *self.outputs.values()))

    @property
    def width(self) -> int:
        """Numbers held per edge while a chunk is computed."""
        return sum(prod(e.dims) for e in self.order if e.rows)


@dataclass
class EdgeProgram:
    """A traced gather.

    Attributes:
        phases: In order; all but the last produce a destination column for later ones.
        operands: Parameters, constants, and what the planner made of them, by number: one array for all edges each, or the
            expression of one.
        columns: Node columns to compute before the edges, by name: expressions over "node" leaves and operands.
        after: What is computed from each total of the last phase, over a "total" leaf; None for
            nothing.
        notes: What the planner did and why: format texts and the expressions to insert.
        tracer: The scope its expressions were made in; used until planning ends.
        stored: Names of node columns that are stored.
    """

    phases: list[Phase]
    operands: list[Any]
    columns: dict[str, Expr] = field(default_factory=dict)
    after: Expr | None = None
    notes: list[Note] = field(default_factory=list)
    tracer: Tracer | None = None
    stored: frozenset[str] = frozenset()


def split(traced: SymbolicTrace) -> EdgeProgram:
    """Split a traced gather into phases.

    Raises:
        UserFunctionError: A layer without a sum takes a softmax.
        ConfigError: There is no aggregator of that name.
    """
    message, outputs, sums = traced.message, traced.outputs, traced.sums
    with traced.tracer as tracer:
        if sums is None:
            if _softmaxes([message, *outputs.values()]):
                raise UserFunctionError(f"gather of {traced.owner} uses gt.softmax, but the layer has sum = None: its pairs have no "
                                        "destination to normalise over; set sum, or apply the softmax in an earlier layer")
            phases, after = [Phase([], {}, {"": message, **outputs})], None
        else:
            aggregators = {"": aggregator(sums)} if isinstance(sums, str) else {n: aggregator(n) for n in sums}
            phases, after = _plan(tracer, message, aggregators, outputs)
        return EdgeProgram(phases, tracer.operands, after=after, tracer=tracer, stored=traced.stored)


def _plan(tracer: Tracer, message: Expr, aggregators: dict[str, Aggregator], outputs: dict[str, Expr]) -> tuple[list[Phase], Expr | None]:
    softmaxes = _softmaxes([message])
    plain = list(aggregators) == [""] and aggregators[""] is SUM
    if plain and len(softmaxes) == 1 and not _softmaxes([*outputs.values()]):
        found = _weighted(tracer, message, softmaxes[0])
        if found is not None:
            value, after = found
            return [Phase([softmaxes[0].args[0], value], {"": SOFTMAX_SUM}, outputs)], after
    return _softmax_phases(tracer, [message], aggregators, outputs), None


def _weighted(tracer: Tracer, message: Expr, weight: Expr) -> tuple[Expr, Expr | None] | None:
    """For a message f(weight * c) with f linear and equal for all edges: c, and f of its total.

    Sums over heads are such an f: they are computed after the edges are summed.
    """
    done: list[Expr] = []
    while True:
        value = _coefficient(tracer, message, weight)
        if value is not None and message.dims[: len(weight.dims)] == weight.dims and value.dims == message.dims:
            break
        declared = message.traits
        if 0 not in declared.linear or declared.random or any(a.rows for a in message.args[1:]):
            return None
        done.append(message)
        message = message.args[0]
    after = total_of(tracer, message)
    for e in reversed(done):
        assert e.prim is not None
        after = tracer.node(e.prim, (after, *e.args[1:]), e.static)
    return value, after if done else None


def total_of(tracer: Tracer, message: Expr) -> Expr:
    """The leaf that represents the total of such messages."""
    return tracer.leaf("total", message.dims, message.dims, message.dtype, requires_grad=message.requires_grad)


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
        weight = exp(sub(score, tracer.leaf("dst", column, score.dims, score.dtype, requires_grad=score.requires_grad)))
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
    at, declared = inside.index(True), e.prim.traits
    if sum(inside) == 1 and at in declared.linear and declared.keeps(len(weight.dims), e.args[at].dims, e.dims, e.static):
        inner = _coefficient(tracer, e.args[at], weight)
        return None if inner is None else tracer.node(e.prim, (*e.args[:at], inner, *e.args[at + 1:]), e.static)
    if declared.additive and all(inside):
        parts = [_coefficient(tracer, a, weight) for a in e.args]
        found = [part for part in parts if part is not None]
        return tracer.node(e.prim, tuple(found), e.static) if len(found) == len(parts) else None
    return None


def _softmaxes(roots: list[Expr]) -> list[Expr]:
    """Every edge softmax below the roots, innermost first."""
    return [e for e in ordered(roots) if e.prim is _edge_softmax]
