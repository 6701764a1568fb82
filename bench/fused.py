"""UPDATE and AGG of DistGNN-MB: fused loops against one pass for each operation.

    python bench/fused.py --envs ENVIRONMENTS      beside PyTorch and DGL
    python bench/fused.py --peers                  this library alone
    python bench/fused.py --rows 16384 --peers --graph small
    python bench/fused.py --threads 1 --clock processor

"update" is what SAGE computes after its sum, two products, bias, ReLU and dropout, and what GAT
computes before it, product, bias and ReLU; with all rows, forward and backward. Inputs of 100 and
128 numbers are features, which need no gradient. "aggregate" multiplies the rows of source nodes by
a weight for each edge and head and sums them at destinations, with the gradient of the rows.
"separate" are passes of the same library, of which each writes its result before the next one
begins; for "aggregate" they gather the rows of all edges, multiply them, and sum them with SciPy,
on one thread. "torch" has the operations of PyTorch, and for "aggregate" rows of all edges too, as
PyTorch Geometric; "dgl" the operator of DGL. "product" and "bytes" say what is left: the share of
the fused time that the bare product takes in BLAS, and the bytes of rows read and written once over
the time. Times are medians, "of" ratios those of the medians, and "least of" those of the least
times. Seconds of the processor on one thread can be compared while other programs take turns with
it, which lengthen the time by the clock.
"""

from __future__ import annotations

import sys
from statistics import median
from typing import Any

from contender import AGGREGATED, CLOCK_VARIABLE, CLOCKS, UPDATED, update_case
from harness import TOLERANCE, Contender, disagreement, finish, parser, peer, race, ratio, script
from inputs import HELP, graph_file

COLUMNS = [
    "case",
    "direction",
    "fused",
    "separate",
    "torch",
    "dgl",
    "of separate",
    "least of separate",
    "of torch",
    "least of torch",
    "of dgl",
    "least of dgl",
    "product",
    "GB/s",
    "note",
]
# as many edges as a batch of 1,000 targets with 5, 10 and 15 neighbours
EDGES = "rmat:scale=16,edge_factor=6,features=2,classes=2"
# the libraries' environments
PEERS = {"torch": "pyg", "dgl": "dgl"}
WAYS = ("forward", "backward", "both")


def times(c: Contender, case: str, way: str, how: str = "") -> list[float]:
    """All times of a case of a contender; forward and backward of a run together for "both"."""
    if way != "both":
        return c.seconds.get(f"{case} {way}{how}", [])
    each = (times(c, case, one, how) for one in WAYS[:2])
    return [sum(pair) for pair in zip(*each, strict=True)]


def middle(seconds: list[float]) -> float | None:
    """The median, if there are times."""
    return median(seconds) if seconds else None


def row_of(case: str, way: str, own: Contender, peers: list[Contender]) -> dict[str, Any]:
    """A row of a case and direction."""
    fused = times(own, case, way, " fused")
    others = {"separate": times(own, case, way, " separate")}
    others |= {c.name: times(c, case, way) for c in peers}
    product = middle(times(own, case, way, " product"))
    moved = own.figures["bytes"].get(case) if way != "both" else None
    return {
        "case": case,
        "direction": way,
        "fused": middle(fused),
        **{name: middle(seconds) for name, seconds in others.items()},
        **{f"of {name}": ratio(middle(s), middle(fused)) for name, s in others.items()},
        **{
            f"least of {name}": ratio(min(s, default=None), min(fused))
            for name, s in others.items()
        },
        "product": product / median(fused) if product else None,
        "GB/s": moved / min(fused) / 1e9 if moved else None,
        "seconds": middle(fused),
        "label": f"{case} {way}",
        "contender": own.name,
        "runs": len(fused),
        "version": own.version,
        "versions": [c.version for c in peers],
        "note": "; ".join(f"{c.name}: {c.error}" for c in peers if c.error),
    }


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument("--rows", type=int, default=50_000, help="of updates; 50,000")
    options.add_argument(
        "--graph", default=EDGES, help=f"of sums: {HELP}; as many edges as a batch has"
    )
    options.add_argument("--times", type=int, default=5, help="timed runs of a case in a round; 5")
    options.add_argument("--clock", choices=tuple(CLOCKS), default="wall")
    options.add_argument("--peers", nargs="*", choices=tuple(PEERS), default=list(PEERS))
    options = options.parse_args()
    words = (options.rows, graph_file(options.graph, options.folder), options.times)
    clock = {CLOCK_VARIABLE: options.clock}
    own = Contender("graphtheta", script("own", "fused", *words), clock)
    commands = {
        name: peer(options.envs or options.folder, PEERS[name], "fused", name, *words)
        for name in options.peers
    }
    peers = [Contender(name, command, clock) for name, command in commands.items() if command]
    race([own, *peers], options.rounds, options.threads)
    cases = [update_case(*widths[:3]) for widths in UPDATED]
    cases += [f"aggregate {heads}x{width}" for heads, width in AGGREGATED]
    rows = [row_of(case, way, own, peers) for case in cases for way in WAYS if not own.error]
    faults = disagreement([own, *peers])
    faults += [
        f"{case}: fused and separate passes differ: {sizes}"
        for case, sizes in own.checks.items()
        if abs(sizes[0] - sizes[1]) > TOLERANCE * abs(sizes[1])
    ]
    return finish(
        options,
        rows or [{"case": "", "note": own.error}],
        COLUMNS,
        faults,
        bench="fused",
        height=options.rows,
        graph=options.graph,
        clock=options.clock,
    )


if __name__ == "__main__":
    sys.exit(main())
