"""Run under mpiexec: mini-batches with several views in flight, on several cores; rank 0 writes
losses and weights to the file named. "staged" runs have threads for each stage.
"""

import sys
from itertools import product

import numpy as np

import graphtheta as gt
from graphtheta.base.binding import can_bind
from graphtheta.engine.runtime.affinity import available_cores
from graphtheta.engine.runtime.start import run_main, start
from graphtheta.engine.train.stages import STAGES, StageThreads

JOB = {
    "dataset": "sbm:n_nodes=300,n_edges=1500",
    "hidden": 8,
    "epochs": 1,
    "dtype": "float64",
    "strategy": "mini",
    "batch_size": 20,
    "optimiser": "sgd",
    "backend": "reference",
    "fanout": "5,3",
    "norm": "batch",
}
SCHEDULES = {"plain": {}, "summed": {"views_per_step": 3}, "stale": {"staleness": 2}}
IN_FLIGHT = {"1": 1, "4": 4, "4 staged": 4}


def main(path: str) -> int:
    comm = start()
    found = {}
    comm.cores = 2
    # ranks may be more than processors, so stages share them
    processors = tuple(available_cores()[:2])
    staged = [StageThreads((stage,), processors) for stage in STAGES if can_bind()]
    for (name, schedule), (way, in_flight) in product(SCHEDULES.items(), IN_FLIGHT.items()):
        trainer = gt.Trainer(comm=comm, **{**JOB, **schedule, "views_in_flight": in_flight})
        trainer.training.queue.stages = staged if "staged" in way else ()
        losses = [row["loss"] for row in trainer.fit().history]
        found[f"{name}|{way}"] = np.concatenate(
            [losses, *(x.ravel() for x in trainer.model.state().values())]
        )
    if comm.rank == 0:
        np.savez(path, **found)
    return 0


if __name__ == "__main__":
    sys.exit(run_main(lambda: main(*sys.argv[1:])))
