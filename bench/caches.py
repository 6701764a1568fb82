"""Caches of features in independent mode: hit rates by policy and size, and rows that workers fetch
from each other.

    python bench/caches.py   R-MAT, facebook100 and cnr_2000, 2 and 4 simulated workers
    python bench/caches.py --graphs rmat:scale=12 --workers 2 --sizes 10

Each worker's reads of three epochs are those of real runs, found by expanding all views; they are
then replayed on each policy, so that the counts are exact. Sizes of a cache are shares of all
nodes. "rows" is the number of rows that all workers fetch in an epoch without a cache, "fewest"
with a cache of this size and Belady's policy; "batch" is the mean share of all nodes that a batch
reads from other workers. Caches begin empty, so the first read of a row is a
miss for every policy, also for a static one. Belady's policy knows all reads; that no other policy
has more hits is checked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import finish, parser

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.store.cached import RowCache
from graphtheta.engine.store.slots import Slots
from graphtheta.train.reuse.caching.registry import CACHE_POLICIES
from graphtheta.train.reuse.caching.scout import Scout
from graphtheta.train.reuse.caching.setup import make_policy

GRAPHS = [
    "rmat:scale=15,edge_factor=16,features=4,classes=4",
    "facebook100:colleges=5,target=year",
    "cnr_2000",
]
JOB: dict[str, Any] = {"model": "sage", "hidden": 4, "strategy": "mini", "mode": "independent"}
COLUMNS = ["graph", "order", "workers", "cache", *CACHE_POLICIES, "rows", "fewest", "batch"]


class Replay:
    """Reads that were recorded, as a ``Scout``.

    Args:
        batches: Keys that each batch reads.
        ranking: Keys by falling degree.
        groups_per_epoch: Batches of an epoch.
    """

    def __init__(self, batches: list[np.ndarray], ranking: np.ndarray, groups_per_epoch: int):
        self.batches = batches
        self._ranking = ranking
        self.groups_per_epoch = groups_per_epoch

    def dry_run(self, epoch: int, first: int, n: int) -> Iterator[np.ndarray]:
        """The first n batches."""
        yield from self.batches[:n]

    def most_connected(self, n: int) -> np.ndarray:
        """The n keys of the largest degrees."""
        return self._ranking[:n]


def recorded(comm: Comm, graph: gt.Graph, keys: dict[str, Any], epochs: int, files: bool) -> Replay:
    """What this worker reads, from other workers, or with ``files`` all rows."""
    one = gt.Trainer(graph=graph, comm=comm, **keys)
    scout = Scout(one.strategy, one.setup.views_per_step, one.setup.independent, own=files)
    n = scout.groups_per_epoch
    return Replay(list(scout.dry_run(0, 0, epochs * n)), scout.most_connected(graph.n_nodes), n)


def hits(replay: Replay, policy: str, capacity: int, cold: int = 0) -> int:
    """Rows that a cache holds when they are read, without those of the first ``cold`` batches."""
    text = f"{policy}:window={len(replay.batches)}" if policy == "belady" else policy
    cache = RowCache(capacity, make_policy(text, capacity, replay), Slots(capacity, {}))
    cache.foresee(replay.batches)
    counted = 0
    for i, keys in enumerate(replay.batches):
        found = cache.look_up(keys)
        cache.store(keys[found.rest], {})
        counted += len(found.at) * (i >= cold)
    return counted


def graph_of(name: str, share: float, classes: bool = False) -> gt.Graph:
    """A graph with features, labels and targets, a share of the nodes; structure is all that
    counts, but with ``classes`` labels are those of the graph.
    """
    graph = gt.load(name, split="none")
    n = graph.n_nodes
    rng = np.random.default_rng(0)
    known = classes and graph.y is not None
    return graph.replace(
        x=np.zeros((n, 1), np.float32),
        y=np.maximum(graph.y, 0) if known else np.arange(n) % 2,
        node_columns={},
    ).with_masks(rng.random(n) < share)


def rows_of(
    name: str, keys: dict[str, Any], workers: int, options: Any
) -> Iterator[dict[str, Any]]:
    """A row for each size."""
    graph = graph_of(name, options.share, classes=True)
    epochs = options.epochs
    replays = run_simulated(workers, recorded, graph, keys, epochs, options.files)
    read = sum(len(batch) for replay in replays for batch in replay.batches)
    for size in options.sizes:
        capacity = round(size / 100 * graph.n_nodes)
        found = {
            policy: sum(hits(replay, policy, capacity) for replay in replays)
            for policy in CACHE_POLICIES
        }
        yield {
            "graph": name.partition(":")[0],
            "order": keys["order"],
            "workers": workers,
            "cache": f"{size:g} %",
            **{p: x / read for p, x in found.items()},
            "rows": read / epochs,
            "fewest": (read - found["belady"]) / epochs,
            "batch": read / sum(len(replay.batches) for replay in replays) / graph.n_nodes,
            "nodes": graph.n_nodes,
            "edges": graph.n_edges,
            "seconds": None,
            "label": f"{name} {keys['order']} {workers} {size:g}",
        }


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument("--graphs", nargs="+", default=GRAPHS, help="names for gt.load")
    options.add_argument("--workers", nargs="+", type=int, default=[2, 4], help="simulated; 2 4")
    options.add_argument(
        "--sizes",
        nargs="+",
        type=float,
        default=[1, 5, 10, 20, 50],
        help="of the cache, in %% of the nodes",
    )
    options.add_argument("--fanout", default="10,5", help="one number for each layer; 10,5")
    options.add_argument("--targets", type=int, default=256, help="of a batch of one worker; 256")
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument(
        "--share", type=float, default=0.2, help="of the nodes that are targets; 0.2"
    )
    options.add_argument(
        "--files",
        action="store_true",
        help="features are in files, so that a worker's own rows count too",
    )
    options.add_argument(
        "--orders", nargs="+", default=["random", "proximity"], help="of targets; random proximity"
    )
    options = options.parse_args()
    keys = {
        **JOB,
        "fanout": options.fanout,
        "layers": options.fanout.count(",") + 1,
        "batch_size": options.targets,
    }
    rows = [
        row
        for name in options.graphs
        for order in options.orders
        for workers in options.workers
        for row in rows_of(name, {**keys, "order": order}, workers, options)
    ]
    faults = [
        f"{row['label']}: {policy} has more hits than belady"
        for row in rows
        for policy in CACHE_POLICIES
        if row[policy] > row["belady"]
    ]
    return finish(
        options,
        rows,
        COLUMNS,
        faults,
        bench="caches",
        fanout=options.fanout,
        targets=options.targets,
        share=options.share,
        files=options.files,
    )


if __name__ == "__main__":
    sys.exit(main())
