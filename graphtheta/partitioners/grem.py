"""A streaming cut that revises itself."""
from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil, log2

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import Assignment, Partitioner
from graphtheta.ops.partition.label_moves import join_nodes, move_nodes
from graphtheta.ops.partition.refine import climb, cut_weight, grow
from graphtheta.partitioners.levels import Contracted, Level, Streamed, clustered
from graphtheta.partitioners.stream import capacity, check_option
from graphtheta.rng import Purpose, key, shuffle
from graphtheta.streaming.blocks import Blocks
from graphtheta.streaming.components import components, whole_components

# moves of a node while its neighbourhood is in memory
ROUNDS = 3
# the graph of clusters is small below this many nodes per worker; up to SEARCHED nodes, moves may increase the cut for a while
SMALL, SEARCHED = 40, 1 << 14
# the mean mass of a part is at least this many times that of a cluster
BALLAST = 32
# attempts at dividing the graph of clusters, and first nodes of each division in two
TRIES, SEEDS = 10, 8
PATIENCE = 200


@dataclass(frozen=True)
class GremPartitioner(Partitioner):
    """Nodes are read with their neighbours in chunks, and every chunk may revise what earlier ones decided.

    If whole connected components fit into the parts, they are the parts, and nothing is cut.
    Otherwise the graph is divided as a whole.

    The paper's idea is this revision: a greedy stream that reassigns nodes instead of freezing
    them. What is decided, and how, is ours. Passes over the chunks decide clusters of limited size; the nodes
    of a chunk move between clusters several times while those of all others are frozen. The graph
    of clusters is in memory. It is divided by a multilevel method: nodes are joined until few are
    left, these are divided in two recursively, and moves refine the parts as clusters are resolved
    again. Further passes over the chunks then revise the parts.

    A graph without communities, such as R-MAT, has a core of nodes of high degree instead, and
    clusters tear it apart. If equal blocks of the nodes by falling degree cut less than the first
    division of the clusters, the passes revise these blocks. The first block then has most edges:
    1D placements leave them on one worker, and greedy placements replicate more to divide them.

    Attributes:
        slack: Nodes of a worker are at most (1 + slack) times the mean. Clusters have at most the
            room that this leaves: with 0 there are none, and the cut is poor.
        share: Share of the neighbourhoods in memory at a time; at least one per node of the graph.
        passes: Passes over the chunks for clusters, and again for parts.
        cycles: Repetitions of the whole, with clusters inside the parts of the repetition before.
        degrees: Whether blocks by degree are considered.

    Source: Waleffe et al., Armada, https://arxiv.org/abs/2502.17846; size-constrained clusters as in Meyerhenke, Sanders and
    Schulz, https://arxiv.org/abs/1402.3281
    """

    name = "grem"
    sequential = True
    slack: float = 0.1
    share: float = 0.25
    passes: int = 2
    cycles: int = 1
    degrees: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check_option(self, "slack", self.slack >= 0, "at least 0")
        check_option(self, "share", 0 < self.share <= 1, "above 0 and at most 1")
        check_option(self, "passes", self.passes >= 1, "at least 1")
        check_option(self, "cycles", self.cycles >= 1, "at least 1")

    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        n, size = source.n_nodes, comm.size
        room = capacity(n, size, self.slack)
        blocks, pairs = Blocks(SerialComm(), n), ((chunk.src, chunk.dst) for chunk in source.chunks())
        owner = np.zeros(n, np.int32) if size == 1 else whole_components(blocks, components(blocks, pairs), size, room)
        if owner is None:
            top = Streamed(source, max(int(2 * self.share * source.n_edges), 2 * n))
            cut = _Cut(size, room, self.passes, self.degrees, key(self.seed, Purpose.PLACEMENT))
            for _ in range(self.cycles):
                owner = cut.divide(top, owner)
        assert owner is not None
        return Assignment(owner.__getitem__)


