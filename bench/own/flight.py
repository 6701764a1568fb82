"""Epochs of a job on the ranks of this program, the share of time in which the ranks are idle, and
what they send.

    PYTHONPATH=bench mpiexec -n 4 python bench/own/flight.py '{"strategy": "mini", ...}' EPOCHS

The first epoch is not timed. A rank is idle while all its views wait for others.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter, process_time

from contender import report

import graphtheta as gt
from graphtheta.engine.comm.ledger import STAGES
from graphtheta.engine.runtime.start import start


def foreseen(trainer: gt.Trainer) -> float:
    """Seconds of an epoch that the profile predicts; 0 without one."""
    views = -(-trainer.strategy.steps_per_epoch // trainer.training.width)
    return trainer.pipeline.seconds * views


def main(keys: str, epochs: str) -> None:
    comm = start()
    job = gt.Job(**json.loads(keys))
    trainer = gt.Trainer(job=job, comm=comm)
    losses = [trainer.train_epoch(0)]
    seconds = []
    before = comm.ledger.snapshot()
    busy = process_time()
    stalled = trainer.training.queue.stalled
    for epoch in range(1, 1 + int(epochs)):
        comm.barrier()
        began = perf_counter()
        losses.append(trainer.train_epoch(epoch))
        seconds.append(perf_counter() - began)
    since = comm.ledger.since(before)
    # with one view at a time a rank waits whenever its view does
    queue = trainer.training.queue
    pipeline = trainer.pipeline
    idle = (
        queue.stalled - stalled
        if queue.in_flight > 1
        else sum(since[stage]["wait"] for stage in STAGES)
    )
    ranks = comm.all_gather(
        {
            "idle": idle / sum(seconds),
            "busy": (process_time() - busy) / (comm.cores * sum(seconds)),
            "views": trainer.strategy.steps_per_epoch,
            "in flight": queue.in_flight,
            "stage threads": ",".join(f"{s.name}={len(s.processors)}" for s in queue.stages)
            or "free",
            **(
                {
                    "line": pipeline.line,
                    "foreseen": foreseen(trainer),
                }
                if pipeline
                else {}
            ),
            "sent": sum(since[stage]["bytes"] for stage in STAGES) / len(seconds),
            "messages": sum(since[stage]["messages"] for stage in STAGES) / len(seconds),
        }
    )
    if comm.rank == 0:
        report(
            {"epoch": seconds}, {"epoch": losses[:2]}, f"graphtheta {gt.__version__}", ranks=ranks
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
