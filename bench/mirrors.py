"""Resident memory of the ranks between steps, which must not contain values of mirrors.

    python bench/mirrors.py
    python bench/mirrors.py --ranks 4 --widths 16 512
    python bench/mirrors.py --graph rmat:scale=16,edge_factor=13,features=100,classes=47 --ranks 4
    --widths 16 200

"held" is the memory of a rank between two steps, the largest of all ranks, with a narrow and with a
wide network. "mirrors" is the size of one layer's values of its mirrors. If mirrors had values
between steps, "held" would grow with the width by that size for each layer. "peak" is the most
memory in a step, of the rank with the most; values of mirrors are in it while an operation needs
them.
"""

from __future__ import annotations

import sys
from typing import Any

from harness import Contender, finish, parser, race, script
from overlap import on_links

COLUMNS = ["partitioner", "hidden", "held MB", "mirrors MB", "peak MB", "note"]
PARTITIONERS = ("1d-src", "1d-dst", "vertex-cut")
STEPS = 5


def row_of(partitioner: str, hidden: int, c: Contender) -> dict[str, Any]:
    """Memory of the ranks of one run."""
    ranks = [rank for run in c.more for rank in run["ranks"]]
    held, mirrors, peak = (
        max((rank[name] for rank in ranks), default=0) / 1e6 for name in ("held", "mirrors", "peak")
    )
    return {
        "partitioner": partitioner,
        "hidden": hidden,
        "held MB": held,
        "mirrors MB": mirrors,
        "peak MB": peak,
        "note": c.error,
        "seconds": None,
        "label": f"{partitioner} {hidden}",
        "version": c.version,
    }


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--widths", nargs=2, type=int, default=[16, 256])
    options.add_argument(
        "--graph",
        default="rmat:scale=16,edge_factor=16,features=32,classes=8",
        help="any name that gt.load knows",
    )
    options = options.parse_args()
    rows = []
    faults = []
    findings = []
    for partitioner in PARTITIONERS:
        made = [
            on_links(
                str(hidden),
                options.ranks,
                "",
                script("own", "held", options.graph, hidden, partitioner, STEPS),
            )
            for hidden in options.widths
        ]
        race(made, options.rounds, 1)
        narrow, wide = pair = [
            row_of(partitioner, hidden, c) for hidden, c in zip(options.widths, made, strict=True)
        ]
        rows += pair
        share = (wide["held MB"] - narrow["held MB"]) / (wide["mirrors MB"] - narrow["mirrors MB"])
        findings.append(
            {
                "finding": f"{partitioner}: growth with the width, in values of mirrors",
                "value": share,
            }
        )
        faults += [f"{partitioner}: mirrors seem to keep values"] * (share > 0.5)
    return finish(
        options,
        rows,
        COLUMNS,
        faults,
        findings,
        bench="mirrors",
        graph=options.graph,
        ranks=options.ranks,
    )


if __name__ == "__main__":
    sys.exit(main())
