"""Local rows of the nodes of a worker, in the order in which a cache misses least."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...ops.kernels.partition.row_order import FACTORS, misses
from ..comm.communicator import Comm


class Layout(NamedTuple):
    """Nodes by local row.

    Attributes:
        masters, mirrors: Nodes in the order of their rows, integers.
        at_owner: Row of each node at its owner, int32.
        row: Row of each node on this worker, int32; anything for nodes that have none.
    """

    masters: np.ndarray
    mirrors: np.ndarray
    at_owner: np.ndarray
    row: np.ndarray


def layout_of(
    masters: np.ndarray, mirrors: np.ndarray, owner: np.ndarray, at_owner: np.ndarray
) -> Layout:
    """Masters in a given order, and then mirrors by owner and by row there.

    Args:
        masters: Nodes of this worker, in order, integers.
        mirrors: The other nodes at the ends of its edges, [m] integers.
        owner: Owner of each mirror, [m] integers.
        at_owner: Row of each node at its owner, int32.
    """
    mirrors = mirrors[np.lexsort((at_owner[mirrors], owner))]
    row = np.empty(len(at_owner), np.int32)
    row[masters] = np.arange(len(masters))
    row[mirrors] = np.arange(len(masters), len(masters) + len(mirrors))
    return Layout(masters, mirrors, at_owner, row)


def fewest_misses(
    comm: Comm,
    layouts: Iterable[Layout],
    reads: np.ndarray,
    src: np.ndarray,
    dst: np.ndarray,
) -> Layout:
    """The layout in which the caches of all workers together have fewest misses, times the factor
    of its order; the first of equal ones. None is made after one without misses.

    Args:
        comm: The workers.
        layouts: In the three orders of ``row_orders``.
        reads: Edges of this worker into each node, int64.
        src, dst: Nodes at the ends of the edges of this worker, [n_edges] integers.

    Collective: all ranks of comm.
    """
    best = None
    for factor, layout in zip(FACTORS, layouts, strict=True):
        order = np.concatenate((layout.masters, layout.mirrors))
        local = misses(order=order, row=layout.row, reads=reads, src=src, dst=dst)
        total = factor * int(comm.all_sum(np.array(local)))
        if best is None or total < best[0]:
            best = total, layout
        if not total:
            break
        # the next one takes their memory
        del order, layout
    assert best is not None
    return best[1]
