"""Rows of features read per target: each mechanism that avoids reading them alone, and all
together.

    python bench/together.py   R-MAT, facebook100 and cnr_2000, 4 simulated workers
    python bench/together.py --graphs rmat:scale=12,features=4,classes=4 --workers 2

All contenders train on equally many targets in a step: P batches of b (independent workers) or one
of P x b (cooperative workers, each of which reads the rows of its own nodes). Counts are those of
real runs, found by expanding all views, over all workers:

- "rows": rows that the workers read per target, if none is held. Independent workers read all rows
  of their batches, from each other or from files. A row that several of them need counts several
  times; with cooperative workers its owner reads it once;
- "lru", "belady": the same behind caches of a share of the nodes in total, divided among the
  workers;
- "of plain": the last number of the contender, relative to "rows" of plain independent mode.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from caches import GRAPHS, Replay, graph_of, hits
from harness import finish, parser

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.train.reuse.caching.scout import Scout

COLUMNS = ["graph", "contender", "targets", "rows", "lru", "belady", "of plain"]


def ways(kappa: int, sequences: int) -> dict[str, dict[str, Any]]:
    """Keys of each contender."""
    alone = {
        "cooperative": {"mode": "cooperative"},
        "labor": {"sampler": "labor"},
        "kappa": {"sampler": f"labor:kappa={kappa}"},
        "ordering": {"order": f"proximity:sequences={sequences}"},
    }
    together: dict[str, Any] = alone["cooperative"] | alone["kappa"]
    return {
        "plain": {},
        **alone,
        "cooperative, labor": alone["cooperative"] | alone["labor"],
        "cooperative, kappa": together,
        "all": together | alone["ordering"],
    }


def read_by(
    comm: Comm, graph: gt.Graph, keys: dict[str, Any], epochs: int
) -> tuple[list[np.ndarray], int]:
    """Rows that this worker reads for each group of views, and targets of an epoch."""
    one = gt.Trainer(graph=graph, comm=comm, **keys)
    scout = Scout(one.strategy, one.setup.views_per_step, one.setup.independent, own=True)
    return list(scout.dry_run(0, 0, epochs * scout.groups_per_epoch)), one.strategy.task.n_targets


def row_of(
    name: str, contender: str, graph: gt.Graph, keys: dict[str, Any], options: Any
) -> dict[str, Any]:
    """Counts of a contender."""
    each = 1 if keys["mode"] == "independent" else options.workers
    job = {
        "model": "sage",
        "hidden": 4,
        "strategy": "mini",
        "layers": options.fanout.count(",") + 1,
        "fanout": options.fanout,
        **keys,
        "batch_size": options.targets * each,
        "views_per_step": options.workers // each,
    }
    found = run_simulated(options.workers, read_by, graph, job, options.epochs)
    targets = found[0][1] * options.epochs
    capacity = round(options.cache / 100 * graph.n_nodes / options.workers)
    total = sum(len(batch) for batches, _ in found for batch in batches)
    replays = [Replay(batches, np.zeros(0, np.int64), 1) for batches, _ in found]
    held = {
        policy: sum(hits(replay, policy, capacity) for replay in replays)
        for policy in ("lru", "belady")
    }
    return {
        "graph": name.partition(":")[0],
        "contender": contender,
        "targets": found[0][1],
        "rows": total / targets,
        **{policy: (total - n) / targets for policy, n in held.items()},
        "seconds": None,
        "label": f"{name} {contender}",
    }


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument("--graphs", nargs="+", default=GRAPHS, help="names for gt.load")
    options.add_argument("--workers", type=int, default=4, help="simulated; 4")
    options.add_argument(
        "--cache", type=float, default=20, help="of all workers together, in %% of the nodes; 20"
    )
    options.add_argument("--fanout", default="10,5", help="one number for each layer; 10,5")
    options.add_argument("--targets", type=int, default=256, help="of a step, for each worker; 256")
    options.add_argument(
        "--share", type=float, default=0.2, help="of the nodes that are targets; 0.2"
    )
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument(
        "--kappa", type=int, default=32, help="batches over which draws change; 32"
    )
    options.add_argument("--sequences", type=int, default=5, help="of the proximity order; 5")
    options = options.parse_args()
    rows = list[dict[str, Any]]()
    faults = list[str]()
    for name in options.graphs:
        graph = graph_of(name, options.share)
        of_graph = list[dict[str, Any]]()
        for contender, keys in ways(options.kappa, options.sequences).items():
            of_graph.append(
                row_of(name, contender, graph, {"mode": "independent", **keys}, options)
            )
            of_graph[-1]["of plain"] = of_graph[-1]["belady"] / of_graph[0]["rows"]
        if min(row["belady"] for row in of_graph[:-1]) < of_graph[-1]["belady"]:
            faults.append(f"{name}: all mechanisms together read more rows than one of them")
        rows += of_graph
    return finish(
        options,
        rows,
        COLUMNS,
        faults,
        bench="together",
        workers=options.workers,
        fanout=options.fanout,
        targets=options.targets,
        cache=options.cache,
        kappa=options.kappa,
        sequences=options.sequences,
        share=options.share,
    )


if __name__ == "__main__":
    sys.exit(main())
