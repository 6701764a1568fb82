"""What ``graphtheta plan`` predicts, against jobs that run.

    python bench/plan.py
    python bench/plan.py --graphs cora --workers 1 2 4 --out plan.jsonl

Each row is a job: a graph, a strategy, a mode and a number of workers, which are processes of this
machine. "memory" is the peak of the worker that needs most, "sent" the bytes of an epoch that the
ledgers of all workers count for halo moves, sums of gradients and making views, and "time" the
seconds of the first epoch, without evaluation. It is trained 8 times, or for a second, in each of
--rounds processes that are minutes apart, and the time is the sum of the shortest time of each step
(``shortest.py``); "spread" says how much longer the median and the 90th percentile of the epochs
are. Each round measures the speed of the machine too, which is found in shortest steps likewise,
and predicts; the shortest prediction counts. Errors are predicted over measured, minus 1. All views
are counted. Processes that compile kernels are run again, since they hold more memory. Rows are
written to --out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from harness import FOLDER, say, table
from shortest import TRIES, run_job, shortest

import graphtheta as gt
from graphtheta.engine.runtime.start import start
from graphtheta.inspect.planning.machine import machine
from graphtheta.inspect.planning.plan import planned
from graphtheta.inspect.planning.skeleton import skeleton
from graphtheta.ops.compile.jit import n_compiled

GRAPHS: dict[str, tuple[str, dict[str, Any]]] = {
    "cora": ("cora", {"hidden": 64}),
    # read from a file: the generator takes more memory than the graph
    "rmat": (str(FOLDER / "plan-rmat.npz"), {"hidden": 128}),
    "amazon_photo": ("amazon_photo", {"hidden": 128}),
}
# all neighbours of a batch are most of such a graph
STRATEGIES: dict[str, dict[str, Any]] = {
    "global": {},
    "mini": {"batch_size": 256, "fanout": "10,5"},
    "cluster": {"clusters": 8},
}
PREDICTED = ("memory", "sent", "seconds")
RMAT = "rmat:scale=15,edge_factor=16,features=128,classes=16"
EPOCHS = 8
LEAST_SECONDS = 1.0
BEGIN = "measured "
COLUMNS = [
    "graph",
    "strategy",
    "mode",
    "workers",
    "MB",
    "MB off",
    "sent",
    "sent off",
    "s",
    "spread",
    "s off",
]


def keys_of(graph: str, model: str, strategy: str, mode: str = "") -> dict[str, Any]:
    """Keys of the job of a row."""
    dataset, own = GRAPHS[graph]
    chosen = {"mode": mode} if mode else {}
    return {
        "dataset": dataset,
        "model": model,
        "strategy": strategy,
        "keep": 0,
        **own,
        **STRATEGIES[strategy],
        **chosen,
    }


def write_rmat() -> None:
    """Write the file of the generated graph, if there is none."""
    path = Path(GRAPHS["rmat"][0])
    if not path.exists():
        graph = gt.load(RMAT)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(
            path,
            edge_index=graph.edge_index,
            **{name: getattr(graph, name) for name in ("x", "y", "train", "val", "test")},
        )
    tell({}, 0)


def predict(graph: str, model: str, workers: list[int]) -> None:
    """Print the rows of a plan, as JSON."""
    start()
    jobs = [gt.Job(**keys_of(graph, model, strategy)) for strategy in STRATEGIES]
    began = process_time()
    rows = planned(
        skeleton(jobs[0], gt.load(jobs[0].dataset)), jobs, workers, machine(), views=sys.maxsize
    )
    say(f"{graph}: planned in {process_time() - began:.1f} s of the processor")
    tell({"rows": [row.figures() for row in rows]}, n_compiled())


def calibrate() -> None:
    """Measure and print the speed of this machine, which plans read."""
    start()
    began = perf_counter()
    used = process_time()
    found = machine(again=True)
    say(
        f"calibrated in {perf_counter() - began:.1f} s, of which {process_time() - used:.1f} s of"
        " the processor of this process"
    )
    tell(asdict(found), 0)


def tell(found: dict[str, Any], compiled: int) -> None:
    """Print what ``answer`` reads, with the number of kernels that were compiled."""
    print(BEGIN + json.dumps({**found, "compiled": compiled}), flush=True)


def answer(*words: object) -> Any:
    """What this script prints as JSON, run in a process of its own; again where it has compiled
    kernels.
    """
    for _ in range(TRIES):
        done = subprocess.run(
            [sys.executable, __file__, *map(str, words)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=900,
        )
        found = json.loads(
            next(line for line in done.stdout.splitlines() if line.startswith(BEGIN))[len(BEGIN) :]
        )
        if not found["compiled"]:
            break
    return found


def compared(graph: str, rounds: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    """A row of the table.

    Args:
        graph: The graph.
        rounds: What each round predicted and measured.
    """
    every = [found for _, found in rounds]
    ranks = rounds[0][1]["ranks"]
    row = min((row for row, _ in rounds), key=lambda row: row["seconds"])
    found = {
        "memory": max(rank["memory"] for rank in ranks),
        "sent": sum(rank["sent"] for rank in ranks),
        "seconds": float(shortest(every, "seconds").max()),
    }
    epochs = [s for one in every for s in one["epochs"]]
    middle, most = np.percentile(epochs, [50, 90]) / found["seconds"] - 1
    off = {
        name: row[name] / found[name] - 1 if found[name] else float(row[name] != 0)
        for name in PREDICTED
    }
    ways = {name: row[name] for name in ("strategy", "mode", "workers")}
    return {
        "graph": graph,
        **ways,
        "exact": row["counted"] == row["views"],
        "predicted": row,
        "measured": {**found, "epochs": epochs},
        "rounds": [
            (row["seconds"], float(shortest([one], "seconds").max())) for row, one in rounds
        ],
        "MB": found["memory"] / 2**20,
        "MB off": f"{off['memory']:+.0%}",
        "sent": found["sent"] / 1e6,
        "sent off": f"{off['sent']:+.1%}",
        "s": found["seconds"],
        "spread": f"{middle:+.0%} {most:+.0%}",
        "s off": f"{off['seconds']:+.0%}",
        "off": off["seconds"],
    }


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    options.add_argument("--model", default="gcn")
    options.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    options.add_argument(
        "--rounds", type=int, default=4, help="processes of each row, minutes apart; 4"
    )
    options.add_argument("--out", type=Path, help="JSON lines, one per row")
    options.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--calibrate", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--predict", nargs="+", help=argparse.SUPPRESS)
    options = options.parse_args()
    if options.write:
        write_rmat()
        return 0
    if options.calibrate:
        calibrate()
        return 0
    if options.predict:
        predict(*options.predict[:2], list(map(int, options.predict[2:])))
        return 0
    if "rmat" in options.graphs:
        answer("--write")
    pairs: dict[tuple[str, int], list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    speeds = []
    for number in range(options.rounds):
        speeds.append(answer("--calibrate"))
        for graph in options.graphs:
            for i, row in enumerate(
                answer("--predict", graph, options.model, *options.workers)["rows"]
            ):
                found = run_job(
                    keys_of(graph, options.model, row["strategy"], row["mode"]),
                    row["workers"],
                    EPOCHS,
                    LEAST_SECONDS,
                )
                pairs.setdefault((graph, i), []).append((row, found))
                say(
                    f"round {number + 1}: {graph} {row['strategy']} {row['mode']} {row['workers']}"
                    f" predicted {row['seconds']:.4g} s, measured"
                    f" {shortest([found], 'seconds').max():.4g} s"
                )
    rows = [compared(graph, rounds) for (graph, _), rounds in pairs.items()]
    if options.out:
        with options.out.open("a", encoding="utf-8") as f:
            f.writelines(
                json.dumps({"bench": "plan", **row, "machines": speeds}) + "\n" for row in rows
            )
    print(table(rows, COLUMNS), flush=True)
    off = np.abs([row["off"] for row in rows])
    print(
        f"time: {(off <= 0.25).sum()} of {len(off)} within 25 %, median {np.median(off):.0%}, worst"
        f" {off.max():.0%}",
        flush=True,
    )
    wrong = [
        row for row in rows if row["exact"] and row["predicted"]["sent"] != row["measured"]["sent"]
    ]
    return 0 if not wrong else "bytes that were counted exactly are not those sent"


if __name__ == "__main__":
    sys.exit(main())
