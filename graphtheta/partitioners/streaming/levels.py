"""Levels of a multilevel cut that workers have together: graphs whose nodes move between labels of
limited mass.

As many streams as parts move the nodes, each those of a block of ids, in steps: a stream sees its
own moves at once, and those of others after the step. Results do not depend on the number of
workers that compute the streams: one, or one for each.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple, Protocol

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import block_bounds, block_owner
from graphtheta.ops.kernels.partition.label_moves import (
    contract,
    favourites,
    merge_rows,
    move_nodes,
)
from graphtheta.ops.kernels.partition.neighbours import fill_lists
from graphtheta.ops.kernels.partition.refine import cut_weight
from graphtheta.partitioners.streaming.blocks import IdBlocks
from graphtheta.partitioners.streaming.dealing import share_of_room
from graphtheta.partitioners.streaming.degrees import block_degrees
from graphtheta.partitioners.streaming.lists import neighbour_lists, numbered

# steps in which streams visit all nodes
STEPS = 16


class Contracted(NamedTuple):
    """A graph in memory.

    Attributes:
        ptr, near, weight: Neighbours of each node, as in ``ops.partition.label_moves``.
        mass: Weight of each node, [n_nodes] int64.
    """

    ptr: np.ndarray
    near: np.ndarray
    weight: np.ndarray
    mass: np.ndarray


class MovingRows(NamedTuple):
    """The nodes that a stream moves in a step, with their neighbours.

    Attributes:
        stream: Number of the stream.
        first: The first node.
        ptr, near, weight: Neighbours, as in ``ops.partition.label_moves``.
        others: Ids of the neighbours behind the nodes themselves, [n_others].
    """

    stream: int
    first: int
    ptr: np.ndarray
    near: np.ndarray
    weight: np.ndarray
    others: np.ndarray


class Loads(Protocol):
    """Mass of labels, of which each can take some more."""

    def left(self, names: np.ndarray, stream: int) -> np.ndarray:
        """What a stream may add to some labels, [n] int64. Collective: all ranks."""

    def add(self, names: np.ndarray, mass: np.ndarray) -> None:
        """Add mass to some labels of a stream. Collective: all ranks."""


class OfParts:
    """Mass of parts, which all workers know.

    Args:
        comm: The workers.
        load: Mass of each part, [size] int64.
        room: The most mass of one.
    """

    def __init__(self, comm: Comm, load: np.ndarray, room: int):
        self._comm = comm
        self._load = load
        self._room = room

    def left(self, names: np.ndarray, stream: int) -> np.ndarray:
        return share_of_room(np.maximum(self._room - self._load, 0), stream)[names]

    def add(self, names: np.ndarray, mass: np.ndarray) -> None:
        more = np.zeros_like(self._load)
        more[names] = mass
        self._load += self._comm.all_sum(more)


class OfClusters:
    """Mass of clusters, which are named by nodes, each at the worker whose block has the node.

    Args:
        blocks: The nodes.
        mass: Mass of each cluster of this worker's block, [n_block] int64.
        size: Number of streams.
        room: The most mass of one.
    """

    def __init__(self, blocks: IdBlocks, mass: np.ndarray, size: int, room: int):
        self._blocks = blocks
        self.mass = mass
        self._size = size
        self._room = room

    def left(self, names: np.ndarray, stream: int) -> np.ndarray:
        free = self._room - self._blocks.look_up(self.mass, names)
        number = (stream + names) % self._size
        shares: np.ndarray = free * (number + 1) // self._size - free * number // self._size
        return shares

    def add(self, names: np.ndarray, mass: np.ndarray) -> None:
        changed = np.flatnonzero(mass)
        self._blocks.add(names[changed], mass[changed], self.mass)


class CoarseGraph:
    """A graph of weighted nodes and edges. Each worker has the nodes of a block of ids, with their
    neighbours.

    Args:
        comm: The workers: one, or ``size``.
        n: Number of nodes.
        size: Number of streams.
        ptr, near, weight: Neighbours of the nodes of this worker's block, ids; near is used up.
        mass: Weight of each node of this worker's block, [n_block] int64.

    Attributes:
        n, size, mass: As given.
        blocks: The ids.
        degree: Neighbours of each node of this worker's block, [n_block] int64.
        n_entries: Neighbours of all nodes of all workers.

    Collective: all ranks of comm.
    """

    def __init__(
        self,
        comm: Comm,
        n: int,
        size: int,
        ptr: np.ndarray,
        near: np.ndarray,
        weight: np.ndarray,
        mass: np.ndarray,
    ):
        self.n = n
        self.size = size
        self.mass = mass
        self.blocks = IdBlocks(comm, n)
        self.degree = np.diff(ptr)
        self.n_entries = int(comm.all_sum(np.array(len(near))))
        self._comm = comm
        streams = range(size) if comm.size == 1 else range(comm.rank, comm.rank + 1)
        rows = [self._rows(stream, ptr, near, weight) for stream in streams]
        self._steps = list(zip(*rows, strict=True))

    def _rows(
        self, stream: int, ptr: np.ndarray, near: np.ndarray, weight: np.ndarray
    ) -> list[MovingRows]:
        """The nodes of a stream in steps of about as many neighbours; neighbours are numbered in
        place.
        """
        begin, end = (at - self.blocks.first for at in block_bounds(self.n, stream, self.size))
        ends = begin + np.searchsorted(
            ptr[begin : end + 1],
            ptr[begin] + (ptr[end] - ptr[begin]) * np.arange(1, STEPS) // STEPS,
        )
        rows = []
        for a, b in zip([begin, *ends], [*ends, end], strict=True):
            here = slice(ptr[a], ptr[b])
            first = self.blocks.first + int(a)
            others = numbered(near[here], first, first + int(b - a), self.n)
            rows.append(
                MovingRows(
                    stream=stream,
                    first=first,
                    ptr=ptr[a : b + 1] - ptr[a],
                    near=near[here],
                    weight=weight[here],
                    others=others,
                )
            )
        return rows

    def within(self, part: np.ndarray) -> CoarseGraph:
        """The same graph, in which edges between different parts of nodes, [n_block], have no
        weight.

        Collective: all ranks.
        """
        level = copy(self)
        level._steps = []
        for step in self._steps:
            seen = [self._seen(part, rows) for rows in step]
            level._steps.append(
                tuple(
                    rows._replace(
                        weight=np.where(
                            np.repeat(of[: len(rows.ptr) - 1], np.diff(rows.ptr)) == of[rows.near],
                            rows.weight,
                            np.int32(0),
                        )
                    )
                    for rows, of in zip(step, seen, strict=True)
                )
            )
        return level

    def visit(self, label: np.ndarray, loads: Loads, key: int) -> int:
        """Move all nodes once; returns the number of moves of all workers.

        Args:
            label: Label of each node of this worker's block, [n_block] integers; changed.
            loads: Mass of the labels; changed.
            key: Key of ties.

        Collective: all ranks.
        """
        moves = 0
        for step in self._steps:
            moved = []
            for rows in step:
                at = self._seen(label, rows)
                names = numbered(at, 0, 0, len(at))
                left = loads.left(names, rows.stream)
                before = left.copy()
                graph = (rows.first, rows.ptr, rows.near, rows.weight)
                moves += move_nodes(
                    *graph, self.mass[self._here(rows)], at, names, left, np.uint64(key)
                )
                moved.append((rows, names[at[: len(rows.ptr) - 1]], names, before - left))
            for rows, labels, names, more in moved:
                label[self._here(rows)] = labels
                loads.add(names, more)
        return int(self._comm.all_sum(np.array(moves)))

    def join_alone(self, label: np.ndarray, loads: OfClusters, room: int, key: int) -> None:
        """Join nodes that are alone in their clusters with others whose neighbours are mostly in
        the same cluster, or that have none.

        Args:
            label, loads, key: As in ``visit``, for clusters; loads are not changed.
            room: The most mass of a cluster.

        Collective: all ranks.
        """
        ids = np.arange(self.blocks.first, self.blocks.last)
        best = np.empty(len(label), np.int64)
        for step in self._steps:
            for rows in step:
                at = self._seen(label, rows)
                names = numbered(at, 0, 0, len(at))
                favourites(
                    first=rows.first,
                    ptr=rows.ptr,
                    near=rows.near,
                    weight=rows.weight,
                    label=at,
                    names=names,
                    key=np.uint64(key),
                    out=best[self._here(rows)],
                )
        alone = np.flatnonzero((label == ids) & (loads.mass == self.mass) & (2 * self.mass <= room))
        none = best[alone] < 0
        waits = np.where(none, -1 - block_owner(self.n, self.size)(ids[alone]), best[alone])
        waiting = np.stack((waits, ids[alone], self.mass[alone]), axis=1)
        nodes = np.concatenate(
            self.blocks.received(np.where(none, ids[alone], best[alone]), waiting)
        )
        nodes = nodes[np.lexsort((nodes[:, 1], nodes[:, 0]))]
        starts = np.diff(nodes[:, 0], prepend=nodes[:1, 0] - 1) != 0
        before = np.cumsum(nodes[:, 2]) - nodes[:, 2]
        # a group is that of the nodes that begin within half of the room
        group = (before - np.maximum.accumulate(np.where(starts, before, 0))) // (room - room // 2)
        leads = starts | (np.diff(group, prepend=-1) != 0)
        pairs = np.stack((nodes[:, 1], nodes[leads, 1][np.cumsum(leads) - 1]), axis=1)
        for part in self.blocks.received(pairs[:, 0], pairs):
            label[part[:, 0] - self.blocks.first] = part[:, 1]

    def contracted(self, label: np.ndarray) -> tuple[CoarseGraph, np.ndarray]:
        """The graph of clusters.

        Args:
            label: A node that names the cluster of each node of this worker's block, [n_block]
                integers.

        Returns:
            The graph, whose edges are summed by pairs of clusters, without loops; and the node of
            it that each node is in, [n_block].

        Collective: all ranks.
        """
        used = np.zeros(len(label), bool)
        kind = label.dtype
        for part in self.blocks.received(np.unique(label)):
            used[part - self.blocks.first] = True
        counts = self._comm.all_gather(int(used.sum()))
        inside = self.blocks.look_up(
            (sum(counts[: self._comm.rank]) + np.cumsum(used) - 1).astype(kind), label
        )
        blocks = IdBlocks(self._comm, sum(counts))
        steps = [rows for step in self._steps for rows in step]
        ptr = np.zeros(blocks.last - blocks.first + 1, np.int64)
        # computed twice, because lists of all rows with their sums would take more than twice the
        # memory
        for rows in steps:
            own, n_sums = np.unique(self._summed(rows, inside)[:, 0], return_counts=True)
            blocks.add(own, n_sums, ptr[1:])
        np.cumsum(ptr, out=ptr)
        near = np.empty(ptr[-1], kind)
        weight = np.empty(ptr[-1], np.int32)
        free = [ptr[:-1].copy(), ptr[:-1].copy()]
        for rows in steps:
            sums = self._summed(rows, inside)
            for part in blocks.received(sums[:, 0], sums):
                for column, lists in enumerate((near, weight), start=1):
                    fill_lists(
                        at=part[:, 0],
                        other=part[:, column],
                        first=blocks.first,
                        free=free[column - 1],
                        near=lists,
                    )
        bounds = np.empty_like(ptr)
        end = merge_rows(ptr, near, weight, bounds)
        mass = _sums(blocks, inside, self.mass)
        for lists in (near, weight):
            # without a copy
            lists.resize(end, refcheck=False)
        return (
            CoarseGraph(
                comm=self._comm,
                n=sum(counts),
                size=self.size,
                ptr=bounds,
                near=near,
                weight=weight,
                mass=mass,
            ),
            inside,
        )

    def _summed(self, rows: MovingRows, inside: np.ndarray) -> np.ndarray:
        """Rows of the cluster of some nodes, another cluster and the weight between them, [n, 3],
        each pair once.

        Collective: all ranks.
        """
        at = self._seen(inside, rows)
        names = numbered(at, 0, 0, len(at))
        n = len(rows.ptr) - 1
        labels = np.empty(n, at.dtype)
        bounds = np.empty(n + 1, np.int64)
        near = np.empty(len(rows.near), at.dtype)
        sums = np.empty(len(rows.near), np.int32)
        of = at[:n].copy()
        n, end = contract(
            of_row=of,
            ptr=rows.ptr,
            near=rows.near,
            weight=rows.weight,
            label=at,
            n_labels=len(names),
            order=np.argsort(of, kind="stable"),
            out_label=labels,
            out_ptr=bounds,
            out_near=near,
            out_weight=sums,
        )
        own = np.repeat(names[labels[:n]], np.diff(bounds[: n + 1]))
        return np.stack((own, names[near[:end]], sums[:end].astype(own.dtype)), axis=1)

    def whole(self) -> Contracted:
        """The whole graph, on all workers; for small ones.

        Collective: all ranks.
        """
        own = sorted((rows for step in self._steps for rows in step), key=lambda rows: rows.first)
        near = [
            np.concatenate(
                (
                    np.arange(rows.first, rows.first + len(rows.ptr) - 1, dtype=rows.others.dtype),
                    rows.others,
                )
            )[rows.near]
            for rows in own
        ]
        parts = self._comm.all_gather(
            [
                self.degree,
                np.concatenate(near),
                np.concatenate([rows.weight for rows in own]),
                self.mass,
            ]
        )
        degree, near_all, weight, mass = (
            np.concatenate(column) for column in zip(*parts, strict=True)
        )
        return Contracted(np.append(0, np.cumsum(degree)), near_all, weight, mass)

    def loads(self, part: np.ndarray) -> np.ndarray:
        """Mass of each part, [size] int64, for parts of the nodes of this worker's block,
        [n_block].

        Collective: all ranks.
        """
        load = np.zeros(self.size, np.int64)
        np.add.at(load, part, self.mass)
        total: np.ndarray = self._comm.all_sum(load)
        return total

    def cut(self, part: np.ndarray) -> int:
        """Twice the weight of the edges between different parts of nodes, [n_block].

        Collective: all ranks.
        """
        total = sum(
            int(cut_weight(rows.ptr, rows.near, rows.weight, self._seen(part, rows)))
            for step in self._steps
            for rows in step
        )
        return int(self._comm.all_sum(np.array(total)))

    def _here(self, rows: MovingRows) -> slice:
        """Positions of the nodes of some rows in this worker's block."""
        return slice(
            rows.first - self.blocks.first, rows.first - self.blocks.first + len(rows.ptr) - 1
        )

    def _seen(self, values: np.ndarray, rows: MovingRows) -> np.ndarray:
        """Values of the nodes of some rows, and of their neighbours, [n + n_others].

        Collective: all ranks.
        """
        return np.concatenate((values[self._here(rows)], self.blocks.look_up(values, rows.others)))