class _Cut:
    """Division of a graph.

    Args:
        size: Number of parts.
        room: The most mass of a part.
        passes: Passes over the chunks of a streamed graph.
        degrees: Whether blocks by degree are considered.
        key: Key of ties and orders.
    """

    def __init__(self, size: int, room: int, passes: int, degrees: bool, key: int) -> None:
        self._size, self._room, self._passes, self._degrees, self._key, self._uses = size, room, passes, degrees, key, 0

    def divide(self, top: Streamed, part: np.ndarray | None) -> np.ndarray:
        """The part of each node, [n_nodes] int32.

        Args:
            top: The graph.
            part: Parts to improve, which clusters do not cross; None if there are none.
        """
        n = len(top.mass)
        # clusters that always fit into some part
        most = max(min(int(self._size * self._room - n) // self._size, n // (BALLAST * self._size)), 1)
        label, load = np.arange(n, dtype=np.int32 if n <= np.iinfo(np.int32).max else np.int64), top.mass.copy()
        self._move(top, _anywhere(n) if part is None else part, label, load, most)
        graph, inside = clustered(top, label)
        del label, load
        if part is None:
            part = self._first(top, graph, inside, most)
        else:
            part = self._multilevel(graph, _carried(part, inside, len(graph.mass)), most)[inside]
        self._revise(top, part)
        return part

    def _first(self, top: Streamed, graph: Contracted, inside: np.ndarray, most: int) -> np.ndarray:
        """The part of each node, from the best of several divisions of the clusters, or blocks by degree if these cut less."""
        found = self._multilevel(graph, None, most)
        if self._degrees:
            blocks = degree_blocks(top.degree, self._size)
            # further divisions take most of the time, and seldom differ enough to change the decision; blocks always fit
            if self._badness(graph, found) > (0, 2 * top.cut(blocks)):
                return blocks
        further = (self._multilevel(graph, None, most) for _ in range(TRIES - 1))
        return min((found, *further), key=partial(self._badness, graph))[inside]

    def _multilevel(self, level: Contracted, part: np.ndarray | None, most: int) -> np.ndarray:
        """The part of each node of a graph in memory; see ``divide``. Joined nodes have at most the mass ``most``."""
        n = len(level.mass)
        if n > SMALL * self._size:
            label, load = np.arange(n, dtype=level.near.dtype), level.mass.copy()
            join_nodes(*level, _anywhere(n) if part is None else part, shuffle(self._next(), np.arange(n)), label, load, most)
            smaller, inside = clustered(level, label)
            if len(smaller.mass) < 0.95 * n:
                carried = None if part is None else _carried(part, inside, len(smaller.mass))
                part = self._multilevel(smaller, carried, most)[inside]
        if part is None:
            part = np.empty(n, np.int32)
            self._halve(level, np.arange(n), part, 0, self._size)
        self._revise(level, part)
        return part

    def _revise(self, level: Level, part: np.ndarray) -> None:
        """Moves between parts."""
        load = self._load(level, part)
        if isinstance(level, Contracted) and len(part) <= SEARCHED:
            room = np.full(self._size, self._room)
            while climb(*level, part, load, room, PATIENCE):
                pass
        else:
            self._move(level, _anywhere(len(part)), part, load, self._room)

    def _move(self, level: Level, within: np.ndarray, label: np.ndarray, load: np.ndarray, room: int) -> None:
        """Passes of moves between labels; see ``move_nodes``."""
        for _ in range(self._passes):
            for group in level.groups():
                for _ in range(ROUNDS):
                    if not move_nodes(*group, level.mass, within, label, load, np.uint64(self._next()), room):
                        break

    def _halve(self, level: Contracted, nodes: np.ndarray, part: np.ndarray, first: int, size: int) -> None:
        """Give the nodes the parts from first to first + size, by division in two."""
        if size == 1 or not len(nodes):
            part[nodes] = first
            return
        graph, left = level.of(nodes), size // 2
        total = int(graph.mass.sum())
        # the slack that is left is divided among the divisions that follow
        slack = max(self._room * size / max(total, 1) - 1, 0) / ceil(log2(size))
        room = np.array([max(total * k // size, min(int((1 + slack) * total * k / size), self._room * k)) for k in (left, size - left)])
        found: list[tuple[int, int, np.ndarray]] = []
        for begin in shuffle(self._next(), np.arange(len(nodes)))[:SEEDS]:
            side = np.empty(len(nodes), np.int32)
            grow(*graph, begin, total * left // size, side)
            load = np.zeros(2, np.int64)
            np.add.at(load, side, graph.mass)
            while climb(*graph, side, load, room, PATIENCE):
                pass
            found.append((int(np.maximum(load - room, 0).sum()), int(cut_weight(graph.ptr, graph.near, graph.weight, side)), side))
        side = min(found, key=lambda f: f[:2])[2]
        self._halve(level, nodes[side == 0], part, first, left)
        self._halve(level, nodes[side == 1], part, first + left, size - left)

    def _badness(self, level: Contracted, part: np.ndarray) -> tuple[int, int]:
        """What exceeds the room, and twice the cut."""
        over = np.maximum(self._load(level, part) - self._room, 0).sum()
        return int(over), int(cut_weight(level.ptr, level.near, level.weight, part))

    def _load(self, level: Level, part: np.ndarray) -> np.ndarray:
        load = np.zeros(self._size, np.int64)
        np.add.at(load, part, level.mass)
        return load

    def _next(self) -> int:
        """A new key."""
        self._uses += 1
        return key(self._key, Purpose.PLACEMENT, self._uses)


def degree_blocks(degree: np.ndarray, size: int) -> np.ndarray:
    """Equally many nodes for each part by falling degree, [n] int32; those of equal degree are by ascending id.

    Args:
        degree: Degree of each node, [n] int64.
        size: Number of parts.
    """
    part = np.empty(len(degree), np.int32)
    part[np.argsort(-degree, kind="stable")] = np.arange(len(degree)) * size // max(len(degree), 1)
    return part


def _anywhere(n: int) -> np.ndarray:
    """The same number for n nodes."""
    return np.broadcast_to(np.int32(0), n)


def _carried(part: np.ndarray, inside: np.ndarray, n: int) -> np.ndarray:
    """The parts of n clusters whose nodes have these parts."""
    of = np.empty(n, np.int32)
    of[inside] = part
    return of
