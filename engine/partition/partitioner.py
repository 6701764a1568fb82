"""Placement: which worker owns a node, and which worker keeps an edge.

A master rule gives every node an owner. An edge rule gives every edge a worker from the owners of its two ends. Any
pair of rules works with any model; the names users know are presets of edge rules.
"""
from __future__ import annotations

from collections.abc import Callable
from math import isqrt

import numpy as np

from graphtheta.errors import ConfigError
from graphtheta.rng import Purpose, bits, key

MasterRule = Callable[[int, int, int], np.ndarray]
EdgeRule = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


def hash_masters(n_nodes: int, size: int, seed: int) -> np.ndarray:
    """Owner of each node by the hash of its id, [n_nodes] int32: even without looking at the graph."""
    draws = bits(key(seed, Purpose.PLACEMENT), np.arange(n_nodes))
    return (draws % np.uint64(size)).astype(np.int32)


def block_masters(n_nodes: int, size: int, seed: int) -> np.ndarray:
    """Owner of each node by contiguous blocks of ids, [n_nodes] int32: keeps the locality of the numbering."""
    return (np.arange(n_nodes, dtype=np.int64) * size // max(n_nodes, 1)).astype(np.int32)


def edges_by_source(src_owner: np.ndarray, dst_owner: np.ndarray, size: int) -> np.ndarray:
    """1D-edge: an edge lives where its source is master (the paper's default)."""
    return src_owner


def edges_by_destination(src_owner: np.ndarray, dst_owner: np.ndarray, size: int) -> np.ndarray:
    """1D-edge by destination: every sum is local."""
    return dst_owner


def edges_on_grid(src_owner: np.ndarray, dst_owner: np.ndarray, size: int) -> np.ndarray:
    """2D-grid vertex-cut: workers form a grid; the source picks the row and the destination the column.

    A node then has mirrors in one row and one column only. With a prime number of workers the grid has one row and
    the rule is 1D by destination.
    """
    rows = next(r for r in range(isqrt(size), 0, -1) if size % r == 0)
    cols = size // rows
    return (src_owner // cols) * cols + dst_owner % cols


MASTER_RULES: dict[str, MasterRule] = {"hash": hash_masters, "block": block_masters}
EDGE_RULES: dict[str, EdgeRule] = {"1d-src": edges_by_source, "1d-dst": edges_by_destination, "vertex-cut": edges_on_grid}


def rule(table: dict[str, Callable[..., np.ndarray]], name: str, what: str) -> Callable[..., np.ndarray]:
    """Look a rule up.

    Raises:
        ConfigError: Unknown name.
    """
    if name not in table:
        raise ConfigError(f"{what} {name!r} is not known; choose from {', '.join(table)}")
    return table[name]
