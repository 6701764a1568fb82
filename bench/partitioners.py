"""What node partitioners and edge placements cost: cut, replication, balance, halo and time.

    python bench/partitioners.py                            R-MAT and cnr_2000, 2, 4 and 8 workers
    python bench/partitioners.py --graphs cora --workers 4 --pairs ldg/1d-src hash/hdrf

    python bench/partitioners.py --peers dgl --envs /path   beside the offline partitioning of DGL

No worker is started: a process computes the partitions for a number of workers, and counts their
nodes and edges; ``division.py`` measures the memory of workers. "to metis" needs METIS before, in
this run or in the file.
"nodes", "edges" and "train" are the largest of a worker over the mean, and "halo" is the largest
number of mirrors of a worker. "sent" are the megabytes of an epoch of two layers of 16 numbers
on the whole graph. "to metis" is the cut over that of METIS (pymetis) for as many workers, and
"faster" the time of the assignment of nodes by DGL over this one, in processor time of all threads,
which other programs change less than "seconds". With --whole, "whole" is the processor time of the
assignment and of building the parts of all workers in memory, and for DGL of ``partition_graph``,
which builds parts and writes them; "whole faster" is the ratio.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from harness import Contender, append, finish, parser, peer, race, ratio, script

import graphtheta as gt

COLUMNS = [
    "graph",
    "workers",
    "masters",
    "partitioner",
    "cut",
    "replication",
    "nodes",
    "edges",
    "train",
    "halo",
    "sent",
    "to metis",
    "seconds",
    "processor",
    "faster",
    "whole processor",
    "whole faster",
    "note",
]
# METIS first, with which the others are compared
MASTERS = (
    "metis",
    "hash",
    "block",
    "degree-block",
    "gemini",
    "ldg",
    "ldg:passes=5",
    "fennel",
    "fennel:passes=5",
    "bgl",
    "bgl:passes=1,second=1",
    "grem",
    "grem:slack=0.03",
    "louvain",
    "leiden",
)
PLACEMENTS = ("vertex-cut", "random", "hybrid", "hdrf", "hdrf:owners=no", "oblivious", "libra")
PAIRS = [
    *(f"{m}/1d-src" for m in MASTERS),
    *(f"hash/{p}" for p in PLACEMENTS),
    "ldg:passes=5/hdrf",
    "ldg:passes=5/libra",
    "grem/hdrf",
    "grem/libra",
]


def row_of(graph: str, found: dict[str, Any]) -> dict[str, Any]:
    """Figures of a partition."""
    return {
        **found,
        "graph": graph,
        "workers": found["n_workers"],
        "cut": found.get("edge_cut"),
        "halo": found.get("halo_rows"),
        "sent": found.get("bytes", {}).get("global", 0) / 1e6,
        "contender": f"{found['n_workers']} workers",
        "label": f"{found['masters']} {found['partitioner']} {found['n_workers']}",
    }


def edges_file(name: str, folder: Path) -> Path:
    """The file of the edges of a graph for peers, made if there is none."""
    path = folder / f"{name.translate(str.maketrans(':,', '--', '='))}-edges.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        graph = gt.load(name, split="none")
        np.savez(
            path,
            src=graph.src.astype(np.int32),
            dst=graph.dst.astype(np.int32),
            n_nodes=graph.n_nodes,
        )
    return path


def beside(rows: list[dict[str, Any]], known: list[dict[str, Any]]) -> None:
    """Compare rows with METIS and DGL for the same graph and number of workers, in these rows or
    those that are known already.
    """
    of = {
        (row["graph"], row.get("workers"), row.get("masters")): row
        for row in [*known, *rows]
        if not row.get("note")
    }
    for row in rows:
        metis, dgl = (
            of.get((row["graph"], row.get("workers"), masters), {}) for masters in ("metis", "dgl")
        )
        row["to metis"], row["faster"] = (
            ratio(row.get("cut"), metis.get("cut")),
            ratio(dgl.get("processor"), row.get("processor")),
        )
        row["whole faster"] = ratio(dgl.get("whole processor"), row.get("whole processor"))


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument(
        "--graphs",
        nargs="+",
        default=["rmat:scale=16,edge_factor=16", "cnr_2000"],
        help="names that gt.load knows",
    )
    options.add_argument("--workers", nargs="+", type=int, default=[2, 4, 8])
    options.add_argument(
        "--pairs", nargs="*", default=PAIRS, help="node partitioner/edge placement"
    )
    options.add_argument("--peers", nargs="*", choices=("dgl",), default=[])
    options.add_argument("--whole", action="store_true", help="build all parts too")
    options = options.parse_args()
    out = options.out
    whole = "yes" if options.whole else "no"
    earlier = (
        [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        if out and out.exists()
        else []
    )
    rows: list[dict[str, Any]] = []
    for graph in options.graphs:
        words = (
            (edges_file(graph, options.folder), ",".join(map(str, options.workers)), whole)
            if "dgl" in options.peers
            else ()
        )
        command = peer(options.envs or options.folder, "dgl", "partition", *words) if words else []
        runs = [Contender(f"{graph} dgl", command)] if command else []
        runs += [
            Contender(f"{graph} {n}", script("own", "partition", graph, n, whole, *options.pairs))
            for n in options.workers
        ]
        for run in runs:
            race([run], 1, options.threads)
            found = [row_of(graph, row) for row in run.figures.get("rows", [])] or [
                {"graph": graph, "label": run.name, "note": run.error}
            ]
            beside(found, [*earlier, *rows])
            append(options, found, bench="partitioners")
            rows += found
    return finish(options, rows, COLUMNS, [], written=True, bench="partitioners")


if __name__ == "__main__":
    sys.exit(main())
