"""Rewriting edge expressions: the same numbers with less work on every edge.

A rule is a function from one expression to an equal one, or to None where it does not match. Rules
are applied until none matches; each makes an expression smaller or moves it closer to a node, so
this ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod

from ..autodiff.expr import Expr, Tracer, ordered, replaced
from ..functions.dense import matmul
from ..functions.elementwise import add
from ..functions.index import getitem
from ..functions.shape import concat_p, repeat_rows_p, reshape, reshape_p, sum_p
from ..functions.shape import sum as sum_over

Uses = dict[Expr, int]
Rule = Callable[[Tracer, Expr, Uses], Expr | None]


def size(e: Expr) -> int:
    """Numbers per edge, or in all if there are no rows."""
    return prod(e.dims)


def end_of(e: Expr) -> str:
    """Which end an expression reads.

    It is "src" or "dst" for columns of that end only, "" without rows, and "both" for all others:
    random draws belong to the edge, and the normaliser of a softmax is known only after a pass
    over the edges.
    """
    # only names of columns that the planner makes have a space, such as those of a normaliser
    kinds = {
        x.leaf[0] if " " not in str(x.leaf[1]) else "planned"
        for x in ordered([e])
        if x.leaf is not None
    } - {"operand"}
    if not e.rows:
        return ""
    return kinds.pop() if kinds in ({"src"}, {"dst"}) else "both"


def count_uses(roots: Sequence[Expr]) -> Uses:
    """How often each expression below the roots is an argument or a root."""
    uses: Uses = {}
    for e in [*roots, *(a for x in ordered(roots) for a in x.args)]:
        uses[e] = uses.get(e, 0) + 1
    return uses


def rewrite(
    scope: Tracer, roots: Sequence[Expr], rules: dict[str, Rule]
) -> tuple[list[Expr], list[tuple[str, Expr, Expr]]]:
    """Apply rules wherever they hold.

    Args:
        scope: The open tracer the roots were made in.
        roots: Expressions that are needed.
        rules: By name.

    Returns:
        The new roots, and what was done: name of the rule, old and new expression.
    """
    roots = list(roots)
    done = list[tuple[str, Expr, Expr]]()
    while True:
        uses = count_uses(roots)
        match = next(
            (
                (name, e, new)
                for e in ordered(roots)
                for name, rule in rules.items()
                if (new := rule(scope, e, uses)) is not None
            ),
            None,
        )
        if match is None:
            return roots, done
        name, old, new = match
        assert _alike(old, new), f"{name}: {old} became {new}"
        roots = [replaced(scope, root, {old: new}) for root in roots]
        done.append(match)


# ---- expressions that need no computation


def drop_neutral(scope: Tracer, e: Expr, uses: Uses) -> Expr | None:
    """x * 1, x / 1, x + 0, x - 0, x * ones_like(y) -> x."""
    operand: Expr | None = None
    neutral = e.traits.neutral
    if neutral is not None:
        pairs = (e.args, e.args[::-1]) if e.traits.commutative else (e.args,)
        operand = next((x for x, other in pairs if _is_all(scope, other, neutral)), None)
    return operand if operand is not None and _alike(operand, e) else None


def _is_all(scope: Tracer, e: Expr, number: int) -> bool:
    if e.traits.constant is not None:
        return e.traits.constant == number
    # the same numbers in another shape or type
    if e.traits.identity is not None and e.prim is not None and e.prim.free:
        return _is_all(scope, e.args[0], number)
    return scope.neutral(e) == number


def _alike(x: Expr, y: Expr) -> bool:
    return (x.rows, x.dims, x.dtype) == (y.rows, y.dims, y.dtype)


def cancel(scope: Tracer, e: Expr, uses: Uses) -> Expr | None:
    """-(-x), x ** 1, and a cast or reshape to the same type or shape -> x; two in a row -> one."""
    if e.prim is None or not e.args:
        return None
    x = e.args[0]
    declared = e.prim.traits
    if declared.involution and e.prim is x.prim:
        return x.args[0]
    if declared.identity is not None and declared.identity(e.static) and _alike(x, e):
        return x
    if declared.joined is not None and e.prim is x.prim:
        return scope.node(e.prim, x.args, declared.joined(x.static, e.static))
    return None


# ---- linear maps


def _linear(e: Expr) -> bool:
    """A product of edge values with a matrix."""
    return e.traits.contraction and e.rows


def reshape_matrix(scope: Tracer, e: Expr, uses: Uses) -> Expr | None:
    """reshape(x @ W) -> x @ reshape(W)."""
    if e.prim is not reshape_p or not _linear(e.args[0]) or uses[e.args[0]] > 1:
        return None
    x, w = e.args[0].args
    lead = len(x.dims) - 1
    if e.dims[:lead] != x.dims[:lead] or prod(e.dims[lead:]) != prod(w.dims[1:]):
        return None
    reshaped: Expr = matmul(x, reshape(w, w.dims[0], *e.dims[lead:]))
    return reshaped


def contract_sum(scope: Tracer, e: Expr, uses: Uses) -> Expr | None:
    """sum((x @ W) * c) -> x @ sum(W * c), also without c: a small product instead of one on every
    edge.
    """
    if e.prim is not sum_p:
        return None
    inner = e.args[0]
    factor = None
    if inner.traits.commutative and inner.traits.linear == (0, 1) and uses[inner] == 1:
        linear = [a for a in inner.args if _linear(a)]
        rowless = [a for a in inner.args if not a.rows]
        if len(linear) == 1 and len(rowless) == 1 and inner.dims == linear[0].dims:
            inner, factor = linear[0], rowless[0]
    if e.args[0].prim is None or not _linear(inner) or uses[inner] > 1:
        return None
    x, w = inner.args
    inside = len(w.dims) - 1
    if min(e.static["axis"]) < -inside or (factor is not None and len(factor.dims) > inside):
        return None
    if factor is not None:
        # the factor may be a Python number without a type, so the primitive is applied directly
        w = scope.node(e.args[0].prim, (w, factor), {})
    contracted: Expr = matmul(x, sum_over(w, e.static["axis"], e.static["keepdims"]))
    return contracted


def join_products(scope: Tracer, e: Expr, uses: Uses) -> Expr | None:
    """(x @ V) @ W -> x @ (V @ W) if that is less to do on an edge."""
    if not _linear(e) or not _linear(e.args[0]) or uses[e.args[0]] > 1:
        return None
    x, v = e.args[0].args
    w = e.args[1]
    # the product with a vector has another axis of x last
    if len(v.dims) == 1:
        return None
    width = prod(w.dims[1:])
    # multiplications for each row of x: by V @ W, against by V and then by W
    if size(v) // v.dims[-1] * width >= size(v) + size(v) // v.dims[0] * width:
        return None
    joined: Expr = matmul(x, matmul(v, w))
    return joined


def split_concat(scope: Tracer, e: Expr, uses: Uses) -> Expr | None:
    """concat([a, b]) @ W -> a @ W[:k] + b @ W[k:], the parts of one end together, where some part
    reads one end or none.
    """
    if (
        not _linear(e)
        or e.args[0].prim is not concat_p
        or e.args[0].static["axis"] != -1
        or end_of(e) != "both"
    ):
        return None
    parts = e.args[0].args
    w = e.args[1]
    if all(end_of(p) == "both" and p.prim is not repeat_rows_p for p in parts):
        return None
    terms: dict[str, list[Expr]] = {"src": [], "dst": [], "both": [], "": []}
    at = 0
    for p in parts:
        slab = getitem(w, slice(at, at + p.dims[-1]))
        at += p.dims[-1]
        p = p.args[0] if p.prim is repeat_rows_p else p
        terms[end_of(p)].append(matmul(p, slab))
    total: Expr = reduce(add, [reduce(add, group) for group in terms.values() if group])
    return total


SIMPLIFY: dict[str, Rule] = {"neutral": drop_neutral, "undone": cancel}
LINEAR: dict[str, Rule] = {
    "shape moved to the matrix": reshape_matrix,
    "contracted first": contract_sum,
    "products joined": join_products,
}
# tried after products of concatenated values could be deferred to the totals
SPLIT: dict[str, Rule] = {"product of parts": split_concat}
