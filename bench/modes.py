"""Cooperative against independent mini-batches: duplicated work, bytes, and the time of a step.

    python bench/modes.py                                 2, 4 and 8 simulated workers, 2 real ones
    python bench/modes.py --workers 2 4 --fanouts 5,5 --epochs 0

*counts*: P independent workers compute a batch of b targets each; P cooperative workers compute one
batch of P x b targets. A node or an edge in several of the independent batches is computed several
times, so their numbers are larger. "MiB" is what all workers send in a step. "same views" is what
cooperative workers send if they compute the P batches of b targets one after another. Simulated
workers count as real ones do.

*times*: the same steps of two batches of b targets on 2 real workers with a thread each, in both
modes, and one cooperative batch of 2 x b targets instead.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from harness import Contender, disagreement, finish, parser, race, ratio, script
from overlap import on_links

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.train.loop.modes import ModeCounts, count_modes

JOB: dict[str, Any] = {
    "dataset": "rmat:scale={},edge_factor=16,features=64,classes=16",
    "model": "sage",
    "strategy": "mini",
    "hidden": 64,
    "split": "fraction",
    "optimiser": "sgd",
}
COLUMNS = [
    "case",
    "fanout",
    "workers",
    "nodes",
    "nodes together",
    "more nodes",
    "edges",
    "edges together",
    "more edges",
    "MiB",
    "MiB together",
    "MiB same views",
    "seconds",
    "least",
    "note",
]
REAL = 2


def counts(
    comm: Comm, keys: dict[str, Any], graph: Any, workers: int
) -> tuple[ModeCounts, ModeCounts]:
    """A step of independent workers, and one batch of all their targets."""

    def of(batch_size: int, views: int) -> ModeCounts:
        job = gt.Job(**{**keys, "batch_size": batch_size})
        made = gt.Trainer(graph=graph, comm=comm, job=job.without_dataset())
        return count_modes(made.strategy, made.probe, views, 4)

    return of(keys["batch_size"], workers), of(workers * keys["batch_size"], 1)


def counted(keys: dict[str, Any], graph: Any, workers: int) -> dict[str, Any]:
    """A row of counts."""
    own, together = run_simulated(workers, counts, keys, graph, workers)[0]
    return {
        "case": "counts",
        "fanout": keys["fanout"],
        "workers": workers,
        "nodes": own.nodes,
        "nodes together": together.nodes,
        "more nodes": own.nodes / together.nodes - 1,
        "edges": own.edges,
        "edges together": together.edges,
        "more edges": own.edges / together.edges - 1,
        "MiB": own.sent["independent"] / 2**20,
        "MiB together": together.sent["cooperative"] / 2**20,
        "MiB same views": own.sent["cooperative"] / 2**20,
        "seconds": None,
        "label": f"{workers} workers, fanout {keys['fanout']}",
    }


def timed(
    keys: dict[str, Any], epochs: int, rounds: int
) -> tuple[list[dict[str, Any]], list[str], list[dict[str, Any]]]:
    """Rows, disagreements and findings of the measured times of a step."""
    two = {**keys, "views_per_step": REAL}
    jobs = {
        "cooperative": two,
        "independent": {**two, "mode": "independent"},
        "one batch": {**keys, "batch_size": REAL * keys["batch_size"]},
    }
    contenders = [
        on_links(name, REAL, "", script("own", "flight", json.dumps(job), epochs))
        for name, job in jobs.items()
    ]
    race(contenders, rounds, 1)
    rows = [row_of(c, keys["fanout"], jobs[c.name].get("views_per_step", 1)) for c in contenders]
    steps = [row["seconds"] for row in rows]
    findings = [
        {
            "finding": (
                f"fanout {keys['fanout']}: {rows[i]['case']} step against independent, times as"
                " long"
            ),
            "value": ratio(steps[i], steps[1]),
        }
        for i in (0, 2)
    ]
    return rows, disagreement(contenders[:2]), findings


def row_of(c: Contender, fanout: str, views: int) -> dict[str, Any]:
    """Seconds of a step."""
    per_epoch = [-(-rank["views"] // views) for run in c.more for rank in run["ranks"][:1]]
    each = [s / per_epoch[0] for s in c.seconds.get("epoch", [])]
    middle = c.median("epoch")
    return {
        "case": c.name,
        "fanout": fanout,
        "workers": REAL,
        "seconds": middle and middle / per_epoch[0],
        "least": min(each, default=None),
        "note": c.error,
        "label": f"{c.name}, fanout {fanout}",
        "version": c.version,
    }


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument(
        "--workers", nargs="*", type=int, default=[2, 4, 8], help="simulated; 2 4 8"
    )
    options.add_argument(
        "--fanouts",
        nargs="+",
        default=["10,10", "10,10,10", "all,all"],
        help="one number for each layer; 10,10 10,10,10 all,all",
    )
    options.add_argument("--targets", type=int, default=256, help="of a batch of one worker; 256")
    options.add_argument("--scale", type=int, default=15, help="of the R-MAT graph; 15")
    options.add_argument(
        "--epochs", type=int, default=3, help="timed epochs of a round, 0 for no times; 3"
    )
    options = options.parse_args()
    base = {**JOB, "dataset": JOB["dataset"].format(options.scale), "batch_size": options.targets}
    graph = gt.load(base["dataset"], split="fraction")
    rows = []
    faults = []
    findings = []
    for fanout in options.fanouts:
        keys = {**base, "fanout": fanout, "layers": fanout.count(",") + 1}
        rows += [counted(keys, graph, workers) for workers in options.workers]
        if options.epochs:
            more, wrong, found = timed(keys, options.epochs, options.rounds)
            rows = [*rows, *more]
            faults = [*faults, *wrong]
            findings = [*findings, *found]
    return finish(options, rows, COLUMNS, faults, findings, bench="modes", graph=base["dataset"])


if __name__ == "__main__":
    sys.exit(main())
