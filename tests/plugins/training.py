"""A model of a plug-in, trained on several numbers of ranks."""

from __future__ import annotations

import graphs
import numpy as np

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.train.loop.trainer import Trainer


def trained(model, ranks, **keys):
    """Losses of every epoch, parameters at the end, and reasons for falling back to the reference
    back end.
    """

    def job(comm):
        trainer = Trainer(
            model, graphs.random_graph(30, 120), epochs=3, dtype="float64", comm=comm, **keys
        )
        result = trainer.fit()
        state = trainer.model.state()
        return (
            [row["loss"] for row in result.history],
            [state[name] for name in sorted(state)],
            trainer.fallbacks,
        )

    return run_simulated(ranks, job)[0]


def assert_same(one, other):
    np.testing.assert_allclose(one[0], other[0], rtol=1e-9)
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)


STRATEGIES = ({"strategy": "global"}, {"strategy": "mini", "batch_size": 8, "fanout": "3"})
