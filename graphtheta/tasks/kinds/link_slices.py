"""Links of a graph, found by all workers together: each reads a slice of the edges, and no worker
has all links.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from graphtheta.base.rng import Purpose, bits, key
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.table import Route
from graphtheta.engine.sampling.sampler import TimedPairs
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.splits.links import unordered_pairs
from graphtheta.tasks.kinds.links import Links

HOMES = key(0, Purpose.PLACEMENT)


class Slice(NamedTuple):
    """Some links of this worker.

    Attributes:
        numbers: Numbers of the links among those of all workers, ascending, [n] int64.
        src, dst: Their ends, [n] int64.
        n_links: Links of all workers.
        cutoff: ``Task.cutoffs`` of the links, [n], or None.
        weight: What the links weigh in the loss, [n] float64, or None.
    """

    numbers: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    n_links: int
    cutoff: np.ndarray | None = None
    weight: np.ndarray | None = None

    def links(
        self,
        partition: Partition,
        link_keys: np.ndarray,
        negatives: int,
        draws: int,
        groups: int = 0,
        types: tuple[int, ...] = (),
    ) -> Links:
        """The links at the owners of their sources.

        Args:
            partition: Gives the owners.
            link_keys: Keys of all links whose sources this worker owns; see ``known_keys``.
            negatives: Negatives per positive.
            draws: Key of their draws.
            groups, types: As the attributes of ``Links``.

        Collective: all ranks of the partition.
        """
        comm = partition.halo_comm
        route = Route(partition.directory.owner(self.src), comm.size)
        # slices of higher ranks have higher numbers
        numbers, src, dst = np.ascontiguousarray(
            np.concatenate(comm.all_to_all(route.parts(np.stack(self[:3], axis=1)))).T
        )
        cutoff, weight = (
            None if x is None else np.concatenate(comm.all_to_all(route.parts(x)))
            for x in (self.cutoff, self.weight)
        )
        return Links(
            numbers=numbers,
            src=src,
            dst=dst,
            n_links=self.n_links,
            link_keys=link_keys,
            negatives=negatives,
            key=draws,
            groups=groups,
            types=types,
            cutoff=cutoff,
            weight=weight,
        )


def bounds(graph: Graph, comm: Comm) -> tuple[int, int]:
    """The first edge of this worker's slice, and the first one beyond."""
    return graph.n_edges * comm.rank // comm.size, graph.n_edges * (comm.rank + 1) // comm.size


def distinct_links(
    graph: Graph,
    chosen: Callable[[int, int], np.ndarray],
    comm: Comm,
    sampler: TimedPairs | None = None,
    weight: str = "",
) -> Slice:
    """One directed edge for each unordered pair among some edges; see ``distinct_pairs``.

    Args:
        graph: The graph.
        chosen: From the bounds of a range of edges to a mask.
        comm: The workers.
        sampler: Gives the cutoffs of the links: the lowest of the edges between two nodes, so that
            a link is as old as the first of them; None for none.
        weight: Edge column of the weights: a link has that of its edge; empty for none.

    Collective: all ranks of comm.
    """
    begin, end = bounds(graph, comm)
    edges = begin + np.flatnonzero(chosen(begin, end))
    src = graph.src[begin:end][edges - begin]
    dst = graph.dst[begin:end][edges - begin]
    pair = unordered_pairs(graph, begin, end)[edges - begin]
    route = Route((bits(HOMES, pair) % np.uint64(comm.size)).astype(np.int32), comm.size)
    asked = comm.all_to_all(route.parts(np.stack((pair, src > dst, edges), axis=1)))
    pairs, turned, numbers = np.concatenate(asked).T
    order = np.lexsort((numbers, turned, pairs))
    first = np.zeros(len(order), bool)
    first[order] = np.append(True, pairs[order][1:] != pairs[order][:-1])[: len(order)]
    mine = route.back(comm.all_to_all(_like(asked, first)))
    counts = comm.all_gather(int(mine.sum()))
    cutoff = None
    if sampler is not None:
        own = sampler.edge_cutoffs(
            lambda name: graph.edge_columns[name][begin:end][edges - begin], earlier=True
        )
        lowest = np.concatenate(comm.all_to_all(route.parts(own)))
        starts = np.flatnonzero(first[order])
        lowest[order[starts]] = np.minimum.reduceat(lowest[order], starts)
        cutoff = route.back(comm.all_to_all(_like(asked, lowest)))[mine]
    weights = (
        np.asarray(graph.edge_columns[weight][begin:end][edges - begin][mine], np.float64)
        if weight
        else None
    )
    return Slice(
        numbers=sum(counts[: comm.rank]) + np.arange(counts[comm.rank]),
        src=src[mine],
        dst=dst[mine],
        n_links=sum(counts),
        cutoff=cutoff,
        weight=weights,
    )


def _like(parts: list[np.ndarray], x: np.ndarray) -> list[np.ndarray]:
    """Numbers of the rows of some parts, [n], by part."""
    return np.split(x, np.cumsum([len(part) for part in parts])[:-1])


def known_keys(graph: Graph, partition: Partition) -> np.ndarray:
    """Sorted keys (src * n_nodes + dst) of all edges and their reverse whose sources this worker
    owns.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    begin, end = bounds(graph, comm)
    ends = graph.src[begin:end], graph.dst[begin:end]
    src = np.concatenate(ends)
    dst = np.concatenate(ends[::-1])
    route = Route(partition.directory.owner(src), comm.size)
    return np.unique(
        np.concatenate(comm.all_to_all(route.parts(src * np.int64(graph.n_nodes) + dst)))
    )
