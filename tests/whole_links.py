"""Links that all workers hold in memory, as a worker's part of them."""

from __future__ import annotations

import numpy as np

from graphtheta.engine.partition.partition import Partition
from graphtheta.tasks.kinds.links import Links


def links_at(
    partition: Partition,
    src: np.ndarray,
    dst: np.ndarray,
    known: np.ndarray,
    negatives: int,
    draws: int,
) -> Links:
    """The links whose sources this worker owns.

    Args:
        partition: Gives the owners.
        src, dst: Ends of the positives, [n] int64, the same on every rank; each unordered pair
            once.
        known: Sorted keys of all links of all splits, the same on every rank.
        negatives: Negatives per positive.
        draws: Key of the draws.

    Collective: all ranks of the partition.
    """
    rank = partition.halo_comm.rank
    mine = np.flatnonzero(partition.directory.owner(src) == rank)
    return Links(
        numbers=mine,
        src=src[mine],
        dst=dst[mine],
        n_links=len(src),
        link_keys=known[partition.directory.owner(known // partition.n_nodes) == rank],
        negatives=negatives,
        key=draws,
    )
