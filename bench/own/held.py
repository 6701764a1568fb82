"""Memory of the ranks between the steps of a network, and the size of the values of their mirrors.

    PYTHONPATH=bench mpiexec -n 2 python bench/own/held.py DATASET HIDDEN PARTITIONER STEPS

Memory that is free and retained for the next step is released before it is measured. "peak" is the
most that was in memory in a step, without what the making of the partition needed before.
"""

from __future__ import annotations

import gc
import sys

from contender import report

import graphtheta as gt
from graphtheta.engine.runtime.start import start
from graphtheta.ops.parallel import buffers


def held() -> int:
    """Bytes of this process that are in memory now."""
    gc.collect()
    buffers.release()
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * 4096


def reset_peak() -> None:
    """Let the peak of this process begin at what is in memory now."""
    held()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
        f.write("5")


def peak() -> int:
    """The most bytes of this process that were in memory since then."""
    with open("/proc/self/status", encoding="ascii") as f:
        return 1024 * int(next(line.split()[1] for line in f if line.startswith("VmHWM")))


def main(dataset: str, hidden: str, partitioner: str, steps: str) -> None:
    comm = start()
    trainer = gt.Trainer(
        job=gt.Job(dataset=dataset, hidden=int(hidden), layers=3, partitioner=partitioner),
        comm=comm,
    )
    # compiles
    losses = [trainer.train_epoch(0)]
    reset_peak()
    losses += [trainer.train_epoch(i) for i in range(1, int(steps))]
    most = peak()
    mirrors = (
        trainer.partition.n_mirrors
        * int(hidden)
        * trainer.partition.node.column("x").dtype.itemsize
    )
    ranks = comm.all_gather({"held": held(), "mirrors": mirrors, "peak": most})
    if comm.rank == 0:
        report({}, {"epoch": losses}, f"graphtheta {gt.__version__}", ranks=ranks)


if __name__ == "__main__":
    main(*sys.argv[1:])
