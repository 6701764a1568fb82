"""Bytes that a training step sends, against the prediction and PowerGraph's scheme.

    python bench/bytes.py
    python bench/bytes.py --graphs computers --ranks 4 --models gcn

Each row runs a step on simulated ranks. "sent" is what the ledger counts. It must equal the
prediction from the plans, which is the lower bound: for each superstep, one copy for each pair of a
master and a mirror with an active edge, times the width of the columns that are read or summed
there, or of their gradients. "all mirrors" is PowerGraph's scheme on the same partition: in each
superstep every mirror of every active node sends a partial sum and receives the columns, and the
same in the backward pass. If the two ends of edges read different columns, it counts the wider set
only. Messages and halo columns that are still in memory after a step are counted; there must be
none.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import weakref
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from harness import say, table
from inputs import GRAPHS

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.partition import exchange
from graphtheta.engine.partition.message import Columns, MessageBuffer
from graphtheta.ops import Tape

GRAPHS = {
    "rmat 16": "rmat:scale=16,edge_factor=16,features=64,classes=41",
    "computers": GRAPHS["computers"],
}
PARTITIONERS = ("1d-src", "1d-dst", "vertex-cut")
MODELS = ("gcn", "gat")
STRATEGIES: dict[str, dict[str, Any]] = {
    "global": {},
    "mini": {"batch_size": 256},
    "cluster": {"clusters": 50, "clusters_per_batch": 5, "cluster_method": "metis"},
}
COLUMNS = [
    "graph",
    "model",
    "strategy",
    "partitioner",
    "ranks",
    "MB sent",
    "MB all mirrors",
    "times less",
    "halos left",
]


class Watched(MessageBuffer):
    """Message buffers that are known, with the columns read from them, as long as they exist."""

    made: list[weakref.ref[Any]] = []

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.made.append(weakref.ref(self))

    def read(self) -> Columns:
        """The columns of all rows."""
        found = super().read()
        self.made.extend(map(weakref.ref, found.values()))
        return found

    @classmethod
    def left(cls) -> int:
        """How many live."""
        gc.collect()
        return sum(ref() is not None for ref in cls.made)


def mirrors(trainer: gt.Trainer) -> np.ndarray:
    """How many workers have a mirror of each master, whatever they read of it."""
    part = trainer.partition
    counts = np.zeros(trainer.partition.n_masters, np.int64)
    for q in range(trainer.comm.size):
        rows = [
            plan.rows[plan.send_ptr[q] : plan.send_ptr[q + 1]]
            for plan, _ in part.relations["edge"].served(False)
        ]
        counts[np.unique(np.concatenate(rows))] += 1
    return counts


def step(comm: Any, graph: gt.Graph, model: str, keys: dict[str, Any]) -> np.ndarray:
    """Bytes of this rank in one step: sent, predicted, and what synchronising all mirrors of its
    masters would take; halos left.
    """
    trainer = gt.Trainer(model, graph, comm=comm, hidden=128, **keys)
    view = trainer.strategy.batch(0, 0)
    copies = mirrors(trainer)
    active = ActiveGraph(view)
    before = comm.ledger.snapshot()
    with Tape(all_sum=comm.all_sum) as tape:
        loss = trainer.setup.task.loss(view, trainer.model.run(active))
        tape.backward(loss)
    sent = comm.ledger.since(before)["move"]["bytes"]
    predicted = sum(t.forward + t.backward for t in active.traffic)
    synchronised = 0
    for level, t in zip(view.levels, active.traffic, strict=True):
        n = int(
            copies[: level.n_in].sum()
            if view.rows is None
            else copies[view.rows[: level.n_in]].sum()
        )
        w = t.widths
        synchronised += n * (
            max(w.src, w.dst)
            + w.partial
            + (w.backward_state + max(w.src_grad, w.dst_grad) if t.backward else 0)
        )
    del active, tape, loss
    comm.barrier()
    left = Watched.left()
    comm.barrier()
    return np.array([sent, predicted, synchronised, left])


def measured(
    graph: gt.Graph, model: str, strategy: str, partitioner: str, ranks: int
) -> dict[str, Any]:
    """A row of the table: bytes of all ranks."""
    keys = {"strategy": strategy, "partitioner": partitioner, **STRATEGIES[strategy]}
    sent, predicted, synchronised, left = np.sum(
        run_simulated(ranks, step, graph, model, keys), axis=0
    )
    return {
        "model": model,
        "strategy": strategy,
        "partitioner": partitioner,
        "ranks": ranks,
        "MB sent": sent / 1e6,
        "MB predicted": predicted / 1e6,
        "MB all mirrors": synchronised / 1e6,
        "times less": synchronised / sent,
        "halos left": int(left),
        "equal": bool(sent == predicted),
    }


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--graphs",
        nargs="+",
        default=list(GRAPHS),
        help=f"{', '.join(GRAPHS)}, or any name that gt.load knows",
    )
    options.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    options.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    options.add_argument("--ranks", nargs="+", type=int, default=[4, 8])
    options.add_argument("--out", type=Path, help="JSON lines, one per row")
    options = options.parse_args()
    exchange.MessageBuffer = Watched
    rows = []
    for name in options.graphs:
        graph = gt.load(GRAPHS.get(name, name), self_loops=True)
        for of in product(options.models, options.strategies, PARTITIONERS, options.ranks):
            rows.append({"graph": name, **measured(graph, *of)})
            say(" ".join(map(str, (name, *of))))
    print(table(rows, COLUMNS), flush=True)
    if options.out:
        with options.out.open("a", encoding="utf-8") as f:
            f.writelines(json.dumps({"bench": "bytes", **row}) + "\n" for row in rows)
    return (
        0
        if all(row["equal"] and not row["halos left"] for row in rows)
        else "a prediction is wrong, or a halo is left"
    )


if __name__ == "__main__":
    sys.exit(main())
