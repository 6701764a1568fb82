"""The distinct neighbours of a worker's masters, wherever their edges are stored.

Algorithms on sets of neighbours need all of them at one worker. Edges that an edge placement stores
elsewhere move to the owners of their sources; 1D placement by source moves none.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from graphtheta.analytics.local_edges import Lists, LocalEdges
from graphtheta.base.rng import Purpose, bits, key
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.exchange import Exchange
from graphtheta.engine.partition.located import locate
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.table import Route
from graphtheta.errors import DataError


class Adjacency:
    """Distinct neighbours along out-edges, without self loops.

    Args:
        partition: The partition.

    Attributes:
        comm: The workers.
        n_masters: Masters of this worker.
        indptr: Bounds of the neighbours of each master, [n_masters + 1] int64.
        ids: Global ids of the neighbours, ascending for each master, [n] int64.

    Collective: all ranks of the partition.
    """

    def __init__(self, partition: Partition):
        self._partition = partition
        self.comm: Comm = partition.halo_comm
        self.n_masters = n = partition.n_masters
        rows, ids = _gathered(partition)
        # one number for a pair, so that pairs are sorted as numbers
        pairs = rows * partition.n_nodes + ids
        if not (pairs[1:] > pairs[:-1]).all():
            pairs = np.sort(pairs)
            pairs = pairs[np.append(True, pairs[1:] > pairs[:-1])] if len(pairs) else pairs
        rows, ids = np.divmod(pairs, partition.n_nodes)
        other = ids != partition.masters[rows]
        rows, self.ids = rows[other], ids[other]
        self.indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=n)))).astype(
            np.int64
        )
        self._rows = rows

    @property
    def degree(self) -> np.ndarray:
        """Distinct neighbours of each master, [n_masters] int64."""
        return np.diff(self.indptr)

    def check_undirected(self, name: str) -> None:
        """Check that each edge has its reverse, by sums of hashes over all workers.

        Raises:
            DataError: One has none; on all ranks.

        Collective: all ranks of the partition.
        """
        sources = self._partition.masters[self._rows]
        of = key(0, Purpose.CHECK)
        ends = [
            bits(of, bits(of, a) ^ b.astype(np.uint64))
            for a, b in ((sources, self.ids), (self.ids, sources))
        ]
        forwards, backwards = self.comm.all_sum(np.array([x.sum(dtype=np.uint64) for x in ends]))
        if forwards != backwards:
            raise DataError(
                f"{name}: the graph is directed: some edges have no reverse edge; add them with"
                " graph.symmetrised() or --symmetric yes"
            )


class NeighbourColumns:
    """Neighbours as columns: the masters of a worker in the order of their rows, then other nodes,
    by owner.

    Args:
        partition: The partition.
        adjacency: Neighbours by global id.

    Attributes:
        ids: Global ids of the columns, [n_columns] int64.
        lists: Columns of the neighbours of each master.

    Collective: all ranks of the partition.
    """

    def __init__(self, partition: Partition, adjacency: Adjacency):
        nodes, each = np.unique(adjacency.ids, return_inverse=True)
        places = locate(partition, nodes)
        n = adjacency.n_masters
        column = np.where(places.remote, n + places.row, places.row).astype(np.int32)
        self.ids = np.concatenate((partition.masters, np.zeros(int(places.remote.sum()), np.int64)))
        self.ids[column] = nodes
        self.n_masters = n
        self.exchange = Exchange(partition.halo_comm, places.plan)
        self.lists = Lists(adjacency.indptr, column[each])

    def fetch(self, x: np.ndarray) -> None:
        """Copy values of masters, the first rows of x [n_columns, ...], to the columns of other
        workers.

        Collective: all ranks of the partition.
        """
        x[self.n_masters :] = self.exchange.to_mirrors({"": x[: self.n_masters]})[""]

    def add_back(self, x: np.ndarray) -> None:
        """Add the values of columns of other workers to those of their masters, in x [n_columns].

        Collective: all ranks of the partition.
        """
        halo = {"": np.ascontiguousarray(x[self.n_masters :])}
        self.exchange.to_masters_add(halo, {"": x})

    def fetch_lists(self, lists: Lists) -> Lists:
        """Lists of all columns: those of masters, and copies of those of other workers' nodes.

        Args:
            lists: A list of columns for each master.

        Returns:
            Lists for all columns. Members that are no columns of this worker are left out.

        Collective: all ranks of the partition.
        """
        plan = self.exchange.plan
        comm = self.exchange.comm
        lengths = np.zeros(len(self.ids), np.int64)
        lengths[: self.n_masters] = np.diff(lists.indptr)
        self.fetch(lengths)
        sent = [
            self.ids[lists.near[_members(lists.indptr, plan.rows[a:b])]]
            for a, b in pairwise(plan.send_ptr)
        ]
        members = np.concatenate([self.ids[lists.near], *comm.all_to_all(sent)])
        order = np.argsort(self.ids, kind="stable")
        at = np.minimum(np.searchsorted(self.ids, members, sorter=order), len(order) - 1)
        column = order[at] if len(order) else at
        here = self.ids[column] == members if len(order) else np.zeros(0, bool)
        row = np.repeat(np.arange(len(lengths)), lengths)[here]
        return Lists(
            np.concatenate(([0], np.cumsum(np.bincount(row, minlength=len(lengths))))),
            column[here].astype(np.int32),
        )


def _members(indptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Positions of the members of the lists of some rows, list by list."""
    lengths = np.diff(indptr)[rows]
    return np.arange(int(lengths.sum())) + np.repeat(
        indptr[rows] - np.cumsum(lengths) + lengths, lengths
    )


def _gathered(partition: Partition) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the sources and ids of the destinations of all edges out of this worker's masters,
    [n] int64 each.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    n = partition.n_masters
    indptr, near = LocalEdges(partition).out
    rows = np.repeat(np.arange(len(partition.gid)), np.diff(indptr))
    ids = partition.gid[near]
    owner, row = partition.directory.locate(partition.gid[n:])
    first = int(indptr[n])
    to, theirs = owner[rows[first:] - n], row[rows[first:] - n]
    sent = Route(to, comm.size).parts(np.stack((theirs.astype(np.int64), ids[first:]), axis=1))
    arrived = np.concatenate(comm.all_to_all(sent))
    return np.concatenate((rows[:first], arrived[:, 0])), np.concatenate(
        (ids[:first], arrived[:, 1])
    )
