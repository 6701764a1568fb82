"""The edges and features of the batches of two loaders, which make them ahead, on any number of
workers, while a trainer with views in flight trains in between: prints a digest for each mode.
"""

from __future__ import annotations

from itertools import islice
from typing import Any
from zlib import crc32

import numpy as np

import graphtheta as gt


def digest(batch: Any) -> int:
    """A sum over the targets and the edges of the last block, of which each is on one worker."""
    block = batch.blocks[-1]
    n = batch.n_targets
    nodes = zip(batch.nodes[:n], batch.columns["x"][:n], strict=True)
    edges = zip(block.edge, block.weight, strict=True)
    return sum(crc32(v.tobytes() + x.tobytes()) for v, x in (*nodes, *edges))


def total(comm: Any, mode: str) -> int:
    """Over two epochs, and the first batches of a third, each with batches of an evaluation in
    between, while a loop that was begun earlier is still open.
    """
    graph = gt.load("sbm:n_nodes=300,n_edges=2000")
    keys = {"to": "arrays", "mode": mode, "fanout": [4, 3], "batch_size": 16, "prefetch": 3}
    loader = gt.Loader(graph, macrobatch=2, **keys)
    evaluation = gt.Loader(graph, targets="val", order="ids", **keys)
    training = {"strategy": "mini", "batch_size": 20, "views_per_step": 4, "views_in_flight": 4}
    trainer = gt.Trainer("gcn", graph, layers=2, dtype="float64", **training)
    begun = iter(loader)
    next(begun)
    found = 0
    # as many batches on any number of workers
    few = 4 if mode == "cooperative" else 4 // comm.size
    for epoch, most in enumerate((None, None, few)):
        for i, batch in enumerate(islice(loader, most)):
            if i < 2:
                # while the thread makes the next batches
                found += round(1e6 * trainer.train_epoch(epoch))
            found += int(comm.all_sum(np.array(digest(batch))))
        for batch in evaluation:
            found += int(comm.all_sum(np.array(digest(batch))))
    return found


def main() -> None:
    comm = gt.start()
    for mode in ("cooperative", "independent"):
        found = total(comm, mode)
        if comm.rank == 0:
            print(mode, found)


if __name__ == "__main__":
    main()
