"""A streaming cut that revises itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphtheta.base.rng import Purpose, key
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import Owners, block_owner
from graphtheta.partitioners.multilevel import Multilevel
from graphtheta.partitioners.stream import capacity, check_option
from graphtheta.partitioners.streaming.blocks import IdBlocks
from graphtheta.partitioners.streaming.components import components, whole_components
from graphtheta.partitioners.streaming.degrees import shared_chunks
from graphtheta.partitioners.streaming.levels import (
    CoarseGraph,
    Loads,
    OfClusters,
    OfParts,
    of_source,
)
from graphtheta.partitioners.streaming.shared import SharedPartitioner

# visits of each node in a pass
ROUNDS = 3
# the mean mass of a part is at least this many times that of a cluster
BALLAST = 32
# attempts at dividing the graph of clusters
TRIES = 10
# every worker has a graph of clusters of at most so many nodes and neighbours
FEW = 1 << 20


@dataclass(frozen=True)
class GremPartitioner(SharedPartitioner):
    """Nodes are read in streams with their neighbours, and every step may revise what earlier ones
    decided.

    If whole connected components fit into the parts, they are the parts, and nothing is cut.
    Otherwise the graph is divided as a whole.

    The paper's idea is this revision: a greedy stream that reassigns nodes instead of freezing
    them. What is decided, and how, is ours. Passes of as many streams as parts decide clusters of
    limited size. The graph of clusters is small. It is divided by a multilevel method: nodes are
    joined until few are left, these are divided in two recursively, and moves refine the parts as
    clusters are resolved again. Further passes of the streams then revise the parts.

    A graph without communities, such as R-MAT, has a core of nodes of high degree instead, and
    clusters tear it apart. If equal blocks of the nodes by falling degree cut less than the first
    division of the clusters, the passes revise these blocks. The first block then has most edges:
    1D placements leave them on one worker, and greedy placements replicate more to divide them.

    Attributes:
        slack: Nodes of a worker are at most (1 + slack) times the mean. Clusters have at most the
            room that this leaves: with 0 there are none, and the cut is poor.
        passes: Passes of the streams for clusters, and again for parts.
        cycles: Repetitions of the whole, with clusters inside the parts of the repetition before.
        degrees: Whether blocks by degree are considered.

    Source: Waleffe et al., Armada, https://arxiv.org/abs/2502.17846; size-constrained clusters as
    in Meyerhenke, Sanders and Schulz, https://arxiv.org/abs/1402.3281, and on several workers
    https://arxiv.org/abs/1404.4797
    """

    name = "grem"
    slack: float = 0.1
    passes: int = 2
    cycles: int = 1
    degrees: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check_option(self, "slack", self.slack >= 0, "at least 0")
        check_option(self, "passes", self.passes >= 1, "at least 1")
        check_option(self, "cycles", self.cycles >= 1, "at least 1")

    def owners(self, source: EdgeSource, comm: Comm, size: int) -> Owners:
        blocks = IdBlocks(comm, source.n_nodes)
        room = capacity(source.n_nodes, size, self.slack)
        owner: np.ndarray | None = np.zeros(blocks.last - blocks.first, np.int32)
        if size > 1:
            pairs = ((chunk.src, chunk.dst) for chunk in shared_chunks(source, comm))
            owner = whole_components(blocks, components(blocks, pairs), size, room)
        if owner is None:
            top = of_source(source, comm, size)
            cut = _Cut(
                comm=comm,
                size=size,
                room=room,
                passes=self.passes,
                degrees=self.degrees,
                key=key(self.seed, Purpose.PLACEMENT),
            )
            for _ in range(self.cycles):
                owner = cut.divide(top, owner)
        parts = owner
        assert parts is not None
        return lambda ids: blocks.look_up(parts, ids)


class _Cut:
    """Division of a graph.

    Args:
        comm: The workers: one, or ``size``.
        size: Number of parts.
        room: The most nodes of a part.
        passes: Passes of the streams.
        degrees: Whether blocks by degree are considered.
        key: Key of ties and orders.
    """

    def __init__(
        self, comm: Comm, size: int, room: int, passes: int, degrees: bool, key: int
    ) -> None:
        self._comm = comm
        self._size = size
        self._room = room
        self._passes = passes
        self._degrees = degrees
        self._key = key
        self._uses = 0

    def divide(self, top: CoarseGraph, part: np.ndarray | None) -> np.ndarray:
        """The part of each node of this worker's block, [n_block] int32.

        Args:
            top: The graph.
            part: Parts to improve, [n_block] int32, which clusters do not cross; None if there are
                none.

        Collective: all ranks.
        """
        # clusters that always fit into some part
        most = max(
            min(
                int(self._size * self._room - top.n) // self._size, top.n // (BALLAST * self._size)
            ),
            1,
        )
        insides: list[np.ndarray] = []
        levels, parts = [top], [part]
        while not insides or levels[-1].n + levels[-1].n_entries > FEW:
            level = levels[-1]
            smaller, inside = self._clustered(level, parts[-1], most, joins=bool(insides))
            if insides and smaller.n > 0.95 * level.n:
                return self._revised(top, self._blocks(top) if part is None else part)
            carried = parts[-1]
            if carried is not None:
                of = np.empty(len(smaller.mass), np.int32)
                for nodes, of_nodes in zip(
                    smaller.blocks.received(inside),
                    smaller.blocks.received(inside, carried),
                    strict=True,
                ):
                    of[nodes - smaller.blocks.first] = of_nodes
                carried = of
            levels.append(smaller)
            parts.append(carried)
            insides.append(inside)
        coarse = levels.pop()
        best = self._best(coarse, parts[-1], most, top)
        if best is None:
            return self._revised(top, self._blocks(top))
        while levels:
            level = levels.pop()
            inside = insides.pop()
            best = self._revised(level, coarse.blocks.look_up(best, inside))
            coarse = level
        return best

    def _clustered(
        self, level: CoarseGraph, part: np.ndarray | None, most: int, joins: bool
    ) -> tuple[CoarseGraph, np.ndarray]:
        """The graph of clusters of a level; see ``CoarseGraph.contracted``.

        Args:
            level: The graph.
            part: Parts of its nodes that clusters do not cross, or None.
            most: The most mass of a cluster.
            joins: Whether nodes that are alone are joined.

        Collective: all ranks.
        """
        label = np.arange(level.blocks.first, level.blocks.last, dtype=level.blocks.kind)
        loads = OfClusters(level.blocks, level.mass.copy(), self._size, most)
        inside = level if part is None else level.within(part)
        self._move(inside, label, loads)
        if joins and part is None:
            inside.join_alone(label, loads, most, self._next())
        return level.contracted(label)

    def _best(
        self, level: CoarseGraph, part: np.ndarray | None, most: int, top: CoarseGraph
    ) -> np.ndarray | None:
        """The best of several divisions of a small graph, for the nodes of this worker's block,
        [n_block] int32.

        None if the first one is worse than blocks by degree, which always fit. Workers divide the
        attempts among them.

        Collective: all ranks.
        """
        comm = self._comm
        graph = level.whole()
        attempts = []
        first = self._next()

        def attempt(number: int) -> tuple[tuple[int, int], int, np.ndarray]:
            cut = Multilevel(self._size, self._room, most, key(first, Purpose.PLACEMENT, number))
            of = cut.divide(graph, carried)
            return cut.badness(graph, of), number, of

        carried = None if part is None else np.concatenate(comm.all_gather(part))
        if comm.rank == 0:
            attempts = [attempt(0)]
        if part is None:
            # further divisions take most of the time, and seldom differ enough to change the
            # decision
            badness = tuple(comm.broadcast(list(attempts[0][0]) if attempts else None))
            if self._degrees and badness > (
                0,
                top.cut(degree_blocks(top.blocks, top.degree, self._size)),
            ):
                return None
            attempts += [
                attempt(number) for number in range(1, TRIES) if number % comm.size == comm.rank
            ]
        best = (
            min(attempts, key=lambda f: f[:2])
            if attempts
            else ((np.iinfo(np.int64).max, 0), 0, np.zeros(0, np.int32))
        )
        chosen = [
            (tuple(badness), number)
            for badness, number in comm.all_gather([list(best[0]), best[1]])
        ]
        of = comm.broadcast(best[2], min(range(comm.size), key=chosen.__getitem__))
        own: np.ndarray = of[level.blocks.first : level.blocks.last]
        return own

    def _blocks(self, top: CoarseGraph) -> np.ndarray:
        """Equal blocks of the nodes by degree or by id, for the nodes of this worker's block,
        [n_block] int32.

        Collective: all ranks.
        """
        if self._degrees:
            return degree_blocks(top.blocks, top.degree, self._size)
        return block_owner(top.n, self._size)(np.arange(top.blocks.first, top.blocks.last))

    def _revised(self, level: CoarseGraph, part: np.ndarray) -> np.ndarray:
        """Parts after moves, [n_block] int32.

        Collective: all ranks.
        """
        part = part.copy()
        self._move(level, part, OfParts(self._comm, level.loads(part), self._room))
        return part

    def _move(self, level: CoarseGraph, label: np.ndarray, loads: Loads) -> None:
        """Passes of moves between labels; see ``CoarseGraph.visit``."""
        for _ in range(self._passes * ROUNDS):
            if not level.visit(label, loads, self._next()):
                break

    def _next(self) -> int:
        """A new key."""
        self._uses += 1
        return key(self._key, Purpose.PLACEMENT, self._uses)


def degree_blocks(blocks: IdBlocks, degree: np.ndarray, size: int) -> np.ndarray:
    """Equally many nodes for each part by falling degree, [n_block] int32; those of equal degree
    are by ascending id.

    All workers know how many nodes of each degree there are.

    Args:
        blocks: The ids.
        degree: Degree of each node of this worker's block, [n_block] int64.
        size: Number of parts.

    Collective: all ranks.
    """
    values, at, counts = np.unique(-degree, return_inverse=True, return_counts=True)
    of_workers = blocks.comm.all_gather(np.stack((values, counts)))
    every = np.unique(np.concatenate([degrees[0] for degrees in of_workers]))
    total = np.zeros(len(every), np.int64)
    before = np.zeros(len(every), np.int64)
    for rank, (degrees, n) in enumerate(of_workers):
        place = np.searchsorted(every, degrees)
        total[place] += n
        if rank < blocks.comm.rank:
            before[place] += n
    starts = (np.cumsum(total) - total + before)[np.searchsorted(every, values)]
    order = np.argsort(at, kind="stable")
    position = np.empty(len(degree), np.int64)
    position[order] = np.arange(len(degree)) + np.repeat(
        starts - np.cumsum(counts) + counts, counts
    )
    return (position * size // max(int(total.sum()), 1)).astype(np.int32)
