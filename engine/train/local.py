"""A worker's own partition of the nodes and edges of one view: it has no mirrors and sends no
messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..comm.serial import LocalComm
from ..partition.directory import LocalDirectory
from ..partition.partition import NO_MIRRORS, Partition
from ..partition.relation import EDGE, StoredRelation


def local_partition(
    partition: Partition,
    masters: np.ndarray,
    node: Mapping[str, Any],
    edges: np.ndarray,
    edge: Mapping[str, Any],
) -> Partition:
    """A partition whose nodes and edges belong to this worker alone.

    Its edges have no blocks, so views of it are made from lists of edges and not by a search.

    Args:
        partition: This worker's part of the graph; the workers that share parameters remain its.
        masters: Global ids of the nodes, [n] int64, none twice.
        node: Columns of ``partition.node`` for these nodes, by name; others are left out.
        edges: Global ids of the edges, [m] int64, none twice.
        edge: All columns of ``partition.edge`` for these edges.
    """
    stored = StoredRelation(
        EDGE,
        edges,
        True,
        n_edges=partition.relations[EDGE].n_edges,
        blocks=[],
        sources=NO_MIRRORS,
        destinations=NO_MIRRORS,
    )
    return Partition(
        halo_comm=LocalComm(partition.job_comm),
        n_nodes=partition.n_nodes,
        n_edges=partition.n_edges,
        gid=masters,
        n_masters=len(masters),
        directory=LocalDirectory(masters),
        relations={EDGE: stored},
        node=partition.node.filled(len(masters), node),
        edge=partition.edge.filled(len(edges), edge),
        job_comm=partition.job_comm,
        short=partition.short,
    )
