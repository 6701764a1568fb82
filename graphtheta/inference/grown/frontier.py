"""The rows that inference on a grown graph computes: those whose values may differ, as far as they
are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.view.expand import k_hop_nodes
from graphtheta.engine.view.hop import Hop, depth

REVERSED = {"in": "out", "out": "in", "both": "both"}
# whose edges a layer of a direction reads: in-edges, out-edges
READ = {"in": (False,), "out": (True,), "both": (False, True)}


class Changes(NamedTuple):
    """What differs at the masters of this worker.

    Attributes:
        values: Columns of the node that the model reads, or the node is new, [n_masters] bool.
        edges: Its in-edges (False) and out-edges (True) with their columns, [n_masters] bool each.
    """

    values: np.ndarray
    edges: dict[bool, np.ndarray]


def changed_rows(partition: Partition, layers: Sequence[Hop], changes: Changes) -> list[np.ndarray]:
    """The masters whose values may differ after the layers of each hop, [n_masters] bool each, the
    last hop first.

    A value differs if the node's own values or its edges do, or those of a node that sends to it:
    each hop adds the receivers of the rows before it.

    Collective: all ranks of the partition.
    """
    of_hop = []
    now = changes.values
    # by direction, rows whose receivers were found, and these: rows only become more, so each is
    # searched once
    searched = {x.direction: (np.zeros_like(now), np.zeros_like(now)) for x in layers}
    for hop in range(depth(layers) - 1, -1, -1):
        after = now.copy()
        for direction in sorted({x.direction for x in layers if x.from_end == hop}):
            senders, reached = searched[direction]
            reached |= k_hop_nodes(partition, now & ~senders, 1, REVERSED[direction])
            senders |= now
            after |= reached
            for reverse in READ[direction]:
                after |= changes.edges[reverse]
        now = after
        of_hop.append(now)
    return of_hop[::-1]


def needed_rows(
    partition: Partition,
    layers: Sequence[Hop],
    changed: Sequence[np.ndarray],
    wanted: np.ndarray,
    carrying: set[int],
) -> list[np.ndarray]:
    """The masters to compute at each hop, so that the final values of some masters are found,
    [n_masters] bool each, the last hop first.

    Args:
        partition: The partition.
        layers: The supersteps of the model.
        changed: The result of ``changed_rows``; values of all others are known.
        wanted: The masters whose final values are wanted, [n_masters] bool.
        carrying: Hops with a layer that makes edge values for later ones. These are not known, so
            such a hop is computed for both ends of all edges that later hops read.

    Collective: all ranks of the partition.
    """
    of_hop: list[np.ndarray] = []
    ends = np.zeros(partition.n_masters, bool)
    for hop in range(depth(layers)):
        if not of_hop:
            rows = wanted & changed[0]
        else:
            reached = of_hop[-1].copy()
            for direction in sorted({x.direction for x in layers if x.from_end == hop - 1}):
                reached |= k_hop_nodes(partition, of_hop[-1], 1, direction)
            ends |= reached
            rows = reached & changed[hop]
        of_hop.append(rows | ends if hop in carrying else rows)
    return of_hop
