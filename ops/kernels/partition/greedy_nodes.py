"""Greedy streaming over nodes: each goes to the part with the best score."""

from __future__ import annotations

import numpy as np

from ...compile.jit import jit


@jit()
def place_nodes(  # type: ignore[no-untyped-def]
    first, ptr, near, seen, load, room, prefers, scale, cost, out
):
    """Give consecutive nodes to the parts p of highest score: neighbours there * scale[load] -
    cost[load].

    A part without room is full, and nodes are left if all are. Of equal scores the lowest load
    decides, then the lowest number, counted from ``prefers``. Loops are not counted, and parallel
    edges each count.

    Args:
        first: The first node.
        ptr, near: Neighbours of each node, [n + 1] and [ptr[n]].
        seen: Latest part of each neighbour, -1 for none, [ptr[n]]; those of nodes that are given
            here count by their new parts.
        load: Nodes of each part as far as is known, [n_parts] int64; changed.
        room: The most nodes that each part gets here, [n_parts] int64; changed.
        prefers: Part that gets a node of equal scores and loads.
        scale, cost: By load, [capacity] float64.
        out: Part of each node, -1 for those left, [n] int32; changed.
    """
    neighbours_in = np.zeros(len(load), np.int64)
    parts = len(load)
    for i in range(len(out)):
        for e in range(ptr[i], ptr[i + 1]):
            at = near[e] - first
            part = out[at] if 0 <= at < i else seen[e]
            if at != i and part >= 0:
                neighbours_in[part] += 1
        best = -1
        highest = 0.0
        for k in range(parts):
            p = (prefers + k) % parts
            if room[p] > 0:
                score = neighbours_in[p] * scale[load[p]] - cost[load[p]]
                if best < 0 or score > highest or (score == highest and load[p] < load[best]):
                    best, highest = p, score
        neighbours_in[:] = 0
        out[i] = best
        if best >= 0:
            load[best] += 1
            room[best] -= 1
