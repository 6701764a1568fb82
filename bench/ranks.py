"""Ranks against threads: full-batch epochs of one rank with all threads, and of several ranks.

    python bench/ranks.py                                       gcn, Reddit size, 2 ranks x 1 thread
    python bench/ranks.py --models gat --partitioners 1d-dst

The network is that of ``epoch.py``. All contenders take turns; their losses must agree. "of one
rank" is the speed of several ranks relative to one rank with as many threads as all of them
together; packing, waiting and adding reduce it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from epoch import first_weights
from harness import (
    THREAD_VARIABLES,
    Contender,
    disagreement,
    finish,
    parser,
    race,
    ratio,
    say,
    script,
)
from inputs import HELP, graph_file

MODELS = ("gcn", "sage", "gat")
PARTITIONERS = ("1d-src", "1d-dst", "vertex-cut")
COLUMNS = [
    "model",
    "contender",
    "seconds",
    "least",
    "of one rank",
    "MB sent",
    "move",
    "wait",
    "GiB",
    "runs",
    "note",
]


def on_ranks(n: int, threads: int, partitioner: str, words: tuple[object, ...]) -> Contender:
    """The network on n ranks."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [
        str(mpiexec) if mpiexec.exists() else "mpiexec",
        "-n",
        str(n),
        *script("own", "ranks", *words, partitioner),
    ]
    name = f"{n} x {threads} {partitioner}" if n > 1 else f"{n} x {threads}"
    return Contender(name, command, dict.fromkeys(THREAD_VARIABLES, str(threads)))


def row_of(model: str, c: Contender, one: Contender) -> dict[str, Any]:
    """Figures of a contender: bytes of all ranks, packing and waiting of the mean rank, an epoch
    each.
    """
    ranks = [rank for run in c.more for rank in run["ranks"]]

    def mean(stages: tuple[str, ...], field: str) -> float | None:
        return (
            sum(rank["stages"][s][field] for rank in ranks for s in stages) / len(ranks)
            if ranks
            else None
        )

    times = c.seconds.get("epoch", [])
    sent = mean(("move", "reduce", "other"), "bytes")
    return {
        "model": model,
        "contender": c.name,
        "seconds": c.median("epoch"),
        "least": min(times, default=None),
        "of one rank": None if c is one else ratio(one.median("epoch"), c.median("epoch")),
        "MB sent": None if sent is None or c is one else sent * len(ranks) / len(c.more) / 1e6,
        "move": mean(("move",), "seconds"),
        "wait": mean(("transform", "move", "gather", "apply", "reduce", "other"), "wait"),
        "GiB": max((rank["peak"] for rank in ranks), default=0) / 2**30,
        "runs": len(times),
        "note": c.error,
        "label": f"{model} {c.name}",
        "version": c.version,
        "losses": c.checks.get("epoch"),
        "all": times,
    }


def main() -> int:
    options = parser(__doc__, rounds=4)
    options.add_argument("--models", nargs="+", choices=MODELS, default=["gcn"])
    options.add_argument(
        "--partitioners", nargs="+", choices=PARTITIONERS, default=list(PARTITIONERS)
    )
    options.add_argument("--ranks", type=int, default=2, help="that share the threads; 2")
    options.add_argument("--graph", default="reddit", help=f"{HELP}; reddit")
    options.add_argument("--epochs", type=int, default=5, help="timed epochs of a round; 5")
    options.add_argument("--dropout", type=float, default=0.5, help="in the timed epochs; 0.5")
    options = options.parse_args()
    graph = graph_file(options.graph, options.folder)
    rows, faults = [], []
    for model in options.models:
        words = (
            model,
            graph,
            first_weights(model, graph, options.folder),
            options.epochs,
            options.dropout,
        )
        share = max(1, options.threads // options.ranks)
        contenders = [on_ranks(1, options.threads, "1d-src", words)]
        contenders += [on_ranks(options.ranks, share, p, words) for p in options.partitioners]
        say(f"{model} on {graph.stem}")
        race(contenders, options.rounds, options.threads)
        faults += [f"{model} {fault}" for fault in disagreement(contenders)]
        rows += [row_of(model, c, contenders[0]) for c in contenders]
    return finish(options, rows, COLUMNS, faults, bench="ranks", graph=graph.stem)


if __name__ == "__main__":
    sys.exit(main())
