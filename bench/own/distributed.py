"""GraphTheta as a contender: mini-batch steps of a GCN on the ranks of this program.

    PYTHONPATH=bench mpiexec -n 2 python bench/own/distributed.py GRAPH.npz WEIGHTS.npz FANOUT \\
        TARGETS BATCHES

Fan-outs of -1 keep all neighbours.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

import numpy as np
from contender import WARM, Input, first_nodes, peak_bytes, report
from own.minibatch import Net, as_graph

import graphtheta as gt
from graphtheta.engine.runtime.start import start
from graphtheta.models import GCN


def build(d_in: int, hidden: int, d_out: int, hops: int) -> Net:
    """A GCN with a layer for each hop."""
    widths = [d_in] + [hidden] * (hops - 1)
    return Net([GCN(d, e) for d, e in zip(widths, [*widths[1:], d_out], strict=True)])


def main(graph: str, weights: str, fanout: str, targets: str, batches: str) -> None:
    comm = start()
    z = Input.read(graph)
    hops = len(fanout.split(","))
    with np.load(weights) as w:
        first = {name: w[name] for name in w.files}
    hidden = next(iter(first.values())).size // z.x.shape[1]

    def make(d_in: int, d_out: int, d_edge: int) -> Net:
        return build(d_in, hidden, d_out, hops)

    def trainer_of(graph: gt.Graph, **keys: Any) -> gt.Trainer:
        trainer = gt.Trainer(make, graph, comm=comm, lr=0.003, weight_decay=0.0, **keys)
        trainer.model.load_state(first)
        return trainer

    few = trainer_of(as_graph(first_nodes(z)), strategy="global")
    few.model.dropout = 0.0
    losses = [few.train_epoch(0)]
    keys = {} if "-1" in fanout else {"fanout": fanout}
    trainer = trainer_of(as_graph(z), strategy="mini", batch_size=int(targets), **keys)
    del z, few
    strategy = trainer.strategy
    seconds = []
    nodes = []
    for i in range(int(batches) + WARM):
        comm.barrier()
        began = perf_counter()
        view = strategy.batch(*divmod(i, strategy.steps_per_epoch))
        trainer.training.update(view)
        comm.barrier()
        seconds.append(perf_counter() - began)
        nodes.append(int(comm.all_sum(np.array(view.space.n))))
    peak = int(comm.all_sum(np.array(peak_bytes())))
    if comm.rank == 0:
        report(
            {"step": seconds[WARM:]},
            {"loss": losses},
            f"graphtheta {gt.__version__}",
            nodes=float(np.mean(nodes[WARM:])),
            GiB=peak / 2**30,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
