"""Batches of the targets of each worker, for workers that compute batches of their own."""

from __future__ import annotations

import numpy as np

from graphtheta.base.rng import Permutation, Purpose, key
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.strategy.order import BatchOrder, groups_of_size
from graphtheta.engine.strategy.strategy import check_batches


def own_batches(
    partition: Partition, n_targets: int, batch_size: int, seed: int, drop_last: bool = False
) -> BatchOrder:
    """A worker's own targets in batches, in another order each epoch.

    All workers have as many batches as the one with most targets needs, and those of a worker
    differ by at most one target, so that none ends its epoch before the others. Batch i of an epoch
    of n workers is one of worker i % n. With ``drop_last`` the worker with most targets has full
    batches alone, and each worker leaves out what is more than these hold.

    Args:
        partition: Its workers.
        n_targets: Targets of this worker.
        batch_size: Most targets of a batch.
        seed: Seed of the order.
        drop_last: As above.

    Raises:
        ConfigError: ``drop_last`` leaves out the only batch.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    most = int(comm.all_max(np.array(n_targets)))
    each = groups_of_size(most, batch_size, drop_last)
    check_batches(each, f"{most} targets of any worker", f"batch_size={batch_size}")
    n_used = min(n_targets, each * batch_size)

    def positions(epoch: int) -> tuple[np.ndarray, np.ndarray]:
        place = Permutation(key(seed, Purpose.BATCH, epoch, comm.rank), max(n_targets, 1)).position(
            np.arange(n_targets)
        )
        target = np.flatnonzero(place < n_used)
        # batch b begins at place b * kept // each
        batch = ((place[target] + 1) * each - 1) // max(n_used, 1)
        return target, batch * comm.size + comm.rank

    return BatchOrder(positions, each * comm.size, 1)
