"""Sampled mini-batches whose features stay in a store, against features in memory.

    python bench/disk.py                           float32 and int8, warm and cold page cache
    python bench/disk.py --graph rmat:scale=17,edge_factor=8,features=602,classes=8

"epoch" is the time of an epoch (median), "least" the shortest one, and "processor" its processor
time (median). "of memory" and those after it are the speeds by these times relative to features in
memory with as many batches in flight; the processor does not count waiting for the disk. "MiB" is
the peak memory of the process, which counts pages of the file that are in use. "cold" reads the
features from the disk again in every epoch. The losses of all ways of one type are compared.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from harness import Contender, disagreement, finish, parser, race, ratio, script

COLUMNS = [
    "features",
    "contender",
    "in flight",
    "epoch",
    "least",
    "processor",
    "of memory",
    "least, of memory",
    "processor, of memory",
    "MiB",
    "note",
]
WAYS = ("memory", "warm", "cold")


def store_of(name: str, features: str, folder: Path) -> Path:
    """The store of a graph, made unless it exists."""
    from graphtheta.cli.import_ import import_graph
    from graphtheta.engine.comm.serial import SerialComm
    from graphtheta.graph.store.manifest import is_store

    path = folder / f"{name.replace(':', '-').replace(',', '-')}-{features}.store"
    if not is_store(path):
        import_graph(name, path, features, None, SerialComm())
    return path


def times(c: Contender) -> dict[str, float | None]:
    """Times of an epoch: median, shortest, and median of the processor."""
    return {
        "epoch": c.median("epoch"),
        "least": min(c.seconds.get("epoch", []), default=None),
        "processor": c.median("processor"),
    }


def row_of(features: str, c: Contender, in_flight: int, memory: Contender) -> dict[str, Any]:
    """The times of one way, and its speeds relative to features in memory."""
    own = times(c)
    other = times(memory)
    return {
        "features": features,
        "contender": c.name,
        "in flight": str(in_flight),
        **own,
        "of memory": ratio(other["epoch"], own["epoch"]),
        "least, of memory": ratio(other["least"], own["least"]),
        "processor, of memory": ratio(other["processor"], own["processor"]),
        "MiB": c.peak / 2**20,
        "note": c.error,
        "seconds": own["epoch"],
        "label": f"{features}, {c.name}, {in_flight} in flight",
        "version": c.version,
    }


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument(
        "--graph",
        default="rmat:scale=16,edge_factor=8,features=602,classes=8",
        help="any name that gt.load knows",
    )
    options.add_argument(
        "--features",
        nargs="+",
        default=["stored", "int8"],
        help="types of features: stored, float16, int8",
    )
    options.add_argument("--epochs", type=int, default=2, help="timed in each run; 2")
    options = options.parse_args()
    rows, faults = [], []
    for features in options.features:
        store = store_of(options.graph, features, options.folder)
        made = {
            (way, n): Contender(way, script("own", "disk", store, way, n, options.epochs))
            for n in (1, 2)
            for way in WAYS
        }
        race(list(made.values()), options.rounds, options.threads)
        rows += [row_of(features, c, n, made["memory", n]) for (_, n), c in made.items()]
        faults += [
            fault
            for n in (1, 2)
            for fault in disagreement(c for (_, m), c in made.items() if m == n)
        ]
    return finish(options, rows, COLUMNS, faults, bench="disk", graph=options.graph)


if __name__ == "__main__":
    sys.exit(main())
