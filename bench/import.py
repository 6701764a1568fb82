"""Importing tables of edges and nodes: rate, and peak memory of each worker.

    python bench/import.py   R-MAT of 2^20 edges, from CSV.gz, CSV and Parquet, 1 and 2 workers
    python bench/import.py --scale 20 --edge-factor 16
    python bench/import.py --graph facebook100

The tables are written once. Ids are integers, or texts with --text. "MB" is the growth of the
largest worker beyond a process that has imported a graph of two edges ("each" in the JSON: of every
worker), and "share" is the bytes of its share of the tables as arrays: 16 bytes for each edge, 8
for each node, and its features. The exit code is 1 if a worker takes more than its share and
``CONSTANT``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from harness import Contender, disagreement, finish, on_workers, parser, race, say, script

import graphtheta as gt

COLUMNS = ["contender", "seconds", "edges/s", "MB/s", "MB", "share", "note"]
KINDS = ("csv.gz", "csv", "parquet")
FEATURES = 8
# MB that a worker may take beyond its share, for blocks of rows and buffers
CONSTANT = 150


def tables(graph: gt.Graph, text: bool) -> tuple[pa.Table, pa.Table]:
    """The edges and the nodes."""
    rng = np.random.default_rng(0)
    ids = rng.permutation(graph.n_nodes).astype(np.int64)
    names = pa.array(np.char.add("user-", ids.astype(str)).tolist()) if text else pa.array(ids)
    x = rng.random((graph.n_nodes, FEATURES)).round(4)
    nodes = pa.table({"id": names, **{f"f{i}": x[:, i] for i in range(FEATURES)}})
    return (
        pa.table({"src": names.take(pa.array(graph.src)), "dst": names.take(pa.array(graph.dst))}),
        nodes,
    )


def written(folder: Path, graph: str, kinds: list[str], text: bool) -> dict[str, list[Path]]:
    """Files of each kind."""
    at = folder / f"import-{graph.replace(':', '-').replace(',', '-')}{'-text' * text}"
    files = {kind: [at / f"{name}.{kind}" for name in ("edges", "nodes")] for kind in kinds}
    if all(path.exists() for paths in files.values() for path in paths):
        return files
    at.mkdir(parents=True, exist_ok=True)
    made = tables(gt.load(graph, split="none"), text)
    for kind, paths in files.items():
        for table, path in zip(made, paths, strict=True):
            if kind == "parquet":
                pq.write_table(table, path, row_group_size=1 << 18)
            else:
                with pa.output_stream(
                    str(path), compression="gzip" if kind == "csv.gz" else None
                ) as stream:
                    pyarrow.csv.write_csv(table, stream)
            say(f"{path}: {path.stat().st_size / 1e6:.0f} MB")
    return files


def importing(n: int, kind: str, files: list[Path], store: Path, threads: int) -> Contender:
    """An import on n workers."""
    words = script(
        "own",
        "import_tables",
        *files,
        store,
        "features=" + ",".join(f"f{i}" for i in range(FEATURES)),
    )
    return Contender(
        f"{kind} {n}", on_workers(n, words), {"OMP_NUM_THREADS": str(max(1, threads // n))}
    )


def row_of(c: Contender, n: int, files: list[Path]) -> dict[str, Any]:
    """Figures of a contender."""
    seconds = c.median("import")
    found = c.figures
    size = sum(path.stat().st_size for path in files)
    grown = [b - a for a, b in zip(found.get("before", []), found.get("peaks", []), strict=True)]
    share = (16 * found.get("edges", 0) + (8 + 4 * FEATURES) * found.get("nodes", 0)) / n
    return {
        "contender": c.name,
        "label": c.name,
        "seconds": seconds,
        "edges/s": seconds and found["edges"] / seconds,
        "MB/s": seconds and size / seconds / 1e6,
        "MB": max(grown, default=0) / 1e6,
        "each": [more / 1e6 for more in grown],
        "share": share / 1e6,
        "note": c.error,
    }


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument("--graph", help="a name that gt.load knows; an R-MAT graph without")
    options.add_argument("--scale", type=int, default=16, help="of the R-MAT graph; 16")
    options.add_argument("--edge-factor", type=int, default=16, help="of the R-MAT graph; 16")
    options.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    options.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options.add_argument("--text", action="store_true", help="ids are texts")
    options = options.parse_args()
    graph = (
        options.graph
        or f"rmat:scale={options.scale},edge_factor={options.edge_factor},features=1,classes=1"
    )
    files = written(options.folder, graph, options.kinds, options.text)
    runs = [
        (importing(n, kind, files[kind], options.folder / "import-store", options.threads), n, kind)
        for kind in options.kinds
        for n in options.workers
    ]
    race([c for c, _, _ in runs], options.rounds, options.threads)
    rows = [row_of(c, n, files[kind]) for c, n, kind in runs]
    faults = [
        f"{row['contender']} takes {row['MB']:.0f} MB, its share is {row['share']:.0f}"
        for row in rows
        if row["MB"] > row["share"] + CONSTANT
    ]
    return finish(
        options,
        rows,
        COLUMNS,
        faults + disagreement(c for c, _, _ in runs),
        bench="import",
        graph=graph,
    )


if __name__ == "__main__":
    sys.exit(main())
