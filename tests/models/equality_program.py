"""Run under mpiexec: the equality matrix on real workers; rank 0 writes the numbers to the file named."""
import sys

import numpy as np
from equality import PLACEMENTS, TASKS, run

from graphtheta.engine.start import run_main, start


def main(path):
    comm, found = start(), {}
    for task in TASKS:
        for placement in PLACEMENTS:
            numbers, edges = run(comm, placement, task)
            for (strategy, model), (losses, grads) in numbers.items():
                found[f"{task}|{' '.join(placement)}|{strategy}|{model}"] = np.concatenate((losses, grads))
            for strategy, levels in edges.items():
                found[f"{task}|{' '.join(placement)}|{strategy}|edges"] = np.concatenate([level.ravel() for level in levels])
    if comm.rank == 0:
        np.savez(path, **found)
    return 0


if __name__ == "__main__":
    sys.exit(run_main(lambda: main(sys.argv[1])))
