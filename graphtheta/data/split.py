"""Training, validation and test splits: masks for nodes and edges, and held-out links.

Every choice is a hash of the seed and the row number, so that all ranks agree and the order of
calls does not matter.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.data.arrays import EDGE_MASKS
from graphtheta.data.graph import Graph
from graphtheta.data.lazy import CHUNK
from graphtheta.data.transform import first_of_each, keep_where, pair_key
from graphtheta.errors import ConfigError, DataError
from graphtheta.rng import Purpose, bits, key, uniform

# words of random keys, one for each stream of draws
CLASS, FRACTION, REST, LINK, REGION = range(5)

# parts of edges
MESSAGE, VAL, TEST, DROPPED = range(4)

Masks = tuple[np.ndarray, np.ndarray, np.ndarray]


def class_split(y: np.ndarray, train_per_class: int = 20, val_per_class: int = 30, *, n_val: int | None = None,
                n_test: int | None = None, seed: int = 0) -> Masks:
    """Equally many random training nodes of each class.

    Args:
        y: Classes, [n] int64, -1 = unlabelled (in no part).
        train_per_class: Training nodes of each class.
        val_per_class: Validation nodes of each class, unless ``n_val`` is given.
        n_val: Validation nodes of any class instead (500 in the Planetoid protocol).
        n_test: Test nodes (1,000 in the Planetoid protocol); all others if None.
        seed: Seed of the split.

    Returns:
        Masks (train, val, test), [n] bool each.

    Raises:
        DataError: A class has too few nodes, or too few nodes are left.

    Source: Shchur et al., Pitfalls of graph neural network evaluation, https://arxiv.org/abs/1811.05868
    """
    y = np.asarray(y)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataError(f"a split by class needs one integer class per node, got {y.dtype}{list(y.shape)}; use split=\"fraction\"")
    nodes = np.arange(len(y))
    order = np.lexsort((nodes, bits(key(seed, Purpose.SPLIT, CLASS), nodes), y))
    order = order[np.searchsorted(y[order], 0):]
    first = np.searchsorted(y[order], y[order])
    position = np.empty(len(y), np.int64)
    position[order] = np.arange(len(order)) - first
    labelled = y >= 0
    of_class = val_per_class if n_val is None else 0
    sizes = np.bincount(y[labelled])
    small = np.flatnonzero((sizes > 0) & (sizes < train_per_class + of_class))
    if len(small):
        raise DataError(f"class {int(small[0])} has {int(sizes[small[0]])} labelled nodes, but the split needs {train_per_class} "
                        f"training and {of_class} validation nodes of each class; lower train_per_class "
                        "and val_per_class or use split=\"fraction\"")
    train = labelled & (position < train_per_class)
    val = labelled & ~train & (position < train_per_class + of_class)
    rest = labelled & ~train & ~val
    if n_val is not None:
        val, rest = take(rest, n_val, seed, "validation")
    return train, val, rest if n_test is None else take(rest, n_test, seed, "test")[0]


def take(rest: np.ndarray, n: int, seed: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Move n random rows out of a mask: (taken, left)."""
    rows = np.flatnonzero(rest)
    if len(rows) < n:
        raise DataError(f"the split needs {n} {what} nodes, but only {len(rows)} are left; lower the number")
    taken = np.zeros_like(rest)
    taken[rows[np.lexsort((rows, bits(key(seed, Purpose.SPLIT, REST), rows)))[:n]]] = True
    return taken, rest & ~taken


def fraction_split(n: int, train: float = 0.6, val: float = 0.2, *, labelled: np.ndarray | None = None, seed: int = 0) -> Masks:
    """Assign each row independently to training, validation or test.

    Args:
        n: Number of rows.
        train, val: Expected shares; the rest is for testing.
        labelled: Rows that take part, [n] bool; all if None.
        seed: Seed of the split.

    Returns:
        Masks (train, val, test), [n] bool each.

    Raises:
        ConfigError: Shares outside 0..1 or beyond 1 together.
    """
    check_shares(train, val)
    u = uniform(key(seed, Purpose.SPLIT, FRACTION), np.arange(n))
    use = np.ones(n, bool) if labelled is None else labelled
    return use & (u < train), use & (u >= train) & (u < train + val), use & (u >= train + val)


def check_shares(*shares: float) -> None:
    """Check that shares are not negative and add up to at most 1."""
    if min(shares) < 0 or sum(shares) > 1 + 1e-9:
        raise ConfigError(f"shares of a split must lie in 0..1 and add up to at most 1, got {', '.join(map(str, shares))}")


