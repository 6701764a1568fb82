"""Sums in order, forward and backward: LSTM and GRU over the in-edges of each node, against PyG and
DGL.

    python bench/ordered.py                                 LSTM and GRU, widths 16 and 64, 3 rounds
    python bench/ordered.py --cases "lstm 128" --most 100   longer rows

A case is the kind of recurrence and the width of messages and states. Nodes keep their first
``--most`` in-edges, as many as a sampler would take: PyG pads all nodes to the largest number, and
DGL runs the nodes of each number by themselves. Both are given the weights of the first contender.
PyG's GRUAggregation and LSTMAggregation are PyTorch's modules over padded rows; DGL's contender is
the reducer of its SAGEConv(aggregator_type="lstm"), which has no GRU. The step time of sage-LSTM is
that of this sum and of the products of bench/dense.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from harness import Contender, disagreement, finish, parser, peer, race, ratio, script
from inputs import HELP, graph_file

CASES = ("lstm 16", "gru 16", "lstm 64", "gru 64")
COLUMNS = [
    "case",
    "contender",
    "forward",
    "backward",
    "times faster",
    "back faster",
    "Medges/s",
    "peak MiB",
    "note",
]


def shortened(graph: Path, most: int) -> Path:
    """The graph with the first in-edges of each node only."""
    path = graph.with_name(f"{graph.stem}-most{most}.npz")
    if not path.exists():
        with np.load(graph) as z:
            held = dict(z)
        counts = np.diff(held["indptr"])
        number = np.arange(len(held["indices"])) - np.repeat(held["indptr"][:-1], counts)
        held["indices"] = held["indices"][number < most]
        held["indptr"] = np.append(0, np.cumsum(np.minimum(counts, most)))
        np.savez(path, **held)
    return path


def rows_of(contenders: list[Contender], cases: list[str], n_edges: int) -> list[dict[str, Any]]:
    """A row for each case and contender; a peer's says how much faster the first contender is."""
    own = contenders[0]
    rows = []
    for case in cases:
        for c in contenders:
            forward, backward = (c.median(f"{case} {way}") for way in ("forward", "backward"))
            if forward is None or backward is None:
                continue
            rows.append(
                {
                    "case": case,
                    "contender": c.name,
                    "forward": forward,
                    "backward": backward,
                    "times faster": ratio(forward, own.median(f"{case} forward")),
                    "back faster": ratio(backward, own.median(f"{case} backward")),
                    "Medges/s": n_edges / (forward + backward) / 1e6,
                    "peak MiB": c.peak / 2**20,
                    "note": c.error,
                    "seconds": forward + backward,
                    "label": f"{case} {c.name}",
                    "version": c.version,
                }
            )
    rows += [{"contender": c.name, "note": c.error} for c in contenders if c.error]
    return rows


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument("--cases", nargs="+", default=list(CASES), help=", ".join(CASES))
    options.add_argument("--peers", nargs="*", choices=("pyg", "dgl"), default=["pyg", "dgl"])
    options.add_argument("--graph", default="small", help=f"{HELP}; small")
    options.add_argument("--most", type=int, default=25, help="in-edges of a node; 25")
    options.add_argument("--times", type=int, default=3, help="timed runs of a case in a round; 3")
    options = options.parse_args()
    graph = shortened(graph_file(options.graph, options.folder), options.most)
    words = (graph, options.times)
    contenders = [Contender("graphtheta", script("own", "ordered", *words, *options.cases))]
    for name in options.peers:
        cases = [case for case in options.cases if name == "pyg" or case.startswith("lstm")]
        command = peer(options.envs or options.folder, name, "ordered", name, *words, *cases)
        contenders += [Contender(name, command)] if command else []
    race(contenders, options.rounds, options.threads)
    with np.load(graph) as z:
        rows = rows_of(contenders, options.cases, len(z["indices"]))
    return finish(
        options, rows, COLUMNS, disagreement(contenders), bench="ordered", graph=graph.stem
    )


if __name__ == "__main__":
    sys.exit(main())
