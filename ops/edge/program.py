"""Edge programs: a traced gather, split into phases that each need one pass over the edges.

How a gather is split depends on how it uses edge softmax. Where the softmax weight enters a summed
message linearly, score and value go into one softmax-weighted sum: one pass, one message per
mirror. Everywhere else a first phase computes the normaliser of the scores per destination
(``LogSumExp``), and the softmax becomes exp(score - normaliser) in the phase after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from graphtheta.errors import UserFunctionError

from ..autodiff.expr import Expr, Tracer, ordered, replaced
from ..autodiff.primitive import defvjp, primitive
from ..autodiff.refusal import operation
from ..autodiff.scope import value_scope
from ..autodiff.tape import Var
from ..autodiff.traits import Traits
from ..compile.scalar import Scalar
from ..functions.elementwise import exp, sub
from ..functions.index import getitem
from ..functions.shape import softmax_over
from .aggregator import LOG_SUM_EXP, SOFTMAX_SUM, SUM, Aggregator
from .hoist import rounded
from .symbolic import SymbolicTrace

Note = tuple[str, tuple[Expr, ...]]
# column of the pairs
PRODUCT = "product of pair"


@primitive("edge_softmax", traits=Traits(takes="floats"))
def _edge_softmax(score: Any) -> Any:
    """A placeholder in expressions until ``split`` replaces it."""
    return score


defvjp(_edge_softmax, score=lambda g, y, score: g)


@primitive("ones_like", scalar=Scalar("single(ONE)", (None,)), traits=Traits(free=True, constant=1))
def ones_like(x: Any) -> Any:
    """Ones in the shape of x."""
    return np.ones_like(x)


@operation
def softmax(score: Any, axis: int | tuple[int, ...] | None = None) -> Any:
    """Softmax of an edge score over the in-edges of each destination, inside ``gather``; with an
    axis, over that axis, anywhere.

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
    if not isinstance(score, Expr) and (evaluate := _EVALUATED.get()) is not None:
        return evaluate(score)
    if not isinstance(score, Expr):
        raise UserFunctionError(
            "gt.softmax normalises scores over the in-edges of a node, so it is used inside gather,"
            " on edge values; for the softmax over the last axis of a value use gt.softmax(x,"
            " axis=-1)"
        )
    return _edge_softmax(score)


_EVALUATED: ContextVar[Callable[[Any], Any] | None] = ContextVar(
    "graphtheta_evaluated_softmax", default=None
)


def softmax_scope(function: Callable[[Any], Any]) -> value_scope:
    """Inside the block ``softmax`` without an axis is this function, for a gather whose edges are
    an array of rows.
    """
    return value_scope(_EVALUATED, function)


