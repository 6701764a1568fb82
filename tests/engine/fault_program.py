"""What happens to a rank in the tests of faults: ``fault_program.py FAULT`` under mpiexec. Rank 1
is the faulty one.

If FAULT_TIME names a file, the faulty rank writes into it when the fault began.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable

import numpy as np

import graphtheta as gt
from graphtheta.engine.comm.channel import Tag
from graphtheta.engine.runtime.start import run_main, start
from graphtheta.errors import DataError

JOB = {
    "dataset": "sbm:n_nodes=300,n_edges=1500",
    "epochs": 1000,
    "strategy": "mini",
    "batch_size": 60,
    "backend": "reference",
    "lr": 1e-3,
}
FAULTY = 1
# calls of apply after which a fault comes: several steps, and nothing that a first step has to load
LATER = 30


def now() -> None:
    """The fault begins."""
    if os.environ.get("FAULT_TIME"):
        with open(os.environ["FAULT_TIME"], "w", encoding="utf-8") as file:
            file.write(repr(time.time()))


class Faulty(gt.Layer):
    """A layer that works, but for one call of one of its functions on one rank."""

    fault: Callable[[str], bool] = staticmethod(lambda where: False)
    calls = 0

    def __init__(self, d_in: int, d_out: int):
        self.weight = gt.Parameter.glorot(d_in, d_out)

    def transform(self, node):
        return {"z": gt.matmul(node.h, self.weight)}

    def gather(self, edge):
        if Faulty.calls > LATER:
            Faulty.fault("gather")
        return edge.src.z

    def apply(self, node, total):
        Faulty.calls += 1
        return total[:, :1] if Faulty.calls > LATER and Faulty.fault("apply") else total


class Net(gt.Model):
    def __init__(self, d_in: int, d_out: int, d_edge: int):
        self.first = Faulty(d_in, 8)
        self.last = Faulty(8, d_out)

    def forward(self, graph):
        return self.last(graph, gt.relu(self.first(graph, graph.x)))


def training(place: str, act: Callable[[], bool | None]) -> None:
    """Train; on the faulty rank ``act`` is called in a user's function, and may ask for a wrong
    shape.
    """
    comm = start()

    def fault(where: str) -> bool:
        if comm.rank != FAULTY or where != place:
            return False
        now()
        return bool(act())

    Faulty.fault = staticmethod(fault)
    gt.Trainer(Net, comm=comm, **JOB).fit()


def between(act: Callable[[], object]) -> None:
    """A loop of collectives, in which one rank does something else once instead of the first."""
    comm = start()
    for step in range(20):
        if step == 10 and comm.rank == FAULTY:
            now()
            act()
        else:
            comm.all_sum(np.full(3, comm.rank))
        comm.all_gather("x")


def raises() -> None:
    """An error of the user's."""
    raise DataError("this gather cannot work")


def divide_by_zero() -> None:
    _ = 1 / 0


def loops() -> None:
    """For ever, in Python."""
    n = 0
    while True:
        n += 1


def holds_the_lock() -> None:
    """In C, for ever, without letting go of Python's lock."""
    ctypes.PyDLL(None).sleep(10_000)


def sleeps() -> None:
    """For ever."""
    time.sleep(10_000)


def kills(number: int) -> Callable[[], None]:
    """Sends this process a signal."""
    return lambda: os.kill(os.getpid(), number)


def skips_a_move() -> None:
    """All ranks but one send to the next."""
    comm = start()
    after = (comm.rank + 1) % comm.size
    before = (comm.rank - 1) % comm.size
    got = np.empty(4)
    for step in range(20):
        if step == 10 and comm.rank == FAULTY:
            now()
            continue
        comm.move_begin([(after, np.ones(4))], [(before, got)], Tag.TO_MIRRORS).end()
        if step == 10:
            comm.barrier()


def wait_for_each_other() -> None:
    """Every rank waits for a message that nobody sends."""
    comm = start()
    if comm.rank == FAULTY:
        now()
    comm.move_begin([], [((comm.rank + 1) % comm.size, np.empty(4))], Tag.TO_MASTERS).end()


def returns_early() -> None:
    """One rank ends its program."""
    comm = start()
    comm.barrier()
    if comm.rank == FAULTY:
        now()
        return
    comm.all_sum(np.ones(3))


FAULTS: dict[str, Callable[[], None]] = {
    "sleeps in gather": lambda: training("gather", sleeps),
    "sleeps in apply": lambda: training("apply", sleeps),
    "loops in apply": lambda: training("apply", loops),
    "holds Python's lock in apply": lambda: training("apply", holds_the_lock),
    "raises in gather": lambda: training("gather", raises),
    "raises in apply": lambda: training("apply", divide_by_zero),
    "wrong shape from apply": lambda: training("apply", lambda: True),
    "skips a collective": lambda: between(lambda: None),
    "calls another collective": lambda: between(start().barrier),
    "gives another shape": lambda: between(lambda: start().all_sum(np.ones((5, 7)))),
    "skips a move": skips_a_move,
    "waits for each other": wait_for_each_other,
    "returns early": returns_early,
    "sys.exit": lambda: between(lambda: sys.exit(3)),
    "os._exit": lambda: between(lambda: os._exit(7)),
    "killed": lambda: between(kills(signal.SIGKILL)),
    "stopped": lambda: between(kills(signal.SIGSTOP)),
    "segmentation fault": lambda: between(kills(signal.SIGSEGV)),
}

if __name__ == "__main__":
    sys.exit(run_main(lambda: FAULTS[sys.argv[1]]()))  # type: ignore[arg-type, return-value]
