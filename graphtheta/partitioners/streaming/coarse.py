"""Coarse blocks of connected nodes, and how many nodes of each are near others.

Each worker has the values of the nodes of its block of ids, and all have those of the coarse
blocks, which are few. No result depends on the order of the edges or on the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphtheta.base.rng import shuffle
from graphtheta.engine.comm.communicator import Comm
from graphtheta.ops.kernels.partition.blocks import add_bits, claim, count_near, set_bits
from graphtheta.partitioners.streaming.along import HomeEdges
from graphtheta.partitioners.streaming.blocks import IdBlocks
from graphtheta.partitioners.streaming.components import components

# coarse blocks whose neighbourhoods are in memory at a time: a node has two bits for each
GROUP = 512


def searched(
    edges: HomeEdges, n_sources: int, hops: int, key: int
) -> tuple[np.ndarray, np.ndarray]:
    """A node that names the coarse block of each node, [n_block] int64, and which nodes are
    sources, [n_block] bool.

    It is a source of a breadth-first search; beyond the search it is the lowest id of the connected
    component. Of several sources that reach a node in the same round, a hash chooses one.

    Args:
        edges: The edges.
        n_sources: Sources of the search: the ids of the lowest hashes.
        hops: The most rounds.
        key: Key of both hashes.

    Collective: all ranks.
    """
    comm = edges.comm
    blocks = edges.blocks
    roots = shuffle(key, np.arange(blocks.first, blocks.last))[:n_sources]
    roots = shuffle(key, np.concatenate(comm.all_gather(roots)))[:n_sources]
    roots = roots[(roots >= blocks.first) & (roots < blocks.last)]
    name = np.full(blocks.last - blocks.first, -1, np.int64)
    name[roots - blocks.first] = roots
    # nodes that were reached earlier have no neighbours left to claim
    sends = is_source = name >= 0
    for _ in range(hops):
        claimed = np.full_like(name, -1)
        for _, nodes, names in edges.along([name], sends):
            claim(
                nodes=nodes,
                blocks=names,
                first=blocks.first,
                block=name,
                claimed=claimed,
                key=np.uint64(key),
            )
        sends = claimed >= 0
        name[sends] = claimed[sends]
        if not comm.all_max(np.array(np.any(sends))):
            break
    return np.where(name < 0, components(blocks, _between(edges, name < 0)), name), is_source


def _between(edges: HomeEdges, inside: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Both ends of the edges between some nodes.

    Args:
        edges: The edges.
        inside: The nodes, [n_block] bool.

    Collective: all ranks, at each item.
    """
    first = edges.blocks.first
    for _, nodes, x in edges.along([np.arange(first, edges.blocks.last)], inside):
        both = inside[nodes] & (x < nodes + first)
        yield nodes[both] + first, x[both]


