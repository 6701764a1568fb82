"""The order of targets: batches that are the same for every number of workers.

Targets are numbered by the order of their ids, and an epoch permutes the numbers by a keyed function. A worker knows the
numbers of its own targets and computes their positions, so no worker needs a list of all targets.
"""
from __future__ import annotations

from math import isqrt

import numpy as np

from graphtheta.rng import Permutation, Purpose, key

from ..partition.partition import Partition
from ..partition.table import Route, Table


class BatchOrder:
    """Batches of targets, in another order each epoch.

    Args:
        partition: Its workers share the targets.
        ids: Ids of this worker's targets, [n] int64; no id on two workers.
        batch_size: Targets of a batch over all workers; the last one may be smaller.
        seed: Seed of the order.

    Collective: all ranks of the partition.
    """

    def __init__(self, partition: Partition, ids: np.ndarray, batch_size: int, seed: int):
        comm = partition.halo_comm
        self._numbers, self._n = ranks_among_all(partition, ids), int(comm.all_sum(np.array(len(ids))))
        self._size, self._seed = batch_size, seed
        self._epoch: tuple[int, np.ndarray, np.ndarray] | None = None

    @property
    def n_batches(self) -> int:
        """Batches of an epoch."""
        return -(-self._n // self._size)

    def own(self, epoch: int, i: int) -> np.ndarray:
        """Which of this worker's targets are in a batch: their positions in ``ids``, ascending, [k] int64."""
        if self._epoch is None or self._epoch[0] != epoch:
            batch = Permutation(key(self._seed, Purpose.BATCH, epoch), self._n).position(self._numbers) // self._size
            by_batch = np.argsort(batch, kind="stable")
            self._epoch = (epoch, by_batch, batch[by_batch])
        _, by_batch, batch = self._epoch
        return by_batch[slice(*np.searchsorted(batch, (i, i + 1)))]


class Members:
    """The nodes of some clusters, numbered from 0 by cluster and id.

    Attributes:
        n: Number of nodes.
    """

    def __init__(self, nodes: Table, start: np.ndarray, counts: np.ndarray):
        self._nodes, self._end = nodes, np.cumsum(counts)
        self._shift = start - (self._end - counts)
        self.n = int(counts.sum())

    def ids(self, numbers: np.ndarray) -> np.ndarray:
        """Global ids of the nodes of some numbers, [k] int64.

        Collective: all ranks of the partition.
        """
        return self._nodes.look_up(numbers + self._shift[np.searchsorted(self._end, numbers, side="right")])


class NodesByCluster:
    """All nodes ordered by cluster and id, as a distributed table.

    Args:
        partition: Holds the nodes.
        clusters: Cluster of each master of this worker, [n_masters] int64.
        n_clusters: Number of clusters.

    Collective: all ranks of the partition.
    """

    def __init__(self, partition: Partition, clusters: np.ndarray, n_clusters: int):
        comm, masters = partition.halo_comm, partition.masters
        self._counts = comm.all_sum(np.bincount(clusters, minlength=n_clusters))
        self._nodes = Table(comm, ranks_among_all(partition, clusters * np.int64(partition.n_nodes) + masters), masters)

    def members(self, chosen: np.ndarray) -> Members:
        """The nodes of some clusters.

        Args:
            chosen: Numbers of the clusters, ascending.
        """
        return Members(self._nodes, (np.cumsum(self._counts) - self._counts)[chosen], self._counts[chosen])


def ranks_among_all(partition: Partition, ids: np.ndarray) -> np.ndarray:
    """The rank of each id of this worker among the ids of all workers, however distributed.

    Args:
        partition: Its workers share the ids.
        ids: Distinct ids, 0 or above, [n] int64 in any order; no id on two workers.

    Returns:
        [n] int64, 0 for the lowest id of all.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    total, end = int(comm.all_sum(np.array(len(ids)))), int(comm.all_max(np.array(ids.max(initial=0)))) + 1
    # blocks of ids go to the workers in turn, so that no worker gets all ids of a dense range
    n_blocks = max(comm.size, isqrt(total))
    width = -(-end // n_blocks)
    counts = comm.all_sum(np.bincount(ids // width, minlength=n_blocks))
    route = Route(ids // width % comm.size, comm.size)
    parts = comm.all_to_all(route.parts(ids))
    held = np.concatenate(parts)
    order = np.argsort(held)
    block = held[order] // width
    found = np.empty(len(held), np.int64)
    found[order] = (np.cumsum(counts) - counts)[block] + np.arange(len(held)) - np.searchsorted(block, block)
    bounds = np.cumsum([len(part) for part in parts])
    return route.back(comm.all_to_all(np.split(found, bounds[:-1])))
