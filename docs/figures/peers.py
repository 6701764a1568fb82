"""Bars of races against other libraries, from bench/results: the lost ones first."""

from __future__ import annotations

import json
from math import log2
from pathlib import Path
from typing import Any, NamedTuple

from curves import COLOURS
from svg import Figure

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"
OURS = ("graphtheta", "grem")
NAMES = {
    "dgl": "DGL",
    "pyg": "PyG",
    "graphbolt": "GraphBolt",
    "distdgl": "DistDGL",
    "gapbs": "GAPBS",
    "networkit": "NetworKit",
}
# a race: the file of its rows, and what all of them have
RACES: dict[str, tuple[str, dict[str, Any]]] = {
    "PageRank, facebook100": ("graph_algorithms", {"graph": "facebook", "case": "pagerank"}),
    "PageRank, R-MAT": ("graph_algorithms", {"graph": "rmat", "case": "pagerank"}),
    "components, facebook100": ("graph_algorithms", {"graph": "facebook", "case": "components"}),
    "components, R-MAT": ("graph_algorithms", {"graph": "rmat", "case": "components"}),
    "partition, R-MAT": ("partitioners", {"graph": "rmat:scale=16,edge_factor=16", "workers": 8}),
    "partition, web crawl": ("partitioners", {"graph": "cnr_2000", "workers": 8}),
    "partition, facebook100": ("partitioners", {"graph": "facebook100:split=none", "workers": 4}),
    "arrays to first step, GCN": ("build", {"threads": 2}),
    "epoch, GCN, Reddit size": ("epoch", {"graph": "reddit_like", "model": "gcn"}),
    "epoch, SAGE, Reddit size": ("epoch", {"graph": "reddit_like", "model": "sage"}),
    "epoch, GAT, Reddit size": ("epoch", {"graph": "reddit_like", "model": "gat"}),
    "epoch, GCN, facebook100": ("epoch", {"graph": "facebook", "model": "gcn"}),
    "epoch, GCN, Computers": ("epoch", {"graph": "computers", "model": "gcn"}),
    "epoch, SAGE, Computers": ("epoch", {"graph": "computers", "model": "sage"}),
    "epoch, GAT, Computers": ("epoch", {"graph": "computers", "model": "gat"}),
    "epoch, R-GCN, MovieLens": ("relations", {"graph": "movielens", "threads": 2}),
    "epoch, R-GCN, R-MAT": ("relations", {"graph": "rmat", "threads": 2}),
    "epoch, R-GCN, FB15k-237": ("relations", {"graph": "fb15k", "threads": 2}),
    "sampled step, SAGE": (
        "minibatch",
        {"graph": "reddit", "model": "sage", "sampler": "neighbour"},
    ),
    "sampled step, GAT": ("minibatch", {"graph": "reddit", "model": "gat", "sampler": "neighbour"}),
    "sampled step, 2 workers": ("distributed", {"graph": "reddit", "case": "sampled"}),
    "full step, 2 workers": ("distributed", {"graph": "reddit", "case": "2 layers"}),
    "sampled batch": ("sampling", {"sampler": "neighbour"}),
}
LEFT = 210
RIGHT = 690
TOP = 62
ROW = 22
THICK = 11
TICKS = (0.5, 1, 2, 4, 8, 16, 32)


class Race(NamedTuple):
    """A race.

    Attributes:
        what: What is timed.
        peer: The fastest other library.
        ratio: Its time over that of GraphTheta.
    """

    what: str
    peer: str
    ratio: float


def races() -> list[Race]:
    """All races by their ratio, the lost ones first. Of two races of one kind, the later counts."""
    return sorted(map(race, RACES), key=lambda one: one.ratio)


def race(what: str) -> Race:
    """The medians of a race. Partitioners are compared by the time of the processor."""
    file, wanted = RACES[what]
    text = (RESULTS / f"{file}.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    partitions = file == "partitioners"
    seconds: dict[str, float] = {}
    for row in rows:
        name = row["masters"] if partitions else row["contender"]
        placed = row.get("partitioner") in (None, "1d-src", "1d-dst")
        if placed and wanted.items() <= row.items() and (name in NAMES or name in OURS):
            seconds[name] = row["processor" if partitions else "seconds"]
    (ours,) = [seconds.pop(name) for name in OURS if name in seconds]
    peer = min(seconds, key=lambda name: seconds[name])
    return Race(what, NAMES[peer], seconds[peer] / ours)


def peers() -> Figure:
    """Times of the fastest peer over those of GraphTheta, on a scale of doublings."""
    found = races()
    bottom = TOP + ROW * len(found)
    figure = Figure(
        760, bottom + 50, "Time of the fastest other library over that of GraphTheta, by race"
    )

    def at(ratio: float) -> float:
        return LEFT + (RIGHT - LEFT) * log2(ratio / TICKS[0]) / log2(64 / TICKS[0])

    figure.text(
        24,
        26,
        "Time of the fastest other library as a multiple of GraphTheta's",
        size=14,
        bold=True,
    )
    figure.text(at(1) - 8, 50, "GraphTheta is slower", "end", 11, soft=True)
    figure.text(at(1) + 8, 50, "GraphTheta is faster", size=11, soft=True)
    for tick in TICKS:
        figure.curve([(at(tick), TOP), (at(tick), bottom)], "#8b949e", 1.2 if tick == 1 else 0.3)
        figure.text(at(tick), bottom + 18, f"{tick:g}", "middle", 11, soft=True)
    figure.text(24, bottom + 38, "medians on two cores; files in bench/results", size=11, soft=True)
    for i, one in enumerate(found):
        y = TOP + ROW * (i + 0.5)
        figure.text(LEFT - 8, y + 4, one.what, "end", 12)
        figure.curve([(at(1), y), (at(one.ratio), y)], COLOURS[one.ratio < 1], THICK)
        end = at(max(one.ratio, 1)) + 6
        figure.text(end, y + 4, f"{one.ratio:.2g} x {one.peer}", size=11)
    return figure
