"""Values of undirected graphs by sets of neighbours: core numbers, triangles, communities by
labels; and degrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.analytics.adjacency import Adjacency, NeighbourColumns
from graphtheta.analytics.algorithm import Algorithm
from graphtheta.analytics.local_edges import Lists
from graphtheta.engine.partition.partition import Partition
from graphtheta.errors import ConfigError
from graphtheta.ops.kernels.analytics.neighbours import core_sweep, count_triangles, frequent_labels
from graphtheta.ops.parallel.buffers import run_parts


@dataclass(frozen=True)
class Degree(Algorithm):
    """Degree: edges into a node, int64, each as often as it is stored."""

    name = "degree"

    def run(self, partition: Partition, graph: Any) -> np.ndarray:
        return np.asarray(partition.node.read("in_degree")).astype(np.int64)


@dataclass(frozen=True)
class CoreNumber(Algorithm):
    """Core number: the largest k for which a node is in a subgraph whose nodes all have k
    neighbours in it, int32.

    The graph must be undirected; self loops and duplicates of edges do not count.

    Source: Montresor, De Pellegrini and Miorandi, 2013, https://doi.org/10.1109/TPDS.2012.124
    """

    name = "core_number"

    def run(self, partition: Partition, graph: Any) -> np.ndarray:
        adjacency, columns = _undirected(partition, self.name)
        lists = columns.lists
        n_own = partition.n_masters
        value = np.zeros(len(columns.ids), np.int32)
        value[:n_own] = adjacency.degree
        changed = [True]
        while adjacency.comm.all_max(np.array(any(changed))):
            columns.fetch(value)
            changed.clear()
            lists.by_edges(
                lambda first, last: changed.append(
                    core_sweep(
                        indptr=lists.indptr, near=lists.near, value=value, first=first, last=last
                    )
                    > 0
                )
            )
        return value[:n_own]


@dataclass(frozen=True)
class Triangles(Algorithm):
    """Triangles: pairs of neighbours of a node that are neighbours of each other, int64.

    The graph must be undirected; self loops and duplicates of edges do not count. Each triangle is
    found once, from its corner of lowest degree. A worker has copies of the lists of all nodes
    near its own.
    """

    name = "triangles"

    def run(self, partition: Partition, graph: Any) -> np.ndarray:
        adjacency, columns = _undirected(partition, self.name)
        n_own = partition.n_masters
        degree = np.zeros(len(columns.ids), np.int64)
        degree[:n_own] = adjacency.degree
        columns.fetch(degree)
        # lists of neighbours of higher degree, or of the same degree and a higher id
        indptr, near = columns.lists
        rows = np.repeat(np.arange(n_own), np.diff(indptr))
        higher = (degree[near] > degree[rows]) | (
            (degree[near] == degree[rows]) & (columns.ids[near] > columns.ids[rows])
        )
        lists = Lists(
            np.concatenate(([0], np.cumsum(np.bincount(rows[higher], minlength=n_own)))),
            near[higher],
        )
        every = columns.fetch_lists(lists)
        bounds = lists.bounds.tolist()
        counts = np.zeros(len(columns.ids), np.int64)
        # a part of the blocks for each count, added in a fixed order
        parts = [
            bounds[i : i + 1 + -(-len(bounds) // PARTS)]
            for i in range(0, len(bounds) - 1, -(-len(bounds) // PARTS))
        ]
        of_parts = np.zeros((len(parts), len(counts)), np.int64)

        def work(p: int) -> None:
            marks = np.zeros(len(counts), np.uint8)
            count_triangles(
                indptr=lists.indptr,
                higher=lists.near,
                lists=(every.indptr, every.near),
                marks=marks,
                counts=of_parts[p],
                first=parts[p][0],
                last=parts[p][-1],
            )

        run_parts(work, len(parts))
        counts = of_parts.sum(0)
        columns.add_back(counts)
        return counts[:n_own]


@dataclass(frozen=True)
class LabelPropagation(Algorithm):
    """Communities by label propagation: the label of each node after some iterations, int64; a
    label is a node.

    Nodes begin with their own number. In each iteration all nodes together take the most frequent
    label of their neighbours, the lowest of several. The graph must be undirected; self loops and
    duplicates of edges do not count.

    Source: Iosup et al., LDBC Graphalytics, 2016, https://doi.org/10.14778/3007263.3007270, after
    Raghavan, Albert and Kumara, 2007.

    Attributes:
        iterations: The most iterations; fewer if no label changes.
    """

    name = "label_propagation"
    gives_nodes = True
    iterations: int = 10

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ConfigError(
                f"label_propagation: iterations is {self.iterations}; expected at least 1"
            )

    def run(self, partition: Partition, graph: Any) -> np.ndarray:
        _, columns = _undirected(partition, self.name)
        lists = columns.lists
        n_own = partition.n_masters
        label = columns.ids.copy()
        new = np.empty(n_own, np.int64)
        for _ in range(self.iterations):
            lists.by_edges(
                lambda first, last: frequent_labels(
                    indptr=lists.indptr,
                    near=lists.near,
                    label=label,
                    out=new,
                    first=first,
                    last=last,
                )
            )
            changed = not np.array_equal(new, label[:n_own])
            label[:n_own] = new
            if not partition.halo_comm.all_max(np.array(changed)):
                break
            columns.fetch(label)
        return label[:n_own]


# parts of the rows whose triangles are counted apart
PARTS = 8


def _undirected(partition: Partition, name: str) -> tuple[Adjacency, NeighbourColumns]:
    """Neighbours of an undirected graph.

    Raises:
        DataError: The graph is directed; on all ranks.

    Collective: all ranks of the partition.
    """
    adjacency = Adjacency(partition)
    adjacency.check_undirected(name)
    return adjacency, NeighbourColumns(partition, adjacency)
