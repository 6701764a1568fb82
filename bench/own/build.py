"""GraphTheta as a contender: from arrays to the first step, by part.

PYTHONPATH=bench python bench/own/build.py MODEL GRAPH.npz WEIGHTS.npz
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from contender import Input, Parts, edge_list, first_nodes, report
from own.fullbatch import Net, build

import graphtheta as gt
import graphtheta.engine.store.memory as memory
import graphtheta.run.dividing as setup


def main(model: str, graph: str, weights: str) -> None:
    z = Input.read(graph)
    with np.load(weights) as w:
        first = {name: w[name] for name in w.files}
    classes, few, edges = z.classes, first_nodes(z), edge_list(z)
    build_partition, taken = setup.build_partition, memory.taken

    def make(d_in: int, d_out: int, d_edge: int) -> Net:
        return build(model, d_in, d_out, d_edge)

    def run(z: Input, edges: tuple[np.ndarray, np.ndarray]) -> tuple[Parts, list[float]]:
        parts = Parts()
        losses = []

        def timed(*args: Any, **options: Any) -> Any:
            with parts.timed("partition"):
                return build_partition(*args, **options)

        def copied(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
            with parts.timed("copy"):
                return taken(x, rows)

        setup.build_partition, memory.taken = timed, copied
        with parts.timed("start"):
            with parts.timed("construction"):
                whole = gt.Graph(edges, z.n, x=z.x, y=z.y, n_classes=classes, train=z.train)
            trainer = gt.Trainer(make, whole, strategy="global", lr=0.01, weight_decay=0.0)
        trainer.model.load_state(first)
        trainer.model.dropout = 0.0
        for epoch, step in enumerate(("first", "second")):
            with parts.timed(step):
                losses.append(trainer.train_epoch(epoch))
        return parts, losses

    run(few, edge_list(few))
    parts, losses = run(z, edges)
    report(
        parts.seconds, {"steps": losses}, f"graphtheta {gt.__version__}", processor=parts.processor
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
