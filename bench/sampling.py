"""Sampling alone: seconds per batch from the targets to the finished view, against GraphBolt.

    python bench/sampling.py                          fan-out 15,10,5, 1,024 targets, Reddit size
    python bench/sampling.py --threads 1 --peers      one thread, without peers
    python bench/sampling.py --samplers neighbour neighbour:replace labor

A batch is drawn, its nodes are renumbered, and its edges are listed by receiving node; no features
are read. All contenders sample the same targets, and must keep as many edges of the targets
themselves, where the sampler fixes that number. Other hops are random.
"""

from __future__ import annotations

import sys
from typing import Any

from harness import Contender, disagreement, finish, parser, peer, race, ratio, script
from inputs import HELP, graph_file

COLUMNS = [
    "sampler",
    "contender",
    "milliseconds",
    "least",
    "times slower",
    "nodes",
    "edges",
    "peak MiB",
    "note",
]


def rows_of(contenders: list[Contender], samplers: list[str]) -> list[dict[str, Any]]:
    """A row for each sampler and contender; a peer's row says how much slower it is than the first
    contender.
    """
    rows = []
    for sampler in samplers:
        for c in contenders:
            seconds = c.median(sampler)
            if seconds is None and not c.error:
                continue
            sizes = c.figures.get("sizes", {}).get(sampler, (None, None))
            rows.append(
                {
                    "sampler": sampler,
                    "contender": c.name,
                    "seconds": seconds,
                    "milliseconds": seconds and 1e3 * seconds,
                    "least": seconds and 1e3 * min(c.seconds[sampler]),
                    "nodes": sizes[0],
                    "edges": sizes[1],
                    "times slower": (
                        None
                        if c is contenders[0]
                        else ratio(seconds, contenders[0].median(sampler))
                    ),
                    "peak MiB": c.peak / 2**20,
                    "note": c.error,
                    "label": f"{sampler} {c.name}",
                    "version": c.version,
                }
            )
    return rows


def main() -> int:
    options = parser(__doc__, rounds=5)
    options.add_argument(
        "--samplers",
        nargs="+",
        default=["neighbour", "neighbour:replace"],
        help=(
            "names in the registry of samplers; NAME:replace draws with replacement; neighbour"
            " neighbour:replace"
        ),
    )
    options.add_argument("--fanout", default="15,10,5", help="from the targets outwards; 15,10,5")
    options.add_argument("--targets", type=int, default=1024, help="of a batch; 1024")
    options.add_argument(
        "--batches", type=int, default=30, help="timed batches of a case in a round; 30"
    )
    options.add_argument("--peers", nargs="*", choices=("dgl",), default=["dgl"])
    options.add_argument("--graph", default="reddit", help=f"{HELP}; reddit")
    options = options.parse_args()
    graph = graph_file(options.graph, options.folder)
    words = (graph, options.fanout, options.targets, options.batches, *options.samplers)
    contenders = [Contender("graphtheta", script("own", "sampling", *words))]
    command = (
        peer(options.envs or options.folder, "dgl", "sampling", *words)
        if "dgl" in options.peers
        else []
    )
    contenders += [Contender("graphbolt", command)] if command else []
    race(contenders, options.rounds, options.threads)
    return finish(
        options,
        rows_of(contenders, options.samplers),
        COLUMNS,
        disagreement(contenders),
        bench="sampling",
        graph=graph.stem,
    )


if __name__ == "__main__":
    sys.exit(main())
