"""The share of communication time that is hidden, on ranks with slow links between them.

    python bench/overlap.py                        4 ranks, 50 us and 10 Gbit/s
    python bench/overlap.py --link 200us,1Gbit/s --ranks 2

``engine/comm/delayed.py`` simulates the links.

*halo*: full-batch epochs without links, with links, and with links and blocking moves, which wait
where they begin. "links" is the time in which messages are on the links in an epoch, "exposed" the
time in which a rank waits for messages that have been sent. Within a rank, blocking moves hide
nothing, which checks the measure. Ranks that share a core compute while others wait, also without
any overlap inside of a rank; therefore times are not compared.

*views*: mini-batches whose gradients are summed four at a time, with one view at a time and with
four pipelined views.
"""

from __future__ import annotations

import json
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

MINI: dict[str, Any] = {
    "dataset": "rmat:scale={},edge_factor=16,features=64,classes=16",
    "model": "sage",
    "strategy": "mini",
    "hidden": 64,
    "batch_size": 256,
    "fanout": "10,10",
    "split": "fraction",
    "views_per_step": 4,
    "optimiser": "sgd",
}
COLUMNS = ["case", "contender", "seconds", "least", "links", "exposed", "idle", "runs", "note"]


def on_links(name: str, ranks: int, link: str, words: list[str], threads: int = 1) -> Contender:
    """A script on ranks of some threads each, over links or none."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [str(mpiexec) if mpiexec.exists() else "mpiexec", "-n", str(ranks), *words]
    return Contender(
        name, command, {**dict.fromkeys(THREAD_VARIABLES, str(threads)), "GRAPHTHETA_LINK": link}
    )


def row_of(case: str, c: Contender) -> dict[str, Any]:
    """Figures of a contender."""
    times = c.seconds.get("epoch", [])
    ranks = [rank for run in c.more for rank in run["ranks"]]

    def mean(figures: list[float]) -> float | None:
        return sum(figures) / len(figures) if figures else None

    return {
        "case": case,
        "contender": c.name,
        "seconds": c.median("epoch"),
        "least": min(times, default=None),
        "links": mean([rank["links"] for rank in ranks if rank.get("links")]),
        "exposed": mean([rank["exposed"] for rank in ranks if rank.get("links")]),
        "idle": mean([rank["idle"] for rank in ranks if "idle" in rank]),
        "runs": len(times),
        "note": c.error,
        "label": f"{case} {c.name}",
        "version": c.version,
        "losses": c.checks.get("epoch"),
        "all": times,
    }


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument(
        "--link", default="50us,10Gbit/s", help="latency and bandwidth; 50us,10Gbit/s"
    )
    options.add_argument("--ranks", type=int, default=4, help="with a thread each; 4")
    options.add_argument("--cases", nargs="+", choices=("halo", "views"), default=["halo", "views"])
    options.add_argument("--model", default="gcn", help="of the full-batch epochs; gcn")
    options.add_argument("--partitioner", default="1d-src", help="of the full-batch epochs; 1d-src")
    options.add_argument(
        "--graph", default="medium", help=f"of the full-batch epochs: {HELP}; medium"
    )
    options.add_argument(
        "--scale", type=int, default=15, help="of the R-MAT graph of the mini-batches; 15"
    )
    options.add_argument("--epochs", type=int, default=5, help="timed epochs of a round; 5")
    options = options.parse_args()
    rows = []
    faults = []
    findings = []
    if "halo" in options.cases:
        graph = graph_file(options.graph, options.folder)
        words = script(
            "own",
            "ranks",
            options.model,
            graph,
            first_weights(options.model, graph, options.folder),
            options.epochs,
            0.5,
            options.partitioner,
        )
        contenders = [
            on_links(name, options.ranks, link, words)
            for name, link in (
                ("no links", ""),
                ("links", options.link),
                ("links, blocking", f"{options.link},blocking"),
            )
        ]
        say(f"{options.model} on {graph.stem}")
        race(contenders, options.rounds, 1)
        faults += disagreement(contenders)
        found = [row_of("halo", c) for c in contenders]
        rows += found
        findings += [
            {
                "finding": f"{row['contender']}: share of the time on the links that is hidden",
                "value": 1 - row["exposed"] / row["links"],
            }
            for row in found
            if row["links"]
        ]
    if "views" in options.cases:
        mini = {**MINI, "dataset": MINI["dataset"].format(options.scale)}
        jobs = {f"{n} in flight": json.dumps({**mini, "views_in_flight": n}) for n in (1, 4)}
        one, four = contenders = [
            on_links(
                name, options.ranks, options.link, script("own", "flight", job, options.epochs)
            )
            for name, job in jobs.items()
        ]
        race(contenders, options.rounds, 1)
        faults += disagreement(contenders)
        rows += [row_of("views", c) for c in contenders]
        findings.append(
            {
                "finding": "views a second, 4 in flight against 1",
                "value": ratio(one.median("epoch"), four.median("epoch")),
            }
        )
    return finish(
        options,
        rows,
        COLUMNS,
        faults,
        findings,
        bench="overlap",
        link=options.link,
        ranks=options.ranks,
    )


if __name__ == "__main__":
    sys.exit(main())
