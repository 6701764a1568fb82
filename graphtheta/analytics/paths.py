"""Distances from a node: breadth-first search, and Dijkstra's algorithm on weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.analytics.algorithm import Algorithm
from graphtheta.analytics.local_edges import LocalEdges
from graphtheta.engine.partition.partition import Partition
from graphtheta.errors import ConfigError, DataError
from graphtheta.ops.kernels.analytics.paths import mark_near, narrow_levels, settle
from graphtheta.ops.parallel.buffers import by_blocks

# levels with at least the n-th part of the nodes are searched by all threads, and take a pass over
# all nodes
WIDE_LEVELS = 64


@dataclass(frozen=True)
class Bfs(Algorithm):
    """Breadth-first search: the fewest edges of a path from the source, along the directions of
    edges, int32; -1 without a path.

    Attributes:
        source: Original id of the source.
    """

    name = "bfs"
    source: str = "0"

    def run(self, partition: Partition, graph: Any) -> np.ndarray:
        edges = LocalEdges(partition)
        n_own = partition.n_masters
        dist = np.full(n_own, -1, np.int32)
        level = 0
        frontier = np.flatnonzero(partition.masters == node_of(graph, self.source, self.name))
        dist[frontier] = level
        narrow = n_own // WIDE_LEVELS
        queue = np.empty(n_own, np.int32)
        while edges.anywhere(len(frontier) > 0):
            # several workers send a message for each level
            if edges.alone and len(frontier) <= narrow:
                queue[: len(frontier)] = frontier
                begin, end = narrow_levels(*edges.out, dist, queue, 0, len(frontier), narrow)
                frontier = queue[begin:end].astype(np.int64)
                level = int(dist.max())
                continue
            reached = next_level(edges, frontier)
            level += 1
            frontier = np.flatnonzero((reached[:n_own] > 0) & (dist < 0))
            dist[frontier] = level
        return dist


def next_level(edges: LocalEdges, frontier: np.ndarray) -> np.ndarray:
    """1 for masters that edges from the frontier lead to, [n_rows] uint8.

    Args:
        edges: Edges of this worker.
        frontier: Rows of masters.

    Collective: all ranks.
    """
    here = np.zeros(edges.n_rows, np.uint8)
    marks = np.zeros(edges.n_rows, np.uint8)
    out = edges.out
    here[frontier] = 1
    edges.to_sources(here)
    rows = np.flatnonzero(here)
    degree = int(np.diff(out.indptr)[rows].sum()) // max(len(rows), 1)
    by_blocks(
        lambda b, first, last: mark_near(
            indptr=out.indptr, near=out.near, rows=rows, marks=marks, first=first, last=last
        ),
        len(rows),
        degree + 1,
    )
    edges.from_destinations(marks, np.maximum)
    return marks


@dataclass(frozen=True)
class Sssp(Algorithm):
    """Shortest paths from a source: the least sum of edge weights of a path along the directions of
    edges, float64; infinite without one.

    Without weights each edge has length 1. Each worker runs Dijkstra's algorithm on its own edges;
    distances that it has lowered move to other workers until none is lowered.

    Attributes:
        source: Original id of the source.
    """

    name = "sssp"
    weighted = True
    source: str = "0"

    def run(self, partition: Partition, graph: Any) -> np.ndarray:
        source = node_of(graph, self.source, self.name)
        edges = LocalEdges(partition)
        n_own = partition.n_masters
        weight = np.asarray(partition.edge.read("weight"), np.float64)[edges.out_stored]
        least = float(-edges.comm.all_max(np.array(-weight.min(initial=0.0))))
        if not least >= 0:
            raise DataError(
                f"sssp: an edge has weight {least:g}; lengths must be at least 0, so rescale"
                " edge_weight, or drop it"
            )
        dist = np.full(edges.n_rows, np.inf)
        changed = np.zeros(edges.n_rows, np.uint8)
        rows = np.flatnonzero(partition.gid[:n_own] == source)
        dist[rows] = 0.0
        while True:
            settle(
                indptr=edges.out.indptr,
                near=edges.out.near,
                weight=weight,
                rows=rows,
                dist=dist,
                changed=changed,
            )
            before = dist.copy()
            edges.from_destinations(dist, np.minimum)
            edges.to_sources(dist)
            rows = np.flatnonzero(dist < before)
            if not edges.anywhere(len(rows) > 0):
                return dist[:n_own]


def node_of(graph: Any, wanted: Any, name: str) -> int:
    """The number of a node by its original id, as a number or text.

    Raises:
        ConfigError: The graph has no such node.
    """
    ids = np.asarray(graph.original_ids)
    text = str(wanted)
    node_id: Any = text
    if ids.dtype.kind != "U":
        # no integer is equal to None
        node_id = int(text) if text.removeprefix("-").isdecimal() else None
    nodes = np.flatnonzero(ids == node_id)
    if not len(nodes):
        raise ConfigError(
            f"{name}: the graph has no node {text!r}; give source=ID, the original id of a node"
        )
    return int(nodes[0])
