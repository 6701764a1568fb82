"""Overhead of safety: epochs with a checkpoint each and the watchdog, and with neither.

    python bench/guards.py
    python bench/guards.py --ranks 4 --rounds 9

"seconds" is the median of an epoch. "busy" is the processor time of all ranks in it, which depends
less on other programs. "write ms" is the time of the thread that writes a checkpoint. This time
does not depend on the length of an epoch, so its share of an epoch does. The verifier's headers in
messages cannot be disabled and are part of both.
"""

from __future__ import annotations

import json
import sys
from statistics import median
from typing import Any

from harness import Contender, disagreement, finish, parser, race, ratio, script
from overlap import on_links

JOBS: dict[str, dict[str, Any]] = {
    "tiny": {
        "dataset": "rmat:scale=10,edge_factor=16,features=64,classes=16",
        "model": "gcn",
        "hidden": 64,
        "split": "fraction",
    },
    "short": {
        "dataset": "rmat:scale=16,edge_factor=16,features=64,classes=16",
        "model": "gcn",
        "hidden": 64,
        "split": "fraction",
    },
    "global": {
        "dataset": "rmat:scale=18,edge_factor=16,features=64,classes=16",
        "model": "gcn",
        "hidden": 128,
        "split": "fraction",
    },
    "mini": {
        "dataset": "rmat:scale=15,edge_factor=16,features=64,classes=16",
        "model": "sage",
        "strategy": "mini",
        "hidden": 64,
        "batch_size": 512,
        "fanout": "10,10",
        "split": "fraction",
    },
}
EPOCHS = {"tiny": 3, "short": 50, "global": 8, "mini": 8}
COLUMNS = ["job", "contender", "seconds", "busy", "checkpoints", "write ms", "runs", "note"]


def row_of(job: str, c: Contender) -> dict[str, Any]:
    """Figures of a contender."""
    return {
        "job": job,
        "contender": c.name,
        "seconds": c.median("epoch"),
        "busy": median(run["busy"] for run in c.more) if c.more else None,
        "checkpoints": c.figures.get("checkpoints"),
        "write ms": 1e3 * c.figures.get("write", 0.0),
        "runs": len(c.more),
        "note": c.error,
        "label": f"{job} {c.name}",
        "version": c.version,
    }


def main() -> int:
    options = parser(__doc__, rounds=5)
    options.add_argument("--ranks", type=int, default=2, help="with a thread each; 2")
    options.add_argument("--jobs", nargs="+", choices=JOBS, default=["short", "global", "mini"])
    options.add_argument("--epochs", type=int, help="of each run, instead of 3 to 50")
    options = options.parse_args()
    rows = []
    faults = []
    findings = []
    for job in options.jobs:
        made = [
            on_links(
                name,
                options.ranks,
                "",
                script("own", "guards", json.dumps(JOBS[job]), options.epochs or EPOCHS[job], keep),
            )
            for name, keep in (("none", 0), ("all", 2))
        ]
        race(made, options.rounds, 1)
        faults += disagreement(made)
        none, all_ = pair = [row_of(job, c) for c in made]
        rows += pair
        findings += [
            {"finding": f"{job}: {column}, all of none", "value": ratio(all_[column], none[column])}
            for column in ("seconds", "busy")
        ]
    return finish(options, rows, COLUMNS, faults, findings, bench="guards", ranks=options.ranks)


if __name__ == "__main__":
    sys.exit(main())
