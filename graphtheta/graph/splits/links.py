"""Held-out links.

The part of an edge is a hash of the seed and the original ids of its ends, so that all ranks agree,
and an edge keeps its part in a graph that has grown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphtheta.base.lazy_array import CHUNK
from graphtheta.base.rng import Purpose, bits, key, uniform
from graphtheta.errors import DataError
from graphtheta.graph.data.arrays import EDGE_MASKS
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.transform import first_of_each, keep_where, pair_key
from graphtheta.graph.data.typed import RELATION
from graphtheta.graph.splits.identity import identities
from graphtheta.graph.splits.nodes import LINK, check_shares

# parts of edges
MESSAGE, VAL, TEST, DROPPED = range(4)


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
    of the original ids of the unordered pair. A pair stored in both directions is held out once,
    lower row first. Self loops stay message edges. If the graph has masks ``edge_val`` or
    ``edge_test``, these decide instead, and training edges that would leak a held-out pair are
    dropped.

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
    message = message_graph(graph, part_of)
    part = part_of(0, graph.n_edges)
    pair = unordered_pairs(graph, 0, graph.n_edges)
    return LinkSplit(
        graph=message,
        val=distinct_pairs(graph, pair, part == VAL),
        test=distinct_pairs(graph, pair, part == TEST),
        dropped=int((part == DROPPED).sum()),
    )


def link_parts(
    graph: Graph, val: float = 0.05, test: float = 0.1, seed: int = 0, relation: int | None = None
) -> Callable[[int, int], np.ndarray]:
    """The parts of edges; see ``link_split``. With edge masks or a relation, keys of all held-out
    edges are in memory.

    Args:
        graph, val, test, seed: As for ``link_split``.
        relation: Only edges of this relation are held out, and those of others that would leak a
            held-out pair are dropped; None for edges of all relations.

    Returns:
        Function from the bounds of a range of edges to ``MESSAGE``, ``VAL``, ``TEST`` or
        ``DROPPED`` for each, [end - begin] int8.

    Raises:
        ConfigError: Shares outside 0..1.
        DataError: The graph has several splits.
    """
    check_shares(val, test)
    if graph.n_splits > 1:
        raise DataError(
            f"{graph.name}: the graph has {graph.n_splits} splits; choose one with "
            "graphtheta.graph.splits.several.choose_split"
        )
    number_of = identities(graph)
    draws = key(seed, Purpose.SPLIT, LINK)
    masks = [mask for mask in (graph.edge_val, graph.edge_test) if mask is not None]

    def by_hash(begin: int, end: int) -> np.ndarray:
        src = number_of(graph.src[begin:end])
        dst = number_of(graph.dst[begin:end])
        u = uniform(bits(draws, np.minimum(src, dst)), np.maximum(src, dst))
        u = np.where(graph.src[begin:end] == graph.dst[begin:end], 1.0, u)
        return np.where(u < test, TEST, np.where(u < test + val, VAL, MESSAGE)).astype(np.int8)

    if not masks and relation is None:
        return by_hash

    def held_out(begin: int, end: int) -> np.ndarray:
        parts = np.zeros(end - begin, np.int8) if masks else by_hash(begin, end)
        for mask, part in ((graph.edge_val, VAL), (graph.edge_test, TEST)):
            if mask is not None:
                parts[mask[begin:end]] = part
        if relation is not None:
            parts[graph.edge_columns[RELATION][begin:end] != relation] = MESSAGE
        return parts

    ranges = [(a, min(a + CHUNK, graph.n_edges)) for a in range(0, graph.n_edges, CHUNK)]
    pairs = [unordered_pairs(graph, a, b)[held_out(a, b) != MESSAGE] for a, b in ranges]
    without_messages = np.unique(np.concatenate([np.zeros(0, np.int64), *pairs]))

    def without_leaks(begin: int, end: int) -> np.ndarray:
        part = held_out(begin, end)
        leaks = np.isin(unordered_pairs(graph, begin, end), without_messages)
        return np.where(leaks & (part == MESSAGE), DROPPED, part).astype(np.int8)

    return without_leaks


def message_graph(graph: Graph, part_of: Callable[[int, int], np.ndarray]) -> Graph:
    """All nodes, and the edges of the part ``MESSAGE`` without their masks.

    Raises:
        DataError: There are none.
    """
    if not graph.n_edges:
        raise DataError(
            f"{graph.name} has no edges; links are predicted from other links, so give a graph with"
            " edges"
        )
    message = keep_where(graph, lambda begin, end: part_of(begin, end) == MESSAGE)[0]
    if not message.n_edges:
        raise DataError(
            f"{graph.name}: all {graph.n_edges} edges are held out, or join the same nodes as"
            " held-out ones, and none is left for message passing; hold out fewer by the masks"
            " edge_val and edge_test"
        )
    return message.derived(**dict.fromkeys(EDGE_MASKS))


def unordered_pairs(graph: Graph, begin: int, end: int) -> np.ndarray:
    """A number for each pair of ends of some edges, whatever the direction, [end - begin] int64."""
    src, dst = graph.src[begin:end], graph.dst[begin:end]
    return pair_key(np.minimum(src, dst), np.maximum(src, dst), graph.n_nodes)


def distinct_pairs(graph: Graph, pair: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """One directed edge for each unordered pair among the chosen edges, [2, n]: source below
    destination where stored so.
    """
    edges = np.flatnonzero(chosen)
    edges = edges[np.argsort(graph.src[edges] > graph.dst[edges], kind="stable")]
    edges = np.sort(edges[first_of_each(pair[edges])])
    return np.stack((graph.src[edges], graph.dst[edges]))
