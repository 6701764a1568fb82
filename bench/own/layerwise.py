"""Predicts with untrained weights on a store, with or without a memory limit, and writes what it
predicts.

    PYTHONPATH=bench python bench/own/layerwise.py STORE GiB OUT HIDDEN

With GiB above 0, the system refuses the process any memory above it (RLIMIT_DATA: all that is
allocated, and not the store, whose file is mapped), from its start; and the job has the same limit
for inference.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from threading import Thread
from time import perf_counter, process_time, sleep

import numpy as np
from contender import report


def allocated() -> float:
    """Memory that this process allocated and uses, in bytes."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text(encoding="ascii").split())
    return float((resident - shared) * resource.getpagesize())


def main(store: str, gib: str, out: str, hidden: str) -> None:
    if float(gib):
        resource.setrlimit(resource.RLIMIT_DATA, (int(float(gib) * 2**30),) * 2)
    import graphtheta as gt

    peaks = [0.0, 0.0]

    def watch() -> None:
        while True:
            peaks[-1] = max(peaks[-1], allocated())
            sleep(0.05)

    Thread(target=watch, daemon=True).start()
    # batches of all neighbours: training, which is not done, needs no memory for a pass over the
    # whole graph
    trainer = gt.Trainer(
        "gat",
        gt.load(store, split="fraction"),
        layers=3,
        hidden=int(hidden),
        dtype="float64",
        masters="block",
        strategy="mini",
        batch_size=4096,
        **({"inference_memory": float(gib)} if float(gib) else {}),
    )
    built = peaks[-1]
    peaks[-1] = allocated()
    began = perf_counter()
    used = process_time()
    found = trainer.predict()
    assert found is not None
    seconds = perf_counter() - began
    used = process_time() - used
    np.save(out, found[1])
    report(
        {"predict": [seconds]},
        {},
        f"graphtheta {gt.__version__}",
        built=built,
        predicted=peaks[-1],
        processor=used,
        limited=trainer.setup.limit is not None,
        graph=trainer.partition.nbytes(),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
