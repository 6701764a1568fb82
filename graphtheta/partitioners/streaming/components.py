"""Connected components that all workers find together, and parts made of whole ones."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graphtheta.ops.kernels.partition.blocks import join
from graphtheta.ops.kernels.partition.forest import free_keys, grow_forest, hook, read_forest
from graphtheta.partitioners.streaming.blocks import IdBlocks

# fewest ids for which a worker has room while it reads pairs
FEWEST = 1 << 15

Pairs = Iterable[tuple[np.ndarray, np.ndarray]]


def components(blocks: IdBlocks, pairs: Pairs) -> np.ndarray:
    """The lowest id in the connected component of each node of this worker's block, [n_block]
    int64.

    One worker alone joins the trees of a forest over all nodes. Several reduce the pairs that they
    read to spanning forests, over at most about twice as many ids as a block has, and send these:
    a pair of a node and its root goes to the block of the node. A node there whose parent is
    another one passes the pair of both parents on, and takes the lower. Paths to the roots are
    halved in every round, so their number grows with the logarithm of the diameter.

    Args:
        blocks: The ids.
        pairs: Adjacent nodes that this worker reads, [n] integers each, in equally many items on
            all workers.

    Source: Zhang, Azad and Hu, FastSV, SIAM PP 2020, https://arxiv.org/abs/1910.05971, on forests
    in place of edges

    Collective: all ranks, at each item.
    """
    comm = blocks.comm
    parent = np.arange(blocks.first, blocks.last)
    if comm.size == 1:
        for a, b in pairs:
            join(a, b, parent)
        return _shortened(blocks, parent)
    keys = free_keys(max(2 * len(parent), FEWEST), blocks.kind)
    above = np.empty(len(keys), np.int32 if len(keys) <= np.iinfo(np.int32).max else np.int64)
    used = 0
    for a, b in pairs:
        begin = 0
        while True:
            begin, used = grow_forest(a=a, b=b, begin=begin, keys=keys, parent=above, used=used)
            if not comm.all_max(np.array(begin < len(a))):
                break
            _join(blocks, parent, _forest(keys, above, used))
            used = 0
    forest = _forest(keys, above, used)
    del keys, above
    _join(blocks, parent, forest)
    return _shortened(blocks, parent)


def _forest(keys: np.ndarray, above: np.ndarray, used: int) -> np.ndarray:
    """The nodes of a forest and their roots, [n, 2] int64; the table of ``grow_forest`` is free
    afterwards.
    """
    pairs = np.empty((used, 2), np.int64)
    n = read_forest(keys, above, pairs[:, 0], pairs[:, 1])
    keys.fill(-1)
    return pairs[:n]


def _join(blocks: IdBlocks, parent: np.ndarray, pairs: np.ndarray) -> None:
    """Join components along some pairs.

    Args:
        blocks: The ids.
        parent: Of the nodes of this worker's block, [n_block] int64; changed.
        pairs: Nodes and lower ones, [n, 2] int64.

    Collective: all ranks.
    """
    while blocks.comm.all_max(np.array(len(pairs) > 0)):
        received = np.concatenate(blocks.received(pairs[:, 0], pairs))
        high, low = received.T
        left = np.empty_like(received)
        left = left[: hook(high=high, low=low, first=blocks.first, parent=parent, out=left)]
        # many nodes of a tree pass the same pair on
        left = left[np.lexsort((left[:, 1], left[:, 0]))]
        pairs = left[np.any(np.diff(left, axis=0, prepend=-1), axis=1)]
        parent[:] = _above(blocks, parent)


def _above(blocks: IdBlocks, parent: np.ndarray) -> np.ndarray:
    """The parents of the parents, [n_block] int64.

    Collective: all ranks.
    """
    ids, at = np.unique(parent, return_inverse=True)
    return blocks.look_up(parent, ids)[at]


def _shortened(blocks: IdBlocks, parent: np.ndarray) -> np.ndarray:
    """The root of each node of this worker's block, [n_block] int64.

    Collective: all ranks.
    """
    while True:
        above = _above(blocks, parent) if blocks.comm.size > 1 else parent[parent]
        if not blocks.comm.all_max(np.array(np.any(above != parent))):
            return parent
        parent = above


def whole_components(
    blocks: IdBlocks, component: np.ndarray, size: int, room: int
) -> np.ndarray | None:
    """Parts that cut no edge, [n_block] int32, made of components by falling size; None if one of
    them is too large for its part.

    Each goes to the part of fewest nodes. Only the numbers of components of each size are known to
    all workers. Of those of equal size, each part has consecutive ones.

    Args:
        blocks: The ids.
        component: The lowest id in the component of each node, [n_block] int64.
        size: Number of parts.
        room: The most nodes of a part.

    Collective: all ranks.
    """
    comm = blocks.comm
    nodes = np.zeros(len(component), np.int64)
    names, counts = np.unique(component, return_counts=True)
    blocks.add(names, counts, nodes)
    sizes, counts = np.unique(nodes[nodes > 0], return_counts=True)
    of_workers = comm.all_gather(np.stack((sizes, counts)))
    load = np.zeros(size, np.int64)
    part = np.empty(len(component), np.int32)
    for nodes_each in np.unique(np.concatenate([each for each, _ in of_workers]))[::-1]:
        have = [int(n[each == nodes_each].sum()) for each, n in of_workers]
        more = _more(load, int(nodes_each), sum(have))
        load += more * nodes_each
        if load.max() > room:
            return None
        own = np.flatnonzero(nodes == nodes_each)
        part[own] = np.searchsorted(
            np.cumsum(more), sum(have[: comm.rank]) + np.arange(len(own)), side="right"
        )
    return blocks.look_up(part, component)


def _more(load: np.ndarray, nodes: int, n: int) -> np.ndarray:
    """How many of n components of equal size each part has, [size] int64, if each goes to the part
    of fewest nodes, the lowest of these.

    Args:
        load: Nodes of each part before.
        nodes: Nodes of a component.
        n: Number of components.
    """
    # the part that has the level takes another component at loads up to it
    low = int(load.min())
    high = int(load.min()) + nodes * n
    while low < high:
        level = (low + high) // 2
        if int(np.maximum((level - load) // nodes + 1, 0).sum()) >= n:
            high = level
        else:
            low = level + 1
    more: np.ndarray = np.maximum((low - 1 - load) // nodes + 1, 0)
    last = np.flatnonzero((low >= load) & ((low - load) % nodes == 0))
    more[last[: n - int(more.sum())]] += 1
    return more
