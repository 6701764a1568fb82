"""Uniform sampling in time proportional to the edges drawn.

A row with d edges draws k of its positions 0 to d - 1 from the key, the id of its node and d. These
are the same on all workers, so each keeps those of its own edges without any message about ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ops.kernels.sampling.draw import choose, room
from ...ops.parallel.pool import run_blocks
from ..partition.partition import MASTER, MIRROR
from .candidates import Candidates, Chosen, Frontier, Frontiers, Sample
from .positions import positions_of
from .row_blocks import row_blocks

# a thread draws about so many edges at a time
EDGES_PER_BLOCK = 1 << 14


def drawn(frontiers: Frontiers, keys: Sequence[int], k: int, replace: bool) -> list[Chosen]:
    """One choice of k edges for each receiving row of frontiers with all edges of their rows, with
    their importance weights, by block.

    Args:
        frontiers: What the edges are chosen from.
        keys: Key of the draws of each view.
        k: Number of edges.
        replace: Choose with replacement.
    """
    p = frontiers.partition
    positions = positions_of(p, frontiers.relation, frontiers.reverse)
    keys_of_views = np.array(keys, np.uint64)

    def of_block(c: Candidates) -> Chosen:
        """The drawn edges of one block, by all threads, each on some of the rows."""
        kind = c.kinds[1]
        places = positions.places[c.block.kinds(False)]
        rows = (
            c.rows,
            p.masters if kind == MASTER else p.gid[p.n_masters :],
            positions.degree[kind],
        )
        bounds = room(c.begin, c.end, k)
        size = int(bounds[-1])
        out: tuple[np.ndarray, ...] = (
            bounds,
            np.empty(len(c.rows), np.int64),
            np.empty(size, np.int32),
            np.empty(size, np.int32),
            np.empty(size),
        )
        cuts = row_blocks(bounds[1:], EDGES_PER_BLOCK)
        groups = (c.begin, c.end, c.edges, c.senders)
        ends = [0] * (len(cuts) - 1)

        def some_rows(b: int) -> None:
            ends[b] = choose(
                groups=groups,
                places=tuple(places),
                rows=rows,
                keys=keys_of_views,
                views=frontiers.bounds[kind],
                k=k,
                replace=replace,
                out=out,
                first=cuts[b],
                last=cuts[b + 1],
            )

        run_blocks(some_rows, len(ends))
        ptr = np.append(0, np.cumsum(out[1]))
        lists = list(out[2:])
        if ptr[-1] < size:
            parts = [slice(bounds[a], b) for a, b in zip(cuts[:-1], ends, strict=True)]
            lists = [np.concatenate([x[part] for part in parts]) for x in lists]
        edges, senders, weight = lists
        return c.of(ptr, edges, senders).weighted(weight)

    return [of_block(c) for c in frontiers.candidates]


def uniform(frontier: Frontier, key: int, k: int, replace: bool) -> Sample:
    """One choice of k edges for each receiving row of a frontier with all edges of its rows, with
    their importance weights.

    Args:
        frontier: What the edges are chosen from.
        key: Key of the draws.
        k: Number of edges.
        replace: Choose with replacement.

    Collective: all ranks of the frontier's partition.
    """
    chosen = drawn(frontier.alone, (key,), k, replace)
    plan = frontier.receivers.plan
    if not plan.anywhere:
        return Sample(chosen)
    used = np.zeros(plan.n_halo, bool)
    for c in chosen:
        if c.kinds[1] == MIRROR:
            used |= c.end > c.begin
    halo = np.flatnonzero(used)
    return Sample(chosen, (plan.reported(frontier.receivers.comm, halo), halo))
