"""Draws from all nodes of a graph, and random walks, without a list of all nodes or edges on any
worker.

A draw is a hash of a key and its own number, and nodes and edges are ordered by their global ids,
so the results do not depend on the number of workers or on the partition.
"""

from __future__ import annotations

from math import isqrt
from typing import NamedTuple

import numpy as np

from graphtheta.base.rng import integers, uniform
from graphtheta.errors import DataError

from ..partition.partition import Partition
from ..partition.table import Route


class Drawn(NamedTuple):
    """Draws that have chosen nodes of this worker.

    Attributes:
        row: Master row of the chosen node, [k] int64.
        number: Number of the draw, [k] int64.
        offset: Which of the units of weight of the node was drawn, from 0, [k] int64.
    """

    row: np.ndarray
    number: np.ndarray
    offset: np.ndarray


class WeightedNodes:
    """All nodes with their weights, to draw nodes in proportion to these, with replacement.

    The units of weight of all nodes are numbered in the order of node ids, and a draw is a number.
    Blocks of ids are distributed over the workers; the totals of the blocks, about sqrt(n_nodes)
    numbers, are on every worker. Weights are integers, so their sums have no rounding errors.

    Args:
        partition: Holds the nodes.
        weight: Weight of each master, [n_masters] int64, at least 0; the sum over all workers is
            below 2**53.

    Raises:
        DataError: All weights are 0.

    Collective: all ranks of the partition.
    """

    def __init__(self, partition: Partition, weight: np.ndarray):
        comm = partition.halo_comm
        ids = partition.masters
        width = -(-partition.n_nodes // max(isqrt(partition.n_nodes), 1))
        n_blocks = -(-partition.n_nodes // width)
        route = Route(ids // width % comm.size, comm.size)
        parts = comm.all_to_all(route.parts(np.stack((ids, weight, np.arange(len(ids))), axis=1)))
        entries = np.concatenate(parts)
        order = np.argsort(entries[:, 0])
        block = entries[order, 0] // width
        self._weight = entries[order, 1]
        self._row = entries[order, 2]
        self._owner = np.repeat(np.arange(comm.size), [len(part) for part in parts])[order]
        weight_here = np.zeros(n_blocks, np.int64)
        end = np.cumsum(self._weight)
        np.add.at(weight_here, block, self._weight)
        self._block_end = np.cumsum(comm.all_sum(weight_here))
        # units before a block on all workers, minus those before it here
        shift = self._block_end - np.cumsum(weight_here)
        self._comm = comm
        self._end = end + shift[block]
        self.total = int(self._block_end[-1])
        if not self.total:
            raise DataError(
                "no node can be drawn, because all have the weight 0: the graph has no edges;"
                " choose a sampler that draws nodes without edges too, such as saint_walk"
            )

    def draw(self, key: int | np.ndarray, n: int) -> Drawn:
        """Draw n nodes; each worker receives the draws of its own nodes.

        Args:
            key: Key of the draws; or several keys, [k] uint64, for n draws each, which are numbered
                one key after another.
            n: Number of draws of a key.

        Collective: all ranks of the partition.
        """
        keys = np.asarray(key, np.uint64).reshape(-1)
        comm = self._comm
        units = integers(np.repeat(keys, n), np.tile(np.arange(n), len(keys)), self.total)
        number = np.flatnonzero(
            np.searchsorted(self._block_end, units, side="right") % comm.size == comm.rank
        )
        at = np.searchsorted(self._end, units[number], side="right")
        offset = units[number] - (self._end[at] - self._weight[at])
        draws = comm.all_to_all(
            Route(self._owner[at], comm.size).parts(
                np.stack((self._row[at], number, offset), axis=1)
            )
        )
        return Drawn(*np.concatenate(draws).T)


class Neighbours:
    """The neighbours of each master, ordered by edge id, for steps of random walks.

    It takes 8 bytes per edge, at the owners of the nodes that walks leave.

    Args:
        partition: Holds the edges.
        reverse: False for steps along the edges, True against them.

    Attributes:
        degree: Number of neighbours of each master, [n_masters] int64.

    Collective: all ranks of the partition.
    """

    def __init__(self, partition: Partition, reverse: bool):
        self._comm = partition.halo_comm
        owner, row = partition.directory.locate(partition.gid)
        ends = partition.edge_rows()
        here, there = ends[::-1] if reverse else ends
        edges = np.stack((row[here], partition.edge_gid, owner[there], row[there]), axis=1)
        by_row = np.concatenate(
            self._comm.all_to_all(Route(owner[here], self._comm.size).parts(edges))
        )
        by_row = by_row[np.lexsort((by_row[:, 1], by_row[:, 0]))]
        self.degree = np.bincount(by_row[:, 0], minlength=partition.n_masters)
        self._begin = np.cumsum(self.degree) - self.degree
        self._owner, self._row = (by_row[:, column].astype(np.int32) for column in (2, 3))

    def step(
        self, key: int | np.ndarray, row: np.ndarray, state: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Move walkers to a neighbour each; those without neighbours stop and are dropped.

        Args:
            key: Key of the draws, another one for each step of a walk; or a key for each walker,
                [k] uint64.
            row: Master rows of this worker's walkers, [k] int64.
            state: What moves with each walker, [k, ...] int64; the first column is its number.

        Returns:
            Rows and state of the walkers that are now on this worker.

        Collective: all ranks of the partition.
        """
        go = np.flatnonzero(self.degree[row])
        key = key[go] if isinstance(key, np.ndarray) else key
        row, state = row[go], state[go]
        degree = self.degree[row]
        # a draw is below 1, but its product with the degree may be rounded up
        at = self._begin[row] + np.minimum(
            (uniform(key, state[:, 0]) * degree).astype(np.int64), degree - 1
        )
        leaving = np.concatenate((self._row[at][:, None], state), axis=1)
        arrived = np.concatenate(
            self._comm.all_to_all(Route(self._owner[at], self._comm.size).parts(leaving))
        )
        return arrived[:, 0], arrived[:, 1:]
