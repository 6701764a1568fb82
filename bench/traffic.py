"""What workers send each other for sampled mini-batches, by node partitioner, and what it cuts.

    python bench/traffic.py   R-MAT, facebook100, cnr_2000, Amazon graphs and an SBM, 4 simulated
                              workers
    python bench/traffic.py --graphs cnr_2000 --masters hash metis

"cut" is the share of edges whose ends have different owners, and "two hops" that of paths of two
edges in any direction; "nodes" and "train" are the largest of a worker over the mean. A step has a
batch for each worker. Counts are of the first steps of an epoch, over all workers:

- "expand": KiB that workers send to sample the views of a step, without features;
- "values": KiB of values that cooperative workers send in a step, forward and backward;
- "features": rows of features that independent workers fetch from each other in a step.

Batches are defined globally and do not depend on the partition: a batch of independent workers has
targets, and so features, of all of them under any partitioner.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from caches import GRAPHS, graph_of
from harness import finish, parser

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import assign
from graphtheta.partitioners.report import OneOf
from graphtheta.train.loop.modes import count_modes
from graphtheta.train.reuse.caching.scout import Scout

MASTERS = [
    "hash",
    "block",
    "ldg",
    "ldg:passes=5",
    "fennel",
    "bgl",
    # as published, with the number of blocks of the first versions
    "bgl:blocks=512,passes=1,second=1",
    "bgl:second=1",
    "grem",
    "metis",
]
SBM = "sbm:n_nodes=20000,n_edges=200000,classes=16,inside=0.9"
COLUMNS = [
    "graph",
    "masters",
    "cut",
    "two hops",
    "nodes",
    "train",
    "expand",
    "expand, of hash",
    "values",
    "values, of hash",
    "features",
    "features, of hash",
]


def program(
    comm: Comm, graph: gt.Graph, keys: dict[str, Any], steps: int
) -> tuple[float, int, float]:
    """Bytes to expand the views of a step on this worker, bytes of values of a step, and rows that
    this worker fetches.
    """
    one = gt.Trainer(graph=graph, comm=comm, **keys)
    before = comm.ledger.receivers(comm.size)[:, 0].sum()
    for make in one.strategy.makers(0, 0, steps * comm.size):
        make()
    expanded = float(comm.ledger.receivers(comm.size)[:, 0].sum() - before) / steps
    sent = count_modes(one.strategy, one.probe, comm.size, 4).sent["cooperative"]
    scout = Scout(one.strategy, comm.size, True, own=False)
    return expanded, sent, sum(map(len, scout.dry_run(0, 0, steps))) / steps


def cuts(graph: gt.Graph, masters: str, workers: int) -> dict[str, float]:
    """Shares of edges and of paths that a partitioner cuts, and how even its parts are."""
    owner, _ = assign(EdgeSource(graph), OneOf(workers), "1d-src", masters, 0)
    # for each node, the ends of its edges with each owner
    ends = np.zeros((graph.n_nodes, workers))
    np.add.at(ends, (graph.src, owner[graph.dst]), 1)
    np.add.at(ends, (graph.dst, owner[graph.src]), 1)
    return {
        "cut": float(np.mean(owner[graph.src] != owner[graph.dst])),
        "two hops": float(1 - np.sum(ends**2) / np.sum(ends.sum(axis=1) ** 2)),
        "nodes": float(np.bincount(owner).max() * workers / graph.n_nodes),
        "train": float(np.bincount(owner[graph.train]).max() * workers / graph.train.sum()),
    }


def row_of(name: str, graph: gt.Graph, masters: str, options: Any) -> dict[str, Any]:
    """Counts of a partitioner."""
    keys = {
        "model": "sage",
        "strategy": "mini",
        "hidden": 64,
        "layers": options.fanout.count(",") + 1,
        "fanout": options.fanout,
        "batch_size": options.targets,
        "masters": masters,
    }
    found = run_simulated(options.workers, program, graph, keys, options.steps)
    return {
        "graph": name.partition(":")[0],
        "masters": masters,
        **cuts(graph, masters, options.workers),
        "expand": sum(x for x, _, _ in found) / 2**10,
        "values": found[0][1] / 2**10,
        "features": sum(x for _, _, x in found),
        "seconds": None,
        "label": f"{name} {masters}",
    }


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument(
        "--graphs",
        nargs="+",
        default=[*GRAPHS, "amazon_photo", "amazon_computers", SBM],
        help="names for gt.load",
    )
    options.add_argument(
        "--masters", nargs="+", default=MASTERS, help="node partitioners, hash first"
    )
    options.add_argument("--workers", type=int, default=4, help="simulated; 4")
    options.add_argument("--fanout", default="5,10,15", help="one number for each layer; 5,10,15")
    options.add_argument("--targets", type=int, default=100, help="of a batch; 100")
    options.add_argument(
        "--share", type=float, default=0.2, help="of the nodes that are targets; 0.2"
    )
    options.add_argument("--steps", type=int, default=4, help="counted; 4")
    options = options.parse_args()
    rows = list[dict[str, Any]]()
    for name in options.graphs:
        graph = graph_of(name, options.share)
        of_graph = [row_of(name, graph, masters, options) for masters in options.masters]
        for row in of_graph:
            row |= {
                f"{what}, of hash": row[what] / of_graph[0][what]
                for what in ("expand", "values", "features")
            }
        rows += of_graph
    return finish(
        options,
        rows,
        COLUMNS,
        [],
        bench="traffic",
        workers=options.workers,
        fanout=options.fanout,
        targets=options.targets,
        share=options.share,
    )


if __name__ == "__main__":
    sys.exit(main())
