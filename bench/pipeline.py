"""The number of pipelined mini-batches over slow links: given, and chosen by a profile of the first
steps.

    python bench/pipeline.py                           2 ranks, 1 ms and 1 Gbit/s
    python bench/pipeline.py --link 5ms,1Gbit/s --cases stale

``engine/comm/delayed.py`` simulates the links; each rank has one thread. "updates" are steps of one
mini-batch for each rank, each of which needs the update before; "stale" are the same steps with
parameters that are 7 updates old, so that nothing but processor and links limits. "chosen" is what
the profile chose of at most 8, "foreseen" its time of an epoch, and "of best" the time relative to
that of the best given number, by least times. Losses of all numbers must agree.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from harness import Contender, disagreement, finish, parser, race, script
from overlap import on_links

JOB: dict[str, Any] = {
    "dataset": "rmat:scale={},edge_factor=16,features=128,classes=16",
    "model": "sage",
    "strategy": "mini",
    "hidden": 64,
    "batch_size": 128,
    "fanout": "10,5",
    "split": "fraction",
    "mode": "independent",
    "dropout": 0.0,
    "lr": 1e-3,
}
CASES: dict[str, dict[str, Any]] = {"updates": {}, "stale": {"staleness": 7}}
MOST = 8
COLUMNS = [
    "case",
    "contender",
    "chosen",
    "seconds",
    "least",
    "foreseen",
    "of best",
    "idle",
    "runs",
    "note",
]


def row_of(case: str, c: Contender, best: float | None) -> dict[str, Any]:
    """Figures of a contender; ``best`` is the least time of any given number."""
    times = c.seconds.get("epoch", [])
    rank = c.figures["ranks"][0] if c.figures else {}
    least = min(times, default=None)
    return {
        "case": case,
        "contender": c.name,
        "chosen": str(rank.get("in flight", "")),
        "seconds": c.median("epoch"),
        "least": least,
        "foreseen": rank.get("foreseen"),
        "of best": least / best if least and best else None,
        "idle": rank.get("idle"),
        "line": rank.get("line"),
        "runs": len(times),
        "note": c.error,
        "label": f"{case} {c.name}",
        "version": c.version,
        "all": times,
    }


def main() -> int:
    options = parser(__doc__, rounds=2)
    options.add_argument("--link", default="1ms,1Gbit/s", help="latency and bandwidth; 1ms,1Gbit/s")
    options.add_argument("--ranks", type=int, default=2, help="with a thread each; 2")
    options.add_argument("--scale", type=int, default=14, help="of the R-MAT graph; 14")
    options.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    options.add_argument("--epochs", type=int, default=2, help="timed epochs of a round; 2")
    options = options.parse_args()
    rows, faults = [], []
    for case in options.cases:
        job = {**JOB, "dataset": JOB["dataset"].format(options.scale), **CASES[case]}
        numbers = {str(n): {"views_in_flight": n} for n in (1, 2, 4, MOST)}
        ways = {**numbers, "auto": {"views_in_flight": MOST, "pipeline": "auto"}}
        words = {
            name: script("own", "flight", json.dumps({**job, **keys}), options.epochs)
            for name, keys in ways.items()
        }
        contenders = {
            name: on_links(name, options.ranks, options.link, each) for name, each in words.items()
        }
        race(list(contenders.values()), options.rounds, 1)
        best = min(
            (t for name in numbers for t in contenders[name].seconds.get("epoch", [])), default=None
        )
        rows += [row_of(case, c, best) for c in contenders.values()]
        faults += disagreement(contenders.values())
    code = finish(
        options, rows, COLUMNS, faults, bench="pipeline", link=options.link, ranks=options.ranks
    )
    print(*(row["line"] for row in rows if row["line"]), sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
