"""Caches of features that the workers of a machine share, against one for each worker: rows that
machines fetch from each other.

    python bench/machines.py                              2 machines of 2, 4 and 8 simulated workers
    python bench/machines.py --graphs rmat:scale=12,features=4,classes=4 --per-machine 2

Both take the same memory: "cache" is that of a machine, in % of all nodes, divided among its
workers. The reads are those of real runs, found by expanding all views, and are replayed. Numbers
are relative to "rows", what all machines fetch from each other in an epoch without a cache.
"merged" is a shared cache that holds nothing: a row that several workers of a machine read in the
same step is fetched once. That it is the least is checked.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from caches import GRAPHS, JOB, Replay, graph_of, hits
from harness import finish, parser

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.train.reuse.caching.relay import Agents
from graphtheta.train.reuse.caching.scout import Scout

POLICIES = ["lru", "belady"]
COLUMNS = [
    "graph",
    "machines",
    "cache",
    "rows",
    "merged",
    *(f"{policy}, {kind}" for policy in POLICIES for kind in ("own", "shared")),
]


def read_by(
    comm: Comm, graph: gt.Graph, keys: dict[str, Any], per_machine: int, epochs: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Keys of rows of other machines for each group of views: what this worker reads, and what it
    is asked for by its mates.
    """
    comm.machines = np.arange(comm.size) // per_machine
    one = gt.Trainer(graph=graph, comm=comm, **keys)
    scout = Scout(one.strategy, comm.size, True, own=False)
    agents = Agents(comm)
    locate = one.partition.directory.locate
    own = list[np.ndarray]()
    served = list[np.ndarray]()
    for ids in scout.dry_run(0, 0, epochs * scout.groups_per_epoch):
        owner, row = locate(ids)
        own.append(ids[agents.far[owner]])
        served.append(agents.served(owner, row))
    return own, served


def rows_of(name: str, per_machine: int, options: Any) -> list[dict[str, Any]]:
    """A row for each size."""
    graph = graph_of(name, options.share)
    workers = 2 * per_machine
    keys = {
        **JOB,
        "fanout": options.fanout,
        "layers": options.fanout.count(",") + 1,
        "batch_size": options.targets,
        "views_per_step": workers,
    }
    found = run_simulated(workers, read_by, graph, keys, per_machine, options.epochs)
    total = sum(len(batch) for own, _ in found for batch in own)
    merged = sum(len(batch) for _, served in found for batch in served)
    rows = []
    for size in options.sizes:
        capacity = max(1, round(size / 100 * graph.n_nodes / per_machine))
        row = {
            "graph": name.partition(":")[0],
            "machines": f"2 of {per_machine}",
            "cache": f"{size:g} %",
            "rows": total / options.epochs,
            "merged": merged / total,
            "seconds": None,
            "label": f"{name} {per_machine} {size:g}",
        }
        for policy in POLICIES:
            for kind, most in (("own", total), ("shared", merged)):
                held = sum(
                    hits(Replay(pair[kind == "shared"], np.zeros(0, np.int64), 1), policy, capacity)
                    for pair in found
                )
                row[f"{policy}, {kind}"] = (most - held) / total
        rows.append(row)
    return rows


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument("--graphs", nargs="+", default=GRAPHS, help="names for gt.load")
    options.add_argument(
        "--per-machine",
        type=int,
        nargs="+",
        default=[2, 4, 8],
        help="workers of each of two machines; 2 4 8",
    )
    options.add_argument(
        "--sizes",
        nargs="+",
        type=float,
        default=[5, 10, 20],
        help="of the cache of a machine, in %% of the nodes",
    )
    options.add_argument("--fanout", default="10,5", help="one number for each layer; 10,5")
    options.add_argument("--targets", type=int, default=256, help="of a batch of one worker; 256")
    options.add_argument(
        "--share", type=float, default=0.2, help="of the nodes that are targets; 0.2"
    )
    options.add_argument("--epochs", type=int, default=3)
    options = options.parse_args()
    rows = [
        row
        for name in options.graphs
        for each in options.per_machine
        for row in rows_of(name, each, options)
    ]
    faults = [
        f"{row['label']}: own caches fetch fewer rows than shared ones"
        for row in rows
        for policy in POLICIES
        if row[f"{policy}, own"] < row[f"{policy}, shared"]
    ]
    return finish(
        options,
        rows,
        COLUMNS,
        faults,
        bench="machines",
        fanout=options.fanout,
        targets=options.targets,
        share=options.share,
    )


if __name__ == "__main__":
    sys.exit(main())
