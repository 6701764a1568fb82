"""Predictions for some nodes, computed from their k-hop neighbourhoods alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.engine.layer.layer import Model
from graphtheta.engine.train.step import QUIET
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.errors import ConfigError
from graphtheta.inference.forward.embedding import of_nodes
from graphtheta.inference.forward.layerwise import refused
from graphtheta.inference.outputs.predictions import check_finite, in_order
from graphtheta.ops.autodiff.tape import Tape
from graphtheta.tasks.evaluation.evaluate import Evaluator, NodeEvaluator
from graphtheta.tasks.kinds.kind import GraphInfo


def predicted(
    model: Model, evaluator: Evaluator, info: GraphInfo, nodes: Any
) -> tuple[np.ndarray, np.ndarray] | None:
    """What a model returns for some nodes. Work is proportional to the rows and edges of their
    k-hop in-neighbourhoods.

    Args:
        model, evaluator, info: Of a run.
        nodes: Original ids, or a mask, the same on all workers.

    Returns:
        The ids in the given order, and outputs [len(ids), ...], on rank 0; None elsewhere.

    Raises:
        ConfigError: There is no such node, the task has no outputs of nodes, evaluation looks at
            times, or the model reads sums over all nodes; on all ranks together.

    Collective: all ranks of the partition.
    """
    p = evaluator.partition
    if type(evaluator) is not NodeEvaluator:
        raise ConfigError(
            "predict(nodes) needs a task with outputs of nodes, evaluated without times; call"
            " predict() and choose rows"
        )
    reported, node_ids = info.reported(p.n_nodes)
    ids, numbers = of_nodes(node_ids, reported, nodes)
    wanted, position = np.unique(numbers, return_inverse=True)
    targets = np.isin(p.masters, wanted)
    view = k_hop_view(p, targets, evaluator.layers)
    with np.errstate(**QUIET), Tape(record=False, training=False, all_sum=refused):
        out = model(view).value
    numbers = p.masters[targets]
    check_finite(p.halo_comm, numbers, out, "prediction")
    ordered = in_order(p.halo_comm, [numbers, out], True)
    return None if ordered is None else (ids, ordered[1][position])
