"""The cost of messages between two workers of this machine: of bytes from a large move, of messages from training steps of small jobs.

Run by mpiexec on two workers, it prints both as a line of JSON. A message costs more in a step than
alone, because of the interpreter at both ends and of waiting for the other worker.
"""
from __future__ import annotations

import json
import subprocess
import sys
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from graphtheta.console import say
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.exchange import Exchange, MovePlan
from graphtheta.mpiexec import find_mpiexec, run

if TYPE_CHECKING:
    from graphtheta.train.trainer import Trainer

BEGIN = "messages "
STAGES = ("move", "reduce")
GRAPH = "rmat:scale=9,edge_factor=4,features=16,classes=4"
JOBS = [{"model": "gcn", "hidden": 16}, {"model": "gat", "hidden": 16, "heads": 2, "layers": 3}, {"model": "sage", "hidden": 16}]
# rows and width of the large move
ROWS, WIDTH = 1 << 15, 128
# steps of a job: some that compile and warm up, and those of which the shortest counts. They are timed
# in several rounds over all jobs, because other programs slow a shared machine for seconds
WARM, TIMED, ROUNDS = 3, 4, 4


def measured() -> tuple[float, float] | None:
    """Seconds of a message besides its bytes, and of a byte; None where two workers cannot be started."""
    path = find_mpiexec()
    try:
        done = run([str(path), "-n", "2", sys.executable, "-m", __name__])
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = [line for line in done.stdout.splitlines() if line.startswith(BEGIN)]
    if not found:
        return None
    message, byte = json.loads(found[0][len(BEGIN):])
    return message, byte


def program(comm: Comm) -> tuple[float, float]:
    """Seconds of a message besides its bytes, and of a byte.

    Collective: all ranks of comm.
    """
    from graphtheta.datasets.dataset import load
    from graphtheta.job.job import Job
    from graphtheta.train.trainer import Trainer

    rows, graph = np.zeros((ROWS, WIDTH), np.float32), load(GRAPH)
    bounds = np.where(np.arange(3) > 1 - comm.rank, ROWS, 0)
    exchange = Exchange(comm, MovePlan(ROWS, np.arange(ROWS), bounds, bounds, True))
    trainers = [Trainer(graph=graph, job=Job(**keys, keep=0), comm=comm) for keys in JOBS]
    moves: list[float] = []
    steps: list[list[tuple[float, float, float]]] = [[] for _ in trainers]
    for _ in range(ROUNDS):
        moves += _moves(exchange, rows)
        for trainer, found in zip(trainers, steps, strict=True):
            found += _steps(trainer)
    byte = min(moves) / rows.nbytes
    each = [min((seconds - sent * byte) / n for seconds, n, sent in found) for found in steps]
    both = np.mean(comm.all_gather([max(median(each), 0.0), byte]), axis=0)
    return float(both[0]), float(both[1])


def _moves(exchange: Exchange, rows: np.ndarray) -> list[float]:
    """Seconds of some large moves."""
    times = []
    for _ in range(WARM + TIMED):
        exchange.comm.barrier()
        began = perf_counter()
        exchange.to_mirrors({"": rows})
        times.append(perf_counter() - began)
    return times[WARM:]


def _steps(trainer: Trainer) -> list[tuple[float, float, float]]:
    """Seconds, messages and bytes of halo moves and sums of gradients in some steps."""
    found: list[tuple[float, float, float]] = []
    for _ in range(WARM + TIMED):
        before = trainer.comm.ledger.snapshot()
        trainer.train_epoch(0)
        since = trainer.comm.ledger.since(before)
        seconds, messages, sent = (sum(since[stage][field] for stage in STAGES for field in fields)
                                   for fields in (("seconds", "wait"), ("messages",), ("bytes",)))
        found.append((seconds, messages, sent))
    return found[WARM:]


def main() -> int:
    """Measure and print."""
    from graphtheta.engine.runtime.start import start

    comm = start()
    found = program(comm)
    if comm.rank == 0:
        say(BEGIN + json.dumps(found))
    return 0


if __name__ == "__main__":
    from graphtheta.engine.runtime.start import run_main

    sys.exit(run_main(main))
