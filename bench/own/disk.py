"""Epochs of sampled mini-batches over a graph whose features are in memory or in a store.

    PYTHONPATH=bench python bench/own/disk.py FOLDER memory|warm|cold IN_FLIGHT EPOCHS

"memory" reads the features of the store into an array first. "cold" drops the pages of the features
from the page cache before each epoch; "warm" does not. The first epoch is not timed.
"""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from contender import report

import graphtheta as gt


def drop(folder: Path, x: Any) -> None:
    """Remove features from the page cache. Pages in use stay there, so the mapping gives them up
    first.
    """
    mapping = getattr(x, "_codes", x)._values
    while not isinstance(mapping, mmap.mmap):
        mapping = mapping.base
    mapping.madvise(mmap.MADV_DONTNEED)
    for path in folder.glob("node.x*.npy"):
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def main(folder: str, way: str, in_flight: str, epochs: str) -> None:
    graph = gt.load(folder)
    if way == "memory":
        graph = graph.replace(x=graph.x.read_begin(None).end().copy())
    trainer = gt.Trainer(
        graph=graph,
        model="sage",
        strategy="mini",
        batch_size=512,
        fanout=(10, 5),
        hidden=64,
        layers=2,
        views_in_flight=int(in_flight),
        epochs=1 + int(epochs),
    )
    losses = [trainer.train_epoch(0)]
    seconds = []
    used = []
    for epoch in range(1, 1 + int(epochs)):
        if way == "cold":
            drop(Path(folder), graph.x)
        began = perf_counter()
        before = process_time()
        losses.append(trainer.train_epoch(epoch))
        seconds.append(perf_counter() - began)
        used.append(process_time() - before)
    report(
        {"epoch": seconds, "processor": used},
        {Path(folder).name: losses[:2]},
        f"graphtheta {gt.__version__}",
        held=graph.nbytes,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
