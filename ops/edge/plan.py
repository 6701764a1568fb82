"""The planner: a traced program rewritten so that less is computed, read and moved for each edge.

Phase by phase: expressions are simplified; a product with a matrix at the end of a summed message
is deferred to the totals where that is narrower; products on edges are split and contracted;
expressions of one end are hoisted to the nodes. Both back ends run the planned program.

A graph convolution whose gather returns ``edge.weight * (edge.src.h @ w)`` becomes a sum of
``edge.weight * edge.src.h``, and ``total @ w`` once for each node, if h is no wider than the
product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..autodiff.expr import Expr, Tracer, ordered, replaced
from ..functions.dense import matmul
from ..functions.rows import expand_last, expand_last_p, prefix
from .aggregator import SOFTMAX_SUM
from .grouped import grouped, with_product
from .hoist import hoist, left_on_edges, prepare
from .program import EdgeProgram, Note, Phase, total_of, with_roots
from .rewrite import LINEAR, SIMPLIFY, SPLIT, rewrite, size

# notes of the planner; {} stands for an expression
LEFT_ON_EDGES = (
    "left on the edges: {}, of which a column of the nodes would be a copy as large as the stored"
    " one"
)
SEPARATE_NORMALISER = (
    "softmax is not only the weight of one sum: a separate pass computes the normaliser of {}"
)


def plan(program: EdgeProgram) -> EdgeProgram:
    """Rewrite a program; its totals, new edge values and gradients stay the same, except for
    rounding.
    """
    columns = dict[str, Expr]()
    prepared = dict[int, Expr]()
    phases = []
    notes = list[Note]()
    after = dict(program.after)
    assert program.tracer is not None
    with program.tracer as scope:
        for phase in program.phases:
            notes += _on_softmax(phase)
            phase = _rewritten(scope, phase, SIMPLIFY | LINEAR, notes)
            if phase.result is None:
                phase = _deferred(scope, phase, after)
                moved = {after[name]: phase.parts[name][-1] for name in after}
                notes += [
                    (f"moved from messages to totals, {size(value)} wide: {{}}", (e,))
                    for e, value in moved.items()
                ]
            phase = _rewritten(scope, phase, SIMPLIFY | LINEAR | SPLIT, notes)
            # several passes read one column of all products
            phase, chosen = (
                with_product(scope, phase) if len(program.phases) == 1 else (phase, None)
            )
            roots = phase.roots
            notes += [(LEFT_ON_EDGES, (e,)) for e in left_on_edges(roots, program.stored)]
            roots, hoisted = hoist(scope, roots, columns, program.stored)
            notes += [
                (f"hoisted to the nodes: {_plain(name)} = {{}} ({reason})", (columns[name],))
                for name, reason in hoisted
            ]
            phase = with_roots(phase, prepare(scope, roots, prepared))
            if chosen is not None:
                notes.append(("one product for each pair of a node and a code: {}", (chosen,)))
                phase = grouped(scope, phase, prepare(scope, [chosen], prepared)[0])
            phases.append(phase)
    operands = [prepared.get(i, x) for i, x in enumerate(program.operands)]
    return EdgeProgram(phases=phases, operands=operands, columns=columns, after=after, notes=notes)


def _on_softmax(phase: Phase) -> list[Note]:
    if phase.result is not None:
        return [(SEPARATE_NORMALISER, (phase.message[0],))]
    if SOFTMAX_SUM in phase.aggregators.values():
        return [("softmax weights the sum: one pass, one message", ())]
    return []


def _rewritten(scope: Tracer, phase: Phase, rules: dict[str, Any], notes: list[Note]) -> Phase:
    roots, done = rewrite(scope, phase.roots, rules)
    notes += [
        (f"{name}: {{}} -> {{}}", (old, new)) for name, old, new in done if name not in SIMPLIFY
    ]
    return with_roots(phase, roots)


def _deferred(scope: Tracer, phase: Phase, after: dict[str, Expr]) -> Phase:
    """Sum m instead of m @ W and multiply the total by W, if the sum is linear and m is no wider;
    ``after`` is changed.

    A factor that is the same for all columns of the product stays with the message: w * (m @ W)
    sums w * m. In a softmax-weighted sum m must have an axis beside those of the scores.
    """
    for value in dict.fromkeys(parts[-1] for parts in phase.parts.values()):
        names = [name for name, parts in phase.parts.items() if parts[-1] is value]
        if not all(phase.aggregators[name].linear for name in names):
            continue
        factors = _factored(scope, value)
        if factors is None:
            continue
        narrow, product = factors
        # the scores of a softmax may be the very value that it weights
        others = [
            *(e for parts in phase.parts.values() for e in parts[:-1]),
            *(parts[-1] for parts in phase.parts.values() if parts[-1] is not value),
            *phase.outputs.values(),
        ]
        heads = [phase.parts[name][0].dims if len(phase.parts[name]) > 1 else () for name in names]
        fits = all(narrow.dims[: len(h)] == h and len(narrow.dims) > len(h) for h in heads)
        if not fits or size(narrow) > size(value) or any(x is product for x in ordered(others)):
            continue
        total: Expr = matmul(total_of(scope, narrow), product.args[1])
        for name in names:
            after[name] = (
                replaced(scope, after[name], {total_of(scope, value): total})
                if name in after
                else total
            )
        phase = replace(
            phase,
            parts={
                name: [*parts[:-1], narrow] if parts[-1] is value else parts
                for name, parts in phase.parts.items()
            },
        )
    return phase


def _factored(scope: Tracer, e: Expr) -> tuple[Expr, Expr] | None:
    """(m, m @ W) for e = m @ W, and (c * m, m @ W) for e = c * (m @ W) with c the same for all
    columns of the product.
    """
    if e.traits.contraction:
        return e.args[0], e
    if e.prim is None or len(e.args) != 2 or e.prim.scalar is None:
        return None
    at = next((i for i, a in enumerate(e.args) if a.rows and a.traits.contraction), None)
    if at is None or at not in e.traits.linear:
        return None
    product = e.args[at]
    factor = e.args[1 - at]
    m = product.args[0]
    inside = len(product.args[1].dims) - 1
    if (
        not factor.rows
        or product.dims != e.dims
        or any(d != 1 for d in factor.dims[len(factor.dims) - inside :])
    ):
        return None
    # the axes of the product are replaced by the one that is contracted
    if inside != 1:
        if factor.prim is not expand_last_p or factor.static["n"] < inside:
            return None
        factor = expand_last(factor.args[0], factor.static["n"] - inside + 1)
    pair = (m, factor) if at == 0 else (factor, m)
    return scope.node(e.prim, pair, e.static), product


# ---- values that are computed outside of the edges


def evaluate(
    e: Expr, operands: Sequence[Any], values: dict[Expr, Any], n: int, key: int | None
) -> Any:
    """The value of an expression that was moved off the edges.

    Args:
        e: Expression with or without rows.
        operands: Parameters and constants by number.
        values: Those of leaves that have rows, and of expressions computed before, for at least n
            rows each; new ones are added.
        n: Rows wanted of a value that has rows.
        key: Of the random draws of the pass; None if nothing is drawn.

    Returns:
        [n, ...], or an array without rows; recorded on the tape like any call of primitives.
    """
    if e not in values and e.prim is None:
        assert e.leaf is not None
        kind, number = e.leaf
        values[e] = key if kind == "key" else operands[number]
    elif e not in values and e.prim is not None:
        values[e] = e.prim(
            *(evaluate(e=a, operands=operands, values=values, n=n, key=key) for a in e.args),
            **e.static,
        )
    return prefix(values[e], n) if e.rows and values[e].shape[0] > n else values[e]


# ---- text for people


def written(e: Expr, operands: Sequence[Any] = ()) -> str:
    """An expression as a user would write it; operands by name and value if they are given."""
    text = _text(e, operands)
    return text[1:-1] if e.traits.sign else text


def _text(e: Expr, operands: Sequence[Any]) -> str:
    if e.leaf is not None:
        kind, name = e.leaf
        if kind == "operand":
            return _operand(operands[name] if operands else None, name, e, operands)
        return "total" if kind == "total" else f"{kind}.{_plain(name)}"
    assert e.prim is not None
    shown = [
        (a, _text(a, operands))
        for a in e.args
        if a.leaf is None or (a.leaf[0] != "key" and a.leaf != ("edge", "gid"))
    ]
    args = [text for _, text in shown]
    if e.prim.traits.sign:
        return f"({f' {e.prim.traits.sign} '.join(args)})"
    if e.prim.traits.written is not None:
        return e.prim.traits.written(args, e.static)
    return f"{e.prim.name}({', '.join(a[1:-1] if x.traits.sign else a for x, a in shown)})"


def planner_notes(program: EdgeProgram) -> list[str]:
    """What the planner did and why, one line for each change."""
    return [
        text.format(*(written(e, program.operands) for e in about)) for text, about in program.notes
    ]


def _plain(name: str) -> str:
    """The name of a column as one word; only names of columns made by the planner have a space."""
    return name.replace(" ", "_")


def _operand(x: Any, number: int, e: Expr, operands: Sequence[Any]) -> str:
    if isinstance(x, Expr):
        return _text(x, operands)
    if getattr(x, "name", ""):
        return str(x.name)
    if isinstance(x, (int, float)):
        return f"{x:g}"
    return f"p{number}{list(e.dims)}"
