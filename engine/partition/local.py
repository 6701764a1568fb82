"""A worker's own partition of the nodes and edges of one view: it has no mirrors and sends no messages."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...ops.autodiff.buffers import by_blocks
from ...ops.kernels.lookup import fill, find
from ..comm.serial import LocalComm
from .directory import Directory, missing
from .partition import NO_MIRRORS, Partition
from .relation import EDGE, StoredRelation

# a look-up costs as much as so many sums
PROBES = 8


class LocalDirectory(Directory):
    """The rows of nodes that one worker holds together.

    Args:
        masters: Global ids in the order of the rows, [n] int64, none twice.
    """

    def __init__(self, masters: np.ndarray):
        bits = (2 * len(masters) + 1).bit_length()
        self._masters, self._slots, self._shift = masters, np.full(1 << bits, -1, np.int32), 64 - bits
        fill(masters, self._slots, self._shift)

    def locate(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = np.empty(len(ids), np.int32)
        by_blocks(lambda b, begin, end: find(self._masters, self._slots, self._shift, ids, rows, begin, end), len(ids), PROBES)
        if (rows < 0).any():
            raise missing(ids[rows < 0])
        return np.zeros(len(ids), np.int32), rows

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes


def local_partition(partition: Partition, masters: np.ndarray, node: Mapping[str, Any], edges: np.ndarray,
                    edge: Mapping[str, Any]) -> Partition:
    """A partition whose nodes and edges belong to this worker alone.

    Its edges have no blocks, so views of it are made from lists of edges and not by a search.

    Args:
        partition: This worker's part of the graph; the workers that share parameters remain its.
        masters: Global ids of the nodes, [n] int64, none twice.
        node: All columns of ``partition.node`` for these nodes.
        edges: Global ids of the edges, [m] int64, none twice.
        edge: All columns of ``partition.edge`` for these edges.
    """
    stored = StoredRelation(EDGE, edges, True, n_edges=partition.relations[EDGE].n_edges, blocks=[], sources=NO_MIRRORS,
                            destinations=NO_MIRRORS)
    return Partition(LocalComm(partition.job_comm), partition.n_nodes, partition.n_edges, masters, len(masters), LocalDirectory(masters),
                     {EDGE: stored}, partition.node.filled(len(masters), node), partition.edge.filled(len(edges), edge),
                     job_comm=partition.job_comm)
