"""Masks of nodes.

Every choice is a hash of the seed and of the row number, or of the original id of a node, so that
all ranks agree and the order of calls does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.base.rng import Purpose, bits, key, uniform
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.validation import labelled
from graphtheta.graph.splits.identity import identities

# words of random keys, one for each stream of draws
CLASS, FRACTION, REST, LINK, REGION = range(5)

Masks = tuple[np.ndarray, np.ndarray, np.ndarray]


def class_split(
    y: np.ndarray,
    train_per_class: int = 20,
    val_per_class: int = 30,
    *,
    n_val: int | None = None,
    n_test: int | None = None,
    seed: int = 0,
) -> Masks:
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

    Source: Shchur et al., Pitfalls of graph neural network evaluation,
    https://arxiv.org/abs/1811.05868
    """
    y = np.asarray(y)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataError(
            f"a split by class needs one integer class per node, got {y.dtype}{list(y.shape)}; use"
            ' split="fraction"'
        )
    nodes = np.arange(len(y))
    order = np.lexsort((nodes, bits(key(seed, Purpose.SPLIT, CLASS), nodes), y))
    order = order[np.searchsorted(y[order], 0) :]
    first = np.searchsorted(y[order], y[order])
    position = np.empty(len(y), np.int64)
    position[order] = np.arange(len(order)) - first
    labelled = y >= 0
    of_class = val_per_class if n_val is None else 0
    sizes = np.bincount(y[labelled])
    small = np.flatnonzero((sizes > 0) & (sizes < train_per_class + of_class))
    if len(small):
        raise DataError(
            f"class {int(small[0])} has {int(sizes[small[0]])} labelled nodes, but the split needs"
            f" {train_per_class} training and {of_class} validation nodes of each class; lower"
            ' train_per_class and val_per_class or use split="fraction"'
        )
    train = labelled & (position < train_per_class)
    val = labelled & ~train & (position < train_per_class + of_class)
    rest = labelled & ~train & ~val
    if n_val is not None:
        val, rest = take(rest, n_val, seed, "validation")
    return train, val, rest if n_test is None else take(rest, n_test, seed, "test")[0]


def take(rest: np.ndarray, n: int, seed: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Move n random rows out of a mask: (moved, left)."""
    rows = np.flatnonzero(rest)
    if len(rows) < n:
        raise DataError(
            f"the split needs {n} {what} nodes, but only {len(rows)} are left; lower the number"
        )
    moved = np.zeros_like(rest)
    moved[rows[np.lexsort((rows, bits(key(seed, Purpose.SPLIT, REST), rows)))[:n]]] = True
    return moved, rest & ~moved


def fraction_split(
    n: int,
    train: float = 0.6,
    val: float = 0.2,
    *,
    labelled: np.ndarray | None = None,
    seed: int = 0,
    ids: np.ndarray | None = None,
) -> Masks:
    """Assign each row independently to training, validation or test.

    Args:
        n: Number of rows.
        train, val: Expected shares; the rest is for testing.
        labelled: Rows that take part, [n] bool; all if None.
        seed: Seed of the split.
        ids: Numbers that the rows keep when others are appended, [n] int64; row numbers if None.

    Returns:
        Masks (train, val, test), [n] bool each.

    Raises:
        ConfigError: Shares outside 0..1 or beyond 1 together.
    """
    check_shares(train, val)
    u = uniform(key(seed, Purpose.SPLIT, FRACTION), np.arange(n) if ids is None else ids)
    use = np.ones(n, bool) if labelled is None else labelled
    return use & (u < train), use & (u >= train) & (u < train + val), use & (u >= train + val)


def check_shares(*shares: float) -> None:
    """Check that shares are not negative and add up to at most 1."""
    if not (min(shares) >= 0 and sum(shares) <= 1 + 1e-9):
        raise ConfigError(
            "shares of a split must lie in 0..1 and add up to at most 1, got"
            f" {', '.join(map(str, shares))}"
        )


def labelled_nodes(graph: Graph) -> np.ndarray:
    """Nodes with a label, [n_nodes] bool."""
    return np.zeros(graph.n_nodes, bool) if graph.y is None else labelled(graph.y)


def masks_of(part: np.ndarray) -> Masks:
    """Masks from part numbers 0, 1, 2 (anything else: in none)."""
    return part == 0, part == 1, part == 2


def split_nodes(graph: Graph, kind: str, seed: int, options: dict[str, Any]) -> Graph:
    """The graph with node masks of a kind: ``public`` (its own), ``random`` (per class) or
    ``fraction``.

    Raises:
        ConfigError: Another kind, or ``public`` for a graph without a split of its own.
    """
    if kind == "public":
        if graph.train is None and graph.edge_train is None:
            raise ConfigError(
                f'{graph.name} has no split of its own; choose split="random" or split="fraction"'
            )
        return graph
    if kind == "random":
        if graph.y is None:
            raise ConfigError(
                f"{graph.name} has no node labels to split by; split links with"
                " graphtheta.graph.splits.links.link_split"
            )
        return graph.with_masks(*class_split(graph.y, seed=seed, **options))
    if kind == "fraction":
        if graph.y is None:
            raise ConfigError(
                f'{graph.name} has no node labels to split; choose split="auto" or split="none"'
            )
        ids = identities(graph)(np.arange(graph.n_nodes))
        return graph.with_masks(
            *fraction_split(graph.n_nodes, labelled=labelled(graph.y), seed=seed, ids=ids)
        )
    raise ConfigError(f"unknown split {kind!r}; choose auto, public, random, fraction or time")
