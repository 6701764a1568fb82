"""GraphTheta as a contender: views of sampled neighbourhoods.

    PYTHONPATH=bench python bench/own/sampling.py GRAPH.npz FANOUT TARGETS BATCHES SAMPLER...

A sampler is a name of the registry, or NAME:replace.
"""

from __future__ import annotations

import sys

import numpy as np
from contender import Input, report, sampled

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.expand import k_hop_view


def main(graph: str, fanout: str, targets: str, batches: str, *samplers: str) -> None:
    z = Input.read(graph, features=False)
    fanouts = tuple(map(int, fanout.split(",")))
    partition = build_partition(
        gt.Graph(
            (z.indices, z.destinations()),
            z.n,
            x=np.zeros((z.n, 1), np.float32),
            y=z.y,
            train=z.train,
        ),
        SerialComm(),
    )
    row_of = np.empty(z.n, np.int64)
    row_of[partition.masters] = np.arange(z.n)
    seconds = {}
    checks = {}
    sizes = {}
    for case in samplers:
        name, _, replace = case.partition(":")
        sampler = gt.SAMPLERS.find(name)(fanouts[::-1], **({"replace": True} if replace else {}))

        def draw(
            nodes: np.ndarray, i: int, sampler: gt.Sampler = sampler
        ) -> tuple[list[int], list[int]]:
            chosen = np.zeros(z.n, bool)
            chosen[row_of[nodes]] = True
            levels = k_hop_view(
                partition, chosen, ["in"] * len(fanouts), sampler=sampler, step=i
            ).levels
            return [levels[0].n_in], [level.n_edges for level in levels[::-1]]

        seconds[case], checks[case], sizes[case] = sampled(
            draw, z, int(targets), int(batches), fixed=case == "neighbour"
        )
    report(seconds, checks, gt.__version__, sizes=sizes)


if __name__ == "__main__":
    main(*sys.argv[1:])
