"""Time of GraphTheta from an empty process to its first step.

    PYTHONPATH=bench python bench/own/start.py {cold|warm} MODEL GRAPH.npz CACHE

A cold start has an empty kernel cache; a warm start has the kernel cache CACHE.
"""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import pairwise
from time import perf_counter, process_time

from contender import EDGE_ATTRIBUTES, Input, drawn, report

EPOCHS = 5


def main(state: str, model: str, graph: str, cache: str) -> None:
    with tempfile.TemporaryDirectory() as empty:
        folder = empty if state == "cold" else cache
        os.environ["GRAPHTHETA_CACHE"] = folder
        z = Input.read(graph)
        attr = drawn(z.n_edges, EDGE_ATTRIBUTES) if model == "gat_e" else None
        began = perf_counter()
        used_before = process_time()
        # imports belong to the start
        from own.fullbatch import as_graph, build

        import graphtheta as gt

        def make(d_in: int, d_out: int, d_edge: int) -> gt.Model:
            return build(model, d_in, d_out, d_edge)

        trainer = gt.Trainer(make, as_graph(z, attr), strategy="global", weight_decay=0.0)
        times = [perf_counter()]
        used = 0.0
        for epoch in range(EPOCHS):
            trainer.train_epoch(epoch)
            times.append(perf_counter())
            # of all threads, without reading the graph
            used = used or process_time() - used_before
        steps = [b - a for a, b in pairwise(times)]
        report(
            {
                "build": [times[0] - began],
                "first": steps[:1],
                "steady": steps[1:],
                "processor": [used],
            },
            {},
            f"graphtheta {gt.__version__}",
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
