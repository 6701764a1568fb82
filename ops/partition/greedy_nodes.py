"""Greedy streaming over nodes: each goes to the worker with the best score."""
from __future__ import annotations

import numpy as np

from ..compile.jit import jit


@jit()
def place_nodes(first, ptr, near, owner, load, scale, cost):  # type: ignore[no-untyped-def]
    """Give consecutive nodes to the workers p of highest score: neighbours there * scale[load] - cost[load].

    A worker of load len(scale) is full. Of equal scores the lowest load decides, then the lowest
    number. Loops are not counted, and parallel edges each count.

    Args:
        first: The first node.
        ptr, near: Neighbours of each node, [n + 1] and [ptr[n]].
        owner: Owner of each node of the graph, -1 for none; changed.
        load: Nodes of each worker in this pass, [n_workers] int64; changed.
        scale, cost: By load, [capacity] float64.
    """
    found = np.zeros(len(load), np.int64)
    for i in range(len(ptr) - 1):
        for e in range(ptr[i], ptr[i + 1]):
            if near[e] != first + i and owner[near[e]] >= 0:
                found[owner[near[e]]] += 1
        best, highest = -1, 0.0
        for p in range(len(load)):
            if load[p] < len(scale):
                score = found[p] * scale[load[p]] - cost[load[p]]
                if best < 0 or score > highest or (score == highest and load[p] < load[best]):
                    best, highest = p, score
            found[p] = 0
        owner[first + i] = best
        load[best] += 1
