"""Batches of the targets of each worker, for workers that compute batches of their own."""

from __future__ import annotations

import numpy as np

from graphtheta.base.rng import Permutation, Purpose, key
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.strategy.order import BatchOrder


def own_batches(partition: Partition, n_targets: int, batch_size: int, seed: int) -> BatchOrder:
    """A worker's own targets in batches, in another order each epoch.

    All workers have as many batches as the one with most targets needs, and those of a worker
    differ by at most one target, so that none ends its epoch before the others. Batch i of an epoch
    of n workers is one of worker i % n.

    Args:
        partition: Its workers.
        n_targets: Targets of this worker.
        batch_size: Most targets of a batch.
        seed: Seed of the order.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    each = int(comm.all_max(np.array(-(-n_targets // batch_size))))

    def positions(epoch: int) -> np.ndarray:
        place = Permutation(key(seed, Purpose.BATCH, epoch, comm.rank), max(n_targets, 1)).position(
            np.arange(n_targets)
        )
        # batch b begins at place b * n_targets // each
        return ((place + 1) * each - 1) // max(n_targets, 1) * comm.size + comm.rank

    return BatchOrder(positions, each * comm.size, 1)
