"""Sums and means over the nodes of all workers: readouts, norms over a graph, virtual nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.base.wording import shown
from graphtheta.errors import UserFunctionError

from ..autodiff.expr import Expr, tracing
from ..autodiff.refusal import operation
from ..autodiff.tape import Var, current, needs_grad
from ..rows.columns import row_sums


@operation
def graph_sum(x: Any) -> Any:
    """Sum of a value over all nodes that have one, on all workers.

    These are the nodes that the step computes at this place, as for batch norm: all nodes in a
    global batch; in a mini-batch the targets and the neighbours that later layers read; the nodes
    of a cluster batch. The sum does not depend on the number of workers, except for rounding.

    Args:
        x: Node or edge values, [n, ...]; n may be 0 on a worker.

    Returns:
        [...], without rows and the same on every worker. Floats are summed in float64, in rank
        order; the sum of integers or of a mask is an exact int64.

    Raises:
        UserFunctionError: Used inside gather, or x has no rows.

    Collective: one sum forward, and one backward.
    """
    return _reduced("graph_sum", x, False)


@operation
def graph_mean(x: Any) -> Any:
    """Mean of a value over all nodes that have one, on all workers; as ``graph_sum``.

    It is 0 without nodes, and of the float type of the job for integers and masks.
    """
    return _reduced("graph_mean", x, True)


def _reduced(name: str, x: Any, mean: bool) -> Any:
    if isinstance(x, Expr) or tracing():
        raise UserFunctionError(
            f"{name} mixes rows and cannot be used inside gather; use it in transform, apply or"
            " forward"
        )
    if not isinstance(x, Var) or x.space is None or not isinstance(x.value, np.ndarray):
        raise UserFunctionError(f"{name} takes dense values of nodes or edges, got {shown(x)}")
    tape = current()
    rows = x.value
    learned = needs_grad(x)
    # the tape refers to the rule; a reference back would be a cycle
    all_sum = tape.all_sum
    exact = rows.dtype.kind != "f"
    here = rows.sum(axis=0, dtype=np.int64) if exact else row_sums(rows)
    sums = all_sum(np.append(here.ravel(), len(rows)))
    factor = 1 / max(float(sums[-1]), 1) if mean else 1
    dtype = rows.dtype if not exact else tape.dtype if mean else np.dtype(np.int64)
    out = Var((sums[:-1] * factor).reshape(rows.shape[1:]).astype(dtype))

    def vjp(gs: list[Any]) -> list[Any]:
        # every worker uses the result, so the gradients of all of them add up
        g = all_sum(np.asarray(gs[0], np.float64)) * factor
        return [np.broadcast_to(g.astype(rows.dtype), rows.shape) if learned else None]

    tape.add(name, [x], [out], vjp)
    return out
