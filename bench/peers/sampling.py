"""GraphBolt as a contender: mini-batches of sampled neighbourhoods, without features.

PYTHONPATH=bench python bench/peers/sampling.py GRAPH.npz FANOUT TARGETS BATCHES SAMPLER...
"""

from __future__ import annotations

import sys

import dgl
import numpy as np
import torch
from contender import Input, report, sampled
from dgl import graphbolt as gb

METHODS = {"neighbour": "sample_neighbor", "labor": "sample_layer_neighbor"}


def main(graph: str, fanout: str, targets: str, batches: str, *samplers: str) -> None:
    z = Input.read(graph, features=False)
    fanouts = list(map(int, fanout.split(",")))[::-1]
    whole = gb.fused_csc_sampling_graph(
        torch.from_numpy(z.indptr), torch.from_numpy(z.indices).long()
    )
    seconds = {}
    checks = {}
    sizes = {}
    for case in samplers:
        name, _, replace = case.partition(":")
        if name not in METHODS:
            continue

        def draw(
            nodes: np.ndarray, i: int, method: str = METHODS[name], replace: bool = bool(replace)
        ) -> tuple[list[int], list[int]]:
            items = gb.ItemSampler(
                gb.ItemSet(torch.from_numpy(nodes), names="seed_nodes"), batch_size=len(nodes)
            )
            (batch,) = getattr(items, method)(whole, fanouts, replace=replace)
            layers = batch.sampled_subgraphs
            return [len(layers[0].original_row_node_ids)], [
                len(layer.sampled_csc.indices) for layer in layers[::-1]
            ]

        seconds[case], checks[case], sizes[case] = sampled(
            draw, z, int(targets), int(batches), fixed=case == "neighbour"
        )
    report(seconds, checks, dgl.__version__, sizes=sizes)


if __name__ == "__main__":
    main(*sys.argv[1:])
