"""Measures the effect of rounding the halo (``halo=bf16``) before a job trains."""

from __future__ import annotations

import numpy as np

from graphtheta.engine.partition.message import halo_scope
from graphtheta.ops.autodiff.tape import Tape
from graphtheta.ops.edge.backend.fused import backend_scope
from graphtheta.train.loop.trainer import Trainer


def halo_error(trainer: Trainer) -> float:
    """Relative change of the first step's loss, due to rounding of values sent between workers.

    Collective: all ranks of the trainer.
    """
    job = trainer.job
    view = trainer.strategy.batch(0, 0)
    losses = []
    halo_comm = view.partition.halo_comm
    for halo in ("exact", job.halo):
        with (
            backend_scope(job.backend),
            halo_scope(halo),
            Tape(record=False, seed=job.seed, all_sum=halo_comm.all_sum) as tape,
        ):
            losses.append(
                float(
                    trainer.comm.all_sum(trainer.setup.task.loss(view, trainer.model(view)).value)
                )
            )
            # discard changes of running statistics, which belong to the step itself
            tape.changes.clear()
    return abs(losses[1] - losses[0]) / max(abs(losses[0]), float(np.finfo(np.float32).tiny))
