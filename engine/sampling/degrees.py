"""Degrees of rows over all workers: masters and mirrors know how many edges lead to their node."""

from __future__ import annotations

import numpy as np

from ..partition.exchange import Exchange
from ..partition.partition import MASTER, MIRROR, Partition
from ..partition.relation import StoredRelation


def degrees_of(
    partition: Partition, relation: StoredRelation, reverse: bool
) -> dict[int, np.ndarray]:
    """Number of edges over all workers into each receiving row of a pass, by kind of row, [n]
    int64; computed at the first call.

    Collective: at the first call, all ranks of the partition.
    """
    if reverse not in relation.degrees:
        plan, mirrors = relation.served(reverse)[1]
        count = {
            MASTER: np.zeros(partition.n_masters, np.int64),
            MIRROR: np.zeros(partition.n_mirrors, np.int64),
        }
        for block in relation.blocks:
            count[block.kinds(reverse)[1]] += np.diff(
                block.out_indptr if reverse else block.in_indptr
            )
        exchange = Exchange(partition.halo_comm, plan)
        degree = {"degree": count[MASTER]}
        exchange.to_masters_add({"degree": count[MIRROR][mirrors]}, degree)
        count[MIRROR][mirrors] = exchange.to_mirrors(degree)["degree"]
        relation.degrees[reverse] = count
    return relation.degrees[reverse]
