"""GraphTheta as a contender: batches for PyTorch.

PYTHONPATH=bench python bench/own/loader.py GRAPH.npz FANOUT TARGETS BATCHES TO PREFETCH
"""

from __future__ import annotations

import sys
from itertools import chain, count
from time import perf_counter

import numpy as np
from contender import WARM, Input, report
from minibatch import as_graph

import graphtheta as gt


def main(graph: str, fanout: str, targets: str, batches: str, to: str, prefetch: str) -> None:
    whole = as_graph(Input.read(graph))
    loader = gt.Loader(whole, fanout=fanout, batch_size=int(targets), to=to, prefetch=int(prefetch))
    made = chain.from_iterable(loader for _ in count())
    seconds = []
    sizes = []
    for _ in range(int(batches) + WARM):
        began = perf_counter()
        batch = next(made)
        seconds.append(perf_counter() - began)
        sizes.append(size_of(batch, to))
    report(
        {"batch": seconds[WARM:]},
        {},
        f"graphtheta {gt.__version__}",
        sizes=np.mean(sizes[WARM:], axis=0).tolist(),
    )


def size_of(batch: object, to: str) -> tuple[int, int]:
    """Nodes, and edges of all layers."""
    if to == "pyg":
        return batch.num_nodes, sum(len(adjacency.e_id) for adjacency in batch.adjs)
    if to == "dgl":
        nodes, _, blocks = batch
        return len(nodes), sum(block.num_edges() for block in blocks)
    return len(batch.nodes), sum(len(block.edge) for block in batch.blocks)


if __name__ == "__main__":
    main(*sys.argv[1:])
