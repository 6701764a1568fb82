"""Predictions for nodes that are appended to an R-MAT graph, against those of a pass over the whole
graph.

    python bench/appended.py
    python bench/appended.py --scale 15 --models gcn,gat --share 0.01

Appended nodes have as many edges as a node of the graph on average. The ends of these edges in the
old graph are those of random edges, so that hubs have many. "in" appends edges from old nodes to
new ones; "both" appends their reverse too. "all" predicts every node of the grown graph, "appended"
the new ones. Nodes are compared by all values and edges, or by degrees alone.

"edges %" and "processor %" are shares of the pass over the whole graph: of the edges of all layers,
and of the processor time of this process with all its threads. Both sides are measured from the
same state to predictions by original ids in memory, one after the other in each round: the grown
graph is loaded and partitioned, the dry run is done, machine code is compiled, and files are in the
memory of the system. The pass over the whole graph is ``predict()``; the update is
``since(folder)``, which opens the folder, reads ids and fingerprints of all nodes and searches for
changes ("comparing %" alone), and ``predict``. "set-up s" is the processor time of ``on(graph)``
before, the same for both sides and in neither. Predictions must agree to 1e-9 of the largest one,
in float64. Cases of "in" fail above 5 % of the edges.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from harness import finish, parser

import graphtheta as gt

COLUMNS = [
    "case",
    "scale",
    "model",
    "compared",
    "predicted",
    "rows %",
    "edges %",
    "processor %",
    "comparing %",
    "whole s",
    "set-up s",
    "error",
]
LIMIT = 5.0
# logarithm of the number of nodes: rows of a gat are eight times as wide
SCALES = {"gcn": 19, "sage": 19, "gat": 17}


def grown(graph: gt.Graph, share: float, both: bool) -> gt.Graph:
    """The graph with appended nodes."""
    rng = np.random.default_rng(7)
    n = graph.n_nodes
    k = round(share * graph.n_nodes)
    per = round(graph.n_edges / n)
    old = graph.src[rng.integers(0, graph.n_edges, k * per)]
    new = np.repeat(np.arange(n, n + k), per)
    ends = (
        np.concatenate((graph.src, old, new if both else new[:0])),
        np.concatenate((graph.dst, new, old if both else old[:0])),
    )
    return gt.Graph(
        ends, n + k, x=np.concatenate((graph.x, rng.standard_normal((k, graph.n_features))))
    )


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result of some work, and its processor time."""
    began = process_time()
    return work(), process_time() - began


def rows_of(model: str, options: Any) -> Iterator[dict[str, Any]]:
    """Figures of a model: both ways of appending, all nodes and the appended ones."""
    scale = options.scale or SCALES[model]
    graph = gt.load(f"rmat:scale={scale},features={options.hidden}")
    trainer = gt.Trainer(model, graph, layers=3, hidden=options.hidden, dtype="float64", epochs=0)
    folder = options.folder / f"appended-{model}"
    trainer.on(graph).keep_layers(folder)
    for both in (False, True):
        new = grown(graph, options.share, both)
        later, setting_up = timed(partial(trainer.on, new))
        for compare, appended in (("values", False), ("degrees", False), ("degrees", True)):
            yield {
                "case": "both" if both else "in",
                "scale": scale,
                "model": model,
                "compared": compare,
                "predicted": "appended" if appended else "all",
                **figures(later, folder, compare, appended, options.rounds),
                "set-up s": setting_up,
            }
    shutil.rmtree(folder)


def figures(
    later: gt.Inference, folder: Path, compare: str, appended: bool, rounds: int
) -> dict[str, float]:
    """Work, processor time and error of an update, as shares of a pass over the whole graph."""
    seconds = list[float]()
    comparing = list[float]()
    shares = list[float]()
    # machine code is compiled in the first round
    for number in range(rounds + 1):
        (_, every), whole = timed(later.predict)
        update, searching = timed(partial(later.since, folder, compare))
        (ids, out), computing = timed(partial(update.predict, appended=appended))
        if number:
            seconds.append(whole)
            comparing.append(100 * searching / whole)
            shares.append(100 * (searching + computing) / whole)
    work = update.work
    error = np.abs(out - every[ids]).max() / np.abs(every).max()
    return {
        "rows %": 100 * work.rows / work.all_rows,
        "edges %": 100 * work.edges / work.all_edges,
        "processor %": median(shares),
        "comparing %": median(comparing),
        "whole s": median(seconds),
        "error": float(error),
    }


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument(
        "--scale", type=int, default=0, help=f"logarithm of the number of nodes; by model: {SCALES}"
    )
    options.add_argument("--hidden", type=int, default=64, help="values of a node; 64")
    options.add_argument(
        "--share", type=float, default=0.01, help="appended nodes, as a share of the old ones; 0.01"
    )
    options.add_argument("--models", default="gcn,sage,gat", help="gcn,sage,gat")
    options = options.parse_args()
    rows = [row for model in options.models.split(",") for row in rows_of(model, options)]
    faults = [
        f"{row['model']}, {row['case']}: predictions differ by {row['error']:.1e}"
        for row in rows
        if not row["error"] <= 1e-9
    ]
    faults += [
        f"{row['model']}: {row['edges %']:.1f} % of the edges"
        for row in rows
        if row["case"] == "in" and row["edges %"] > LIMIT
    ]
    return finish(
        options,
        rows,
        COLUMNS,
        faults,
        [],
        bench="appended",
        hidden=options.hidden,
        share=options.share,
    )


if __name__ == "__main__":
    sys.exit(main())
