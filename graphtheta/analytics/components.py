"""Weakly connected components.

Each worker finds the components of its own edges; the lowest node of each then moves along mirrors
until nothing changes, which takes as many rounds as a component crosses workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.analytics.algorithm import Algorithm
from graphtheta.analytics.local_edges import Lists, LocalEdges
from graphtheta.engine.partition.partition import Partition
from graphtheta.ops.kernels.analytics.union import compress, link, lowest, mark_split

# neighbours of each row that are linked before the others
FIRST = 2


@dataclass(frozen=True)
class Components(Algorithm):
    """Weakly connected components: the lowest node of the component, int64; directions do not
    count.
    """

    name = "components"
    gives_nodes = True

    def run(self, partition: Partition, graph: Any) -> np.ndarray:
        edges = LocalEdges(partition)
        n_own = partition.n_masters
        parent = united(edges.into, edges.n_rows)
        lowest_of = np.full(edges.n_rows, partition.n_nodes, np.int64)
        label = partition.gid.astype(np.int64)
        while True:
            lowest(parent, label, lowest_of)
            new = lowest_of[parent]
            # mirrors give their labels to their masters, and take those of all workers
            edges.from_destinations(new, np.minimum)
            edges.from_sources(new, np.minimum)
            edges.to_destinations(new)
            edges.to_sources(new)
            if not edges.anywhere(not np.array_equal(new, label)):
                return new[:n_own]
            label = new


def united(lists: Lists, n_rows: int) -> np.ndarray:
    """The lowest row of the component of each row, [n_rows] int32."""
    indptr, near = lists
    parent = np.arange(n_rows, dtype=np.int32)
    split = np.zeros(n_rows, np.uint8)
    link(indptr, near, np.arange(n_rows), FIRST, parent)
    compress(parent)
    lists.by_edges(
        lambda first, last: mark_split(
            indptr=indptr, near=near, parent=parent, marks=split, first=first, last=last
        )
    )
    link(indptr, near, np.flatnonzero(split), int(indptr[-1]), parent)
    compress(parent)
    return parent
