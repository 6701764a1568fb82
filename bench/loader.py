"""Batches for PyTorch against GraphBolt and NeighborLoader: seconds until a batch is there.

    python bench/loader.py                              Reddit size, 1,024 targets, 15,10,5
    python bench/loader.py --prefetch 2                 made ahead, by a thread or by processes
    python bench/loader.py --to pyg                     as Data; needs PyTorch Geometric here
    python bench/loader.py --peers --threads 1          GraphTheta alone, one thread

A batch is sampled and has its features and labels; nothing is computed on it. GraphTheta's are
arrays by default, whose memory tensors would share. Batches are random, so their mean sizes are
shown; NeighborLoader samples each node once, so that its batches have fewer edges.
"""

from __future__ import annotations

import sys
from typing import Any

from harness import Contender, finish, parser, peer, race, ratio, say, script
from inputs import HELP, graph_file

COLUMNS = ["contender", "seconds", "least", "times faster", "nodes", "edges", "GiB", "note"]
# contenders by the library whose environment they run in
PEERS = {"dgl": "graphbolt", "pyg": "pyg"}


def rows_of(contenders: list[Contender]) -> list[dict[str, Any]]:
    """A row for each contender; a peer's row says how many times faster the first contender is."""
    own = contenders[0]
    rows = []
    for c in contenders:
        nodes, edges = c.figures.get("sizes", (None, None))
        beside = {} if c is own else {"times faster": ratio(c.median("batch"), own.median("batch"))}
        rows.append(
            {
                "contender": c.name,
                "seconds": c.median("batch"),
                "least": min(c.seconds.get("batch", []), default=None),
                **beside,
                "nodes": nodes,
                "edges": edges,
                "GiB": c.peak / 2**30,
                "note": c.error,
                "runs": len(c.seconds.get("batch", [])),
                "label": c.name,
                "version": c.version,
            }
        )
    return rows


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument("--fanout", default="15,10,5", help="from the targets outwards; 15,10,5")
    options.add_argument("--targets", type=int, default=1024, help="of a batch; 1024")
    options.add_argument("--batches", type=int, default=20, help="timed batches of a round; 20")
    options.add_argument("--prefetch", type=int, default=0, help="batches made ahead; 0")
    options.add_argument("--to", choices=("arrays", "pyg", "dgl"), default="arrays")
    options.add_argument("--peers", nargs="*", choices=tuple(PEERS), default=list(PEERS))
    options.add_argument("--graph", default="reddit", help=f"{HELP}; reddit")
    options = options.parse_args()
    graph = graph_file(options.graph, options.folder)
    words = (graph, options.fanout, options.targets, options.batches)
    own = script("own", "loader", *words, options.to, options.prefetch)
    contenders = [Contender("graphtheta", own)]
    for library in options.peers:
        name = PEERS[library]
        folder = options.envs or options.folder
        command = peer(folder, library, "loader", name, *words, options.prefetch)
        contenders += [Contender(name, command)] if command else []
    say(f"batches of {graph.stem}")
    race(contenders, options.rounds, options.threads)
    return finish(
        options,
        rows_of(contenders),
        COLUMNS,
        [],
        bench="loader",
        graph=graph.stem,
        fanout=options.fanout,
        targets=options.targets,
        prefetch=options.prefetch,
    )


if __name__ == "__main__":
    sys.exit(main())