def sized(
    blocks: IdBlocks, name: np.ndarray, is_source: np.ndarray, small: int, largest: int
) -> tuple[np.ndarray, np.ndarray]:
    """Coarse blocks of at most ``largest`` nodes, numbered by falling size: larger ones are split
    by ids, and small ones joined.

    Args:
        blocks: The ids.
        name, is_source: As returned by ``searched``.
        small: Coarse blocks of fewer nodes are joined, by ascending names, up to this many: those
            of sources, and apart from them components beyond the search.
        largest: The most nodes of a coarse block.

    Returns:
        Coarse block of each node, [n_block] int32, and nodes of each, [n_coarse] int64.

    Collective: all ranks.
    """
    comm = blocks.comm
    names, counts = np.unique(name, return_counts=True)
    size = np.zeros(len(name), np.int64)
    blocks.add(names, counts, size)
    group = blocks.look_up(_groups(comm, size, is_source, max(min(small, largest), 1)), name)
    n_groups = int(comm.all_max(group.max(initial=-1))) + 1
    here = np.bincount(group, minlength=n_groups)
    sizes = comm.all_sum(here)
    before = np.zeros_like(here)
    large = np.flatnonzero(sizes > largest)
    before[large] = np.stack(comm.all_gather(here[large]))[: comm.rank].sum(axis=0)
    # the position of each node in its group, by ascending id; within the worker, if the group is
    # not split
    order = np.argsort(group, kind="stable")
    position = np.empty(len(name), np.int64)
    position[order] = np.arange(len(name)) + np.repeat(before - np.cumsum(here) + here, here)
    pieces = -(-sizes // largest)
    piece = (np.cumsum(pieces) - pieces)[group] + position * pieces[group] // sizes[group]
    nodes = comm.all_sum(np.bincount(piece, minlength=int(pieces.sum())))
    falling = np.argsort(-nodes, kind="stable")
    number = np.empty(len(nodes), np.int32)
    number[falling] = np.arange(len(nodes))
    return number[piece], nodes[falling]


def _groups(comm: Comm, size: np.ndarray, is_source: np.ndarray, small: int) -> np.ndarray:
    """The number of each coarse block's group, [n_block] int64, at the node that names it.

    Coarse blocks of ``small`` nodes are groups of their own. Smaller ones of the same kind share
    numbers by their nodes so far: a group that began below a multiple of ``small`` ends there.

    Args:
        comm: The workers.
        size: Nodes of each coarse block at the node that names it, 0 at other nodes, [n_block]
            int64.
        is_source: Kind of each coarse block, [n_block] bool.
        small: The nodes of a group of small blocks.

    Collective: all ranks of comm.
    """
    is_small = (size > 0) & (size < small)
    is_large = size >= small
    group = np.zeros(len(size), np.int64)
    end = 0
    for kind in (is_source, ~is_source):
        within = np.where(is_small & kind, size, 0)
        counts = np.array(comm.all_gather(int(within.sum())))
        group += np.where(
            within > 0, end + (counts[: comm.rank].sum() + np.cumsum(within) - within) // small, 0
        )
        end += int(counts.sum()) // small + 1
    used = np.zeros(end, np.int64)
    used[group[is_small]] = 1
    number = np.cumsum(comm.all_max(used)) - 1
    before = sum(comm.all_gather(int(np.count_nonzero(is_large)))[: comm.rank])
    return np.where(is_small, number[group], number[-1] + before + np.cumsum(is_large))


def near_blocks(
    edges: HomeEdges, block: np.ndarray, n_blocks: int, second: float
) -> Iterator[np.ndarray]:
    """For each coarse block b, the nodes of each that are one hop from b, plus ``second`` times
    those two hops from b.

    Nodes send once or, unless ``second`` is 0, twice for each group of coarse blocks.

    Args:
        edges: The edges.
        block: Coarse block of each node of this worker's block of ids, [n_block] int32.
        n_blocks: Number of coarse blocks.
        second: Factor of the nodes two hops away.

    Yields:
        [n_blocks] float64.

    Collective: all ranks, at each item.
    """
    for first in range(0, n_blocks, GROUP):
        n = min(GROUP, n_blocks - first)
        one = np.zeros((-(-n // 64), len(block)), np.uint64)
        for _, nodes, blocks in edges.along([block], (block >= first) & (block < first + n)):
            set_bits(nodes, blocks - first, one)
        counts = 1.0 * _counted(comm=edges.comm, block=block, near=one, n=n, n_blocks=n_blocks)
        if second:
            two = np.zeros_like(one)
            for word, nodes, bits in edges.along(list(one), np.bitwise_or.reduce(one) != 0):
                add_bits(nodes, bits, two[word])
            for word in range(len(two)):
                two[word] &= ~one[word]
            counts += second * _counted(
                comm=edges.comm, block=block, near=two, n=n, n_blocks=n_blocks
            )
        yield from counts


def _counted(comm: Comm, block: np.ndarray, near: np.ndarray, n: int, n_blocks: int) -> np.ndarray:
    """Nodes of each of the coarse blocks that have each of n bits, [n, n_blocks] int64; near is
    [n_words, n_block] uint64.
    """
    counts = np.zeros((n, n_blocks), np.int64)
    count_near(block, near, counts)
    total: np.ndarray = comm.all_sum(counts)
    return total
