"""Memory of deep residual networks with and without ``--recompute``, and over many steps.

    python bench/recompute.py                      4 to 100 layers, and 500 steps of a smaller graph
    python bench/recompute.py --depths 4 16 64 --steps 0

"MiB" is the peak memory of the process minus the memory before its first step, "predicted" the same
from the bound that was computed before. "exponent" is the slope of its logarithm over that of the
depth. The losses with and without ``--recompute`` are compared.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from harness import Contender, disagreement, finish, parser, race, ratio, script

WAYS = ("keep", "recompute")
COLUMNS = [
    "layers",
    "contender",
    "MiB",
    "predicted",
    "step",
    "times slower",
    "times smaller",
    "note",
]


def row_of(depth: int, c: Contender, keep: Contender) -> dict[str, Any]:
    """Memory and time of one network; how it compares to keeping all values."""
    held = grown(c)
    step = c.median("step")
    beside = (
        {}
        if c is keep
        else {
            "times slower": ratio(step, keep.median("step")),
            "times smaller": ratio(grown(keep), held),
        }
    )
    predicted = (c.figures["predicted"] - c.figures["base"]) / 2**20 if c.figures else None
    return {
        "layers": depth,
        "contender": c.name,
        "MiB": held,
        "predicted": predicted,
        "step": step,
        **beside,
        "note": c.error,
        "seconds": step,
        "label": f"{depth} layers, {c.name}",
        "version": c.version,
    }


def grown(c: Contender) -> float | None:
    """MiB of the peak over what was held before."""
    return (c.peak - c.figures["base"]) / 2**20 if c.figures else None


def exponent(rows: list[dict[str, Any]], way: str) -> dict[str, Any]:
    """The growth of memory with depth."""
    points = [(row["layers"], row["MiB"]) for row in rows if row["contender"] == way and row["MiB"]]
    slope = float(np.polyfit(*np.log(np.array(points).T), 1)[0]) if len(points) > 1 else None
    return {"finding": f"exponent, {way}", "value": slope}


def flat(depth: int, dataset: str, steps: int, threads: int) -> list[dict[str, Any]]:
    """What a long run holds after its first tenth."""
    c = Contender("long", script("own", "deep", depth, "recompute", dataset, steps))
    race([c], 1, threads)
    least, most = (c.figures.get(name, float("nan")) / 2**20 for name in ("least", "most"))
    return [
        {
            "finding": f"MiB after step {steps // 10} of {steps}, {depth} layers: least",
            "value": least,
        },
        {"finding": "the same: most less least", "value": most - least},
    ]


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument("--depths", nargs="+", type=int, default=[4, 9, 25, 49, 100])
    options.add_argument(
        "--graph",
        default="rmat:scale=14,edge_factor=8,features=32,classes=8",
        help="any name that gt.load knows",
    )
    options.add_argument("--steps", type=int, default=500, help="of the long run; 0 leaves it out")
    options.add_argument(
        "--long",
        default="rmat:scale=12,edge_factor=8,features=32,classes=8",
        help="graph of the long run",
    )
    options = options.parse_args()
    rows, faults = [], []
    for depth in options.depths:
        made = [Contender(way, script("own", "deep", depth, way, options.graph, 5)) for way in WAYS]
        race(made, options.rounds, options.threads)
        rows += [row_of(depth, c, made[0]) for c in made]
        faults += disagreement(made)
    faults += [
        f"{row['label']}: the peak exceeded the prediction"
        for row in rows
        if row["MiB"] and row["MiB"] > row["predicted"]
    ]
    findings = [exponent(rows, way) for way in WAYS]
    if options.steps:
        findings += flat(options.depths[-1], options.long, options.steps, options.threads)
    return finish(options, rows, COLUMNS, faults, findings, bench="recompute", graph=options.graph)


if __name__ == "__main__":
    sys.exit(main())
