"""Run under mpiexec: jobs that rank all nodes, and one with order statistics; rank 0 writes their
numbers to the file named.
"""

import sys

import numpy as np
from test_retrieval import KEYS, bipartite, plain

import graphtheta as gt
from graphtheta.engine.runtime.start import run_main, start

LINKS = {
    "plain": (plain, {"partitioner": "vertex-cut"}),
    "bipartite": (bipartite, {"link_relation": "rates"}),
}


class Orders(gt.Layer):
    """Order statistics of a message of both ends, and a mean beside them."""

    sum = ("median", "mean", gt.TopK(3))

    def __init__(self, d_in: int, d_out: int):
        self.src, self.dst, self.out = (
            gt.Parameter.glorot(*shape) for shape in ((d_in, 4), (d_in, 4), (20, d_out))
        )

    def transform(self, node):
        return {"z": node.h @ self.src, "y": node.h @ self.dst}

    def gather(self, edge):
        return gt.tanh(edge.src.z + edge.dst.y)

    def apply(self, node, total):
        return gt.concat([total.median, total.mean, gt.flatten(total.top3)]) @ self.out


class Net(gt.Model):
    def __init__(self, d_in: int, d_out: int):
        self.first = Orders(d_in, 6)
        self.last = Orders(6, d_out)

    def forward(self, graph):
        return self.last(graph, gt.relu(self.first(graph, graph.x)))


def main(path: str) -> int:
    comm = start()
    found = {}
    for name, (graph, keys) in LINKS.items():
        trainer = gt.Trainer("sage", graph(), comm=comm, **{**KEYS, **keys})
        trainer.fit()
        measured = trainer.measure()
        found[f"rank all|{name}"] = [measured[key] for key in sorted(measured)]
    # a vertex cut: in-edges of most nodes are on several workers
    for name, keys in {
        "whole graph": {"strategy": "global"},
        "batches": {"strategy": "mini", "batch_size": 40},
    }.items():
        trainer = gt.Trainer(
            Net,
            gt.load("sbm:n_nodes=120,n_edges=900"),
            comm=comm,
            epochs=2,
            dtype="float64",
            backend="reference",
            partitioner="vertex-cut",
            optimiser="sgd",
            **keys,
        )
        losses = [row["loss"] for row in trainer.fit().history]
        found[f"orders|{name}"] = np.concatenate(
            [losses, *(x.ravel() for x in trainer.model.state().values())]
        )
    if comm.rank == 0:
        np.savez(path, **found)
    return 0


if __name__ == "__main__":
    sys.exit(run_main(lambda: main(*sys.argv[1:])))
