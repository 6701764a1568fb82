"""Gradients of models of PyTorch, averaged over the workers."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.runtime.start import start
from graphtheta.errors import ConfigError


@checked
def average_gradients(model: Any, weight: float = 1.0, *, comm: Comm | None = None) -> None:
    """Replace the gradients of a PyTorch model by their mean over the workers, in place.

    With the number of targets of each worker's batch as ``weight``, gradients of mean losses become
    that of the mean loss over the targets of all workers. A worker whose weight is 0, which has no
    targets, adds nothing, not even if its gradients are NaN. Sums are made in the order of the
    ranks, so that all workers get the same bits.

    Args:
        model: A ``torch.nn.Module``, alike on all workers. Parameters that have a gradient on some
            worker get one on all.
        weight: What the gradients of this worker weigh, at least 0.
        comm: The workers; by default those the process was started with.

    Raises:
        ConfigError: A weight is negative or not finite, or all are 0; on all ranks together.

    Collective: all ranks of comm.
    """
    comm = comm if comm is not None else start()
    with comm.agreed():
        if not 0 <= weight < np.inf:
            raise ConfigError(f"weight: got {weight}, expected a number of at least 0")
    parameters = [p for p in model.parameters() if p.requires_grad]
    own = np.array([weight, *(p.grad is not None for p in parameters)], np.float64)
    total, *given = comm.all_sum(own).tolist()
    if not total:
        raise ConfigError(
            "weight: it is 0 on all workers; give a worker that has targets their number"
        )
    for p, ranks in zip(parameters, given, strict=True):
        if not ranks:
            continue
        counts = weight and p.grad is not None
        mine = p.grad.detach().numpy() if counts else np.zeros(p.shape, p.detach().numpy().dtype)
        mean = comm.all_sum(mine * mine.dtype.type(weight / total))
        if p.grad is None:
            p.grad = p.detach().new_empty(p.shape)
        p.grad.detach().numpy()[...] = mean
