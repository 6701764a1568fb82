"""Cluster-batches of very different sizes: idle time with one view at a time and with several.

    python bench/uneven.py                        1 rank with 2 threads, 2 ranks with a thread each

The sizes of the clusters fall as a power of their rank, so the largest has a large part of the
nodes. Gradients of eight views are summed for an update. A rank is idle while all its views wait
for other ranks; the idle time of the threads of one rank is the processor time that they do not
use.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from harness import Contender, disagreement, finish, parser, race, ratio, script
from overlap import on_links

CLUSTERS = 32
KEYS: dict[str, Any] = {
    "dataset": "rmat:scale={},edge_factor=32,features=128,classes=16",
    "model": "sage",
    "hidden": 128,
    "strategy": "cluster",
    "split": "fraction",
    "clusters_per_batch": 1,
    "views_per_step": 8,
    "optimiser": "sgd",
}
COLUMNS = ["case", "contender", "seconds", "least", "idle", "views", "runs", "note"]


def power_law(path: Path, nodes: int, power: float) -> Path:
    """A file of cluster numbers, of which cluster k has a share of nodes that falls as k to the
    power.
    """
    share = np.arange(1, CLUSTERS + 1) ** -power
    drawn = np.random.default_rng(0).choice(CLUSTERS, nodes, p=share / share.sum())
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, drawn)
    return path


def row_of(case: str, c: Contender) -> dict[str, Any]:
    """Figures of a contender: the mean over ranks and runs."""
    ranks = [rank for run in c.more for rank in run["ranks"]]
    times = c.seconds.get("epoch", [])
    idle = [
        max(0.0, 1 - rank["busy"]) if case.startswith("1 rank") else rank["idle"] for rank in ranks
    ]
    return {
        "case": case,
        "contender": c.name,
        "seconds": c.median("epoch"),
        "least": min(times, default=None),
        "idle": sum(idle) / len(idle) if idle else None,
        "views": ranks[0]["views"] if ranks else None,
        "runs": len(times),
        "note": c.error,
        "label": f"{case} {c.name}",
        "version": c.version,
        "losses": c.checks.get("epoch"),
        "all": times,
    }


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument("--epochs", type=int, default=4, help="timed epochs of a round; 4")
    options.add_argument("--scale", type=int, default=17, help="of the R-MAT graph; 17")
    options.add_argument("--power", type=float, default=1.0, help="of the sizes; 1")
    options.add_argument("--in-flight", type=int, default=4, help="views; 4")
    options = options.parse_args()
    clusters = power_law(
        options.folder / f"clusters-{options.scale}.npy", 1 << options.scale, options.power
    )
    keys = {
        **KEYS,
        "dataset": KEYS["dataset"].format(options.scale),
        "cluster_method": str(clusters.resolve()),
    }
    rows = []
    faults = []
    findings = []
    for ranks in (1, options.threads):
        threads = options.threads // ranks
        case = f"{ranks} rank{'s' * (ranks > 1)} x {threads}"
        jobs = {n: json.dumps({**keys, "views_in_flight": n}) for n in (1, options.in_flight)}
        one, several = contenders = [
            on_links(
                f"{n} in flight", ranks, "", script("own", "flight", job, options.epochs), threads
            )
            for n, job in jobs.items()
        ]
        race(contenders, options.rounds, options.threads)
        faults += disagreement(contenders)
        rows += [row_of(case, c) for c in contenders]
        findings.append(
            {
                "finding": f"{case}: epochs a second, {options.in_flight} in flight against 1",
                "value": ratio(one.median("epoch"), several.median("epoch")),
            }
        )
    return finish(options, rows, COLUMNS, faults, findings, bench="uneven", power=options.power)


if __name__ == "__main__":
    sys.exit(main())
