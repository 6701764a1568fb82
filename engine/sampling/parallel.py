"""Parallel edges: the number of each edge among those with the same ends."""

from __future__ import annotations

import numpy as np

from ..partition.partition import Partition
from ..partition.relation import EdgeBlock, StoredRelation
from ..partition.table import Route, home_of


def parallel_of(partition: Partition, relation: StoredRelation) -> np.ndarray:
    """The number of each edge of this worker among all edges with the same ends, over all workers;
    computed at the first call.

    Edges with the same ends are numbered from 0 in the order of their global ids, so that an edge
    has the same number in every partition.

    Returns:
        By storage position, [n] int32; empty if all are 0.

    Collective: at the first call, all ranks of the partition.
    """
    if not relation.parallel:
        # where the edges of a node are on one worker, those with the same ends are, too
        together = not (relation.sources.plan.anywhere and relation.destinations.plan.anywhere)
        number = (
            np.concatenate([np.zeros(0, np.int32), *map(_in_block, relation.blocks)])
            if together
            else _over_all(partition, relation)
        )
        relation.parallel.append(number if number.any() else number[:0])
    return relation.parallel[0]


def _in_block(block: EdgeBlock) -> np.ndarray:
    """Edges with the same ends are at consecutive positions of one block, by global id."""
    same = np.append(False, block.in_src[1:] == block.in_src[:-1])[: block.n_edges]
    first = block.in_indptr[:-1]
    same[first[first < block.n_edges]] = False
    return _since_first(~same)


def _over_all(partition: Partition, relation: StoredRelation) -> np.ndarray:
    """Every pair of ends has a worker that numbers its edges."""
    comm = partition.halo_comm
    src, dst = partition.edge_ends()
    route = Route(home_of(comm)(src * partition.n_nodes + dst), comm.size)
    parts = comm.all_to_all(route.parts(np.stack((src, dst, relation.gid), axis=1)))
    edges = np.concatenate(parts)
    order = np.lexsort(edges.T[::-1])
    pairs = edges[order, :2]
    number = np.empty(len(edges), np.int32)
    number[order] = _since_first(
        np.append(True, (pairs[1:] != pairs[:-1]).any(axis=1))[: len(edges)]
    )
    return route.back(
        comm.all_to_all(np.split(number, np.cumsum([len(part) for part in parts])[:-1]))
    )


def _since_first(first: np.ndarray) -> np.ndarray:
    """How many places ago the last True was, [n] int32."""
    place = np.arange(len(first), dtype=np.int32)
    return place - np.maximum.accumulate(np.where(first, place, 0))
