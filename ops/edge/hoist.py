"""Hoisting: moves computation off the edges.

An expression that reads columns of one end only is computed once per node, and one that reads none
once per pass.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..autodiff.expr import Expr, Tracer, ordered, replaced
from ..autodiff.primitive import primitive
from ..autodiff.traits import Traits, first
from ..compile.scalar import Scalar
from .rewrite import count_uses, end_of, size

# numbers per row of a wide column
WIDE = 32


@primitive(
    "rounded", scalar=Scalar("rounded({0})", ("{g}",)), traits=Traits(free=True, written=first)
)
def rounded(x: Any) -> Any:
    """x itself. A kernel rounds it as an array would, and does not contract it with what reads it,
    so that all give the same numbers.
    """
    return x


def _costly(e: Expr) -> bool:
    """Whether computing it costs more than reading its arguments, as for products and exp."""
    assert e.prim is not None
    form = e.prim.form(e.static)
    return not e.prim.free and (form is None or form.costly)


def _copies(e: Expr, stored: Collection[str]) -> bool:
    """Whether an expression at the nodes would be little more than a copy of a wide column."""
    wide = [x for x in ordered([e]) if x.rows and size(x) >= WIDE]
    return (
        size(e) >= WIDE
        and any(x.leaf is not None and x.leaf[1] in stored for x in wide)
        and not any(x.prim is not None and _costly(x) for x in wide)
    )


def is_singular(e: Expr) -> bool:
    """Whether the expression may be infinite or no number, or its slope, at nodes that no edge
    reads, such as a power of the number of their edges.
    """
    return any(
        x.args[i].rows for x in ordered([e]) if x.prim is not None for i in x.prim.traits.singular
    )


def left_on_edges(roots: Sequence[Expr], stored: Collection[str]) -> list[Expr]:
    """The expressions that only their stored columns keep on the edges."""
    hoisted = chosen(roots, stored)
    return [e for e in chosen(roots, ()) if e not in hoisted]


def chosen(roots: Sequence[Expr], stored: Collection[str]) -> dict[Expr, str]:
    """The largest expressions of one end that are cheaper at the nodes, each with the reason.

    They are cheaper if computing them costs more than reading their columns, or if the edges read
    no more numbers than before, because the columns below them are no longer read. Of a wide stored
    column, edges read the rows where they are; a cheap function of it stays on the edges, because
    at the nodes it would be another copy of the rows.
    """
    uses = count_uses(roots)
    reasons = dict[Expr, str]()

    def visit(e: Expr) -> None:
        if not e.rows or e.prim is None:
            return
        if (
            end_of(e) in ("src", "dst")
            and e.dtype.kind == "f"
            and not _copies(e, stored)
            and (reason := _reason(e, uses))
        ):
            reasons[e] = reason
            return
        for a in e.args:
            visit(a)

    for root in roots:
        visit(root)
    return reasons


def _reason(e: Expr, uses: dict[Expr, int]) -> str:
    """Why an expression becomes a column of the nodes; empty if it does not."""
    assert e.prim is not None
    below = ordered([e])
    inside = count_uses([e])
    before = sum(size(x) for x in below if x.rows and x.leaf is not None and inside[x] == uses[x])
    works = any(x.rows and x.prim is not None and not x.prim.free for x in below)
    if before > size(e):
        return f"edges read {size(e)} numbers instead of {before}"
    if before == size(e) and works:
        return "computed once per node, edges read as much as before"
    return f"{e.prim.name} is costly" if _costly(e) else ""


def hoist(
    scope: Tracer, roots: Sequence[Expr], columns: dict[str, Expr], stored: Collection[str] = ()
) -> tuple[list[Expr], list[tuple[str, str]]]:
    """Replace expressions of one end by columns of the nodes.

    Args:
        scope: The open tracer the roots were made in.
        roots: Expressions that are needed.
        columns: Expressions over "node" leaves by the name of their column; new ones are added.
        stored: Names of node columns that are stored, and not computed by the pass.

    Returns:
        The roots with columns in place of the expressions, and the names of these columns with the
        reasons.
    """
    by = {}
    why = []
    left = left_on_edges(roots, stored)
    for e, reason in chosen(roots, stored).items():
        at_node = replaced(
            scope,
            e,
            {
                x: scope.leaf("node", x.leaf[1], x.dims, x.dtype, requires_grad=x.requires_grad)
                for x in ordered([e])
                if x.rows and x.leaf is not None
            },
        )
        name = next(
            (n for n, expression in columns.items() if expression is at_node),
            f"column {len(columns)}",
        )
        columns[name] = at_node
        by[e] = scope.leaf(end_of(e), name, e.dims, e.dtype, requires_grad=e.requires_grad)
        why.append((name, reason))
    remaining = [replaced(scope, e, by) for e in left]
    rounding = {e: scope.node(rounded, (e,), {}) for e in remaining}
    return [replaced(scope, replaced(scope, root, by), rounding) for root in roots], why


def prepare(scope: Tracer, roots: Sequence[Expr], prepared: dict[int, Expr]) -> list[Expr]:
    """Replace the largest expressions without rows by operands.

    Args:
        scope: The open tracer the roots were made in.
        roots: Expressions that are needed.
        prepared: Expressions of parameters and constants by the number of their operand; new ones
            are added.

    Returns:
        The roots with operands in place of the expressions.
    """
    by: dict[Expr, Expr] = {}
    for a in (a for e in ordered(roots) if e.rows for a in e.args):
        if a.rows or a.prim is None or a in by:
            continue
        number = next(
            (i for i, expression in prepared.items() if expression is a), len(scope.operands)
        )
        if number not in prepared:
            prepared[number] = a
            # a placeholder while shapes are inferred
            scope.operands.append(a.dummy())
        by[a] = scope.leaf(
            "operand", number, a.dims, a.dtype, rows=False, requires_grad=a.requires_grad
        )
    return [replaced(scope, root, by) for root in roots]
