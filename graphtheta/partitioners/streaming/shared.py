"""Partitioners that workers compute together, each from its share of the edges.

The result depends on the number of parts, and not on the number of workers that compute it: either
one alone, for a graph in memory or a report, or one for each part, for edges in files.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.partition.edge_source import EdgeChunk, EdgeSource
from graphtheta.engine.partition.partitioner import Assignment, EdgePlacement, Owners, Partitioner
from graphtheta.ops.parallel.buffers import taken


@dataclass(frozen=True)
class SharedPartitioner(Partitioner):
    """A node partitioner that workers compute together."""

    @abstractmethod
    def owners(self, source: EdgeSource, comm: Comm, size: int) -> Owners:
        """Owners of the nodes.

        Args:
            source: The edges.
            comm: The workers that compute: one, or ``size``.
            size: Number of parts.

        Returns:
            Function from ids to their owners, which may be collective.

        Collective: all ranks of comm.
        """

    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        return Assignment(self.owners(source, SerialComm(), comm.size))

    def divide(self, source: EdgeSource, comm: Comm) -> Assignment:
        return Assignment(self.owners(source, comm, comm.size))


@dataclass(frozen=True)
class SharedPlacement(EdgePlacement):
    """An edge placement that workers compute together."""

    @abstractmethod
    def workers(
        self, source: EdgeSource, owner: Owners, comm: Comm, size: int
    ) -> Callable[[EdgeChunk], np.ndarray]:
        """Prepare to place the edges.

        Args:
            source: The edges.
            owner: Function from ids of nodes to their owners; it may be collective.
            comm: The workers that compute: one, or ``size``.
            size: Number of parts.

        Returns:
            Function from a chunk of this worker's share to the workers of its edges, which may be
            collective. It is called for all chunks, in order.

        Collective: all ranks of comm.
        """

    def place(
        self, source: EdgeSource, owners: np.ndarray, size: int
    ) -> Callable[[EdgeChunk], np.ndarray]:
        return self.workers(source, lambda ids: taken(owners, ids), SerialComm(), size)

    def share(
        self, source: EdgeSource, owner: Owners, comm: Comm
    ) -> Callable[[EdgeChunk], np.ndarray]:
        return self.workers(source, owner, comm, comm.size)
