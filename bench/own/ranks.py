"""Full-batch epochs on the ranks of this program: times, and seconds, waiting and bytes by stage.

    PYTHONPATH=bench mpiexec -n 2 python bench/own/ranks.py MODEL GRAPH.npz WEIGHTS.npz EPOCHS \\
        DROPOUT PARTITIONER

The network is that of ``fullbatch.py``.
"""

from __future__ import annotations

import sys

import numpy as np
from contender import EDGE_ATTRIBUTES, Input, drawn, peak_bytes, report, train
from own.fullbatch import Net, as_graph, build

import graphtheta as gt
from graphtheta.engine.runtime.start import start

STAGES = ("transform", "move", "gather", "apply", "reduce", "other")
FIELDS = ("seconds", "wait", "bytes")


def main(model: str, graph: str, weights: str, epochs: str, dropout: str, partitioner: str) -> None:
    z = Input.read(graph)
    comm = start()
    whole = as_graph(z, drawn(z.n_edges, EDGE_ATTRIBUTES) if model == "gat_e" else None)

    def make(d_in: int, d_out: int, d_edge: int) -> Net:
        return build(model, d_in, d_out, d_edge)

    trainer = gt.Trainer(
        make,
        whole,
        comm=comm,
        strategy="global",
        lr=0.01,
        weight_decay=0.0,
        partitioner=partitioner,
    )
    del whole, z
    with np.load(weights) as w:
        trainer.model.load_state({name: w[name] for name in w.files})
    count = iter(range(1 << 30))
    books = []

    def step(share: float) -> float:
        trainer.model.dropout = share
        before = comm.ledger.snapshot()
        loss = trainer.train_epoch(next(count))
        books.append(comm.ledger.since(before))
        return loss

    seconds, losses = train(step, int(epochs), float(dropout))
    timed = books[-len(seconds) :]
    stages = {
        stage: {field: sum(b[stage][field] for b in timed) / len(timed) for field in FIELDS}
        for stage in STAGES
    }
    # over slow links: how long messages of an epoch were under way, and were waited for
    links, exposed = (
        getattr(comm, name, 0.0) / len(books) for name in ("link_seconds", "exposed_seconds")
    )
    ranks = comm.all_gather(
        {"peak": peak_bytes(), "stages": stages, "links": links, "exposed": exposed}
    )
    if comm.rank == 0:
        report({"epoch": seconds}, {"epoch": losses}, f"graphtheta {gt.__version__}", ranks=ranks)


if __name__ == "__main__":
    main(*sys.argv[1:])
