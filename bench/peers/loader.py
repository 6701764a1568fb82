"""GraphBolt, or NeighborLoader of PyTorch Geometric, as a contender: batches with features.

PYTHONPATH=bench python bench/peers/loader.py LIBRARY GRAPH.npz FANOUT TARGETS BATCHES PREFETCH
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain, count
from time import perf_counter
from typing import Any

import numpy as np
import torch
from contender import WARM, Input, report

Sized = tuple[int, int]


def graphbolt(z: Input, fanouts: list[int], targets: int, prefetch: int) -> tuple[Any, str]:
    """Epochs of batches, and the version."""
    import dgl
    from dgl import graphbolt as gb

    graph = gb.fused_csc_sampling_graph(
        torch.from_numpy(z.indptr), torch.from_numpy(z.indices).long()
    )
    features = gb.TorchBasedFeature(torch.from_numpy(z.x))
    y = torch.from_numpy(z.y)
    nodes = torch.from_numpy(np.flatnonzero(z.train))
    items = gb.ItemSet((nodes, y[nodes]), names=("seed_nodes", "labels"))

    def epoch() -> Iterable[tuple[Any, Sized]]:
        batches = gb.ItemSampler(items, batch_size=targets, shuffle=True)
        sampled = batches.sample_neighbor(graph, fanouts[::-1])
        for batch in gb.DataLoader(sampled, num_workers=prefetch):
            x = features.read(batch.input_nodes)
            yield x, (len(x), sum(block.num_edges() for block in batch.blocks))

    return epoch, f"dgl {dgl.__version__}, torch {torch.__version__}"


def pyg(z: Input, fanouts: list[int], targets: int, prefetch: int) -> tuple[Any, str]:
    """Epochs of batches, and the version."""
    import torch_geometric
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    ends = np.stack((z.indices.astype(np.int64), z.destinations()))
    data = Data(x=torch.from_numpy(z.x), y=torch.from_numpy(z.y), edge_index=torch.from_numpy(ends))
    loader = NeighborLoader(
        data,
        fanouts,
        input_nodes=torch.from_numpy(z.train),
        batch_size=targets,
        shuffle=True,
        num_workers=prefetch,
    )

    def epoch() -> Iterable[tuple[Any, Sized]]:
        for batch in loader:
            yield batch, (batch.num_nodes, batch.num_edges)

    return epoch, f"torch_geometric {torch_geometric.__version__}, torch {torch.__version__}"


LIBRARIES = {"graphbolt": graphbolt, "pyg": pyg}


def main(library: str, graph: str, fanout: str, targets: str, batches: str, prefetch: str) -> None:
    z = Input.read(graph)
    fanouts = list(map(int, fanout.split(",")))
    epoch, version = LIBRARIES[library](z, fanouts, int(targets), int(prefetch))
    made = chain.from_iterable(epoch() for _ in count())
    seconds = []
    sizes = []
    for _ in range(int(batches) + WARM):
        began = perf_counter()
        _, size = next(made)
        seconds.append(perf_counter() - began)
        sizes.append(size)
    report({"batch": seconds[WARM:]}, {}, version, sizes=np.mean(sizes[WARM:], axis=0).tolist())


if __name__ == "__main__":
    main(*sys.argv[1:])
