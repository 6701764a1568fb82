"""BGL's node partitioner: blocks by breadth-first search from many sources, assigned greedily.

The result depends neither on the order nor on the chunks of the edges. Memory is 2 bits for each
node and block, and 16 bytes for each pair of blocks.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import Assignment, Partitioner
from graphtheta.ops.partition.blocks import claim, count_near, near_blocks, spread
from graphtheta.partitioners.components import components
from graphtheta.partitioners.stream import capacity, check_option
from graphtheta.rng import Purpose, key, shuffle

# a block is small below this share of the mean size
SMALL = 0.25


@dataclass(frozen=True)
class BglPartitioner(Partitioner):
    """Blocks in order of falling size, each to the worker i with room of the highest

        sum_j c_j |P(i) & N_j(B)| * (1 - |T(i)| / C_T) * (1 - |P(i)| / C),

    where P(i) and T(i) are its nodes and training nodes, N_j(B) the nodes j = 1, 2 hops from the
    block, C = (1 + slack) n / k and C_T = n_T / k. If all are 0, the worker of fewest nodes has it.

    Attributes:
        blocks: Sources of the search.
        hops: Rounds of the search; nodes beyond form blocks by connected components.
        second: c_2, the coefficient of nodes two hops away; c_1 is 1.
        slack: Nodes of a worker are at most (1 + slack) times the mean; larger blocks than
            slack n / k are split.
        train: Balance training nodes.

    Source: Liu et al., BGL, NSDI 2023, https://www.usenix.org/conference/nsdi23/presentation/liu-tianfeng
    """

    name = "bgl"
    sequential = True
    blocks: int = 512
    hops: int = 32
    second: float = 1.0
    slack: float = 0.1
    train: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for option, least in (("blocks", 1), ("hops", 0), ("second", 0), ("slack", 0)):
            check_option(self, option, getattr(self, option) >= least, f"at least {least}")

    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        block = self._coarsen(source, max(1, int(self.slack * source.n_nodes / comm.size)))
        near = _near(source, block)
        owner = self._choose(near[0] + self.second * near[1], block, source.train if self.train else None, comm.size)
        return Assignment(lambda ids: owner[block[ids]])

    def _coarsen(self, source: EdgeSource, largest: int) -> np.ndarray:
        """The block of each node, [n_nodes] int32, in blocks of at most ``largest`` nodes."""
        n, of = source.n_nodes, key(self.seed, Purpose.PLACEMENT)
        block = np.full(n, -1, np.int32)
        sources = shuffle(of, np.arange(n))[: self.blocks]
        block[sources] = np.arange(len(sources))
        for _ in range(self.hops):
            claimed = np.full(n, -1, np.int32)
            for chunk in source.chunks():
                claim(chunk.src, chunk.dst, block, claimed, np.uint64(of))
            block = np.where(block < 0, claimed, block)
            if not np.any(claimed >= 0):
                break
        return _sized(np.where(block < 0, len(sources) + components(source, block), block), max(int(SMALL * n / self.blocks), 1), largest)

    def _choose(self, near: np.ndarray, block: np.ndarray, train: np.ndarray | None, size: int) -> np.ndarray:
        """The owner of each block, [n_blocks] int32.

        Args:
            near: Nodes of each block (column) that are near each block (row), [n_blocks, n_blocks].
            block: Block of each node, [n_nodes].
            train: Training nodes, [n_nodes] bool.
            size: Number of workers.
        """
        nodes = np.bincount(block, minlength=len(near))
        targets = np.zeros(len(near), np.int64) if train is None else np.bincount(block[train], minlength=len(near))
        room, share = capacity(len(block), size, self.slack), max(targets.sum() / size, 1)
        owner, found = np.empty(len(near), np.int32), np.zeros((len(near), size))
        load, given = np.zeros(size, np.int64), np.zeros(size, np.int64)
        for b in np.argsort(-nodes, kind="stable"):
            score = found[b] * np.maximum(1 - given / share, 0) * (1 - load / room)
            score[load + nodes[b] > room] = -1
            # of equal scores the emptiest worker
            owner[b] = p = np.lexsort((load, -score))[0]
            load[p] += nodes[b]
            given[p] += targets[b]
            found[:, p] += near[:, b]
        return owner


def _sized(block: np.ndarray, small: int, largest: int) -> np.ndarray:
    """Blocks, numbered from 0, of at most ``largest`` nodes: larger ones are split, and small ones joined.

    Args:
        block: Block of each node, [n] integers.
        small: Consecutive blocks of fewer nodes are joined up to this many.
        largest: The most nodes of a block.
    """
    _, block, sizes = np.unique(block, return_inverse=True, return_counts=True)
    small = min(small, largest)
    # small blocks share numbers by their nodes so far; a group that began below a multiple of small ends there
    is_small = sizes < small
    before = np.cumsum(np.where(is_small, sizes, 0)) - sizes
    group = np.where(is_small, before // max(small, 1), before.max(initial=0) // max(small, 1) + 1 + np.arange(len(sizes)))
    block = np.unique(group[block], return_inverse=True)[1]
    # the position of each node in its block
    order = np.argsort(block, kind="stable")
    sizes = np.bincount(block)
    position = np.empty(len(block), np.int64)
    position[order] = np.arange(len(block)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    pieces = -(-sizes // largest)
    piece = position * pieces[block] // sizes[block]
    return (np.cumsum(pieces) - pieces)[block].astype(np.int32) + piece.astype(np.int32)


def _near(source: EdgeSource, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of each block (column) that are 1 hop, and 2 hops, from each block (row), [n_blocks, n_blocks] int64 each."""
    n_blocks = int(block.max(initial=-1)) + 1
    empty = np.zeros((len(block), -(-n_blocks // 64)), np.uint64)
    one = empty.copy()
    for chunk in source.chunks():
        near_blocks(chunk.src, chunk.dst, block, one)
    two = empty.copy()
    for chunk in source.chunks():
        spread(chunk.src, chunk.dst, one, two)
    counts = []
    for near, without in ((one, empty), (two, one)):
        found = np.zeros((n_blocks, n_blocks), np.int64)
        count_near(block, near, without, found)
        # a block is no hop from its own nodes
        np.fill_diagonal(found, 0)
        counts.append(found)
    return counts[0], counts[1]
