"""A long training with mini-batches and checkpoints: memory, files, threads, and equal losses.

    python bench/soak.py                          10,000 steps on 4 ranks, then on one
    python bench/soak.py --steps 500 --every 50
    python bench/soak.py --ranks 2 --mode independent     each rank computes batches of its own

Memory, open files and threads of each rank must not grow: the median of the last quarter must not
exceed the maximum of the first half, without its first tenth; memory may exceed it by 1 %. Losses
of all epochs are compared with those of one rank, in float64.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median_low
from typing import Any

from harness import Contender, machine, race, say, script, table
from overlap import on_links

KEYS: dict[str, Any] = {
    "dataset": "sbm:n_nodes=2000,n_edges=16000,classes=4,features=16",
    "split": "fraction",
    "strategy": "mini",
    "batch_size": 24,
    "fanout": "5,5",
    "hidden": 16,
    "dtype": "float64",
    "views_in_flight": 2,
    "lr": 0.003,
}
VIEWS_PER_EPOCH = 50
# what may be above what was held before; of losses, relative
GROWTH = {"MiB": 1.01, "files": 1.0, "threads": 1.0}
ROUNDING = 1e-6
COLUMNS = ["rank", "step", "MiB", "files", "threads"]


def samples(c: Contender) -> list[dict[str, Any]]:
    """What each rank held, a row for each time."""
    return [
        {"rank": rank, "step": step, "MiB": held / 2**20, "files": files, "threads": threads}
        for rank, rows in enumerate(c.figures["ranks"])
        for step, held, files, threads in rows
    ]


def growth(rows: list[dict[str, Any]], name: str) -> float:
    """What a rank holds in the end as a part of the most it held before."""
    steady = rows[len(rows) // 10 :]
    last = steady[-max(1, len(steady) // 4) :]
    first = steady[: -(-len(steady) // 2)]
    return float(median_low(row[name] for row in last) / max(row[name] for row in first))


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--steps", type=int, default=10_000)
    options.add_argument("--every", type=int, default=500, help="steps between two looks; 500")
    options.add_argument("--ranks", type=int, default=4)
    options.add_argument(
        "--mode",
        choices=["cooperative", "independent"],
        default="cooperative",
        help="of several ranks; cooperative",
    )
    options.add_argument("--out", type=Path, help="JSON lines, one per look, and the findings")
    options = options.parse_args()
    with tempfile.TemporaryDirectory() as work:
        # a run keeps a row for each evaluation, some kilobytes; one for each look, so that they do
        # not hide what a step leaves behind
        views = options.ranks if options.mode == "independent" else 1
        keys = {
            **KEYS,
            "steps": options.steps,
            "checkpoint_every": max(1, options.every // 5),
            "mode": options.mode,
            "views_per_step": views,
            "eval_every": max(1, options.every * views // VIEWS_PER_EPOCH),
        }
        made = [
            on_links(
                f"{n} ranks",
                n,
                "",
                script("own", "soak", json.dumps({**keys, "out": f"{work}/{n}"}), options.every),
                1,
            )
            for n in (options.ranks, 1)
        ]
        race(made, rounds=1, threads=1)
    for c in made:
        if c.error:
            say(f"{c.name}: {c.error}")
            return 1
    many, one = made
    rows = samples(many)
    grown = {
        name: max(
            growth([r for r in rows if r["rank"] == rank], name) for rank in range(options.ranks)
        )
        for name in GROWTH
    }
    differ = max(
        abs(a - b) / abs(b) for a, b in zip(many.checks["loss"], one.checks["loss"], strict=True)
    )
    faults = [
        f"{name} grow to {grown[name]:.3f} of what was held before"
        for name, most in GROWTH.items()
        if grown[name] > most
    ]
    faults += [f"losses differ by {differ:.1e} of their value"] * (differ > ROUNDING)
    faults += ["the last step has no checkpoint"] * (
        many.figures["checkpoints"][:1] != [options.steps]
    )
    found = [
        {"finding": f"{name} in the end, of what was held before", "value": grown[name]}
        for name in GROWTH
    ]
    found += [
        {
            "finding": (
                f"largest difference of {len(one.checks['loss'])} losses from those of one rank"
            ),
            "value": differ,
        },
        {"finding": f"seconds on {options.ranks} ranks", "value": many.median("all")},
        {"finding": "seconds on one", "value": one.median("all")},
    ]
    print(table(rows, COLUMNS), "", table(found, ["finding", "value"]), sep="\n", flush=True)
    if options.out:
        with options.out.open("a", encoding="utf-8") as f:
            about = {
                "bench": "soak",
                "steps": options.steps,
                "mode": options.mode,
                "machine": machine(),
            }
            f.writelines(json.dumps({**about, **row}) + "\n" for row in [*rows, *found])
    for fault in faults:
        say(fault)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