def masks_of(part: np.ndarray) -> Masks:
    """Masks from part numbers 0, 1, 2 (anything else: in none)."""
    return part == 0, part == 1, part == 2


@dataclass(frozen=True)
class LinkSplit:
    """A graph for link prediction, and the links held out.

    Attributes:
        graph: All nodes, and the message edges only: they contain no held-out pair in either
            direction.
        val: Validation pairs, [2, n_val] int64 rows (source, destination).
        test: Test pairs, [2, n_test] int64.
        dropped: Number of message edges removed because their pair is held out (duplicates,
            reverse edges).
    """

    graph: Graph
    val: np.ndarray
    test: np.ndarray
    dropped: int


def link_split(graph: Graph, val: float = 0.05, test: float = 0.1, *, seed: int = 0) -> LinkSplit:
    """Hold out links for validation and testing.

    Both directions of an edge and its duplicates are always in the same part: the part is a hash
    of the unordered pair. A pair stored in both directions is held out once, lower row first. Self
    loops stay message edges. If the graph has masks ``edge_val`` or ``edge_test``, these decide
    instead, and training edges that would leak a held-out pair are dropped.

    Args:
        graph: The graph.
        val, test: Expected shares of the pairs; not used if the graph has edge masks.
        seed: Seed of the split.

    Returns:
        Message graph and held-out pairs.

    Raises:
        ConfigError: Shares outside 0..1.
        DataError: No edges are left.
    """
    part_of = link_parts(graph, val, test, seed)
    message, part = message_graph(graph, part_of), part_of(0, graph.n_edges)
    pair = unordered_pairs(graph, 0, graph.n_edges)
    held = [distinct_pairs(graph, pair, part == p) for p in (VAL, TEST)]
    return LinkSplit(message, held[0], held[1], int((part == DROPPED).sum()))


def link_parts(graph: Graph, val: float = 0.05, test: float = 0.1, seed: int = 0) -> Callable[[int, int], np.ndarray]:
    """The parts of edges; see ``link_split``. For a graph with edge masks, keys of all held-out edges are in memory.

    Returns:
        Function from the bounds of a range of edges to ``MESSAGE``, ``VAL``, ``TEST`` or
        ``DROPPED`` for each, [end - begin] int8.

    Raises:
        ConfigError: Shares outside 0..1.
    """
    check_shares(val, test)
    masks = [mask for mask in (graph.edge_val, graph.edge_test) if mask is not None]

    def by_hash(begin: int, end: int) -> np.ndarray:
        pair, loop = unordered_pairs(graph, begin, end), graph.src[begin:end] == graph.dst[begin:end]
        u = np.where(loop, 1.0, uniform(key(seed, Purpose.SPLIT, LINK), pair))
        return np.where(u < test, TEST, np.where(u < test + val, VAL, MESSAGE)).astype(np.int8)

    if not masks:
        return by_hash
    ranges = [(a, min(a + CHUNK, graph.n_edges)) for a in range(0, graph.n_edges, CHUNK)]
    given = [unordered_pairs(graph, a, b)[mask[a:b]] for mask in masks for a, b in ranges]
    held = np.unique(np.concatenate([np.zeros(0, np.int64), *given]))

    def by_mask(begin: int, end: int) -> np.ndarray:
        part = np.where(np.isin(unordered_pairs(graph, begin, end), held), DROPPED, MESSAGE).astype(np.int8)
        for mask, own in ((graph.edge_val, VAL), (graph.edge_test, TEST)):
            if mask is not None:
                part[mask[begin:end]] = own
        return part

    return by_mask


def message_graph(graph: Graph, part_of: Callable[[int, int], np.ndarray]) -> Graph:
    """All nodes, and the edges of the part ``MESSAGE`` without their masks.

    Raises:
        DataError: There are none.
    """
    message = keep_where(graph, lambda begin, end: part_of(begin, end) == MESSAGE)[0]
    if not message.n_edges:
        raise DataError(f"{graph.name}: all {graph.n_edges} edges are held out and none is left for message passing; lower val and test")
    return message.derived(**dict.fromkeys(EDGE_MASKS))


def unordered_pairs(graph: Graph, begin: int, end: int) -> np.ndarray:
    """One number for each pair of ends of some edges, whatever the direction, [end - begin] int64."""
    src, dst = graph.src[begin:end], graph.dst[begin:end]
    return pair_key(np.minimum(src, dst), np.maximum(src, dst), graph.n_nodes)


