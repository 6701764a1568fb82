"""Trains on a store, on all ranks of this program, and reports times, memory and accuracy.

PYTHONPATH=bench mpiexec -n 2 python bench/own/facebook.py STORE EPOCHS KEY=VALUE ...
"""

from __future__ import annotations

import sys
from time import perf_counter, process_time

import numpy as np
from contender import peak_bytes, report

import graphtheta as gt


def main(store: str, epochs: str, *keys: str) -> None:
    comm = gt.start()
    # memory of the program itself, without a graph
    before = peak_bytes()
    began = perf_counter()
    trainer = gt.Trainer(
        graph=gt.load(store, split="fraction"),
        comm=comm,
        epochs=int(epochs),
        **dict(key.split("=", 1) for key in keys),
    )
    comm.barrier()
    start = perf_counter() - began
    seconds = []
    used = []
    losses = []
    for epoch in range(int(epochs)):
        began = perf_counter()
        before_epoch = process_time()
        losses.append(trainer.train_epoch(epoch))
        used.append(process_time() - before_epoch)
        comm.barrier()
        seconds.append(perf_counter() - began)
    trained = peak_bytes()
    began = perf_counter()
    metrics = trainer.evaluate("test")
    evaluation = perf_counter() - began
    peaks = comm.all_gather([before, trained, peak_bytes()])
    processor = comm.all_sum(np.array(used)).tolist()
    if comm.rank == 0:
        # the first epoch loads kernels
        parts = {
            "epoch": seconds[1:] or seconds,
            "start": [start],
            "first": seconds[:1],
            "evaluation": [evaluation],
        }
        report(
            parts,
            {"losses": losses[:3]},
            f"graphtheta {gt.__version__}",
            accuracy=metrics["test_accuracy"],
            processor=processor,
            peaks=peaks,
            losses=losses,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
