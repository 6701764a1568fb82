"""The nodes of clusters, or of the links of a batch, as a distributed table."""

from __future__ import annotations

import numpy as np

from ..partition.partition import Partition
from ..partition.table import DistributedTable, Route, home_of
from .ranking import ranks_among_all


class Members:
    """The nodes of a batch, numbered from 0 by cluster and id.

    Attributes:
        n: Number of nodes.
    """

    def __init__(self, nodes: DistributedTable, start: np.ndarray, counts: np.ndarray):
        self._nodes = nodes
        self._end = np.cumsum(counts)
        self._shift = start - (self._end - counts)
        self.n = int(counts.sum())

    def ids(self, numbers: np.ndarray) -> np.ndarray:
        """Global ids of the nodes of some numbers, [k] int64.

        Collective: all ranks of the partition.
        """
        return self._nodes.look_up(
            numbers + self._shift[np.searchsorted(self._end, numbers, side="right")]
        )


class NodesByCluster:
    """All nodes ordered by cluster and id, as a distributed table.

    Args:
        partition: Holds the nodes.
        clusters: Cluster of each master of this worker, [n_masters] int64.
        n_clusters: Number of clusters.

    Collective: all ranks of the partition.
    """

    def __init__(self, partition: Partition, clusters: np.ndarray, n_clusters: int):
        comm = partition.halo_comm
        masters = partition.masters
        self._counts = comm.all_sum(np.bincount(clusters, minlength=n_clusters))
        self._nodes = DistributedTable(comm, ranks_among_all(partition, clusters, masters), masters)

    def members(self, chosen: np.ndarray) -> Members:
        """The nodes of some clusters.

        Args:
            chosen: Numbers of the clusters, ascending.
        """
        return Members(
            self._nodes, (np.cumsum(self._counts) - self._counts)[chosen], self._counts[chosen]
        )


def nodes_of(partition: Partition, ids: np.ndarray) -> Members:
    """The nodes that occur in the ids of any worker, numbered by id.

    Args:
        partition: Holds the nodes.
        ids: Ids that this worker contributes, [n] int64; they may repeat, also on several workers.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    nodes = np.unique(ids)
    nodes = np.unique(
        np.concatenate(comm.all_to_all(Route(home_of(comm)(nodes), comm.size).parts(nodes)))
    )
    counts = comm.all_sum(np.array([len(nodes)]))
    return Members(
        DistributedTable(comm, ranks_among_all(partition, nodes), nodes),
        np.zeros(1, np.int64),
        counts,
    )
