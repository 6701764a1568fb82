"""Run under mpiexec: the equality matrix on real workers; rank 0 writes the numbers to the file
named.

Each task has one placement and a share of the pairs of a strategy and a model, other ones for each
number of workers; simulated ranks have all. On the fused back end, every kernel of which is
compiled, it is one placement and two models of node tasks.
"""

import sys

import numpy as np
from equality import COMPILED, PLACEMENTS, TASKS, run

from graphtheta.engine.runtime.start import run_main, start
from graphtheta.ops.edge.backend.fused import backend_scope


def main(path, back_end):
    comm = start()
    found = {}
    if back_end == "fused":
        cases = {"node": ("vertex-cut", "hash")}
        which = {"only": COMPILED}
    else:
        # the first task, which has the most models, is on a vertex cut
        cases = dict(zip(TASKS, PLACEMENTS[::-1][comm.size % 2 :: 2], strict=True))
        which = {"share": comm.size}
    for task, placement in cases.items():
        with backend_scope(back_end):
            numbers, edges = run(comm, placement, task, **which)
        for (strategy, model), (losses, grads) in numbers.items():
            found[f"{task}|{' '.join(placement)}|{strategy}|{model}"] = np.concatenate(
                (losses, grads)
            )
        for strategy, levels in edges.items():
            found[f"{task}|{' '.join(placement)}|{strategy}|edges"] = np.concatenate(
                [level.ravel() for level in levels]
            )
    if comm.rank == 0:
        np.savez(path, **found)
    return 0


if __name__ == "__main__":
    sys.exit(run_main(lambda: main(*sys.argv[1:])))
