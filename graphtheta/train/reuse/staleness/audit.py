"""The audit: what reused values do to embeddings, outputs and gradients of one step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from graphtheta.base.logger import logger
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.strategy.strategy import Strategy
from graphtheta.engine.train.step import QUIET, Training
from graphtheta.engine.view.hop import hops
from graphtheta.engine.view.view import GraphView
from graphtheta.ops.autodiff.tape import Var
from graphtheta.ops.functions.metrics.shared import ratio
from graphtheta.ops.functions.rows import prefix
from graphtheta.train.reuse.staleness.approximate import Approximate

# what the figures are called in a row of the log
AUDIT = "audit_"
OUTPUTS = AUDIT + "outputs"
ERRORS = (OUTPUTS, AUDIT + "embeddings", AUDIT + "gradients")


class AuditedRows(NamedTuple):
    """Values of nodes, or of edges.

    Attributes:
        ids: Global ids, [n], none twice.
        values: [n, ...].
    """

    ids: np.ndarray
    values: np.ndarray


def audited(training: Training, memory: Approximate, epoch: int, i: int) -> dict[str, float]:
    """Relative errors of view i of an epoch against the exact one, and figures since the last
    audit.

    In independent mode, i is the first view of a group, of which each worker computes one. Both
    passes have the parameters and the draws of the next step, forward and backward. The state of
    the run is unchanged. The error of an array is the norm of the difference over the norm of
    the exact one: of the outputs, of the values that the last layer reads, both at the targets of
    the view, and of the gradients of all parameters together. It is NaN if the exact array is 0.
    All errors are NaN, and rank 0 says so, if the network has died: its exact outputs are all
    equal, or are no numbers. Reused values agree with them then, however old they are.

    Args:
        training: The training, between two steps.
        memory: Its strategy.
        epoch, i: The view.

    Collective: all ranks of the training.
    """
    figures = memory.figures()
    state = memory.held()
    i = i + training.own_view
    assert isinstance(memory, Strategy)
    reused = _pass(training, memory, memory.batch(epoch, i))
    memory.settle()
    memory.hold(state)
    memory.figures()
    exact = _pass(training, memory, memory.exact(epoch, i))
    comm = training.job_comm
    errors = {
        "outputs": _error(comm, reused[0], exact[0]),
        "gradients": _relative(reused[2], exact[2]),
        "embeddings": _error(comm, reused[1], exact[1]),
    }
    death = _death(comm, exact[0].values)
    if death:
        errors = dict.fromkeys(errors, float("nan"))
        if comm.rank == 0:
            logger.warning(
                f"step {training.step}: the audit has no errors to show (NaN), because the "
                f"exact outputs {death}: the network has died, and old values do not differ "
                "from new ones; lower --lr, or change the model"
            )
    return {AUDIT + name: float(x) for name, x in {**errors, **figures}.items()}


def _pass(
    training: Training, strategy: Strategy, view: GraphView
) -> tuple[AuditedRows, AuditedRows, np.ndarray]:
    """Outputs, embeddings and gradients of a view."""
    number = training.views
    n = view.n_targets
    graph: Any
    with np.errstate(**QUIET), training.scope(), training.tape(number, view) as tape:
        graph = ActiveGraph(view)
        # the last superstep that another one reads
        graph.wanted = max(
            (step for step, hop in enumerate(hops(strategy.layers)) if hop.from_end == 1),
            default=-1,
        )
        out = training.model(graph)
        out = (
            prefix(out, n)
            if out.space is not None and out.space.kind == "node" and out.space.n > n
            else out
        )
        gradients, *_ = training.backward(tape, strategy.task.loss(view, out))
    flat = np.concatenate([np.ravel(g).astype(np.float64) for g in gradients])
    return (
        _rows(out, view),
        _rows(out if graph.wanted_result is None else graph.wanted_result, view),
        flat,
    )


def _rows(x: Var, view: GraphView) -> AuditedRows:
    """The values at the targets of a view, or at its edges or pairs."""
    if x.space is not None and x.space.kind == "edge":
        return AuditedRows(x.space.gid, np.asarray(x.value))
    n = view.n_targets
    return AuditedRows(view.space.gid[:n], np.asarray(x.value)[:n])


def _error(comm: Comm, reused: AuditedRows, exact: AuditedRows) -> float:
    """The error at the rows of ``exact`` of all workers; all of them are in ``reused``, in any
    order.
    """
    order = np.argsort(reused.ids)
    mine = reused.values[order[np.searchsorted(reused.ids, exact.ids, sorter=order)]].astype(
        np.float64
    )
    sums = comm.all_sum(
        np.array(
            [
                np.sum(np.square(mine - exact.values)),
                np.sum(np.square(exact.values, dtype=np.float64)),
            ]
        )
    )
    return float(np.sqrt(ratio(sums[0], sums[1])))


def _relative(reused: np.ndarray, exact: np.ndarray) -> float:
    return ratio(float(np.linalg.norm(reused - exact)), float(np.linalg.norm(exact)))


def _death(comm: Comm, outputs: np.ndarray) -> str:
    """How the outputs of all workers, [n, ...] each, do not depend on their rows; empty if they do.

    Collective: all ranks of comm.
    """
    rows = outputs.astype(np.float64)
    n, broken = comm.all_sum(np.array([len(rows), np.count_nonzero(~np.isfinite(rows))]))
    if broken:
        return "are NaN or infinite"
    highest = comm.all_max(rows.max(axis=0, initial=-np.inf))
    lowest = -comm.all_max((-rows).max(axis=0, initial=-np.inf))
    return "are the same for all targets" if n > 1 and np.array_equal(highest, lowest) else ""
