"""Gather and sum, forward and backward, against DGL, a hand-written kernel and memory bandwidth.

    python bench/gather.py                                  all kinds, Reddit size, 3 rounds
    python bench/gather.py --kinds gat gated --peers        without peers

Kinds: sum (src.z), weight (one constant weight an edge), heads (one for each of 4 heads), gat and
gat_e (4 heads, without and with 16 edge attributes), gated (sigmoid(src.s + dst.t + attr @ W) *
src.z, which no library has built in). Gradients: of z, and of s, t and W where there are any. GB/s
counts the rows of z that the edges read, forward: edges x width x 4 bytes.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from contender import width_of
from harness import Contender, disagreement, finish, parser, peer, race, ratio, script
from inputs import HELP, graph_file

KINDS = ("sum", "weight", "heads", "gat", "gat_e", "gated")
WIDTHS = (16, 32, 41, 64, 128, 256)
ATTENTION = 128
COLUMNS = [
    "case",
    "contender",
    "forward",
    "backward",
    "times faster",
    "back faster",
    "GB/s",
    "of triad",
    "note",
]


def cases_of(kinds: list[str], widths: list[int]) -> list[str]:
    """Attention at one width, sums at all; four heads need a multiple of four."""
    sums = [
        f"{kind} {width}"
        for kind in kinds
        if kind in KINDS[:3]
        for width in widths
        if kind != "heads" or width % 4 == 0
    ]
    return sums + [f"{kind} {ATTENTION}" for kind in kinds if kind in KINDS[3:]]


def rows_of(
    cases: list[str], contenders: list[Contender], n_edges: int, triad: float | None
) -> list[dict[str, Any]]:
    """A row for each case and contender; a peer's says how much faster the first contender is."""
    own = contenders[0]
    rows = []
    for case in cases:
        for c in contenders:
            forward, backward = (c.median(f"{case} {way}") for way in ("forward", "backward"))
            if forward is None and not c.error:
                continue
            speed = n_edges * width_of(case)[1] * 4 / forward / 1e9 if forward else None
            beside = (
                {}
                if c is own
                else {
                    "times faster": ratio(forward, own.median(f"{case} forward")),
                    "back faster": ratio(backward, own.median(f"{case} backward")),
                }
            )
            rows.append(
                {
                    "case": case,
                    "contender": c.name,
                    "forward": forward,
                    "backward": backward,
                    **beside,
                    "GB/s": speed,
                    "of triad": speed / triad if speed and triad else None,
                    "note": c.error,
                    "seconds": forward,
                    "label": f"{case} {c.name}",
                    "version": c.version,
                }
            )
    return rows


def findings(
    contenders: list[Contender], widths: list[int], triad: float | None
) -> list[dict[str, Any]]:
    """The memory's limit, and ratios across cases: weighted sums against DGL's unweighted ones,
    gated against attention and by hand.
    """
    by_name = {c.name: c for c in contenders}
    own = contenders[0]

    def both(name: str, case: str) -> float | None:
        ways = (
            [by_name[name].median(f"{case} {way}") for way in ("forward", "backward")]
            if name in by_name
            else [None]
        )
        return None if None in ways else sum(ways)

    pairs: list[tuple[str, float | None, float | None]] = []
    for width in widths:
        copied = by_name["dgl"].median(f"sum {width} forward") if "dgl" in by_name else None
        pairs += [
            (
                f"dgl copy_u_sum / weight {width}, forward",
                copied,
                own.median(f"weight {width} forward"),
            ),
            (
                f"dgl copy_u_sum / heads {width}, forward",
                copied,
                own.median(f"heads {width} forward"),
            ),
        ]
    gated = both(own.name, f"gated {ATTENTION}")
    pairs += [
        ("gated / gat, both ways", gated, both(own.name, f"gat {ATTENTION}")),
        ("gated / hand-written, both ways", gated, both("numba", f"gated {ATTENTION}")),
    ]
    limit = [{"finding": "stream triad, GB/s", "value": triad}] if triad else []
    return limit + [{"finding": name, "value": ratio(a, b)} for name, a, b in pairs if a and b]


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options.add_argument(
        "--widths",
        nargs="+",
        type=int,
        default=list(WIDTHS),
        help="of the sums; 16 32 41 64 128 256",
    )
    options.add_argument("--peers", nargs="*", choices=("dgl", "numba"), default=["dgl", "numba"])
    options.add_argument("--graph", default="reddit", help=f"{HELP}; reddit")
    options.add_argument(
        "--triad",
        type=int,
        default=1 << 26,
        help="elements of the triad's arrays, beyond any cache; 67108864",
    )
    options.add_argument("--times", type=int, default=3, help="timed runs of a case in a round; 3")
    options = options.parse_args()
    graph = graph_file(options.graph, options.folder)
    cases = cases_of(options.kinds, options.widths)
    words = (graph, options.times)
    triad = Contender("triad", script("own", "triad", 10, options.triad))
    contenders = [Contender("graphtheta", script("own", "gather", *words, *cases))]
    gated = [case for case in cases if case.startswith("gated")]
    if "numba" in options.peers and gated:
        contenders.append(Contender("numba", script("own", "handwritten", *words, *gated)))
    command = (
        peer(options.envs or options.folder, "dgl", "gather", *words, *cases)
        if "dgl" in options.peers
        else []
    )
    contenders += [Contender("dgl", command)] if command else []
    race([triad, *contenders], options.rounds, options.threads)
    seconds = triad.median("triad")
    limit = 3 * 4 * options.triad / seconds / 1e9 if seconds else None
    with np.load(graph) as z:
        rows = rows_of(cases, contenders, len(z["indices"]), limit)
    more = findings(contenders, options.widths, limit)
    return finish(
        options, rows, COLUMNS, disagreement(contenders), more, bench="gather", graph=graph.stem
    )


if __name__ == "__main__":
    sys.exit(main())
