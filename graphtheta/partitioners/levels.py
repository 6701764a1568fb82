"""Levels of a multilevel cut: a graph that is streamed or in memory, and smaller graphs of clusters of its nodes."""
from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.ops.partition.label_moves import contract
from graphtheta.partitioners.stream import Neighbourhoods, neighbour_bounds, neighbourhoods


class Group(NamedTuple):
    """Consecutive nodes and their neighbours.

    Attributes:
        first: The first node.
        ptr, near: As of ``Neighbourhoods``.
        weight: Weights of these edges, [ptr[n]].
    """

    first: int
    ptr: np.ndarray
    near: np.ndarray
    weight: np.ndarray


class Level(Protocol):
    """A graph of weighted nodes and edges."""

    @property
    def mass(self) -> np.ndarray:
        """Weight of each node, [n_nodes] int64."""

    def groups(self) -> Iterator[Group]:
        """All nodes in ascending order, some at a time."""


class Streamed:
    """The edges of a source, whose nodes and edges all have the weight 1.

    Args:
        source: The edges.
        at_most: Neighbours in memory at a time; see ``neighbourhoods``.
    """

    def __init__(self, source: EdgeSource, at_most: int) -> None:
        self._source, self._at_most, self._bounds = source, at_most, neighbour_bounds(source)
        self._whole: list[Neighbourhoods] = []
        self.mass = np.broadcast_to(np.int64(1), source.n_nodes)

    @property
    def degree(self) -> np.ndarray:
        """Neighbours of each node, [n_nodes] int64."""
        return np.diff(self._bounds)

    def cut(self, part: np.ndarray) -> int:
        """The number of edges between different parts of nodes, [n_nodes]; reads all edges once."""
        return sum(int(np.count_nonzero(part[chunk.src] != part[chunk.dst])) for chunk in self._source.chunks())

    def groups(self) -> Iterator[Group]:
        for group in self._whole or neighbourhoods(self._source, self._at_most, self._bounds):
            if len(group.ptr) - 1 == self._source.n_nodes:
                self._whole = [group]
            yield Group(*group, np.broadcast_to(np.int64(1), len(group.near)))


class Contracted(NamedTuple):
    """A graph in memory.

    Attributes:
        ptr, near, weight: Neighbours of each node; see ``Group``.
        mass: Weight of each node, [n_nodes] int64.
    """

    ptr: np.ndarray
    near: np.ndarray
    weight: np.ndarray
    mass: np.ndarray

    def groups(self) -> Iterator[Group]:
        yield Group(0, self.ptr, self.near, self.weight)

    def of(self, nodes: np.ndarray) -> Contracted:
        """The graph of some nodes and the edges between them."""
        position = np.full(len(self.mass), -1, np.int32)
        position[nodes] = np.arange(len(nodes))
        row = np.repeat(position, np.diff(self.ptr))
        kept = (row >= 0) & (position[self.near] >= 0)
        return Contracted(_bounds(np.bincount(row[kept], minlength=len(nodes))), position[self.near[kept]], self.weight[kept],
                          self.mass[nodes])


def clustered(level: Level, label: np.ndarray) -> tuple[Contracted, np.ndarray]:
    """The graph of clusters.

    Args:
        level: A graph.
        label: Cluster of each node, [n_nodes] integers of any value.

    Returns:
        The graph, whose edges are summed by pairs of clusters, without loops; and the node of it that each
        node is in, [n_nodes].
    """
    names, inside = np.unique(label, return_inverse=True)
    inside = inside.astype(label.dtype)
    found = [_summed(inside[g.first: g.first + len(g.ptr) - 1], g.ptr, g.near, g.weight, inside, len(names)) for g in level.groups()]
    rows, counts, near, weight = map(np.concatenate, zip(*found, strict=True))
    # a cluster has a row for each group that it has nodes in
    rows, counts, near, weight = _summed(rows, _bounds(counts), near, weight, np.arange(len(names), dtype=label.dtype), len(names))
    degree = np.zeros(len(names), np.int64)
    degree[rows] = counts
    mass = np.zeros(len(names), np.int64)
    np.add.at(mass, inside, level.mass)
    return Contracted(_bounds(degree), near, weight, mass), inside


def _summed(of_row: np.ndarray, ptr: np.ndarray, near: np.ndarray, weight: np.ndarray, label: np.ndarray,
            n_labels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Labels of rows, numbers of entries, entries and weights, after ``contract``."""
    rows, bounds = np.empty_like(of_row), np.empty(len(of_row) + 1, np.int64)
    entries, sums = np.empty(len(near), label.dtype), np.empty(len(near), np.int32)
    n, end = contract(of_row, ptr, near, weight, label, n_labels, np.argsort(of_row, kind="stable"), rows, bounds, entries, sums)
    return rows[:n].copy(), np.diff(bounds[: n + 1]), entries[:end].copy(), sums[:end].copy()


def _bounds(counts: np.ndarray) -> np.ndarray:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