def of_source(source: EdgeSource, comm: Comm, size: int) -> CoarseGraph:
    """The graph of the edges of a source, whose nodes and edges all have the weight 1.

    Args:
        source: The edges, in either direction.
        comm: The workers: one, or ``size``.
        size: Number of streams.

    Collective: all ranks of comm.
    """
    ptr, near = neighbour_lists(source, IdBlocks(comm, source.n_nodes), block_degrees(source, comm))
    return CoarseGraph(
        comm=comm,
        n=source.n_nodes,
        size=size,
        ptr=ptr,
        near=near,
        # a value for all edges takes no memory. Nodes are few beside them: their masses are of the
        # form of later levels, for which the same kernels are compiled
        weight=np.broadcast_to(np.int32(1), len(near)),
        mass=np.ones(len(ptr) - 1, np.int64),
    )


def _sums(blocks: IdBlocks, ids: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Sums of integers x by id, [n_block] int64, of the ids of this worker's block; x are [n], for
    the ids of each worker.

    Collective: all ranks.
    """
    names, at = np.unique(ids, return_inverse=True)
    own = np.zeros(len(names), np.int64)
    total = np.zeros(blocks.last - blocks.first, np.int64)
    np.add.at(own, at, x)
    blocks.add(names, own, total)
    return total
