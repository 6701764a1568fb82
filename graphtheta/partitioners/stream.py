"""What partitioners read of a stream of edges, in memory that grows with the nodes."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.errors import ConfigError
from graphtheta.ops.partition.neighbours import fill_neighbours
from graphtheta.streaming.degrees import block_degrees

# neighbours that are in memory at a time, unless the graph has more than half as many nodes
NEIGHBOURS = 1 << 25


class Neighbourhoods(NamedTuple):
    """The neighbours of consecutive nodes, along edges of both directions.

    Attributes:
        first: The first node.
        ptr: Bounds of each node's neighbours, [n + 1] int64.
        near: Neighbours in the order of their edges, [ptr[n]] int32 or int64; a loop gives two.
    """

    first: int
    ptr: np.ndarray
    near: np.ndarray


def neighbour_bounds(source: EdgeSource) -> np.ndarray:
    """Bounds of each node's neighbours in a list of those of all nodes, [n_nodes + 1] int64; reads all edges once."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(block_degrees(source, SerialComm()))))


def neighbourhoods(source: EdgeSource, at_most: int = NEIGHBOURS, bounds: np.ndarray | None = None) -> Iterator[Neighbourhoods]:
    """The neighbourhoods of all nodes in ascending order, some nodes at a time.

    All edges are read once for each group of nodes. Neighbours do not depend on the chunks of the
    source or on ``at_most``.

    Args:
        source: The edges.
        at_most: Neighbours in a group, unless they are those of one node; at least twice the nodes.
        bounds: Of ``neighbour_bounds``, for callers that read several times; by default they are computed first.
    """
    n, bounds = source.n_nodes, neighbour_bounds(source) if bounds is None else bounds
    at_most, first = max(at_most, 2 * n), 0
    while first < n:
        last = max(int(np.searchsorted(bounds, bounds[first] + at_most, side="right")) - 1, first + 1)
        ptr = bounds[first: last + 1] - bounds[first]
        near, free = np.empty(ptr[-1], np.int32 if n <= np.iinfo(np.int32).max else np.int64), ptr[:-1].copy()
        for chunk in source.chunks():
            fill_neighbours(chunk.src, chunk.dst, first, last, free, near)
        yield Neighbourhoods(first, ptr, near)
        first = last


def capacity(n: int, size: int, slack: float) -> int:
    """The most of n items that one of size workers may have: (1 + slack) n / size, and at least n / size rounded up."""
    return max(-(-n // size), int((1 + slack) * n / size))


def check_option(of: Any, option: str, allowed: bool, expected: str) -> None:
    """Refuse a value of an option.

    Args:
        of: The partitioner or placement.
        option: Name of the field.
        allowed: Whether its value is allowed.
        expected: What is, in words.

    Raises:
        ConfigError: It is not.
    """
    if not allowed:
        raise ConfigError(f"{of.name}: {option} is {getattr(of, option)}; expected {expected}")
