"""Orders of rows for cache locality, and the misses of a cache whose reads follow such an order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ...compile.jit import jit
from ...parallel.buffers import by_blocks
from ...parallel.pool import run_blocks
from .pairs import KEYS_PER_THREAD, thread_parts

# rows of 128 float32 numbers in a page of 4 KiB, and pages in a cache of 4 MiB
PAGE, PAGES = 8, 1 << 10
# reads that are simulated, and those of a window
SAMPLED, WINDOW = 1 << 18, 1 << 14
# factors of the misses of the orders by degree, id and leader: time does not follow small
# differences to an order by leader
FACTORS = (1, 1, 3)
# bits of the id in a key
ID_BITS = 40
MOST_DEGREE = (1 << 63 - ID_BITS) - 1


def keys_of(degree: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Keys by which nodes are in the order of falling degree and rising id, [n] int64."""
    return MOST_DEGREE - np.minimum(degree, MOST_DEGREE) << ID_BITS | ids


def ids_of(keys: np.ndarray) -> np.ndarray:
    """The ids in keys, [n] int64."""
    return keys & (1 << ID_BITS) - 1


def leaders(src: np.ndarray, dst: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The lowest of the keys of each node and of its neighbours, [n] int64: the neighbour of
    highest degree leads a node.

    Args:
        src, dst: Ends of the edges, [m] integers below n.
        keys: Of the nodes, [n] int64.
    """
    parts = thread_parts(len(src), max(len(keys), KEYS_PER_THREAD))
    lowest = np.tile(keys, (len(parts), 1))
    run_blocks(lambda b: _lead(src, dst, keys, lowest[b], *parts[b]), len(parts))
    return lowest.min(axis=0)


@jit()
def _lead(src, dst, keys, lowest, first, last):  # type: ignore[no-untyped-def]
    """Lower lowest[v] to the keys of the neighbours of v by some edges, for each node v."""
    for i in range(first, last):
        s, d = src[i], dst[i]
        if keys[s] < lowest[d]:
            lowest[d] = keys[s]
        if keys[d] < lowest[s]:
            lowest[s] = keys[d]


def row_orders(
    keys: np.ndarray, led: Callable[[], tuple[np.ndarray, np.ndarray]]
) -> Iterator[np.ndarray]:
    """Orders of nodes that are numbered by rising id: by falling degree, so that rows that many
    edges read are adjacent; by id, which is good if ids follow communities; by leader, so that
    neighbours of a hub are adjacent.

    Args:
        keys: Of the nodes, [n] int64.
        led: Returns the keys of the leaders of the nodes, and of the leaders of these; called for
            the last order.
    """
    yield np.argsort(keys)
    yield np.arange(len(keys))
    yield np.lexsort((keys, *led()))


def misses(
    order: np.ndarray, row: np.ndarray, reads: np.ndarray, src: np.ndarray, dst: np.ndarray
) -> int:
    """Misses of a cache when a sum over in-edges reads the sources, destination by destination, in
    windows of consecutive destinations.

    The least recently used page is replaced. None are counted if all rows fit into the cache.

    Args:
        order: Local nodes in the order of their rows, [n] integers.
        row: Row of each node, int32; may have entries for other nodes.
        reads: Local edges into each node, int64.
        src, dst: Ends of the local edges, [m] integers: indices of ``row``.
    """
    if len(order) <= PAGE * PAGES:
        return 0
    begins = np.cumsum(reads[order]) - reads[order]
    period = max(WINDOW, WINDOW * len(dst) // SAMPLED)
    if period > WINDOW:
        inside = np.zeros(len(row), bool)
        inside[order] = begins % period < WINDOW
        sample = _where(inside, dst)
        src = src[sample]
        dst = dst[sample]
    pages = np.sort(row[dst].astype(np.int64) << 32 | row[src] // PAGE) & 0xFFFFFFFF
    newer = np.full(len(order) // PAGE + 2, -1, np.int32)
    return count_misses(pages=pages, newer=newer, older=newer.copy(), room=PAGES)


def _where(inside: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Positions of the nodes that are inside, ascending."""
    parts: dict[int, np.ndarray] = {}

    def select(b: int, begin: int, end: int) -> None:
        parts[b] = begin + np.flatnonzero(inside[nodes[begin:end]])

    return np.concatenate([parts[b] for b in range(by_blocks(select, len(nodes), 1))])


@jit()
def count_misses(pages, newer, older, room):  # type: ignore[no-untyped-def]
    """Misses of a cache that replaces the least recently used page.

    Args:
        pages: Pages in the order in which they are read, [n] integers.
        newer: The page in the cache that was read next after each, -1 for pages that are not in the
            cache, [n_pages + 1] int32; changed. The last entry is the end of a circle.
        older: The page that was read before, [n_pages + 1] int32; changed.
        room: Pages that fit into the cache, above 0.
    """
    end = len(newer) - 1
    newer[end] = older[end] = end
    missed = 0
    for page in pages:
        if newer[page] >= 0:
            newer[older[page]] = newer[page]
            older[newer[page]] = older[page]
        else:
            missed += 1
            if missed > room:
                oldest = newer[end]
                newer[end] = newer[oldest]
                older[newer[oldest]] = end
                newer[oldest] = -1
        last = older[end]
        newer[last] = page
        older[page] = last
        newer[page] = end
        older[end] = page
    return missed
