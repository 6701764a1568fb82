"""Edges split by the regions of their ends."""

from __future__ import annotations

import numpy as np

from graphtheta.base.rng import Purpose, bits, key
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.splits.nodes import REGION, Masks, check_shares, masks_of


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
        raise ConfigError(
            f"the number of regions must be a power of two and at most the number of nodes ({n}),"
            f" got {n_regions}"
        )
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


def region_split(
    graph: Graph,
    position: np.ndarray,
    train: float = 0.6,
    val: float = 0.2,
    *,
    n_regions: int = 64,
    seed: int = 0,
) -> Masks:
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
