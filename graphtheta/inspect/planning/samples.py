"""Small jobs, whose training steps are timed to find the speed of a machine.

Each is dominated by another part of the work: products, products of sparse features, operations at
nodes, edges that read rows, edges that compute, or the interpreter.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import scipy

from graphtheta.graph.data.graph import Graph
from graphtheta.graph.datasets.dataset import load
from graphtheta.run.job.job import Job

GRAPHS = {
    "tiny": "rmat:scale=9,edge_factor=4,features=16,classes=4",
    "half": "rmat:scale=8,edge_factor=4,features=16,classes=4",
    "wide": "rmat:scale=11,edge_factor=2,features=512,classes=16",
    "long": "rmat:scale=12,edge_factor=2,features=128,classes=16",
    "edges": "rmat:scale=13,edge_factor=16,features=32,classes=16",
    "large": "rmat:scale=14,edge_factor=10,features=96,classes=16",
    "sparse": "rmat:scale=12,edge_factor=2,features=16,classes=16",
}
# width and share of stored numbers of the features of "sparse"
SPARSE_WIDTH = 1000
SPARSE_DENSITY = 0.02
JOBS: list[tuple[str, dict[str, Any]]] = [
    ("tiny", {"model": "gcn", "hidden": 16}),
    ("tiny", {"model": "gcn", "hidden": 16, "layers": 4}),
    ("tiny", {"model": "gat", "hidden": 16, "heads": 2, "layers": 3}),
    ("tiny", {"model": "sage", "hidden": 16, "layers": 3}),
    ("tiny", {"model": "gin", "hidden": 16, "layers": 3}),
    ("tiny", {"model": "mlp", "hidden": 16, "layers": 4}),
    ("tiny", {"model": "mlp", "hidden": 16, "layers": 6, "norm": "layer"}),
    ("wide", {"model": "mlp", "hidden": 512, "dropout": 0.0}),
    ("long", {"model": "mlp", "hidden": 64, "layers": 4}),
    ("long", {"model": "gcn", "hidden": 64, "layers": 3, "norm": "layer"}),
    ("edges", {"model": "gcn", "hidden": 32}),
    ("edges", {"model": "gcn", "hidden": 128}),
    ("edges", {"model": "sage", "hidden": 64}),
    ("edges", {"model": "gat", "hidden": 32, "heads": 4}),
    ("large", {"model": "gcn", "hidden": 96}),
    ("tiny", {"model": "gcn", "hidden": 16, "strategy": "mini", "batch_size": 64, "fanout": "5,5"}),
    (
        "large",
        {"model": "gcn", "hidden": 96, "strategy": "mini", "batch_size": 200, "fanout": "8,4"},
    ),
    (
        "large",
        {"model": "sage", "hidden": 64, "strategy": "mini", "batch_size": 800, "fanout": "8,8"},
    ),
    ("large", {"model": "gcn", "hidden": 64, "strategy": "cluster", "clusters": 8}),
    ("edges", {"model": "gcn", "hidden": 64, "strategy": "cluster", "clusters": 4}),
    ("sparse", {"model": "mlp", "hidden": 64}),
    ("sparse", {"model": "gcn", "hidden": 128}),
]
# of these, jobs that two workers run at the same time
TOGETHER = (0, 2, 7, 8, 11, 13)
# jobs in which messages take much of the time
TALKING: list[dict[str, Any]] = [
    {"model": "gcn", "hidden": 16},
    {"model": "gat", "hidden": 16, "heads": 2, "layers": 3},
    {"model": "sage", "hidden": 16},
]


@cache
def graph(name: str) -> Graph:
    """One of ``GRAPHS``."""
    result = load(GRAPHS[name])
    if name == "sparse":
        features = scipy.sparse.random(
            result.n_nodes,
            SPARSE_WIDTH,
            SPARSE_DENSITY,
            format="csr",
            dtype=np.float32,
            random_state=0,
        )
        result = result.replace(x=scipy.sparse.csr_array(features))
    return result


def sample(number: int) -> tuple[Job, Graph]:
    """One of ``JOBS`` and its graph."""
    name, keys = JOBS[number]
    return Job(**keys, keep=0), graph(name)
