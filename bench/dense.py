"""Dense stages against NumPy's BLAS: product alone, with a row factor, with bias, relu, dropout.

    python bench/dense.py                  rows and widths of the Reddit-size epoch
    python bench/dense.py --rows 16384

"of blas" is the time of the bare product in BLAS divided by the time of the stage. GF/s counts the
products only.
"""

from __future__ import annotations

import sys

from harness import TOLERANCE, Contender, finish, parser, race, ratio, script
from own.dense import SHAPES

CONSTANT = {(d_in, d_out): constant for d_in, d_out, constant in SHAPES}
COLUMNS = ["stage", "shape", "direction", "seconds", "blas", "of blas", "GF/s", "GF/s blas", "note"]


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument("--rows", type=int, default=262_144)
    options.add_argument("--times", type=int, default=5, help="timed runs of a case in a round; 5")
    options = options.parse_args()
    own = Contender("graphtheta", script("own", "dense", options.rows, options.times))
    race([own], options.rounds, options.threads)
    rows = []
    for case in [case.removesuffix(" own") for case in own.seconds if case.endswith(" own")]:
        stage, shape, direction = case.split()
        d_in, d_out = map(int, shape.split("x"))
        seconds = own.median(f"{case} own")
        blas = own.median(f"{case} blas")
        flops = (
            2
            * options.rows
            * d_in
            * d_out
            * (2 if direction == "backward" and not CONSTANT[d_in, d_out] else 1)
        )
        rows.append(
            {
                "stage": stage,
                "shape": shape,
                "direction": direction,
                "seconds": seconds,
                "blas": blas,
                "of blas": ratio(blas, seconds),
                "GF/s": flops / seconds / 1e9,
                "GF/s blas": flops / blas / 1e9,
                "contender": own.name,
                "label": case,
                "version": own.version,
            }
        )
    faults = [
        f"{case}: sizes are {sizes} times those of numpy"
        for case, sizes in own.checks.items()
        if not all(abs(s - 1) <= TOLERANCE for s in sizes)
    ]
    rows = rows or [{"stage": "", "note": own.error}]
    return finish(options, rows, COLUMNS, faults, bench="dense", graph=f"{options.rows} rows")


if __name__ == "__main__":
    sys.exit(main())