@dataclass
class Phase:
    """One pass over the edges.

    Attributes:
        parts: Parts of the message of each total (score and value for a softmax-weighted sum), by
            its name; empty if nothing is summed.
        aggregators: By name of the total; a single unnamed one has the name "".
        outputs: New edge values by name.
        result: Name of the normaliser that the total becomes for later phases (``normaliser``);
            None in the last.
        grouped: How the fused back end computes a product that its edges choose
            (``ops.edge.grouped``); None without one.
        order: All expressions needed, arguments first.
        reads: Columns read, by ("src" | "dst" | "edge").
    """

    parts: dict[str, list[Expr]]
    aggregators: dict[str, Aggregator]
    outputs: dict[str, Expr]
    result: str | None = None
    grouped: Grouped | None = None
    order: list[Expr] = field(init=False)
    reads: dict[str, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.order = ordered(self.roots)
        leaves = [e.leaf for e in self.order if e.leaf is not None]
        self.reads = {
            kind: tuple(name for k, name in leaves if k == kind) for kind in ("src", "dst", "edge")
        }

    @cached_property
    def further(self) -> list[Phase]:
        """For each aggregator that takes several passes, a phase of it alone."""
        return [
            Phase({name: self.parts[name]}, {name: a}, {})
            for name, a in self.aggregators.items()
            if a.passes(self.dtype) > 1
        ]

    def values(self, names: Sequence[str]) -> Phase:
        """A phase of some of the new edge values alone; itself if it computes no more."""
        if not self.aggregators and set(names) == set(self.outputs):
            return self
        phases: dict[tuple[str, ...], Phase] = self.__dict__.setdefault("_values", {})
        if (key := tuple(names)) not in phases:
            phases[key] = Phase({}, {}, {name: self.outputs[name] for name in names})
        return phases[key]

    @cached_property
    def message(self) -> list[Expr]:
        """The parts of all messages, each once."""
        return list(dict.fromkeys(e for parts in self.parts.values() for e in parts))

    @property
    def roots(self) -> list[Expr]:
        """All that it computes."""
        return list(dict.fromkeys([*self.message, *self.outputs.values()]))

    def shapes(self, name: str) -> list[tuple[int, ...]]:
        """Trailing shapes of the message parts of a total."""
        return [e.dims for e in self.parts[name]]

    @cached_property
    def operands(self) -> list[int]:
        """Numbers of the operands this phase uses."""
        return [e.leaf[1] for e in self.order if e.leaf is not None and e.leaf[0] == "operand"]

    @cached_property
    def dtype_name(self) -> str:
        """Name of the float type."""
        return self.dtype.name

    @cached_property
    def dtype(self) -> np.dtype:
        """The float type it computes in; new edge values may be integers besides."""
        # all floats have one type; without a sum, the first output is the value of the layer
        return next(e.dtype for e in (*self.message, *self.outputs.values()))

    @cached_property
    def width(self) -> int:
        """Numbers held per edge while a chunk is computed."""
        return sum(prod(e.dims) for e in self.order if e.rows)


@dataclass(frozen=True)
class Grouped:
    """The two forms of a phase whose message has one of several products.

    Attributes:
        column: Source column that is multiplied, [d].
        weight: Number of the operand, [d, k, ...].
        code: Edge value that chooses the matrix.
        chosen: The expression of the product, ``own_embedding(src.column @ weight, edge.code)``.
        product_first: The phase with the product as a column of the pairs, ``PRODUCT``.
        sum_first: The phase that sums for each pair what is multiplied; None if there is none.
    """

    column: str
    weight: int
    code: str
    chosen: Expr
    product_first: Phase
    sum_first: Phase | None

    @property
    def count(self) -> int:
        """Number of matrices."""
        return self._weight.dims[1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Trailing shape of a product."""
        return self._weight.dims[2:]

    @property
    def width(self) -> int:
        """Numbers per row of the column."""
        return self._weight.dims[0]

    @property
    def _weight(self) -> Expr:
        return self.chosen.args[0].args[1]


@dataclass
class EdgeProgram:
    """A traced gather.

    Attributes:
        phases: In order; all but the last produce a destination column for later ones.
        operands: Parameters, constants, and what the planner made of them, by number: one array for
            all edges each, or the expression of one.
        columns: Node columns to compute before the edges, by name: expressions over "node" leaves
            and operands.
        after: What is computed from totals of the last phase, by name, over a "total" leaf.
        notes: What the planner did and why: format texts and the expressions to insert.
        tracer: The scope its expressions were made in; used until planning ends.
        stored: Names of node columns that are stored.
    """

    phases: list[Phase]
    operands: list[Any]
    columns: dict[str, Expr] = field(default_factory=dict)
    after: dict[str, Expr] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    tracer: Tracer | None = None
    stored: frozenset[str] = frozenset()


def split(traced: SymbolicTrace) -> EdgeProgram:
    """Split a traced gather into phases.

    Raises:
        UserFunctionError: A layer without a sum takes a softmax.
    """
    messages = traced.messages
    outputs = traced.outputs
    sums = traced.sums
    with traced.tracer as tracer:
        if sums or not messages:
            phases, after = _plan(tracer, messages, sums, outputs)
            return EdgeProgram(
                phases, tracer.operands, after=after, tracer=tracer, stored=traced.stored
            )
        if _softmaxes([*messages.values(), *outputs.values()]):
            raise UserFunctionError(
                f"gather of {traced.owner} uses gt.softmax, but the layer has sum = None: its pairs"
                " have no destination to normalise over; set sum, or apply the softmax in an"
                " earlier layer"
            )
        return EdgeProgram(
            [Phase({}, {}, {**messages, **outputs})],
            tracer.operands,
            tracer=tracer,
            stored=traced.stored,
        )


def _plan(
    tracer: Tracer,
    messages: dict[str, Expr],
    aggregators: dict[str, Aggregator],
    outputs: dict[str, Expr],
) -> tuple[list[Phase], dict[str, Expr]]:
    """Phases of a gather with a sum, and what is computed from its totals."""
    parts = {name: [e] for name, e in messages.items()}
    after = dict[str, Expr]()
    sums = dict(aggregators)
    # a pass for a normaliser serves all messages that use its softmax
    if not _softmaxes([*outputs.values()]):
        merged = {name: _one_pass(tracer, e, aggregators[name]) for name, e in messages.items()}
        if all(merged[name] is not None or not _softmaxes([e]) for name, e in messages.items()):
            for name, softmax_sum in merged.items():
                if softmax_sum is not None:
                    score, value, later = softmax_sum
                    parts[name] = [score, value]
                    sums[name] = SOFTMAX_SUM
                    after |= {} if later is None else {name: later}
            return [Phase(parts, sums, outputs)], after
    return _softmax_phases(tracer, parts, aggregators, outputs), after


def _one_pass(
    tracer: Tracer, message: Expr, aggregator: Aggregator
) -> tuple[Expr, Expr, Expr | None] | None:
    """Score and value of a softmax-weighted sum, and what follows its total; None if the message is
    no such sum.

    ``gt.softmax(s) * edge.src.z`` has the score s and the value ``edge.src.z``.
    """
    softmaxes = _softmaxes([message])
    if aggregator is not SUM or len(softmaxes) != 1:
        return None
    value_and_after = _weighted(tracer, message, softmaxes[0])
    if value_and_after is None:
        return None
    (score,) = softmaxes[0].args
    return score, *value_and_after


def _weighted(tracer: Tracer, message: Expr, weight: Expr) -> tuple[Expr, Expr | None] | None:
    """For a message f(weight * c) with f linear and equal for all edges: c, and f of its total.

    Sums over heads are such an f: they are computed after the edges are summed.
    """
    done: list[Expr] = []
    while True:
        value = _coefficient(tracer, message, weight)
        if (
            value is not None
            and message.dims[: len(weight.dims)] == weight.dims
            and value.dims == message.dims
        ):
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
    return tracer.leaf(
        "total", message.dims, message.dims, message.dtype, requires_grad=message.requires_grad
    )


def _softmax_phases(
    tracer: Tracer,
    parts: dict[str, list[Expr]],
    aggregators: dict[str, Aggregator],
    outputs: dict[str, Expr],
) -> list[Phase]:
    """Replace every softmax by exp(score - normaliser), innermost first, with one phase for each
    normaliser.
    """
    phases: list[Phase] = []
    last = Phase(parts, aggregators, outputs)
    while left := _softmaxes(last.roots):
        innermost = left[0]
        score = innermost.args[0]
        result = f"normaliser {len(phases)}"
        phases.append(Phase({"": [score]}, {"": LOG_SUM_EXP}, {}, result=result))
        top, mass = (
            tracer.leaf("dst", name, score.dims, score.dtype, requires_grad=learned)
            for name, learned in zip(
                _normaliser_names(result), (False, score.requires_grad), strict=True
            )
        )
        # rounded as the largest score is, which may be this one
        weight = exp(sub(sub(rounded(score), top), mass))
        last = with_roots(last, [replaced(tracer, e, {innermost: weight}) for e in last.roots])
    return [*phases, last]


def _normaliser_names(result: str) -> tuple[str, str]:
    return f"{result} top", f"{result} mass"


def normaliser(result: str, total: Var) -> dict[str, Var]:
    """The destination columns that a total of ``LogSumExp`` becomes, by name: the largest score, a
    constant, and the log of the mass.
    """
    largest = getitem(total, (..., 0))
    # what is subtracted from all scores of a node has no effect on their softmax
    largest.needs_grad = False
    return dict(zip(_normaliser_names(result), (largest, getitem(total, (..., 1))), strict=True))


def with_roots(phase: Phase, roots: list[Expr]) -> Phase:
    """A phase with other expressions in place of its roots."""
    by = dict(zip(phase.roots, roots, strict=True))
    return replace(
        phase,
        parts={name: [by[e] for e in parts] for name, parts in phase.parts.items()},
        outputs={name: by[e] for name, e in phase.outputs.items()},
    )


def _coefficient(tracer: Tracer, e: Expr, weight: Expr) -> Expr | None:
    """The factor c with e = weight * c, or None if e is not linear in weight."""
    if e is weight:
        return tracer.node(ones_like, (weight.args[0],), {})
    if e.prim is None:
        return None
    inside = [any(x is weight for x in ordered([a])) for a in e.args]
    at = inside.index(True)
    declared = e.prim.traits
    if (
        sum(inside) == 1
        and at in declared.linear
        and declared.keeps(len(weight.dims), e.args[at].dims, e.dims, e.static)
    ):
        inner = _coefficient(tracer, e.args[at], weight)
        return (
            None
            if inner is None
            else tracer.node(e.prim, (*e.args[:at], inner, *e.args[at + 1 :]), e.static)
        )
    if declared.additive and all(inside):
        parts = [_coefficient(tracer, a, weight) for a in e.args]
        factors = tuple(part for part in parts if part is not None)
        return tracer.node(e.prim, factors, e.static) if len(factors) == len(parts) else None
    return None


def _softmaxes(roots: list[Expr]) -> list[Expr]:
    """Every edge softmax below the roots, innermost first."""
    return [e for e in ordered(roots) if e.prim is _edge_softmax]
