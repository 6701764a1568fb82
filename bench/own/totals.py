"""Totals of the features of all neighbours, on the ranks of this program: processor time and bytes.

PYTHONPATH=bench mpiexec -n 2 python bench/own/totals.py DATASET TIMES
"""

from __future__ import annotations

import sys
from time import process_time

import numpy as np
from contender import report

import graphtheta as gt
from graphtheta.engine.layer.precompute import precompute
from graphtheta.engine.runtime.start import start
from graphtheta.engine.view.view import PRECOMPUTED


def main(dataset: str, times: str) -> None:
    comm = start()
    trainer = gt.Trainer(
        job=gt.Job(dataset=dataset, model="sage", layers=2, hidden=16, dropout=0.0), comm=comm
    )
    seconds = []
    # one more, which compiles
    for _ in range(int(times) + 1):
        comm.barrier()
        before = comm.ledger.snapshot()
        began = process_time()
        partition, _, _ = precompute(trainer.model, trainer.partition)
        seconds.append(process_time() - began)
        sent = comm.ledger.since(before)["move"]["bytes"]
    total = comm.all_sum(
        partition.node.column(PRECOMPUTED).read_begin(None).end().astype(np.float64).sum(axis=0)
    )
    ranks = comm.all_gather(
        {"processor": min(seconds[1:]), "sent": sent, "edges": int(trainer.partition.n_local_edges)}
    )
    if comm.rank == 0:
        report({}, {"total": total.tolist()}, f"graphtheta {gt.__version__}", ranks=ranks)


if __name__ == "__main__":
    main(*sys.argv[1:])
