"""Run under mpiexec: mini-batches with several views in flight, on several cores; rank 0 writes
losses and weights to the file named.
"""

import sys
from itertools import product

import numpy as np

import graphtheta as gt
from graphtheta.engine.runtime.start import run_main, start

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
IN_FLIGHT = (1, 4)


def main(path: str) -> int:
    comm = start()
    found = {}
    comm.cores = 2
    for (name, schedule), in_flight in product(SCHEDULES.items(), IN_FLIGHT):
        trainer = gt.Trainer(comm=comm, **{**JOB, **schedule, "views_in_flight": in_flight})
        losses = [row["loss"] for row in trainer.fit().history]
        found[f"{name}|{in_flight}"] = np.concatenate(
            [losses, *(x.ravel() for x in trainer.model.state().values())]
        )
    if comm.rank == 0:
        np.savez(path, **found)
    return 0


if __name__ == "__main__":
    sys.exit(run_main(lambda: main(*sys.argv[1:])))
