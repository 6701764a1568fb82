"""A job from its first to its last epoch as ``graphtheta train`` runs it, without evaluation.

    PYTHONPATH=bench mpiexec -n 2 python bench/own/guards.py '{"strategy": "mini", ...}' EPOCHS KEEP

With KEEP above 0 there is a checkpoint at the end of every epoch; with 0 there is neither a
checkpoint nor a watchdog.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, thread_time

from contender import report

import graphtheta as gt
from graphtheta.engine.runtime.start import start
from graphtheta.engine.runtime.watchdog import Watchdog
from graphtheta.run.checkpoints.keeper import Keeper
from graphtheta.train.loop import trainer as trainer_module


class Timed(Keeper):
    """Keeps the processor seconds that each checkpoint takes its thread."""

    writes: list[float] = []

    def _write_one(self, *arguments: object) -> None:
        began = thread_time()
        super()._write_one(*arguments)
        self.writes.append(thread_time() - began)


def main(keys: str, epochs: str, keep: str) -> None:
    if keep == "0":
        Watchdog.start = lambda self: None
    trainer_module.Keeper = Timed
    comm = start()
    folder = Path(comm.broadcast(tempfile.mkdtemp(prefix="guards-") if comm.rank == 0 else None))
    job = gt.Job(
        **json.loads(keys),
        epochs=int(epochs),
        eval_every=int(epochs),
        keep=int(keep),
        out=str(folder),
    )
    warm = gt.Trainer(job=job, comm=comm)
    warm.train_epoch(0)
    warm.evaluate("val")
    trainer = gt.Trainer(job=job.change(checkpoint_every=warm.strategy.steps_per_epoch), comm=comm)
    comm.barrier()
    began = perf_counter()
    busy = process_time()
    result = trainer.fit()
    seconds = perf_counter() - began
    busy = process_time() - busy
    all_busy = sum(comm.all_gather(busy))
    if comm.rank == 0:
        shutil.rmtree(folder)
        report(
            {"epoch": [seconds / int(epochs)]},
            {"epoch": [result.history[-1]["loss"]]},
            f"graphtheta {gt.__version__}",
            busy=all_busy / int(epochs),
            checkpoints=len(Timed.writes),
            write=median(Timed.writes or [0.0]),
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