def distinct_pairs(graph: Graph, pair: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """One directed edge for each unordered pair among the chosen edges, [2, n]: source below destination where stored so."""
    edges = np.flatnonzero(chosen)
    edges = edges[np.argsort(graph.src[edges] > graph.dst[edges], kind="stable")]
    edges = np.sort(edges[first_of_each(pair[edges])])
    return np.stack((graph.src[edges], graph.dst[edges]))


def region_of(position: np.ndarray, n_regions: int = 64) -> np.ndarray:
    """Regions of equally many nodes, by recursive bisection at the median of the wider axis.

    Args:
        position: Coordinates, [n, 2] (any number of axes).
        n_regions: Number of regions, a power of two.

    Returns:
        Region of each node, [n] int64.

    Raises:
        ConfigError: n_regions is not a power of two, or exceeds the number of nodes.
    """
    n = len(position)
    if n_regions < 1 or n_regions & (n_regions - 1) or n_regions > n:
        raise ConfigError(f"the number of regions must be a power of two and at most the number of nodes ({n}), got {n_regions}")
    region = np.zeros(n, np.int64)
    for level in range(n_regions.bit_length() - 1):
        axis = widest_axis(position, region, 1 << level)
        along = np.take_along_axis(position, axis[region][:, None], 1)[:, 0]
        order = np.lexsort((np.arange(n), along, region))
        size = np.bincount(region, minlength=1 << level)
        index = np.arange(n) - np.repeat(np.cumsum(size) - size, size)
        upper = index >= np.repeat(size // 2, size)
        halved = np.empty(n, np.int64)
        halved[order] = 2 * region[order] + upper
        region = halved
    return region


def widest_axis(position: np.ndarray, region: np.ndarray, n_regions: int) -> np.ndarray:
    """The axis along which each region extends most, [n_regions]."""
    low = np.full((n_regions, position.shape[1]), np.inf)
    high = np.full((n_regions, position.shape[1]), -np.inf)
    np.minimum.at(low, region, position)
    np.maximum.at(high, region, position)
    return np.argmax(high - low, axis=1)


def region_split(graph: Graph, position: np.ndarray, train: float = 0.6, val: float = 0.2, *, n_regions: int = 64, seed: int = 0) -> Masks:
    """Edge masks by region: a region is in one part; edges between two parts are in no mask.

    Args:
        graph: The graph.
        position: Node coordinates, [n_nodes, 2].
        train, val: Shares of the regions.
        n_regions: Number of regions, a power of two.
        seed: Seed of the split.

    Returns:
        Masks (edge_train, edge_val, edge_test), [n_edges] bool each.
    """
    check_shares(train, val)
    regions = np.arange(n_regions)
    rank = np.empty(n_regions, np.int64)
    rank[np.lexsort((regions, bits(key(seed, Purpose.SPLIT, REGION), regions)))] = regions
    part_of = np.searchsorted(np.round(np.cumsum([train, val]) * n_regions), rank, side="right")
    part = part_of[region_of(np.asarray(position, np.float64), n_regions)]
    return masks_of(np.where(part[graph.src] == part[graph.dst], part[graph.src], -1))


def split_nodes(graph: Graph, kind: str, seed: int, options: dict[str, Any]) -> Graph:
    """The graph with node masks of a kind: ``public`` (its own), ``random`` (per class) or ``fraction``.

    Raises:
        ConfigError: Another kind, or ``public`` for a graph without a split of its own.
    """
    if kind == "public":
        if graph.train is None and graph.edge_train is None:
            raise ConfigError(f"{graph.name} has no split of its own; choose split=\"random\" or split=\"fraction\"")
        return graph
    if kind == "random":
        if graph.y is None:
            raise ConfigError(f"{graph.name} has no node labels to split by; split links with graphtheta.data.split.link_split")
        return graph.with_masks(*class_split(graph.y, seed=seed, **options))
    if kind == "fraction":
        if graph.y is None:
            raise ConfigError(f"{graph.name} has no node labels to split; choose split=\"auto\" or split=\"none\"")
        labelled = ~np.isnan(graph.y).all(axis=1) if graph.y.ndim == 2 else graph.y >= 0
        return graph.with_masks(*fraction_split(graph.n_nodes, labelled=labelled, seed=seed))
    raise ConfigError(f"unknown split {kind!r}; choose auto, public, random or fraction")
