"""Messages with one of several products: the matrix that multiplies the source is chosen by the
edge.

A message ``c * (h_src @ W)[code]``, such as that of a relational graph convolution with a matrix
for each of k relations, names k products of each source and reads one of them. Most nodes have
edges of a few codes only, so the products of all nodes with all matrices are mostly not read. The
planner finds such a message and keeps two equal forms of its phase, of which each multiplies once
for each *pair* of a node and a code that has an edge:

- *product first*: the product of each pair of a source and a code is a column of the pairs, which
  the edges read;
- *sum first*: ``c * h_src`` is summed for each pair of a destination and a code, and the sums are
  multiplied. It is possible if c is one number for each edge and the sum is linear.

Neither needs a column of the nodes that is k products wide, nor sends one between workers.
"""

from __future__ import annotations

from ..autodiff.expr import COMPUTED, Expr, Tracer, ordered, replaced
from ..functions.embedding import own_embedding_p
from .aggregator import SUM
from .program import PRODUCT, Grouped, Phase, with_roots


def with_product(scope: Tracer, phase: Phase) -> tuple[Phase, Expr | None]:
    """The phase with the product that its edges choose as a source column, and the product.

    The phase as it is and None if there is no such product, if edges read more of the source or
    return new values, or if an aggregator takes several passes; the products of all nodes are then
    a column of the nodes.
    """
    products = [e for e in phase.order if _is_chosen(e)]
    if (
        len(products) != 1
        or phase.result is not None
        or phase.outputs
        or not phase.aggregators
        or phase.further
    ):
        return phase, None
    (chosen,) = products
    column = scope.leaf(
        "src", PRODUCT, chosen.dims, chosen.dtype, requires_grad=chosen.requires_grad
    )
    by_column = with_roots(phase, [replaced(scope, e, {chosen: column}) for e in phase.roots])
    return (by_column, chosen) if by_column.reads["src"] == (PRODUCT,) else (phase, None)


def grouped(scope: Tracer, phase: Phase, chosen: Expr) -> Phase:
    """A planned phase in both forms.

    Args:
        scope: The open tracer the expressions were made in.
        phase: The phase with the product as a source column.
        chosen: The product, whose matrices are an operand.
    """
    column, weight = chosen.args[0].args
    assert column.leaf is not None and weight.leaf is not None and chosen.args[1].leaf is not None
    product = next(e for e in phase.order if e.leaf == ("src", PRODUCT))
    forms = Grouped(
        column=column.leaf[1],
        weight=weight.leaf[1],
        code=chosen.args[1].leaf[1],
        chosen=chosen,
        product_first=phase,
        sum_first=_sum_first(scope, phase, product, column),
    )
    whole = with_roots(phase, [replaced(scope, e, {product: chosen}) for e in phase.roots])
    whole.grouped = forms
    return whole


def _sum_first(scope: Tracer, phase: Phase, product: Expr, column: Expr) -> Phase | None:
    """The phase that sums the column for each pair; None unless one number for each edge weights
    the product in one sum.
    """
    (message,) = phase.message if len(phase.message) == 1 else (None,)
    if (
        message is None
        or len(product.dims) != 1
        or [*phase.aggregators.values()] != [SUM]
        or phase.reads["dst"]
    ):
        return None
    if message is not product:
        at = next((i for i, a in enumerate(message.args) if a is product), None)
        if (
            at is None
            or at not in message.traits.linear
            or len(message.args) != 2
            or message.prim is None
            or message.prim.scalar is None
        ):
            return None
        factor = message.args[1 - at]
        if not factor.rows or factor.dims != (1,) or any(x is product for x in ordered([factor])):
            return None
        summed = scope.node(
            message.prim, (column, factor) if at == 0 else (factor, column), message.static
        )
    else:
        summed = column
    return with_roots(phase, [summed])


def _is_chosen(e: Expr) -> bool:
    if e.prim is not own_embedding_p or not e.args[0].traits.contraction:
        return False
    x, w = e.args[0].args
    code = e.args[1]
    return (
        x.leaf is not None
        and x.leaf[0] == "src"
        and len(x.dims) == 1
        and not w.rows
        and len(w.dims) > 2
        and code.leaf is not None
        and code.leaf[0] == "edge"
        and code.leaf[1] not in COMPUTED
    )
