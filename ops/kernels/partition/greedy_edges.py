"""Greedy streaming over edges: vertex-cuts that remember on which workers each node has a copy.

``copies`` has a bit for each worker, [n_nodes, n_words] uint64. A worker without room takes no more
edges; an edge is left, with -1 in ``out``, if none has any. Ties are broken by a hash of the edge
id.
"""

from __future__ import annotations

import numpy as np

from ...compile.jit import jit
from ..hash import draw


@jit()
def place_by_score(  # type: ignore[no-untyped-def]
    ids, src, dst, copies, degree, load, room, settings, out
):
    """Place edges on the worker p of the highest score

        [u on p] g(u) + [v on p] g(v) + balance * (max - load[p]) / (1 + max - min),

    where g is 1, or 2 - d(u) / (d(u) + d(v)) by the degrees in the stream so far.

    Args:
        ids, src, dst: The edges.
        copies, load, degree: Copies and edges so far; changed.
        room: The most edges that each worker gets here, [n_workers] int64; changed.
        settings: Key of ties, balance, whether g depends on degrees.
        out: Worker of each edge; changed.
    """
    key, balance, by_degree = settings
    score = np.zeros(len(load))
    one = np.uint64(1)
    for e in range(len(ids)):
        u, v = src[e], dst[e]
        degree[u] += 1
        degree[v] += 1
        share = degree[u] / (degree[u] + degree[v])
        of_u, of_v = (2.0 - share, 1.0 + share) if by_degree else (1.0, 1.0)
        most = load.max()
        least = load.min()
        highest = -1.0
        ties = 0
        for p in range(len(load)):
            word = p >> 6
            bit = np.uint64(p & 63)
            score[p] = balance * (most - load[p]) / (1 + most - least)
            score[p] += of_u * ((copies[u, word] >> bit) & one) + of_v * (
                (copies[v, word] >> bit) & one
            )
            if room[p] <= 0:
                score[p] = -2.0
            ties = 1 if score[p] > highest else ties + (score[p] == highest)
            highest = max(highest, score[p])
        if ties == 0:
            out[e] = -1
            continue
        skip = draw(key, ids[e]) % np.uint64(ties)
        best = 0
        while score[best] != highest or skip > 0:
            skip -= np.uint64(score[best] == highest)
            best += 1
        out[e] = best
        load[best] += 1
        room[best] -= 1
        copies[u, best >> 6] |= one << np.uint64(best & 63)
        copies[v, best >> 6] |= one << np.uint64(best & 63)


@jit()
def place_by_load(  # type: ignore[no-untyped-def]
    ids, src, dst, copies, degree, load, room, settings, out
):
    """Place edges on the worker of the lowest load among the candidates.

    Candidates are the workers that have copies of both ends; if there are none, those that have
    one of the end of lower degree, or of the only end that has any. If there are none or all of
    them are full, all workers are.

    Args:
        ids, src, dst: The edges.
        copies, load: Copies and edges so far; changed.
        degree: Of each node in the whole graph.
        room: The most edges that each worker gets here, [n_workers] int64; changed.
        settings: Key of ties.
        out: Worker of each edge; changed.
    """
    (key,) = settings
    allowed = np.zeros(copies.shape[1], np.uint64)
    one = np.uint64(1)
    everywhere = np.uint64(0xFFFFFFFFFFFFFFFF)
    for e in range(len(ids)):
        u, v = src[e], dst[e]
        low, high = (u, v) if degree[u] <= degree[v] else (v, u)
        both = False
        one_end = False
        for w in range(len(allowed)):
            both |= copies[u, w] & copies[v, w] != 0
            one_end |= copies[low, w] != 0
        for w in range(len(allowed)):
            allowed[w] = (
                copies[u, w] & copies[v, w]
                if both
                else copies[low, w]
                if one_end
                else copies[high, w]
            )
        best = -1
        ties = 0
        for _attempt in range(2):
            for p in range(len(load)):
                if room[p] > 0 and (allowed[p >> 6] >> np.uint64(p & 63)) & one:
                    ties = 1 if best < 0 or load[p] < load[best] else ties + (load[p] == load[best])
                    best = p if best < 0 or load[p] < load[best] else best
            if best >= 0:
                break
            allowed[:] = everywhere
        out[e] = best
        if best < 0:
            continue
        lowest = load[best]
        skip = draw(key, ids[e]) % np.uint64(ties)
        while (
            load[best] != lowest
            or room[best] <= 0
            or not (allowed[best >> 6] >> np.uint64(best & 63)) & one
            or skip > 0
        ):
            skip -= np.uint64(
                load[best] == lowest
                and room[best] > 0
                and (allowed[best >> 6] >> np.uint64(best & 63)) & one
            )
            best += 1
        out[e] = best
        load[best] += 1
        room[best] -= 1
        copies[u, best >> 6] |= one << np.uint64(best & 63)
        copies[v, best >> 6] |= one << np.uint64(best & 63)
