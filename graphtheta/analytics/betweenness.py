"""Betweenness centrality from shortest paths out of sampled sources.

Source: Brandes, 2001, https://doi.org/10.1080/0022250X.2001.9990249; sampling as in Brandes and
Pich, 2007. Dependencies are rounded to fixed units, so that sums are exact in any order. Numbers of
shortest paths are exact up to 2**53; above that they are rounded, and results of different
partitions agree to about 15 digits only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.analytics.algorithm import Algorithm
from graphtheta.analytics.local_edges import Lists, LocalEdges
from graphtheta.base.rng import Purpose, bits, key
from graphtheta.engine.partition.partition import Partition
from graphtheta.errors import ConfigError, DataError
from graphtheta.ops.kernels.analytics.paths import all_dependencies, dependencies, paths_into
from graphtheta.ops.parallel.buffers import by_blocks, run_parts
from graphtheta.ops.parallel.pool import threads


@dataclass(frozen=True)
class Betweenness(Algorithm):
    """Betweenness: the share of shortest paths between other nodes that lead through each node,
    float64, of all ordered pairs.

    Edges have directions and length 1; one that is stored several times makes several paths.

    Attributes:
        sources: Nodes drawn as sources of paths; 0 is all nodes, which gives exact values.
        seed: Seed of the draw.
    """

    name = "betweenness"
    sources: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sources < 0:
            raise ConfigError(f"betweenness: sources is {self.sources}; expected at least 0")

    def run(self, partition: Partition, graph: Any) -> np.ndarray:
        edges = LocalEdges(partition)
        n = partition.n_nodes
        chosen = drawn(partition, min(self.sources or n, n), self.seed)
        total = np.zeros(partition.n_masters)
        unit = 2.0 ** (62 - n.bit_length())
        if edges.alone:
            row_of = np.argsort(partition.masters)
            for each in by_source(edges, row_of[chosen], unit):
                total += each
        else:
            for source in chosen.tolist():
                total += dependencies_of(edges, np.flatnonzero(partition.masters == source), unit)
        return total * (n / len(chosen) / max((n - 1) * (n - 2), 1))


def drawn(partition: Partition, count: int, seed: int) -> np.ndarray:
    """The nodes with the lowest draws, ascending by draw, [count] int64; the same on all ranks.

    Collective: all ranks of the partition.
    """
    draws = bits(key(seed, Purpose.SAMPLE), partition.masters)
    mine = np.argsort(draws, kind="stable")[:count]
    lowest = partition.halo_comm.all_gather(
        np.stack((draws[mine].view(np.int64), partition.masters[mine]))
    )
    both = np.concatenate(lowest, axis=1)
    return np.asarray(both[1, np.lexsort((both[1], both[0].view(np.uint64)))[:count]])


def by_source(edges: LocalEdges, sources: np.ndarray, unit: float) -> Iterator[np.ndarray]:
    """The dependencies of each source on all nodes, [n_nodes] float64, on the only worker; threads
    have a source each.

    Args:
        edges: Edges of this worker.
        sources: Rows of the sources, [n] int64.
        unit: Units in 1.

    Raises:
        DataError: The number of paths to a node has overflowed.
    """
    together = threads()
    for begin in range(0, len(sources), together):
        some = sources[begin : begin + together]
        delta = np.zeros((len(some), edges.n_rows))
        counted = np.zeros(len(some), bool)

        def work(
            b: int,
            some: np.ndarray = some,
            delta: np.ndarray = delta,
            counted: np.ndarray = counted,
        ) -> None:
            counted[b] = all_dependencies(*edges.out, some[b], unit, delta[b])

        run_parts(work, len(some))
        if not counted.all():
            raise _too_many_paths()
        yield from delta


def _too_many_paths() -> DataError:
    return DataError(
        "betweenness: a node has more than 1e308 shortest paths from a source, which float64 cannot"
        " count; analyse a part of the graph, or remove duplicates of edges"
    )


def dependencies_of(edges: LocalEdges, source: np.ndarray, unit: float) -> np.ndarray:
    """The dependency of one source on each master, [n_masters] float64.

    Args:
        edges: Edges of this worker.
        source: Row of the source, if it is a master here.
        unit: Units in 1.

    Raises:
        DataError: The number of paths to a node has overflowed; on all ranks.

    Collective: all ranks.
    """
    n_own = edges.n_masters
    into = edges.into
    out = edges.out
    level = np.full(edges.n_rows, -1, np.int32)
    paths = np.zeros(edges.n_rows)
    frontier = source
    levels = list[np.ndarray]()
    paths[source] = 1.0
    while most := float(edges.comm.all_max(np.array(paths[frontier].max(initial=0.0)))):
        if most == np.inf:
            raise _too_many_paths()
        level[frontier] = len(levels)
        levels.append(frontier)
        last = np.zeros(edges.n_rows)
        total = np.zeros(edges.n_rows)
        last[frontier] = paths[frontier]
        edges.to_sources(last)
        # mirrors do not know whether their node was found, so they sum all that arrives
        rows = np.flatnonzero(level < 0)
        _by_rows(paths_into, into, rows, paths=last, total=total)
        edges.from_destinations(total, np.add)
        frontier = np.flatnonzero((level[:n_own] < 0) & (total[:n_own] > 0))
        paths[frontier] = total[frontier]
    delta = np.zeros(n_own)
    edges.to_sources(paths)
    edges.to_sources(level)
    for depth in range(len(levels) - 1, 0, -1):
        passed = np.zeros(edges.n_rows)
        summed = np.zeros(edges.n_rows, np.int64)
        passed[levels[depth]] = (1 + delta[levels[depth]]) / paths[levels[depth]]
        edges.to_destinations(passed)
        rows = np.flatnonzero(level == depth - 1)
        _by_rows(dependencies, out, rows, paths=paths, passed=passed, unit=unit, total=summed)
        edges.from_sources(summed, np.add)
        delta[levels[depth - 1]] = summed[levels[depth - 1]] / unit
    delta[source] = 0.0
    return delta


def _by_rows(kernel: Any, lists: Lists, rows: np.ndarray, **arrays: Any) -> None:
    """Call a kernel for blocks of some rows and their neighbours, on all threads."""

    def block(_: int, first: int, last: int) -> None:
        kernel(indptr=lists.indptr, near=lists.near, rows=rows, first=first, last=last, **arrays)

    mean = len(lists.near) // max(len(lists.indptr) - 1, 1)
    by_blocks(block, len(rows), mean + 1)
