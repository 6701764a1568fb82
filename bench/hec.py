"""Hit rates of the historical embedding cache per layer, against its lines, its age limit and what
is pushed.

    python bench/hec.py   R-MAT and facebook100, 2 to 64 simulated workers
    python bench/hec.py --graphs rmat:scale=12 --workers 2 --targets 50

GraphSAGE of three layers with 5, 10 and 15 neighbours from the targets outwards, METIS, and batches
of each worker's own targets, as in DistGNN-MB. Views are those of real training and every message
is sent, but embeddings have no numbers in them: which nodes are found depends on which ones are
computed and drawn, so the counts are exact. "L0" are the features, "L1" and "L2" the results of the
first two layers; rates are those after the first epoch, in percent, over all workers. "MiB" is what
a worker pushes for a batch if rows have 128 numbers in features and 256 in layers. One option at a
time differs from "ls=2,nc=2000,d=1" and no limit of lines; "cs" is given in percent of the mirrors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from caches import graph_of
from harness import finish, parser

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.view.hop import hops
from graphtheta.ops.autodiff.tape import Var

GRAPHS = ["rmat:scale=16,edge_factor=16,features=4,classes=4", "facebook100:colleges=1,target=year"]
JOB: dict[str, Any] = {
    "model": "sage",
    "hidden": 4,
    "layers": 3,
    "fanout": "5,10,15",
    "strategy": "mini",
    "mode": "independent",
    "partitioner": "1d-dst",
    "masters": "metis",
}
# numbers in a row of features and of a layer
WIDTHS = {0: 128, 1: 256, 2: 256}
BASE = {"cs": -1, "ls": 2, "nc": 2000, "d": 1}
CHANGES: list[dict[str, int]] = [
    {},
    {"cs": 10},
    {"cs": 25},
    {"cs": 50},
    {"ls": 0},
    {"ls": 1},
    {"ls": 4},
    {"ls": 8},
    {"nc": 100},
    {"nc": 500},
    {"nc": -1},
    {"d": 0},
    {"d": 2},
]
COLUMNS = [
    "graph",
    "workers",
    "cs",
    "ls",
    "nc",
    "d",
    "L0",
    "L1",
    "L2",
    "MiB",
    "imbalance",
    "batches",
    "mirrors",
]


def program(
    comm: Comm, graph: gt.Graph, targets: int, epochs: int, changes: list[dict[str, int]]
) -> list[dict[str, Any]]:
    """Figures for each change of the options."""
    made = gt.Trainer(graph=graph, comm=comm, **JOB, batch_size=targets, history="hec")
    mirrors = made.partition.n_mirrors
    return [
        {
            **BASE,
            **change,
            **measured(
                comm=comm,
                graph=graph,
                targets=targets,
                epochs=epochs,
                options={**BASE, **change},
                mirrors=mirrors,
            ),
        }
        for change in changes
    ]


def measured(
    comm: Comm, graph: gt.Graph, targets: int, epochs: int, options: dict[str, int], mirrors: int
) -> dict[str, Any]:
    """Hit rates and pushed bytes."""
    lines = options["cs"] if options["cs"] < 0 else max(options["cs"] * mirrors // 100, 1)
    text = ",".join(f"{name}={value}" for name, value in {**options, "cs": lines}.items())
    one = gt.Trainer(graph=graph, comm=comm, **JOB, batch_size=targets, history=f"hec:{text}")
    strategy = one.strategy
    pushed = np.zeros(len(WIDTHS))
    push = one.strategy._link.push

    def counted(chosen: list[np.ndarray], rows: list[np.ndarray], most: int) -> Any:
        pushed[layer] += sum(map(len, chosen))
        return push(chosen, rows, most)

    strategy._link.push = counted
    batches = strategy.steps_per_epoch // comm.size
    edges = 0
    for epoch in range(epochs):
        if epoch == 1:
            strategy.figures()
            pushed[:] = edges = 0
        for i in range(batches):
            layer = 0
            view = strategy.batch(epoch, i * comm.size + comm.rank)
            for number, hop in enumerate(hops(strategy.layers)):
                layer = number + 1
                n = view.levels[number].n_out
                if hop.from_end:
                    view.revise(number, Var(np.zeros((n, 0), np.float32), view.space.prefix(n)))
            edges += sum(level.n_edges for level in view.levels)
    strategy.settle()
    found = strategy.figures()
    rows = comm.all_sum(pushed) / comm.size / batches / (epochs - 1)
    work = np.array(comm.all_gather(edges))
    n_bytes = sum(4 * width * rows[layer] for layer, width in WIDTHS.items())
    return {
        "L0": 100 * found["hit_rate_0"],
        "L1": 100 * found["hit_rate_1"],
        "L2": 100 * found["hit_rate_2"],
        "MiB": n_bytes / 2**20,
        "imbalance": 100 * (work.max() / work.mean() - 1),
        "batches": batches,
        "mirrors": int(comm.all_sum(np.array(mirrors))) / comm.size,
    }


def rows_of(name: str, workers: int, options: Any) -> Iterator[dict[str, Any]]:
    """A row for each change; more workers than four get the base alone."""
    changes = CHANGES if workers <= options.all_up_to else [{}, {"nc": -1}, {"ls": 8}]
    graph = graph_of(name, 0.2)
    targets = max(int(graph.train.sum()) // workers // options.batches, 1)
    for row in run_simulated(workers, program, graph, targets, options.epochs, changes)[0]:
        cs = "all" if row["cs"] < 0 else f"{row['cs']} %"
        yield {
            "graph": name.partition(":")[0],
            "workers": workers,
            **row,
            "cs": cs,
            "targets": targets,
            "nodes": graph.n_nodes,
            "edges": graph.n_edges,
            "seconds": None,
            "label": f"{name} {workers}",
        }


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument("--graphs", nargs="+", default=GRAPHS, help="names for gt.load")
    options.add_argument(
        "--workers",
        nargs="+",
        type=int,
        default=[2, 4, 8, 16, 32, 64],
        help="simulated; 2 4 8 16 32 64",
    )
    options.add_argument(
        "--all-up-to", type=int, default=4, help="workers for which all options are varied; 4"
    )
    options.add_argument("--batches", type=int, default=16, help="of a worker in an epoch; 16")
    options.add_argument("--epochs", type=int, default=3)
    options = options.parse_args()
    rows = [
        row
        for name in options.graphs
        for workers in options.workers
        for row in rows_of(name, workers, options)
    ]
    faults = [
        f"{row['graph']} {row['workers']}: more lines, age or pushed rows have fewer hits than the"
        " base"
        for row in rows
        for base in rows
        if (row["graph"], row["workers"]) == (base["graph"], base["workers"])
        and all(base[name] == value for name, value in {**BASE, "cs": "all"}.items())
        and (row["nc"] == -1 or row["ls"] > base["ls"])
        and row["cs"] == "all"
        and row["d"] == 1
        and row["L1"] < base["L1"] - 1e-9
    ]
    return finish(options, rows, COLUMNS, faults, bench="hec")


if __name__ == "__main__":
    sys.exit(main())
