"""Multilevel division of a graph in memory: nodes are joined until few are left, these are divided
in two recursively.
"""

from __future__ import annotations

from math import ceil, log2

import numpy as np

from graphtheta.base.rng import Purpose, key, shuffle
from graphtheta.ops.kernels.partition.label_moves import contract, join_nodes, move_nodes
from graphtheta.ops.kernels.partition.refine import climb, cut_weight, grow
from graphtheta.partitioners.streaming.levels import Contracted

# the graph is small below this many nodes per part; up to SEARCHED nodes, moves may increase the
# cut for a while
SMALL = 40
SEARCHED = 1 << 14
# first nodes of each division in two
SEEDS = 8
PATIENCE = 200
# visits of all nodes by moves, in larger graphs
VISITS = 6


class Multilevel:
    """Divides graphs into parts.

    Args:
        size: Number of parts.
        room: The most mass of a part.
        most: The most mass of joined nodes.
        key: Key of ties and orders.
    """

    def __init__(self, size: int, room: int, most: int, key: int) -> None:
        self._size = size
        self._room = room
        self._most = most
        self._key = key
        self._uses = 0

    def divide(self, level: Contracted, part: np.ndarray | None) -> np.ndarray:
        """The part of each node, [n_nodes] int32.

        Args:
            level: The graph.
            part: Parts to improve, which joined nodes do not cross; None if there are none.
        """
        n = len(level.mass)
        if n > SMALL * self._size:
            label = np.arange(n, dtype=level.near.dtype)
            load = level.mass.copy()
            within = np.zeros(n, np.int32)
            weight = level.weight
            if part is not None:
                within = part
                weight = np.where(
                    np.repeat(part, np.diff(level.ptr)) == part[level.near], weight, np.int32(0)
                )
            join_nodes(
                ptr=level.ptr,
                near=level.near,
                weight=weight,
                mass=level.mass,
                within=within,
                order=shuffle(self._next(), np.arange(n)),
                label=label,
                load=load,
                room=self._most,
            )
            smaller, inside = _clustered(level, label)
            if len(smaller.mass) < 0.95 * n:
                carried = None
                if part is not None:
                    carried = np.empty(len(smaller.mass), np.int32)
                    carried[inside] = part
                part = self.divide(smaller, carried)[inside]
        if part is None:
            part = np.empty(n, np.int32)
            self._halve(level, np.arange(n), part, 0, self._size)
        self._revise(level, part)
        return part

    def badness(self, level: Contracted, part: np.ndarray) -> tuple[int, int]:
        """What exceeds the room, and twice the cut."""
        over = np.maximum(self._load(level, part) - self._room, 0).sum()
        return int(over), int(cut_weight(level.ptr, level.near, level.weight, part))

    def _revise(self, level: Contracted, part: np.ndarray) -> None:
        """Moves between parts."""
        load = self._load(level, part)
        if len(part) <= SEARCHED:
            room = np.full(self._size, self._room)
            while climb(*level, part, load, room, PATIENCE):
                pass
            return
        left = self._room - load
        names = np.arange(self._size, dtype=level.near.dtype)
        for _ in range(VISITS):
            if not move_nodes(0, *level, part, names, left, np.uint64(self._next())):
                break

    def _halve(
        self, level: Contracted, nodes: np.ndarray, part: np.ndarray, first: int, size: int
    ) -> None:
        """Give the nodes the parts from first to first + size, by division in two."""
        if size == 1 or not len(nodes):
            part[nodes] = first
            return
        graph = _between(level, nodes)
        left = size // 2
        total = int(graph.mass.sum())
        # the slack that is left is divided among the divisions that follow
        slack = max(self._room * size / max(total, 1) - 1, 0) / ceil(log2(size))
        room = np.array(
            [
                max(total * k // size, min(int((1 + slack) * total * k / size), self._room * k))
                for k in (left, size - left)
            ]
        )
        divisions: list[tuple[int, int, np.ndarray]] = []
        for begin in shuffle(self._next(), np.arange(len(nodes)))[:SEEDS]:
            side = np.empty(len(nodes), np.int32)
            grow(*graph, begin, total * left // size, side)
            load = np.zeros(2, np.int64)
            np.add.at(load, side, graph.mass)
            while climb(*graph, side, load, room, PATIENCE):
                pass
            divisions.append(
                (
                    int(np.maximum(load - room, 0).sum()),
                    int(cut_weight(graph.ptr, graph.near, graph.weight, side)),
                    side,
                )
            )
        side = min(divisions, key=lambda f: f[:2])[2]
        self._halve(level, nodes[side == 0], part, first, left)
        self._halve(level, nodes[side == 1], part, first + left, size - left)

    def _load(self, level: Contracted, part: np.ndarray) -> np.ndarray:
        load = np.zeros(self._size, np.int64)
        np.add.at(load, part, level.mass)
        return load

    def _next(self) -> int:
        """A new key."""
        self._uses += 1
        return key(self._key, Purpose.PLACEMENT, self._uses)


def _between(level: Contracted, nodes: np.ndarray) -> Contracted:
    """The graph of some nodes and the edges between them."""
    position = np.full(len(level.mass), -1, np.int32)
    position[nodes] = np.arange(len(nodes))
    row = np.repeat(position, np.diff(level.ptr))
    inside = (row >= 0) & (position[level.near] >= 0)
    ptr = np.append(0, np.cumsum(np.bincount(row[inside], minlength=len(nodes))))
    return Contracted(ptr, position[level.near[inside]], level.weight[inside], level.mass[nodes])


def _clustered(level: Contracted, label: np.ndarray) -> tuple[Contracted, np.ndarray]:
    """The graph of clusters, whose edges are summed by pairs of clusters, without loops; and the
    cluster of each node, by number.

    Args:
        level: A graph.
        label: Cluster of each node, [n_nodes] integers of any value.
    """
    names, inside = np.unique(label, return_inverse=True)
    inside = inside.astype(label.dtype)
    rows = np.empty_like(inside)
    bounds = np.empty(len(inside) + 1, np.int64)
    near = np.empty(len(level.near), label.dtype)
    weight = np.empty(len(level.near), np.int32)
    order = np.argsort(inside, kind="stable")
    n, end = contract(
        of_row=inside,
        ptr=level.ptr,
        near=level.near,
        weight=level.weight,
        label=inside,
        n_labels=len(names),
        order=order,
        out_label=rows,
        out_ptr=bounds,
        out_near=near,
        out_weight=weight,
    )
    mass = np.zeros(n, np.int64)
    np.add.at(mass, inside, level.mass)
    return Contracted(bounds[: n + 1].copy(), near[:end].copy(), weight[:end].copy(), mass), inside
