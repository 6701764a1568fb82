"""What rounding the halo does to a job, measured before it trains."""
from __future__ import annotations

import numpy as np

from graphtheta.engine.mail import halo_scope
from graphtheta.ops.fused import backend_scope
from graphtheta.ops.tape import Tape
from graphtheta.trainer import Trainer


def halo_error(trainer: Trainer) -> float:
    """How far the loss of the first step moves, relative to its value, by the rounding of what travels between workers.

    Collective: all ranks of the trainer.
    """
    job, model = trainer.job, trainer.model
    view, before = trainer.strategy.batch(0, 0), {name: x.copy() for name, x in model.state().items()}
    losses = []
    for halo in ("exact", job.halo):
        with backend_scope(job.backend), halo_scope(halo), Tape(record=False, seed=job.seed, all_sum=trainer.comm.all_sum):
            losses.append(float(trainer.comm.all_sum(trainer.task.loss(view, model(view)).value)))
        # a pass in training changes running statistics
        model.load_state(before)
    return abs(losses[1] - losses[0]) / max(abs(losses[0]), float(np.finfo(np.float32).tiny))
