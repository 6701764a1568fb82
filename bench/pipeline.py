"""Pipelined mini-batches: their number, and processors of their own for each stage.

    python bench/pipeline.py                           2 ranks, 1 ms and 1 Gbit/s
    python bench/pipeline.py --link 5ms,1Gbit/s --cases stale
    python bench/pipeline.py --cases contention --threads 8

The number, given or chosen by a profile of the first steps, is compared over slow links:
``engine/comm/delayed.py`` simulates the links; each rank has one thread. "updates" are steps of one
mini-batch for each rank, each of which needs the update before; "stale" are the same steps with
parameters that are 7 updates old, so that nothing but processor and links limits. "chosen" is what
the profile chose of at most 8, "foreseen" its time of an epoch, and "of best" the time relative to
that of the best given number, by least times.

"contention" is one rank of some threads without links. They take any stage ("free"), or those of a
stage have processors of their own, as the profile divides them ("own threads"), with the same views
in flight and parameters that are 3 updates old, so that several views can compute at a time. "of
best" is relative to "free". ``taskset`` in front of the command chooses the processors.

Losses of all contenders of a case must agree.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
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
CONTENTION = "contention"
CASES: dict[str, dict[str, Any]] = {
    "updates": {},
    "stale": {"staleness": 7},
    CONTENTION: {"staleness": 3, "fanout": "15,10", "batch_size": 512},
}
MOST = 8
FREE, OWN = "free", "own threads"
COLUMNS = [
    "case",
    "contender",
    "chosen",
    "stage threads",
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
        "stage threads": rank.get("stage threads", ""),
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


def over_links(job: dict[str, Any], options: Namespace) -> tuple[list[Contender], list[Contender]]:
    """Contenders with given numbers of views in flight and one that chooses, and those that are its
    measure.
    """
    numbers = {str(n): {"views_in_flight": n} for n in (1, 2, 4, MOST)}
    ways = {**numbers, "auto": {"views_in_flight": MOST, "pipeline": "auto"}}
    contenders = [
        on_links(name, options.ranks, options.link, words_of({**job, **keys}, options))
        for name, keys in ways.items()
    ]
    return contenders, contenders[: len(numbers)]


def in_contention(
    job: dict[str, Any], options: Namespace
) -> tuple[list[Contender], list[Contender]]:
    """Contenders whose threads take any stage, and those of a stage; the first is the measure."""
    ways = {FREE: {}, OWN: {"stage_threads": "auto"}}
    contenders = [
        on_links(
            name=name,
            ranks=1,
            link="",
            words=words_of({**job, "views_in_flight": MOST, **keys}, options),
            threads=options.threads,
        )
        for name, keys in ways.items()
    ]
    return contenders, contenders[:1]


def words_of(job: dict[str, Any], options: Namespace) -> list[str]:
    """The program of a contender."""
    return script("own", "flight", json.dumps(job), options.epochs)


def main() -> int:
    options = parser(__doc__, rounds=2)
    options.add_argument("--link", default="1ms,1Gbit/s", help="latency and bandwidth; 1ms,1Gbit/s")
    options.add_argument("--ranks", type=int, default=2, help="over links, with a thread each; 2")
    options.add_argument("--scale", type=int, default=14, help="of the R-MAT graph; 14")
    options.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    options.add_argument("--epochs", type=int, default=2, help="timed epochs of a round; 2")
    options = options.parse_args()
    rows, faults = [], []
    for case in options.cases:
        job = {**JOB, "dataset": JOB["dataset"].format(options.scale), **CASES[case]}
        made = in_contention if case == CONTENTION else over_links
        contenders, measure = made(job, options)
        race(contenders, options.rounds, 1)
        best = min((t for c in measure for t in c.seconds.get("epoch", [])), default=None)
        rows += [row_of(case, c, best) for c in contenders]
        faults += disagreement(contenders)
    code = finish(
        options, rows, COLUMNS, faults, bench="pipeline", link=options.link, ranks=options.ranks
    )
    print(*(row["line"] for row in rows if row["line"]), sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
