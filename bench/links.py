"""Sampled mini-batches over slow links: plain independent mode, and what avoids to fetch features
twice.

    python bench/links.py                              2 ranks, 50 us and 1 Gbit/s
    python bench/links.py --link 50us,10Gbit/s --cache 10%

``engine/comm/delayed.py`` simulates the links. DistDGL runs on two network namespaces with a link
of this bandwidth, which Linux limits (``peers/links.py``); it needs root, two ranks, and an
environment of peers (--envs), and is left out without. Each rank computes batches of its own with
one thread. "sent" and "messages" are those of all ranks in an epoch, with gradients. "of plain" is
the speed relative to plain independent mode, by medians and by least times. Caches and macrobatches
change no number, which is checked; the proximity order has other batches, aggregated features
another first layer, and historical embeddings values of earlier batches.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from harness import Contender, disagreement, finish, parser, peer, race, ratio, script
from inputs import graph_file
from overlap import on_links

JOB: dict[str, Any] = {
    "dataset": "rmat:scale={},edge_factor=16,features=602,classes=16",
    "model": "sage",
    "strategy": "mini",
    "batch_size": 512,
    "split": "fraction",
    "mode": "independent",
    "dropout": 0.0,
}
COLUMNS = [
    "contender",
    "numbers",
    "seconds",
    "least",
    "of plain",
    "of plain, least",
    "sent MiB",
    "messages",
    "idle",
    "runs",
    "note",
]
# contenders of the same batches and layers
SAME = "same"


def ways(cache: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Keys of each contender, and whether its numbers are those of plain independent mode."""
    merged = {"macrobatch": "16"}
    lru, belady = ({"feature_cache": cache, "cache_policy": policy} for policy in ("lru", "belady"))
    ordered = {"order": "proximity"}
    return {
        "plain": (SAME, {}),
        "macrobatch": (SAME, merged),
        "lru": (SAME, lru),
        "belady": (SAME, belady),
        "macrobatch, belady": (SAME, merged | belady),
        "proximity": ("other batches", ordered),
        "macrobatch, belady, proximity": ("other batches", merged | belady | ordered),
        "precompute": ("other first layer", {"precompute": "yes"}),
        "all": (
            "other batches and first layer",
            {"precompute": "yes", **merged, **belady, **ordered},
        ),
        "hec, features cached": ("old values", {"history": "hec:ls=8", "partitioner": "1d-dst"}),
        "hec, features copied": (
            "old values",
            {"history": "hec:features=copied,ls=8", "partitioner": "1d-dst"},
        ),
    }


def row_of(c: Contender, numbers: str, plain: Contender) -> dict[str, Any]:
    """Figures of a contender."""
    times = c.seconds.get("epoch", [])
    ranks = [run["ranks"] for run in c.more]

    def mean(name: str, scale: float) -> float | None:
        known = ranks and all(name in rank for each in ranks for rank in each)
        return (
            sum(sum(rank[name] for rank in each) for each in ranks) / len(ranks) * scale
            if known
            else None
        )

    idle = mean("idle", 1.0)
    least = min(times, default=None)
    base = min(plain.seconds.get("epoch", []), default=None)
    return {
        "contender": c.name,
        "numbers": numbers,
        "seconds": c.median("epoch"),
        "least": least,
        "of plain": ratio(plain.median("epoch"), c.median("epoch")),
        "of plain, least": ratio(base, least),
        "sent MiB": mean("sent", 2.0**-20),
        "messages": mean("messages", 1.0),
        "idle": None if idle is None else idle / len(ranks[0]),
        "runs": len(times),
        "note": c.error,
        "version": c.version,
        "label": c.name,
        "losses": c.checks.get("epoch"),
        "all": times,
    }


def main() -> int:
    options = parser(__doc__, rounds=2)
    options.add_argument(
        "--link", default="50us,1Gbit/s", help="latency and bandwidth; 50us,1Gbit/s"
    )
    options.add_argument("--ranks", type=int, default=2, help="with a thread each; 2")
    options.add_argument("--scale", type=int, default=15, help="of the R-MAT graph; 15")
    options.add_argument(
        "--cache", default="20%", help="size of the caches, as --feature-cache; 20%%"
    )
    options.add_argument("--hidden", type=int, default=64, help="width of the layers; 64")
    options.add_argument("--fanout", default="10,5", help="of two layers; 10,5")
    options.add_argument("--epochs", type=int, default=2, help="timed epochs of a round; 2")
    options.add_argument("--only", nargs="+", help="some of the contenders")
    options = options.parse_args()
    job = {
        **JOB,
        "dataset": JOB["dataset"].format(options.scale),
        "hidden": options.hidden,
        "fanout": options.fanout,
    }
    made = {
        name: way
        for name, way in ways(options.cache).items()
        if not options.only or name in ("plain", *options.only)
    }
    contenders = {
        name: on_links(
            name,
            options.ranks,
            options.link,
            script("own", "flight", json.dumps({**job, **keys}), options.epochs),
        )
        for name, (_, keys) in made.items()
    }
    graph = graph_file(job["dataset"], options.folder)
    words = (graph, options.link, options.hidden, options.fanout, job["batch_size"], options.epochs)
    command = (
        peer(options.envs or options.folder, "dgl", "links", *words)
        if options.ranks == 2 and os.geteuid() == 0
        else []
    )
    if command:
        contenders["distdgl"] = Contender("distdgl", command)
        made["distdgl"] = ("another program", {})
    race(list(contenders.values()), options.rounds, 1)
    faults = disagreement([c for name, c in contenders.items() if made[name][0] == SAME])
    rows = [row_of(c, made[name][0], contenders["plain"]) for name, c in contenders.items()]
    return finish(
        options,
        rows,
        COLUMNS,
        faults,
        bench="links",
        link=options.link,
        ranks=options.ranks,
        cache=options.cache,
        hidden=options.hidden,
        fanout=options.fanout,
    )


if __name__ == "__main__":
    sys.exit(main())
