"""Tables of users and of who follows whom, and their import."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated

NODES, EDGES = 60, 400
COLUMNS = {
    "src": "from",
    "dst": "to",
    "edge_attr": ["weight"],
    "edge_columns": ["when", "how"],
    "id": "name",
    "features": ["f0", "f1"],
    "label": "team",
    "split": "part",
    "node_columns": ["kind"],
}


def tables(seed=0):
    rng = np.random.default_rng(seed)
    ids = [f"user {i:02d}é" for i in rng.permutation(NODES)]
    nodes = pa.table(
        {
            "name": ids,
            "f0": rng.normal(size=NODES).round(6),
            "f1": rng.normal(size=NODES).round(6),
            "kind": [("ab", "c")[i % 2] for i in range(NODES)],
            "team": [f"team {i % 3}" for i in range(NODES)],
            "part": [("train", "val", "test", "")[i % 4] for i in range(NODES)],
        }
    )
    ends = rng.integers(0, NODES, (2, EDGES))
    edges = pa.table(
        {
            "from": [ids[i] for i in ends[0]],
            "to": [ids[i] for i in ends[1]],
            "weight": rng.random(EDGES).round(6),
            "when": 1_600_000_000 + np.arange(EDGES),
            "how": [("phone", "mail")[i % 2] for i in range(EDGES)],
        }
    )
    return edges, nodes


def stored(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def imported(edges, nodes, folder, size=1, **options):
    run_simulated(size, lambda comm: gt.import_graph(edges, nodes, to=folder, comm=comm, **options))
    return folder
