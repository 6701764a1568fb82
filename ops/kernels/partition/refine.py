"""Division of a small graph: growing a part, and moves that may increase the cut for a while.

A graph is given as the neighbours of its nodes: ``ptr`` [n + 1], ``near`` and ``weight`` [ptr[n]],
with the weights ``mass`` [n] of the nodes. All loops search all nodes for each move.
"""

from __future__ import annotations

import numpy as np

from ...compile.jit import jit


@jit()
def grow(ptr, near, weight, mass, begin, target, part):  # type: ignore[no-untyped-def]
    """Grow part 0 from a node until its mass is about the target; all other nodes are in part 1.

    The next node is that of most edge weight to the part, less that to the other.

    Args:
        ptr, near, weight, mass: The graph.
        begin: The first node.
        target: Mass of part 0.
        part: Part of each node, [n]; changed.
    """
    gain = np.zeros(len(mass), np.int64)
    total = 0
    v = begin
    for u in range(len(mass)):
        part[u] = 1
        for e in range(ptr[u], ptr[u + 1]):
            gain[u] -= weight[e]
    while v >= 0 and (total == 0 or 2 * total + mass[v] <= 2 * target):
        part[v] = 0
        total += mass[v]
        for e in range(ptr[v], ptr[v + 1]):
            gain[near[e]] += 2 * weight[e]
        v = -1
        for u in range(len(mass)):
            if part[u] == 1 and (v < 0 or gain[u] > gain[v]):
                v = u


@jit()
def _best_part(links, mine, most, load, room):  # type: ignore[no-untyped-def]
    """The other part with room for ``most`` of most links, the emptiest of these; -1 if there is
    none.
    """
    best = -1
    for p in range(len(load)):
        if (
            p != mine
            and load[p] + most <= room[p]
            and (
                best < 0
                or links[p] > links[best]
                or (links[p] == links[best] and load[p] - room[p] < load[best] - room[best])
            )
        ):
            best = p
    return best


@jit()
def climb(ptr, near, weight, mass, part, load, room, patience):  # type: ignore[no-untyped-def]
    """Move nodes, each once at most, by falling gain, and undo the moves after the best state;
    returns whether one is left.

    A state is better if less mass exceeds the room of its part, or as much and the cut is smaller.
    While any does, only nodes of such parts move. Source: Fiduccia and Mattheyses, DAC 1982.

    Args:
        ptr, near, weight, mass: The graph.
        part: Part of each node, [n]; changed.
        load, room: Mass of each part, and the most, [n_parts] int64; load is changed.
        patience: Moves without a better state after which the search ends.
    """
    n = len(mass)
    n_parts = len(load)
    links = np.zeros((n, n_parts), np.int64)
    for v in range(n):
        for e in range(ptr[v], ptr[v + 1]):
            if near[e] != v:
                links[v, part[near[e]]] += weight[e]
    to = np.empty(n, np.int64)
    nodes = np.empty(n, np.int64)
    parts = np.empty(n, np.int64)
    for v in range(n):
        to[v] = _best_part(links=links[v], mine=part[v], most=mass[v], load=load, room=room)
    moved = np.zeros(n, np.bool_)
    over = np.int64(0)
    m = 0
    best_m = 0
    gain = np.int64(0)
    best_gain = np.int64(0)
    for p in range(n_parts):
        over += max(load[p] - room[p], 0)
    best_over = over
    while m < n and m - best_m < patience:
        best = -1
        highest = np.int64(0)
        for v in range(n):
            if moved[v] or (over > 0 and load[part[v]] <= room[part[v]]):
                continue
            if to[v] < 0 or load[to[v]] + mass[v] > room[to[v]]:
                to[v] = _best_part(links=links[v], mine=part[v], most=mass[v], load=load, room=room)
            if to[v] >= 0 and (best < 0 or links[v, to[v]] - links[v, part[v]] > highest):
                best = v
                highest = links[v, to[v]] - links[v, part[v]]
        if best < 0:
            break
        old, new = part[best], to[best]
        over -= min(max(load[old] - room[old], 0), mass[best])
        load[old] -= mass[best]
        load[new] += mass[best]
        part[best] = new
        moved[best] = True
        nodes[m] = best
        parts[m] = old
        gain = gain + highest
        m = m + 1
        for e in range(ptr[best], ptr[best + 1]):
            u = near[e]
            if u != best:
                links[u, old] -= weight[e]
                links[u, new] += weight[e]
                to[u] = _best_part(links=links[u], mine=part[u], most=mass[u], load=load, room=room)
        if over < best_over or (over == best_over and gain > best_gain):
            best_over = over
            best_gain = gain
            best_m = m
    for j in range(m - 1, best_m - 1, -1):
        v = nodes[j]
        load[part[v]] -= mass[v]
        load[parts[j]] += mass[v]
        part[v] = parts[j]
    return best_m > 0


@jit()
def cut_weight(ptr, near, weight, part):  # type: ignore[no-untyped-def]
    """Twice the weight of the edges between different parts."""
    total = np.int64(0)
    for v in range(len(ptr) - 1):
        for e in range(ptr[v], ptr[v + 1]):
            if part[near[e]] != part[v]:
                total += weight[e]
    return total
