"""Matrix products by tiles against BLAS, PyTorch and the peak of the processor; and those of rows
that are stored as bfloat16.

    python bench/products.py                                 the shapes of the models, 40,000 rows
    python bench/products.py --rows 262144 --shapes 602x128  one shape, more rows
    python bench/products.py --threads 1

A shape is the inner axis by the columns: "rows" is A @ B with A [rows, inner], "transposed" is
A.T @ G, whose outputs are [inner, columns], and "gradient" is G @ B.T. BLAS is NumPy's, on blocks
of rows as small products are computed here. The peak is measured in the same run: independent
fused multiply-adds without memory, in single precision, also for the column "bf16 of peak".
"""

from __future__ import annotations

import sys

from harness import Contender, disagreement, finish, parser, peer, race, ratio, script

SHAPES = (
    *("16x16", "41x128", "64x64", "128x7", "128x16", "128x41", "128x128", "128x602", "256x256"),
    *("602x8", "602x16", "602x41", "602x128", "602x256", "1024x512", "1433x16"),
)
COLUMNS = [
    *("product", "shape", "GF/s", "of peak", "of blas", "of torch", "least of blas"),
    *("GF/s bf16", "bf16 of peak", "note"),
]


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument("--rows", type=int, default=40_000)
    options.add_argument("--shapes", nargs="*", default=SHAPES, help="inner x columns")
    options.add_argument("--times", type=int, default=5, help="timed runs of a case in a round; 5")
    options = options.parse_args()
    given = options.rows, options.times, *options.shapes
    own = Contender("graphtheta", script("own", "products", *given))
    envs = options.envs or options.folder
    torch = Contender("torch", peer(envs, "pyg", "products", *given))
    race([c for c in (own, torch) if c.command], options.rounds, options.threads)
    peak = max(own.seconds.get("peak", [0.0]))
    rows = []
    for case in (case for case in own.seconds if len(case.split()) == 2):
        kind, shape = case.split()
        inner, columns = map(int, shape.split("x"))
        flops = 2 * options.rows * inner * columns
        seconds, blas = own.median(case), own.median(f"{case} blas")
        rows.append(
            {
                "product": kind,
                "shape": shape,
                "GF/s": flops / seconds / 1e9,
                "of peak": flops / min(own.seconds[case]) / peak if peak else None,
                "of blas": ratio(blas, seconds),
                "of torch": ratio(torch.median(case), seconds),
                "least of blas": min(own.seconds[f"{case} blas"]) / min(own.seconds[case]),
                "GF/s bf16": flops / own.median(f"{case} bf16") / 1e9,
                "bf16 of peak": flops / min(own.seconds[f"{case} bf16"]) / peak if peak else None,
                "GF/s blas": flops / blas / 1e9,
                "peak": peak / 1e9,
                "seconds": seconds,
                "contender": own.name,
                "label": case,
                "version": own.version,
            }
        )
    rows = rows or [{"product": "", "note": own.error}]
    faults = disagreement([own, torch])
    return finish(options, rows, COLUMNS, faults, bench="products", graph=f"{options.rows} rows")


if __name__ == "__main__":
    sys.exit(main())
