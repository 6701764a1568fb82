"""UPDATE and AGG of DistGNN-MB: fused loops against one pass for each operation.

    python bench/fused.py
    python bench/fused.py --rows 16384 --scale 12

"update" is bias, ReLU and dropout after a product, forward and backward, with all rows. Separate
passes are those of the same library, of which each writes its result before the next one begins.
"aggregate" multiplies the rows of source nodes by a weight for each edge and head and sums them at
destinations, over an R-MAT graph with 16 edges a node; separate passes gather the rows of all
edges, multiply them, and sum them with SciPy, on one thread. "product" and "bytes" say what is
left: the share of the fused time that the bare product takes in BLAS, and the bytes of rows read
and written once over the time. Times are medians, and "least" ratios those of the least times.
"""

from __future__ import annotations

import sys
from typing import Any

from harness import TOLERANCE, Contender, finish, parser, race, ratio, script

COLUMNS = [
    "case",
    "direction",
    "fused",
    "separate",
    "times faster",
    "least",
    "product",
    "GB/s",
    "note",
]


def rows_of(own: Contender) -> list[dict[str, Any]]:
    """A row for each case and direction."""
    rows = []
    for case in [case.removesuffix(" fused") for case in own.seconds if case.endswith(" fused")]:
        name, _, way = case.rpartition(" ")
        fused, separate = (own.seconds[f"{case} {how}"] for how in ("fused", "separate"))
        product = own.median(f"{case} product")
        moved = own.figures["bytes"].get(name)
        rows.append(
            {
                "case": name,
                "direction": way,
                "fused": own.median(f"{case} fused"),
                "separate": own.median(f"{case} separate"),
                "times faster": ratio(own.median(f"{case} separate"), own.median(f"{case} fused")),
                "least": ratio(min(separate), min(fused)),
                "product": product / own.median(f"{case} fused") if product else None,
                "GB/s": moved / min(fused) / 1e9 if moved else None,
                "seconds": own.median(f"{case} fused"),
                "label": case,
                "contender": own.name,
                "version": own.version,
            }
        )
    return rows


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument("--rows", type=int, default=65_536, help="of updates; 65,536")
    options.add_argument("--scale", type=int, default=15, help="of the R-MAT graph; 15")
    options.add_argument("--times", type=int, default=5, help="timed runs of a case in a round; 5")
    options = options.parse_args()
    own = Contender(
        "graphtheta", script("own", "fused", options.rows, options.scale, options.times)
    )
    race([own], options.rounds, options.threads)
    faults = [
        f"{case}: fused and separate passes differ: {sizes}"
        for case, sizes in own.checks.items()
        if abs(sizes[0] - sizes[1]) > TOLERANCE * abs(sizes[1])
    ]
    return finish(
        options,
        rows_of(own) or [{"case": "", "note": own.error}],
        COLUMNS,
        faults,
        bench="fused",
        height=options.rows,
        graph=f"rmat {options.scale}",
    )


if __name__ == "__main__":
    sys.exit(main())
