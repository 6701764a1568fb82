"""Graphs with several splits: masks [n, S], whose columns are splits."""

from __future__ import annotations

import numpy as np

from graphtheta.base.logger import logger
from graphtheta.base.npy import in_files
from graphtheta.errors import ConfigError
from graphtheta.graph.data.arrays import EDGE_MASKS, NODE_MASKS, G


def choose_split(graph: G, index: int) -> G:
    """The graph with one of its splits. A mask [n] without columns belongs to all of them.

    Args:
        graph: The graph.
        index: Number of the split, which is logged if there are several.

    Returns:
        The graph with masks [n]; the same graph if it has one split. Masks in files stay there.

    Raises:
        ConfigError: There is no split of that number.
    """
    n = graph.n_splits
    if n == 1 and not index:
        return graph
    if not 0 <= index < n:
        has = f"{n} splits, numbered from 0" if n > 1 else "one split"
        raise ConfigError(
            f"{graph.name}: there is no split {index}, the graph has {has}; correct split_index"
            " (--split-index), or drop it"
        )
    logger.info(f"{graph.name} has {n} splits; split {index} is used (--split-index)")
    return graph.derived(
        **{
            name: _column(mask, index)
            for name in (*NODE_MASKS, *EDGE_MASKS)
            if (mask := getattr(graph, name)) is not None and mask.ndim == 2
        }
    )


def _column(masks: np.ndarray, k: int) -> np.ndarray:
    """A column of masks, [n]."""
    return masks[:, k] if in_files(masks) else np.ascontiguousarray(masks[:, k])
