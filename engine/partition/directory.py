"""Directories: the owner of a node, and its master row there.

Look-ups are collective, so a directory may be distributed: all ranks make the same look-ups in the
same order, each with its own ids or with none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from graphtheta.errors import PartitionError

from ...ops.kernels.lookup import fill, find
from ...ops.parallel.buffers import by_blocks
from ..comm.communicator import Comm
from .table import DistributedTable, Home

# a look-up costs as much as so many sums
PROBES = 8


class Directory(ABC):
    """Owners and rows of nodes by global id."""

    @abstractmethod
    def locate(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Owners and rows of some nodes, [n] int32 each.

        Args:
            ids: Global ids, [n] int64, in any order.

        Raises:
            PartitionError: An id is not that of a node.

        Collective: all ranks of the partition.
        """

    def owner(self, ids: np.ndarray) -> np.ndarray:
        """Workers that own some nodes, [n] int32.

        Collective: all ranks of the partition.
        """
        return self.locate(ids)[0]

    def row(self, ids: np.ndarray) -> np.ndarray:
        """Master rows of some nodes at their owners, [n] int32.

        Collective: all ranks of the partition.
        """
        return self.locate(ids)[1]

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held by this worker."""


class DenseDirectory(Directory):
    """Arrays over all nodes on every worker, for graphs in memory. Look-ups send no messages.

    Args:
        owners: Owner of every node, [n_nodes] int32.
        rows: Master row of every node at its owner, [n_nodes] int32.
    """

    def __init__(self, owners: np.ndarray, rows: np.ndarray):
        self._owners = owners
        self._rows = rows

    def locate(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if len(ids) and not 0 <= ids.min() <= ids.max() < len(self._owners):
            raise missing(ids[(ids < 0) | (ids >= len(self._owners))])
        return self._owners[ids], self._rows[ids]

    @property
    def nbytes(self) -> int:
        return self._owners.nbytes + self._rows.nbytes


class TableDirectory(Directory):
    """A distributed table, for owners that follow no rule. Entries are distributed by hash.

    Args:
        comm: The workers.
        masters: Global ids of this worker's masters in the order of their rows, [n_masters] int64.

    Collective: all ranks of comm.
    """

    def __init__(self, comm: Comm, masters: np.ndarray):
        entries = np.stack((np.full(len(masters), comm.rank), np.arange(len(masters))), axis=1)
        self._table = DistributedTable(comm, masters, entries.astype(np.int32))

    def locate(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        owner, row = self._table.look_up(ids).T
        if np.any(owner < 0):
            raise missing(ids[owner < 0])
        return np.ascontiguousarray(owner), np.ascontiguousarray(row)

    @property
    def nbytes(self) -> int:
        return self._table.nbytes


class ComputedDirectory(Directory):
    """Owners by a rule, such as a hash or blocks of ids. A worker stores rows of its masters only.

    Args:
        comm: The workers.
        masters: Global ids of this worker's masters in the order of their rows, [n_masters] int64.
        rule: Function from ids [n] to their owners [n] int32; the same on every rank.

    Collective: all ranks of comm.
    """

    def __init__(self, comm: Comm, masters: np.ndarray, rule: Home):
        self._rule = rule
        self._rows = DistributedTable(comm, masters, np.arange(len(masters), dtype=np.int32), rule)

    def locate(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        row = self._rows.look_up(ids)
        if np.any(row < 0):
            raise missing(ids[row < 0])
        return self.owner(ids), row

    def owner(self, ids: np.ndarray) -> np.ndarray:
        """Workers that own some nodes, [n] int32; computed without a message."""
        return self._rule(ids)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes


class LocalDirectory(Directory):
    """The rows of nodes that one worker holds together.

    Args:
        masters: Global ids in the order of the rows, [n] int64, none twice.
    """

    def __init__(self, masters: np.ndarray):
        bits = (2 * len(masters) + 1).bit_length()
        self._masters = masters
        self._slots = np.full(1 << bits, -1, np.int32)
        self._shift = 64 - bits
        fill(masters, self._slots, self._shift)

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Rows of some nodes, [n] int32; -1 for those that are not here."""
        rows = np.empty(len(ids), np.int32)
        by_blocks(
            lambda b, begin, end: find(
                ids=self._masters,
                slots=self._slots,
                shift=self._shift,
                wanted=ids,
                out=rows,
                first=begin,
                last=end,
            ),
            len(ids),
            PROBES,
        )
        return rows

    def locate(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = self.find(ids)
        if (rows < 0).any():
            raise missing(ids[rows < 0])
        return np.zeros(len(ids), np.int32), rows

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes


def missing(ids: np.ndarray) -> PartitionError:
    """The error of ids that no node has."""
    return PartitionError(
        f"the graph has no node {ids[0]}; {len(ids)} of the ids to look up are not in the graph; "
        "give global ids, from 0 to the number of nodes - 1"
    )
