"""Predictions for nodes that are appended to an R-MAT graph, against those of a pass over the whole graph.

    python bench/appended.py
    python bench/appended.py --scale 15 --models gcn,gat --share 0.01

Appended nodes have as many edges as a node of the graph on average. The ends of these edges in the
old graph are those of random edges, so that hubs have many. "in" appends edges from old nodes to new
ones; "both" appends their reverse too. "all" predicts every node of the grown graph, "appended" the
new ones. Nodes are compared by all values and edges, or by degrees alone. "edges %" and
"processor %" are shares of the pass over the whole graph: the edges of all layers, and the
processor time of all that follows the partition, with the search for changes ("comparing %" alone).
Predictions must agree to 1e-9 of the largest one, in float64. Cases of "in" fail above 5 % of the
edges.
"""
from __future__ import annotations

import shutil
import sys
from functools import partial
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from harness import finish, parser

import graphtheta as gt

COLUMNS = ["case", "model", "compared", "predicted", "rows %", "edges %", "processor %", "comparing %", "whole s", "error"]
LIMIT = 5.0


def grown(graph: gt.Graph, share: float, both: bool) -> gt.Graph:
    """The graph with appended nodes."""
    rng, n, k = np.random.default_rng(7), graph.n_nodes, round(share * graph.n_nodes)
    per = round(graph.n_edges / n)
    old, new = graph.src[rng.integers(0, graph.n_edges, k * per)], np.repeat(np.arange(n, n + k), per)
    ends = (np.concatenate((graph.src, old, new if both else new[:0])), np.concatenate((graph.dst, new, old if both else old[:0])))
    return gt.Graph(ends, n + k, x=np.concatenate((graph.x, rng.standard_normal((k, graph.n_features)))))


def timed(work: Any, rounds: int) -> tuple[Any, float]:
    """The last result of some work, and the median of its processor time."""
    seconds, found = [], None
    for _ in range(rounds):
        began = process_time()
        found = work()
        seconds.append(process_time() - began)
    return found, median(seconds)


def rows_of(model: str, graph: gt.Graph, options: Any) -> list[dict[str, Any]]:
    """Figures of a model: both ways of appending, all nodes and the appended ones."""
    trainer = gt.Trainer(model, graph, layers=3, hidden=options.hidden, dtype="float64", epochs=0)
    folder, found = options.folder / f"appended-{model}", []
    trainer.on(graph).keep_layers(folder)
    for both in (False, True):
        later = trainer.on(grown(graph, options.share, both))
        # machine code is compiled in the first calls
        later.predict()
        whole, seconds = timed(later.predict, options.rounds)
        for compare, appended in (("values", False), ("degrees", False), ("degrees", True)):
            update, comparing = timed(lambda later=later, compare=compare: later.since(folder, compare), options.rounds)
            predict = partial(update.predict, appended=appended)
            predict()
            (ids, out), computing = timed(predict, options.rounds)
            work, error = update.work, np.abs(out - whole[1][ids]).max() / np.abs(whole[1]).max()
            row = {"case": "both" if both else "in", "model": model, "compared": compare, "predicted": "appended" if appended else "all"}
            found.append({**row, "rows %": 100 * work.rows / work.all_rows, "edges %": 100 * work.edges / work.all_edges,
                          "processor %": 100 * (comparing + computing) / seconds, "comparing %": 100 * comparing / seconds,
                          "whole s": seconds, "error": float(error)})
    shutil.rmtree(folder)
    return found


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument("--scale", type=int, default=17, help="logarithm of the number of nodes; 17")
    options.add_argument("--hidden", type=int, default=64, help="values of a node; 64")
    options.add_argument("--share", type=float, default=0.01, help="appended nodes, as a share of the old ones; 0.01")
    options.add_argument("--models", default="gcn,sage,gat", help="gcn,sage,gat")
    options = options.parse_args()
    graph = gt.load(f"rmat:scale={options.scale},features={options.hidden}")
    rows = [row for model in options.models.split(",") for row in rows_of(model, graph, options)]
    faults = [f"{row['model']}, {row['case']}: predictions differ by {row['error']:.1e}" for row in rows if not row["error"] <= 1e-9]
    faults += [f"{row['model']}: {row['edges %']:.1f} % of the edges" for row in rows if row["case"] == "in" and row["edges %"] > LIMIT]
    return finish(options, rows, COLUMNS, faults, [], bench="appended", scale=options.scale, hidden=options.hidden, share=options.share)


if __name__ == "__main__":
    sys.exit(main())
