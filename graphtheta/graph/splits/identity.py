"""Numbers of nodes for the draws of splits, which stay the same when nodes are appended or come in
another order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphtheta.base.lazy_array import CHUNK
from graphtheta.base.rng import Purpose, bits, key
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.typed import TYPE


def identities(graph: Graph) -> Callable[[np.ndarray], np.ndarray]:
    """Numbers of nodes that depend on their original ids alone.

    Nodes without original ids have their rows as ids; in a graph with types, the name of their type
    and their number in it. Numbers of texts and of types are hashes of 64 bits.

    Args:
        graph: The graph.

    Returns:
        Function from rows of nodes, [n] int64, to their numbers, [n] int64.
    """
    ids = graph.node_ids
    if ids is None and TYPE in graph.node_columns:
        return _in_type(graph).__getitem__
    if ids is None:
        return lambda rows: rows
    if ids.dtype.kind != "U":
        return lambda rows: np.asarray(ids[rows]).astype(np.int64)
    ranges = range(0, graph.n_nodes, CHUNK)
    hashes = [hash_of_texts(np.asarray(ids[a : a + CHUNK])) for a in ranges]
    return np.concatenate([np.zeros(0, np.int64), *hashes]).__getitem__


def hash_of_texts(texts: np.ndarray) -> np.ndarray:
    """A hash of each text, [n] int64 from [n] str, whatever the width of the array."""
    width = texts.dtype.itemsize // 4
    codes = np.ascontiguousarray(texts).view(np.uint32).reshape(len(texts), width)
    hashes = np.full(len(texts), key(0, Purpose.SPLIT), np.uint64)
    for column in range(width):
        # texts are filled up with zeros
        longer = codes[:, column] != 0
        hashes[longer] = bits(hashes[longer], codes[longer, column])
    return hashes.view(np.int64)


def _in_type(graph: Graph) -> np.ndarray:
    """The identity of each node of a graph with types, [n_nodes] int64."""
    codes, kinds, counts = np.unique(
        np.asarray(graph.node_columns[TYPE]), return_inverse=True, return_counts=True
    )
    names = [
        graph.node_types[code] if 0 <= code < len(graph.node_types) else str(code)
        for code in codes.tolist()
    ]
    of_types = hash_of_texts(np.array(names, str)).view(np.uint64)
    order = np.argsort(kinds, kind="stable")
    number = np.empty(len(kinds), np.int64)
    number[order] = np.arange(len(kinds)) - np.repeat(np.cumsum(counts) - counts, counts)
    return bits(of_types[kinds], number).view(np.int64)
