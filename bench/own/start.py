"""How long GraphTheta takes from nothing to its first step.

    python bench/own/start.py {cold|warm} MODEL GRAPH.npz CACHE

Cold begins with an empty folder of kernels, warm with CACHE.
"""
from __future__ import annotations

import os
import sys
import tempfile
from itertools import pairwise
from time import perf_counter

from contender import EDGE_ATTRIBUTES, Input, drawn, report

EPOCHS = 5


def main(state: str, model: str, graph: str, cache: str) -> None:
    with tempfile.TemporaryDirectory() as empty:
        folder = empty if state == "cold" else cache
        # kernels that are no edge programs are kept by Numba itself
        os.environ |= {"GRAPHTHETA_CACHE": folder, "NUMBA_CACHE_DIR": folder}
        z = Input.read(graph)
        attr = drawn(z.n_edges, EDGE_ATTRIBUTES) if model == "gat_e" else None
        ends = z.indices, z.destinations()
        began = perf_counter()
        # imports belong to the start
        from own.fullbatch import build

        import graphtheta as gt

        whole = gt.Graph(ends, z.n, x=z.x, y=z.y, n_classes=z.classes, edge_attr=attr, train=z.train)
        trainer = gt.Trainer(lambda d_in, d_out, d_edge: build(model, d_in, d_out, d_edge), whole, strategy="global", weight_decay=0.0)
        times = [perf_counter()]
        for epoch in range(EPOCHS):
            trainer.train_epoch(epoch)
            times.append(perf_counter())
        steps = [b - a for a, b in pairwise(times)]
        report({"build": [times[0] - began], "first": steps[:1], "steady": steps[1:]}, {}, f"graphtheta {gt.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
