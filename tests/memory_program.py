"""One job of a table: its peak of memory beside its bound, ``memory_program.py NAME``. Not a test
module itself.
"""

from __future__ import annotations

import gc
import sys

import numpy as np

import graphtheta as gt
from graphtheta.base.memory import peak_bytes, resident_bytes

RNG = np.random.default_rng(0)
TRIPLE = {"model": "rgcn", "task": "triple"}
LINK = {"model": "sage", "task": "link"}


def plain(n, m, **fields):
    x = RNG.normal(size=(n, 16)).astype(np.float32)
    return gt.Graph(RNG.integers(0, n, (2, m)), n, x=x, **fields)


def labelled(n, m):
    part = np.arange(n) % 3
    return plain(n, m, y=part, train=part == 0, val=part == 1, test=part == 2)


def with_relations(n, m):
    return plain(n, m, edge_columns={"relation": np.arange(m) % 5})


def with_targets(n, m):
    part = np.arange(m) % 3
    return plain(
        n,
        m,
        edge_y=RNG.normal(size=m),
        edge_train=part == 0,
        edge_val=part == 1,
        edge_test=part == 2,
    )


def of_graphs(n, m):
    number = np.arange(n) // 20
    train = np.arange(number[-1] + 1) % 2 == 0
    ends = np.arange(m) % (n // 20) * 20 + RNG.integers(0, 20, (2, m))
    return gt.whole_graphs(
        plain(n, m).replace(edge_index=ends),
        train.astype(int),
        graph_of=number,
        train=train,
        val=~train,
    )


# a function that makes the graph, its nodes and edges, keys of the job
JOBS = {
    "links": (plain, 2000, 20_000, LINK | {"negatives": 200}),
    "links of batches": (
        plain,
        2000,
        20_000,
        LINK | {"negatives": 400, "strategy": "mini", "batch_size": 2000},
    ),
    "float64 links of a perceptron": (
        plain,
        2000,
        20_000,
        LINK | {"negatives": 200, "decoder": "hadamard", "dtype": "float64"},
    ),
    "held-back links": (plain, 2000, 20_000, LINK | {"eval_negatives": 500}),
    "links among all nodes": (plain, 6000, 30_000, LINK | {"rank_all": True}),
    "triples": (
        with_relations,
        2000,
        20_000,
        TRIPLE | {"negatives": 100, "link_loss": "adversarial"},
    ),
    "held-back triples": (
        with_relations,
        2000,
        20_000,
        TRIPLE | {"eval_negatives": 250, "reciprocal": True},
    ),
    "edges": (with_targets, 2000, 600_000, {"model": "sage", "task": "edge"}),
    "nodes": (labelled, 50_000, 300_000, {"model": "gat"}),
    "nodes as bfloat16": (labelled, 50_000, 300_000, {"model": "gat", "values": "bfloat16"}),
    "nodes of batches": (
        labelled,
        100_000,
        600_000,
        {"model": "sage", "hidden": 64, "strategy": "mini", "batch_size": 20_000},
    ),
    "whole graphs": (of_graphs, 100_000, 300_000, {"model": "gin", "readout": "sum", "hidden": 32}),
}


def main(name: str) -> None:
    make, n, m, keys = JOBS[name]
    keys = {"hidden": 16, "epochs": 1, "keep": 0, **keys}
    # loads kernels and libraries, which the bound does not count
    gt.Trainer(graph=make(60, 300), **keys).fit()
    graph = make(n, m)
    gc.collect()
    before = resident_bytes()
    trainer = gt.Trainer(graph=graph, **keys)
    trainer.fit()
    bound = trainer.setup.bound
    # of the reference back end only
    print(peak_bytes() - before, bound.total - bound.chunks)


if __name__ == "__main__":
    main(sys.argv[1])
