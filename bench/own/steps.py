"""The shortest time of each step of an epoch on the ranks of this program, what the first epoch
sends, and memory.

    PYTHONPATH=bench mpiexec -n 2 python bench/own/steps.py '{"strategy": "mini", ...}' EPOCHS
    SECONDS

The first epoch is trained again and again, so many times and seconds at least, after some times
that are not timed. Caches of features are full then.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter, process_time

import numpy as np
from contender import report

import graphtheta as gt
from graphtheta.base.memory import peak_bytes
from graphtheta.engine.runtime.start import run_main, start
from graphtheta.ops.compile.jit import n_compiled

# stages whose bytes a plan predicts
MEASURED = ("move", "reduce", "batch", "fetch")
WARM = 2


def main(keys: str, epochs: str, least_seconds: str) -> int:
    comm = start()
    trainer = gt.Trainer(job=gt.Job(**json.loads(keys)), comm=comm)
    before = comm.ledger.snapshot()
    trainer.train_epoch(0)
    since = comm.ledger.since(before)
    views = trainer.strategy.steps_per_epoch
    each = trainer.job.views_per_step or (comm.size if trainer.job.mode == "independent" else 1)
    times: list[np.ndarray] = []
    start_of_all = perf_counter()
    while not comm.broadcast(
        len(times) >= WARM + int(epochs) and perf_counter() - start_of_all > float(least_seconds), 0
    ):
        comm.barrier()
        clocks = [(perf_counter(), process_time())]
        for first in range(0, views, each):
            trainer.training.run(0, first, min(first + each, views))
            clocks.append((perf_counter(), process_time()))
        times.append(np.diff(clocks, axis=0).T)
    # [epochs, 2, steps]
    timed = np.array(times[WARM:])
    seconds, processor = timed.min(axis=0).tolist()
    ranks = comm.all_gather(
        {
            "seconds": seconds,
            "processor": processor,
            "memory": peak_bytes(),
            "sent": sum(int(since[stage]["bytes"]) for stage in MEASURED),
            "compiled": n_compiled(),
        }
    )
    if comm.rank == 0:
        report(
            {"epoch": timed[:, 0].sum(axis=1).tolist()},
            {},
            f"graphtheta {gt.__version__}",
            ranks=ranks,
        )
    return 0


if __name__ == "__main__":
    sys.exit(run_main(lambda: main(*sys.argv[1:])))
