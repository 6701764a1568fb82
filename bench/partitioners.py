"""What node partitioners and edge placements cost: cut, replication, balance, halo, time and memory.

    python bench/partitioners.py                           R-MAT and cnr_2000, 2, 4 and 8 workers
    python bench/partitioners.py --graphs cora --workers 4 --pairs ldg/1d-src hash/hdrf

No worker is started: a partition is computed in one process, and its nodes and edges are counted.
"nodes", "edges" and "train" are the largest of a worker over the mean, and "halo" is the largest
number of mirrors of a worker. "MB" is the growth of the peak of resident memory while the partition
is computed, beyond the graph itself. "sent" are the megabytes of an epoch of two layers of 16 numbers
on the whole graph, and "to metis" is the cut over that of METIS for as many workers.
"""
from __future__ import annotations

import sys
from typing import Any

from harness import Contender, finish, parser, race, script

COLUMNS = ["graph", "workers", "masters", "partitioner", "cut", "replication", "nodes", "edges", "train", "halo", "sent",
           "to metis", "seconds", "MB", "note"]
MASTERS = ("hash", "block", "degree-block", "gemini", "ldg", "ldg:passes=5", "fennel", "fennel:passes=5", "bgl", "bgl:second=0", "grem",
           "grem:slack=0.03", "louvain", "leiden", "metis")
PLACEMENTS = ("vertex-cut", "random", "hybrid", "hdrf", "hdrf:owners=no", "oblivious", "libra")
PAIRS = [*(f"{m}/1d-src" for m in MASTERS), *(f"hash/{p}" for p in PLACEMENTS), "ldg:passes=5/hdrf", "ldg:passes=5/libra", "grem/hdrf",
         "grem/libra"]


def row_of(graph: str, found: dict[str, Any]) -> dict[str, Any]:
    """Figures of a partition."""
    return {**found, "graph": graph, "workers": found["n_workers"], "cut": found.get("edge_cut"), "halo": found.get("halo_rows"),
            "sent": found.get("bytes", {}).get("global", 0) / 1e6, "MB": (found.get("peak_bytes") or 0) / 1e6,
            "contender": f"{found['n_workers']} workers",
            "label": f"{found['masters']} {found['partitioner']} {found['n_workers']}"}


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument("--graphs", nargs="+", default=["rmat:scale=16,edge_factor=16", "cnr_2000"], help="names that gt.load knows")
    options.add_argument("--workers", nargs="+", type=int, default=[2, 4, 8])
    options.add_argument("--pairs", nargs="+", default=PAIRS, help="node partitioner/edge placement")
    options = options.parse_args()
    rows: list[dict[str, Any]] = []
    for graph in options.graphs:
        run = Contender(graph, script("own", "partition", graph, ",".join(map(str, options.workers)), *options.pairs))
        race([run], 1, options.threads)
        rows += [row_of(graph, found) for found in run.figures.get("rows", [])] or [{"graph": graph, "note": run.error}]
    for row in rows:
        cuts = {other["graph"]: other["cut"] for other in rows
                if other.get("masters") == "metis" and other["workers"] == row.get("workers") and other.get("cut")}
        if row.get("cut") is not None and row["graph"] in cuts:
            row["to metis"] = row["cut"] / cuts[row["graph"]]
    return finish(options, rows, COLUMNS, [], bench="partitioners")


if __name__ == "__main__":
    sys.exit(main())
