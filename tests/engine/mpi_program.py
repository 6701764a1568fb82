"""What the MPI tests run under mpiexec: ``mpi_program.py SCENARIO``. Not a test module itself."""

from __future__ import annotations

import os
import sys
import time

import numpy as np

from graphtheta.engine.runtime.start import run_main, start, threads
from graphtheta.errors import ConfigError, DataError


def contract() -> None:
    """Every contract test, on real ranks."""
    from comm_contract import CONTRACT

    comm = start()
    for check in CONTRACT:
        check(comm)
    comm.barrier()
    if comm.rank == 0:
        print(f"passed {len(CONTRACT)}")


def small_pieces() -> None:
    """The contract with every message and reduction split as only huge ones are."""
    from graphtheta.engine.comm import ordered_reduce
    from graphtheta.engine.runtime import mpi

    mpi.PIECE = 1000
    ordered_reduce.BLOCK = 1 << 16
    ordered_reduce.ONE_ROUND = 256
    contract()


def bits() -> None:
    """The sum of awkward numbers, as hexadecimal digits, from every rank."""
    from comm_contract import awkward

    comm = start()
    lines = comm.all_gather(
        [comm.all_sum(awkward(comm.rank, n)).tobytes().hex()[:4000] for n in (7, 400_001)]
    )
    if comm.rank == 0:
        print(len({tuple(line) for line in lines}), *lines[0])


def one_raises() -> None:
    """Rank 1 fails while the others wait for it."""
    comm = start()
    if comm.rank == 1:
        raise DataError("labels.npy has 3 rows, the graph 4 nodes; give one label for each node")
    comm.barrier()


def first_raises() -> None:
    """Rank 0 fails with a bug while the others wait."""
    comm = start()
    if comm.rank == 0:
        raise ZeroDivisionError("a bug")
    comm.barrier()


def all_raise() -> None:
    """Every rank finds the same mistake by itself."""
    start()
    raise ConfigError("hidden: expected at least 1, got 0")


def all_raise_while_moving() -> None:
    """Every rank fails between begin and end of large messages."""
    comm = start()
    other = 1 - comm.rank
    comm.move_begin([(other, np.ones(1_000_000))], [(other, np.empty(1_000_000))], 1)
    raise ConfigError("apply returned 3 rows, expected 4")


def agreed() -> None:
    """The last rank has an error and all agree on it."""
    comm = start()
    with comm.agreed():
        if comm.rank == comm.size - 1:
            raise DataError("edge 7 ends at node 99 of 10")


def bug_in_agreed() -> None:
    """A rank has an error that nobody raises on purpose, where the others wait for its verdict."""
    comm = start()
    with comm.agreed():
        if comm.rank == 1:
            raise ZeroDivisionError("a bug")


def leaves_early() -> None:
    """Rank 1 returns while the others still wait for it."""
    comm = start()
    comm.barrier()
    if comm.rank != 1:
        comm.all_sum(np.ones(3))


def exits_early() -> None:
    """Rank 1 calls sys.exit, which no exception hook sees."""
    comm = start()
    if comm.rank == 1:
        sys.exit(3)
    comm.barrier()


def missing_message() -> None:
    """Rank 0 waits for a message that rank 1 never sends."""
    comm = start()
    if comm.rank == 0:
        comm.move_begin([], [(1, np.empty(4))], 1).end()


def wrong_size() -> None:
    """Rank 1 sends fewer bytes than rank 0 expects."""
    comm = start()
    if comm.rank == 0:
        comm.move_begin([], [(1, np.empty(4))], 1).end()
    elif comm.rank == 1:
        comm.move_begin([(0, np.empty(3))], [], 1).end()
    comm.barrier()


def mismatch() -> None:
    """Ranks call different collectives."""
    comm = start()
    comm.barrier()
    if comm.rank == 0:
        comm.all_sum(np.ones(3))
    else:
        comm.all_gather("x")


def interrupted() -> None:
    """Ctrl-C on every rank."""
    start()
    raise KeyboardInterrupt


def status() -> int:
    """A program that ends with a status of its own."""
    start().barrier()
    return 5


def all_fail_late() -> None:
    """All ranks fail and take seconds to end, as on an overloaded machine: one before, the other in
    MPI.
    """
    from mpi4py import MPI

    from graphtheta.engine.runtime import mpi

    comm = start()
    module, name = (mpi, "_finalize") if comm.rank == 0 else (MPI, "Finalize")
    finalize = getattr(module, name)

    def late(*args: int) -> None:
        time.sleep(3)
        finalize(*args)
        print("ended", flush=True)

    setattr(module, name, late)
    comm.barrier()
    raise ConfigError("nothing was asked for")


def crowd() -> None:
    """More ranks than cores, with uneven work and many small messages."""
    comm = start()
    left = (comm.rank - 1) % comm.size
    right = (comm.rank + 1) % comm.size
    for step in range(200):
        if step % 20 == comm.rank:
            time.sleep(0.001)
        got = np.empty(100)
        comm.move_begin([(right, np.full(100, float(comm.rank)))], [(left, got)], 1).end()
        assert (got == left).all()
        assert comm.all_sum(np.array(1)) == comm.size
    if comm.rank == 0:
        print("crowd passed")


def shared_cores() -> None:
    """What each rank chose for its threads."""
    comm = start()
    chosen = comm.all_gather((threads().count, threads().cores, threads().ranks_on_node))
    if comm.rank == 0:
        print(chosen, os.environ["NUMBA_NUM_THREADS"])


def interface() -> None:
    """Two calls of start give one object."""
    comm = start()
    assert start() is comm
    lines = comm.all_gather([type(comm).__name__, comm.rank, comm.size, "mpi4py" in sys.modules])
    if comm.rank == 0:
        print(lines)


if __name__ == "__main__":
    scenario = globals()[sys.argv[1]]
    if "--hook" in sys.argv:
        scenario()
    else:
        sys.exit(run_main(scenario))
