"""Vertices and edges per batch of every sampler, and distinct rows per window of dependent batches.

    python bench/sampled_sizes.py
    python bench/sampled_sizes.py --graph facebook100 --batch 256 --out sizes.jsonl
    python bench/sampled_sizes.py --window 0 --graph sbm:n_nodes=89250,n_edges=899756,skew=0.6

The first table has the sizes of every layer in thousands: V3 are the input rows, E2 the edges of
the first layer, and so on to E0, the edges into the targets. "NS / V3" is how many times fewer
input rows a sampler needs than neighbour sampling. "paper" is that ratio on Reddit in
https://arxiv.org/abs/2210.13339 (batch of 1,000, fan-out 10).

The second table has, for each kappa, the distinct input rows of a window of consecutive batches,
and the hits of a cache of the --cache rows read last (LRU) as a share of all rows read. The last
line has mega-batches, with draws that stay the same for kappa batches.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import table

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.partition.partition import Partition, build_partition
from graphtheta.engine.sampling.sampler import Sampler
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.engine.view.view import GraphView
from graphtheta.samplers.labor import LaborSampler
from graphtheta.samplers.ladies import LadiesSampler
from graphtheta.samplers.neighbour import NeighbourSampler
from graphtheta.samplers.pladies import PladiesSampler

# V3 of neighbour sampling and of each sampler, in thousands
PAPER = {"neighbour": 167, "LABOR-0": 36, "LABOR-1": 27, "LABOR-*": 24}
SIZES = ["V3", "E2", "V2", "E1", "V1", "E0"]
LAYERS = 3
KAPPAS = (1, 4, 16, 64, 256)


def samplers(fanout: int, vertices: tuple[int, ...]) -> dict[str, Sampler]:
    """By the names of the paper; ``vertices`` are those of the layer-wise samplers."""
    fanouts = (fanout,) * LAYERS
    labor = {f"LABOR-{i}": LaborSampler(fanouts, iterations=i) for i in (0, 1)}
    return {
        "neighbour": NeighbourSampler(fanouts),
        **labor,
        "LABOR-*": LaborSampler(fanouts, star=True),
        "LABOR-0 sequential": LaborSampler(fanouts, sequential=True),
        "LABOR-0 all hops": LaborSampler(fanouts, layer_dependency=True),
        "LADIES": LadiesSampler(vertices),
        "PLADIES": PladiesSampler(vertices),
    }


def views(partition: Partition, sampler: Sampler, batch: int, steps: int) -> Iterator[GraphView]:
    """Views of consecutive batches of random targets, the same for every sampler."""
    for step in range(steps):
        targets = np.random.default_rng(step).choice(partition.n_nodes, batch, replace=False)
        yield k_hop_view(
            partition,
            np.isin(partition.masters, targets),
            ["in"] * LAYERS,
            sampler=sampler,
            step=step,
        )


def sizes(partition: Partition, sampler: Sampler, batch: int, steps: int) -> dict[str, float]:
    """Mean number of rows and edges of every layer, in thousands."""
    found = [
        [
            n
            for level in view.levels
            for n in (
                level.n_in,
                sum(s.n_edges for sweep in level.passes for s in sweep.selections),
            )
        ]
        for view in views(partition, sampler, batch, steps)
    ]
    return dict(zip(SIZES, np.mean(found, axis=0) / 1000, strict=True))


def window(
    partition: Partition, sampler: Sampler, batch: int, steps: int, cache: int
) -> dict[str, float]:
    """Rows that consecutive batches read; ``cache`` is the capacity of the cache."""
    rows = [view.rows for view in views(partition, sampler, batch, steps)]
    recent: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for row in np.concatenate(rows).tolist():
        if row in recent:
            recent.move_to_end(row)
            hits += 1
            continue
        recent[row] = None
        if len(recent) > cache:
            recent.popitem(last=False)
    n = sum(map(len, rows))
    return {"rows read": n, "distinct": len(np.unique(np.concatenate(rows))), "hits": hits / n}


def main() -> int:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--graph",
        default="rmat:scale=17,edge_factor=40,features=8,classes=4",
        help="any name that gt.load knows",
    )
    made.add_argument("--batch", type=int, default=1000)
    made.add_argument("--fanout", type=int, default=10)
    made.add_argument("--steps", type=int, default=5, help="batches of the first table")
    made.add_argument(
        "--window", type=int, default=64, help="batches of the second table; 0 leaves it out"
    )
    made.add_argument(
        "--cache", type=int, help="rows of the cache; twice the input rows of a batch of LABOR-0"
    )
    made.add_argument("--out", type=Path, help="JSON lines, one per row")
    options = made.parse_args()
    partition = build_partition(gt.load(options.graph), SerialComm())
    rows: list[dict[str, Any]] = []
    most = 0.0
    vertices: tuple[int, ...] = (1,) * LAYERS
    for name in samplers(options.fanout, vertices):
        found = sizes(
            partition, samplers(options.fanout, vertices)[name], options.batch, options.steps
        )
        most = most or found["V3"]
        paper = PAPER["neighbour"] / PAPER[name] if name in PAPER else None
        rows.append({"sampler": name, **found, "NS / V3": most / found["V3"], "paper": paper})
        if name == "LABOR-*":
            # layer-wise samplers get as many vertices as LABOR-* has beside the receiving nodes
            counts = [found[size] for size in ("V3", "V2", "V1")] + [options.batch / 1000]
            vertices = tuple(max(int(1000 * (a - b)), 1) for a, b in itertools.pairwise(counts))
    cache = options.cache or int(2000 * rows[1]["V3"])
    fanouts = (options.fanout,) * LAYERS
    dependent = [LaborSampler(fanouts, kappa=kappa) for kappa in KAPPAS] + [
        LaborSampler(fanouts, kappa=16, mega_batch=True)
    ]
    kappas = [
        {
            "kappa": sampler.kappa,
            "mega-batch": sampler.mega_batch,
            "cache": cache,
            **window(partition, sampler, options.batch, options.window, cache),
        }
        for sampler in dependent
        if options.window
    ]
    columns = ["kappa", "mega-batch", "rows read", "distinct", "cache", "hits"]
    print(table(rows, ["sampler", *SIZES, "NS / V3", "paper"]))
    if kappas:
        print("", table(kappas, columns), sep="\n")
    if options.out:
        options.out.write_text(
            "".join(json.dumps({"graph": options.graph, **row}) + "\n" for row in rows + kappas),
            encoding="utf-8",
        )
    order = [row["V3"] for row in rows[:4]]
    hits = [row["hits"] for row in kappas[: len(KAPPAS)]]
    return 0 if order == sorted(order, reverse=True) and hits == sorted(hits) else 1


if __name__ == "__main__":
    sys.exit(main())
