"""Caches of features on hundreds of machines: hits of the warm state, and what they save of a step.

A worker of independent mode draws batch after batch of a graph of the size of papers100M
(``lazy_rmat.py``), and the rows that they read are replayed on each policy. Caches have the share
of the nodes that published ones had. Only batches after the cache is filled are counted: those of
the second half of the reads. What workers own themselves, a P-th of the rows, counts as read.
"""

from __future__ import annotations

from statistics import mean
from typing import Any

import numpy as np
from caches import Replay, hits
from excerpts import PAPERS
from harness import say
from lazy_rmat import LazyRmat
from scaled import read
from scaled_modes import (
    EACH,
    FANOUT,
    LAYERS,
    WAYS,
    Alone,
    parts_of,
    rounds,
    sizes,
    step_of,
    views_of,
)

from graphtheta.train.reuse.caching.registry import CACHE_POLICIES

# rows of the caches of papers100M: half of those of DistGNN-MB in a layer, these, and those of
# cooperative mini-batching
ROWS = {"0.5M": 500_000, "1M": 1_000_000, "2M": 2_000_000}
# of a row in a request and in its reply
ROW_BYTES = 4 + 4 * PAPERS.features


def stream(rmat: LazyRmat, n: int, rows: int) -> Replay:
    """The rows that one worker reads for batches of n targets, until they are so many."""
    batches = list[np.ndarray]()
    held = 0
    while held < rows:
        nodes, _ = rmat.neighbourhood(
            rmat.targets(n, len(batches)), [FANOUT] * LAYERS, len(batches)
        )
        batches.append(nodes)
        held += len(nodes)
    return Replay(
        batches, rmat.most_connected(max(map(capacity_of, ROWS, [rmat] * len(ROWS)))), len(batches)
    )


def capacity_of(size: str, rmat: LazyRmat) -> int:
    """Rows of a cache of the same share of the nodes."""
    return round(ROWS[size] * rmat.n_nodes / PAPERS.nodes)


def warm(replay: Replay, policy: str, capacity: int) -> float:
    """Share of the rows of the second half that a cache holds."""
    cold = len(replay.batches) // 2
    return hits(replay, policy, capacity, cold) / sum(map(len, replay.batches[cold:]))


def caches(options: Any) -> list[dict[str, Any]]:
    """Steps of independent workers with each policy and size."""
    cluster = read(options.cluster, 1.0)
    law = rounds()
    rmat = LazyRmat(options.full_scale)
    rows = list[dict[str, Any]]()
    for case in options.batches:
        found: dict[int, tuple[list[Alone], Any, dict[tuple[str, str], float]]] = {}
        first: dict[tuple[str, str], tuple[int, dict[str, float]]] = {}
        for workers in options.workers:
            n = sizes(case, options.full_scale, workers)
            if n not in found:
                views, held = views_of(case, options, workers, cluster, law)
                replay = stream(rmat, n, options.reads)
                say(f"{case}, {n} targets: {len(replay.batches)} batches are replayed")
                rates = {
                    (policy, size): warm(replay, policy, capacity_of(size, rmat))
                    for size in ROWS
                    for policy in CACHE_POLICIES
                }
                found[n] = views, held, {("none", ""): 0.0, **rates}
            views, held, rates = found[n]
            nodes, n_bytes = (
                mean(getattr(view, name) for view in views) for name in ("nodes", "n_bytes")
            )
            for (policy, size), rate in rates.items():
                row: dict[str, Any] = {
                    "case": case,
                    "workers": workers,
                    "policy": policy,
                    "rows": size,
                    "hits": rate,
                    "targets": n,
                    "MiB": (n_bytes - rate * ROW_BYTES * nodes) / 2**20,
                    "nodes of a view": nodes,
                    "label": f"{case} {workers} {policy} {size}",
                }
                saved = (
                    rate * ROW_BYTES * (workers - 1) / workers * max(view.nodes for view in views)
                )
                parts = parts_of(views, held, law, workers, cluster, saved)
                few, before = first.setdefault((policy, size), (workers, parts))
                grown = workers / few if case == EACH else 1.0
                limit = max(parts, key=parts.__getitem__)
                bare, seconds = (
                    step_of(x, 1, 1) for x in (parts_of(views, held, law, workers, cluster), parts)
                )
                rows.append(
                    {
                        **row,
                        "step": seconds,
                        "saved": 1 - seconds / bare,
                        "limit": limit,
                        "seconds": seconds,
                        **{
                            name: grown * step_of(before, *way) / step_of(parts, *way)
                            for name, way in WAYS.items()
                        },
                        **{f"seconds of {name}": s for name, s in parts.items()},
                    }
                )
            say(
                f"{case}, {workers} workers: "
                + ", ".join(
                    f"{x['policy']} {x['hits']:.0%}"
                    for x in rows
                    if x["workers"] == workers and x["case"] == case and x["rows"] == "2M"
                )
            )
    return rows
