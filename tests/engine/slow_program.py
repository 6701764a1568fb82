"""Run under mpiexec on two ranks: seconds of exchanges over slow links and the order of tasks; rank
0 writes JSON to the file named.
"""

import json
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from time import monotonic

import numpy as np

from graphtheta.engine.comm.channel import Tag
from graphtheta.engine.comm.delayed import SlowComm
from graphtheta.engine.runtime.start import run_main, start
from graphtheta.engine.train.step import WorkQueue

LATENCY, BANDWIDTH = 0.1, 1e6


def exchange(comm, n):
    x = np.full(n, comm.rank, np.uint8)
    got = np.empty(n, np.uint8)
    other = 1 - comm.rank
    comm.move_begin([(other, x)], [(other, got)], Tag.TO_MIRRORS).end()
    assert (got == other).all()


def seconds(comm, work):
    comm.barrier()
    began = monotonic()
    work()
    # of the rank that began first: the message to the other one may have been sent before that
    # began
    return float(comm.all_max(np.array(monotonic() - began)))


def main(path):
    comm = SlowComm(start(), LATENCY, BANDWIDTH)
    found = {
        "move": seconds(comm, lambda: exchange(comm, 30_000)),
        "all_sum": seconds(comm, lambda: comm.all_sum(np.ones(1))),
    }
    found["moves"] = seconds(comm, lambda: [exchange(comm, 10_000) for _ in range(3)])
    log = []

    def task(i):
        log.append(f"{i} begins")
        exchange(comm, 8)
        log.append(f"{i} ends")

    WorkQueue(comm, 5).run([nullcontext(partial(task, i)) for i in range(5)])
    found["logs"] = comm.all_gather(log)
    if comm.rank == 0:
        Path(path).write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(run_main(lambda: main(*sys.argv[1:])))
