"""``gt.forward`` and ``gt.gradients``: a model on a whole graph in this process, untrained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.strategy.strategy import whole
from graphtheta.engine.train.step import QUIET
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph
from graphtheta.ops.autodiff.space import RowSpace
from graphtheta.ops.autodiff.tape import Tape, Var


@checked
def forward(model: Model, graph: Graph, *, training: bool = False, seed: int = 0) -> np.ndarray:
    """The values that a model computes for all nodes of a graph, in this process.

    Args:
        model: A model that returns node values.
        graph: Any graph with the columns that the model reads, also another one than it was trained
            on.
        training: Whether dropout drops and batch norm uses the statistics of this graph.
        seed: Seed of dropout.

    Returns:
        [n_nodes, ...], in the order of the nodes, in the float type of the parameters.

    Raises:
        ConfigError: ``model`` is no model object, ``graph`` no graph, or the model returns edge
            values.
        GraphThetaError: The model does not run on the graph.
    """
    out, _ = _passed(model, graph, Tape(record=False, training=training, seed=seed))
    return np.array(out.value)


@checked
def gradients(
    loss: Callable[[Any], Any], model: Model, graph: Graph, *, training: bool = False, seed: int = 0
) -> tuple[float, dict[str, np.ndarray]]:
    """A loss of the values of all nodes, and its gradients, in this process; arguments and errors
    as for ``forward``.

    Args:
        loss: A function of the node values, [n_nodes, ...], written with functions of gt. It
            returns a number for each row, of which the mean is taken, or a value without rows.
        model, graph, training, seed: As for ``forward``.

    Returns:
        The loss, and the gradient of each parameter by its name; zeros where there is none.
    """
    with Tape(training=training, seed=seed) as tape:
        out, parameters = _passed(model, graph, tape)
        values = loss(out)
        if not isinstance(values, Var) or not values.value.size:
            raise ConfigError(
                f"gt.gradients: the loss returned {values!r}; expected a value computed from the"
                " outputs by functions of gt"
            )
        size = values.value.size if values.space is not None else 1
        by_variable = tape.backward(values, np.full(values.shape, 1 / size))
        # the pass is an experiment: running statistics stay as they are
        tape.changes = []
    by_parameter = {p.name: by_variable.of(p) for p in parameters}
    return float(values.value.sum() / size), {
        p.name: np.zeros_like(p.value) if by_parameter[p.name] is None else by_parameter[p.name]
        for p in parameters
    }


def _passed(model: Model, graph: Graph, tape: Tape) -> tuple[Var, list[Any]]:
    """The outputs of a pass that a tape records, and the parameters of the model."""
    parameters = model.parameters()
    dtype = parameters[0].dtype if parameters else np.dtype(np.float32)
    partition = build_partition(graph, SerialComm(), dtype=dtype)
    dry_run = probe(model, partition)
    if dry_run.per_edge:
        raise ConfigError(
            f"{type(model).__name__} returns values of edges or links; use"
            " gt.Trainer(...).predict() for those"
        )
    view = whole(partition, dry_run.layers)
    with np.errstate(**QUIET):
        if tape.record:
            return _in_order(model(view), partition.masters, tape), parameters
        with tape:
            out = model(view)
            tape.changes = []
            return _in_order(out, partition.masters, tape), parameters


def _in_order(out: Var, ids: np.ndarray, tape: Tape) -> Var:
    """Rows of nodes in the order of their numbers; a partition has an order of its own."""
    number = np.argsort(ids)
    ordered = Var(out.value[number], RowSpace(ids[number]))
    tape.add("in_order", [out], [ordered], lambda gs: [gs[0][ids]])
    return ordered
