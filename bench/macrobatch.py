"""Messages, bytes and features of mini-batches: one by one, in macrobatches, and with aggregated
features.

    python bench/macrobatch.py
    python bench/macrobatch.py --workers 2 4 --sizes 4 --groups 8 --out macrobatch.jsonl

Workers are simulated, so counts are exact and times mean nothing. SAGE of 3 layers samples 15, 10
and 5 neighbours; each worker computes batches of its own (--mode independent). Nothing is trained:
views are made for the first groups of an epoch, one view for each worker in a group.

- messages, MiB: what all workers send to expand views and to deal their structure;
- vectors: features and totals fetched from other workers, and their MiB at the width of Reddit;
- imbalance: mean over the groups of (largest - smallest) work of a worker, over the mean work, in
  edges that views use.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from harness import table

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.train.reuse.macrobatch.ahead import Macrobatches

# bytes of the features of a node of Reddit
WIDTH = 602 * 4
COLUMNS = [
    "workers",
    "contender",
    "order",
    "messages",
    "MiB",
    "vectors",
    "vectors MiB",
    "imbalance",
]


def measured(comm: Comm, trainer: gt.Trainer, size: int, groups: int) -> dict[str, Any]:
    """Make the views of the first groups of an epoch, ``size`` groups at a time; 0 makes them one
    by one.
    """
    training = trainer.training
    features = trainer.training.features
    masters = trainer.partition.masters
    columns, vectors, apart, fetch = (
        len(trainer.partition.node.wide()),
        0,
        np.zeros(2, np.int64),
        features.fetch,
    )

    def counted(ids: list[np.ndarray]) -> list[dict[str, Any]]:
        nonlocal vectors
        vectors += columns * len(np.setdiff1d(np.concatenate(ids), masters))
        before = sent(comm)
        rows = fetch(ids)
        apart[:] += sent(comm) - before
        return rows

    features.fetch = counted
    training.ahead = (
        Macrobatches(trainer.strategy, features, comm.size, size, size) if size else None
    )
    before = sent(comm)
    views = training._views(0, [(i * comm.size, (i + 1) * comm.size) for i in range(groups)])
    edges = [sum(level.n_edges for level in make().levels) for make in views]
    features.fetch = fetch
    messages, n_bytes = comm.all_sum(sent(comm) - before - apart).tolist()
    vectors = int(comm.all_sum(np.array(vectors)))
    each = np.array(comm.all_gather(np.array(edges, np.int64)))
    return {
        "messages": messages,
        "MiB": n_bytes / 2**20,
        "vectors": vectors,
        "vectors MiB": vectors * WIDTH / 2**20,
        "imbalance": float(np.mean((each.max(axis=0) - each.min(axis=0)) / each.mean(axis=0))),
    }


def sent(comm: Comm) -> np.ndarray:
    """Messages and bytes that this worker has sent."""
    books = comm.ledger.snapshot().values()
    return np.array(
        [sum(book[field] for book in books) for field in ("messages", "bytes")], np.int64
    )


def program(
    comm: Comm, graph: gt.Graph, options: argparse.Namespace, order: str, precompute: bool
) -> list[dict[str, Any]]:
    """The rows of the table for a graph and a number of workers."""
    trainer = gt.Trainer(
        "sage",
        graph,
        comm=comm,
        strategy="mini",
        layers=3,
        hidden=16,
        dropout=0.0,
        fanout=options.fanout,
        batch_size=options.batch,
        views_per_step=comm.size,
        mode="independent",
        macrobatch=2,
        precompute=precompute,
        backend="reference",
        order=order,
    )
    groups = min(options.groups, trainer.strategy.steps_per_epoch // comm.size)
    rows = []
    for size in ([] if precompute else [0]) + options.sizes:
        name = (
            "one by one"
            if not size
            else f"macrobatches of {size}" + (", aggregated" if precompute else "")
        )
        rows.append(
            {
                "workers": comm.size,
                "contender": name,
                "order": order,
                "size": size,
                "aggregated": precompute,
                "groups": groups,
                **measured(comm, trainer, size, groups),
            }
        )
    return rows


def main() -> int:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--graph",
        default="rmat:scale=15,edge_factor=175,features=16,classes=8",
        help="any name that gt.load knows",
    )
    made.add_argument("--batch", type=int, default=100, help="targets of a view")
    made.add_argument("--fanout", default="15,10,5")
    made.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8])
    made.add_argument(
        "--sizes", type=int, nargs="+", default=[1, 4, 16], help="groups of a macrobatch"
    )
    made.add_argument("--groups", type=int, default=16, help="groups to make")
    made.add_argument("--orders", nargs="+", default=["random", "proximity"])
    made.add_argument("--out", type=Path)
    options = made.parse_args()
    graph = gt.load(options.graph)
    rows: list[dict[str, Any]] = []
    for workers in options.workers:
        for order in options.orders:
            for precompute in (False, True):
                rows += run_simulated(workers, program, graph, options, order, precompute)[0]
    print(table(rows, COLUMNS))
    if options.out:
        options.out.write_text(
            "".join(json.dumps({"graph": options.graph, **row}) + "\n" for row in rows),
            encoding="utf-8",
        )
    return 0 if all(falls(rows, row) for row in rows) else 1


def falls(rows: list[dict[str, Any]], row: dict[str, Any]) -> bool:
    """Whether larger macrobatches than this one send fewer messages and fetch fewer vectors."""
    same = [
        other
        for other in rows
        if all(other[key] == row[key] for key in ("workers", "order", "aggregated"))
    ]
    return all(
        other["messages"] <= row["messages"] and other["vectors"] <= row["vectors"]
        for other in same
        if other["size"] > row["size"]
    )


if __name__ == "__main__":
    sys.exit(main())
