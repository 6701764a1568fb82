"""Generated graphs: made in memory from hashes only, so that every rank makes the same graph.

Each generator returns the arguments of ``Graph``; ``gt.load`` makes the graph of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.base.rng import Purpose, bits, integers, key, normal, shuffle, uniform
from graphtheta.errors import ConfigError
from graphtheta.graph.data.transform import first_of_each, pair_key
from graphtheta.graph.splits.nodes import fraction_split

# words of random keys, one for each stream of draws
BLOCK, DEGREE, SOURCE, DESTINATION, INSIDE, CENTRE, FEATURE, EDGE, NUMBERING = range(9)
# R-MAT draws one stream per level
LEVEL = 100


def sbm(
    n_nodes: int = 5000,
    n_edges: int = 50_000,
    classes: int = 8,
    features: int = 32,
    edge_features: int = 4,
    *,
    inside: float = 0.5,
    signal: float = 0.25,
    edge_signal: float = 1.5,
    skew: float = 0.4,
    seed: int = 0,
) -> dict[str, Any]:
    """Degree-corrected stochastic block model with informative features and edge attributes.

    A node's block is its class. A share ``inside`` of the edges joins nodes of one block; all
    others join different blocks. Features alone are weakly informative, and their mean over
    neighbours more so. The first half of the edge attributes indicates whether an edge is inside a
    block, which node features do not, so that attention on edge attributes can select neighbours
    of the same block. The other half is noise.

    Args:
        n_nodes: Nodes.
        n_edges: Stored edges, about: both directions of n_edges / 2 pairs, without self loops and
            duplicates.
        classes: Blocks.
        features: Width of the node features.
        edge_features: Width of the edge attributes.
        inside: Share of pairs inside a block.
        signal: Distance of the block centres in feature space, in units of the noise.
        edge_signal: Distance of inside and other edges in each informative attribute, in units of
            the noise.
        skew: Degree correction: node weights are u ** -skew for uniform u; 0 gives equal weights.
        seed: Seed of everything but the split of :func:`graphtheta.load`.

    Returns:
        Arguments of an undirected graph with masks (20 % training, 20 % validation, 60 % test).

    Raises:
        ConfigError: Counts that are not positive, shares outside 0..1.

    Source: Karrer and Newman, Stochastic blockmodels and community structure in networks,
    https://arxiv.org/abs/1008.3926
    """
    check_counts("sbm", n_nodes=n_nodes, classes=classes, features=features)
    if not 0 <= inside <= 1 or not 0 <= skew < 1 or n_edges < 0 or edge_features < 0:
        raise ConfigError(
            "sbm: inside must lie in 0..1 and skew in [0, 1), counts must not be negative; got "
            f"inside={inside}, skew={skew}, n_edges={n_edges}, edge_features={edge_features}"
        )
    nodes = np.arange(n_nodes)
    y = integers(stream(seed, BLOCK), nodes, classes)
    weight = np.maximum(uniform(stream(seed, DEGREE), nodes), 1 / n_nodes) ** -skew
    low, high = sbm_pairs(y=y, weight=weight, n_pairs=n_edges // 2, inside=inside, seed=seed)
    centre = normal(stream(seed, CENTRE), np.arange(classes), features)
    x = signal * centre[y] + normal(stream(seed, FEATURE), nodes, features)
    # keyed by the pair, so that both directions carry the same attributes
    noise = (
        normal(stream(seed, EDGE), pair_key(low, high, n_nodes), edge_features)
        if edge_features
        else None
    )
    if noise is not None:
        informative = (edge_features + 1) // 2
        noise[:, :informative] += edge_signal * ((y[low] == y[high]) - 0.5)[:, None]
        noise = np.concatenate((noise, noise))
    ends = np.concatenate((low, high)), np.concatenate((high, low))
    train, val, test = fraction_split(n_nodes, 0.2, 0.2, seed=seed)
    return {
        "edge_index": ends,
        "n_nodes": n_nodes,
        "x": x,
        "y": y,
        "n_classes": classes,
        "edge_attr": noise,
        "train": train,
        "val": val,
        "test": test,
        "meta": {"kind": "degree-corrected stochastic block model", "seed": seed},
    }


def sbm_pairs(
    y: np.ndarray, weight: np.ndarray, n_pairs: int, inside: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Distinct pairs (low, high): the first end by weight, the second by weight inside its block or
    outside.
    """
    # a few more, for those lost to self loops and duplicates
    draw = np.arange(int(n_pairs * 1.15) + 8)
    by_block = np.argsort(y, kind="stable")
    total = np.cumsum(weight[by_block])
    u = uniform(stream(seed, SOURCE), draw)
    first = by_block[np.minimum(np.searchsorted(total, u * total[-1], side="right"), len(y) - 1)]
    # the weights of a block are one interval [begin, end) of the running total
    edge = np.searchsorted(y[by_block], np.arange(int(y.max()) + 2))
    bound = np.concatenate(([0.0], total))[edge]
    begin = bound[y[first]]
    end = bound[y[first] + 1]
    v = uniform(stream(seed, DESTINATION), draw)
    within = begin + v * (end - begin)
    without = (end + v * (total[-1] - (end - begin))) % total[-1]
    aim = np.where(uniform(stream(seed, INSIDE), draw) < inside, within, without)
    second = by_block[np.minimum(np.searchsorted(total, aim, side="right"), len(y) - 1)]
    low = np.minimum(first, second)
    high = np.maximum(first, second)
    keep = np.flatnonzero(low != high)
    keep = keep[first_of_each(pair_key(low[keep], high[keep], len(y)))][:n_pairs]
    return low[keep], high[keep]


def rmat(
    scale: int = 12,
    edge_factor: int = 8,
    features: int = 16,
    classes: int = 8,
    edge_features: int = 0,
    *,
    a: float = 0.57,
    b: float = 0.19,
    c: float = 0.19,
    symmetric: bool = True,
    seed: int = 0,
) -> dict[str, Any]:
    """R-MAT graph: heavy hubs, for measuring communication volume and load balance.

    Labels are random and independent of the edges; features are noise plus the one-hot class.

    Args:
        scale: 2**scale nodes.
        edge_factor: Edges drawn per node; self loops and duplicates among them are dropped.
        features: Width of the node features.
        classes: Classes, at most ``features``.
        edge_features: Width of random edge attributes.
        a, b, c: Probabilities of the first three quadrants; the defaults are those of Graph500.
        symmetric: Store both directions of every edge.
        seed: Seed of everything.

    Returns:
        Arguments of a graph with masks (60 % training, 20 % validation, 20 % test).

    Raises:
        ConfigError: A count is not positive, or a, b, c are not probabilities.

    Source: Chakrabarti, Zhan and Faloutsos, R-MAT, SDM 2004; https://graph500.org
    """
    check_counts("rmat", scale=scale, edge_factor=edge_factor, features=features, classes=classes)
    if min(a, b, c) < 0 or a + b + c > 1 or scale > 30 or classes > features or edge_features < 0:
        raise ConfigError(
            "rmat: a, b, c must be probabilities, scale at most 30 and classes at most features;"
            f" got a={a}, b={b}, c={c}, scale={scale}, classes={classes}, features={features},"
            f" edge_features={edge_features}"
        )
    n = 1 << scale
    draw = np.arange(edge_factor << scale)
    src = np.zeros_like(draw)
    dst = np.zeros_like(draw)
    for level in range(scale):
        u = uniform(stream(seed, LEVEL + level), draw)
        src |= (u >= a + b).astype(np.int64) << level
        dst |= (((u >= a) & (u < a + b)) | (u >= a + b + c)).astype(np.int64) << level
    # by construction hubs have low numbers; renumber the nodes at random
    number = shuffle(stream(seed, NUMBERING), np.arange(n))
    src, dst = number[src], number[dst]
    loose = src != dst
    src, dst = src[loose], dst[loose]
    if symmetric:
        src, dst = np.concatenate((src, dst)), np.concatenate((dst, src))
    first = first_of_each(pair_key(src, dst, n))
    src, dst = src[first], dst[first]
    y = integers(stream(seed, BLOCK), np.arange(n), classes)
    x = normal(stream(seed, FEATURE), np.arange(n), features)
    x[np.arange(n), y] += 1
    attr = (
        normal(stream(seed, EDGE), pair_key(src, dst, n), edge_features) if edge_features else None
    )
    train, val, test = fraction_split(n, seed=seed)
    return {
        "edge_index": (src, dst),
        "n_nodes": n,
        "x": x,
        "y": y,
        "n_classes": classes,
        "edge_attr": attr,
        "train": train,
        "val": val,
        "test": test,
        "meta": {"kind": "R-MAT", "seed": seed},
    }


def ring(n: int = 12, features: int = 4, *, seed: int = 0) -> dict[str, Any]:
    """Nodes in a circle, both directions; classes alternate, features and one edge attribute are
    random.
    """
    check_counts("ring", n=n, features=features)
    nodes = np.arange(n)
    ahead = (nodes + 1) % n
    return tiny(
        kind="ring",
        src=np.concatenate((nodes, ahead)),
        dst=np.concatenate((ahead, nodes)),
        n=n,
        features=features,
        seed=seed,
    )


def star(n: int = 12, features: int = 4, *, seed: int = 0) -> dict[str, Any]:
    """One hub, node 0, and n - 1 leaves, both directions; classes alternate, features and one edge
    attribute are random.
    """
    check_counts("star", n=n, features=features)
    leaves = np.arange(1, n)
    hub = np.zeros_like(leaves)
    return tiny(
        kind="star",
        src=np.concatenate((hub, leaves)),
        dst=np.concatenate((leaves, hub)),
        n=n,
        features=features,
        seed=seed,
    )


def tiny(
    kind: str, src: np.ndarray, dst: np.ndarray, n: int, features: int, seed: int
) -> dict[str, Any]:
    """A small graph for tests and examples; training, validation and test nodes alternate."""
    nodes = np.arange(n)
    attr = normal(stream(seed, EDGE), np.arange(len(src)), 1)
    return {
        "edge_index": (src, dst),
        "n_nodes": n,
        "x": normal(stream(seed, FEATURE), nodes, features),
        "y": nodes % 2,
        "n_classes": 2,
        "edge_attr": attr,
        "train": nodes % 3 == 0,
        "val": nodes % 3 == 1,
        "test": nodes % 3 == 2,
        "meta": {"kind": kind, "seed": seed},
    }


def random_features(n: int, width: int, seed: int = 0) -> np.ndarray:
    """Normal features for a graph that has none, [n, width] float32."""
    return normal(stream(seed, FEATURE), np.arange(n), width).astype(np.float32)


def random_code(n: int, width: int, seed: int = 0) -> np.ndarray:
    """One vector of random signs per kind, [n, width] float32 of length 1."""
    sign = (bits(stream(seed, CENTRE), np.arange(n), width) & np.uint64(1)).astype(
        np.float32
    ) * 2 - 1
    return sign / np.float32(np.sqrt(width))


def stream(seed: int, word: int) -> int:
    """The key of one stream of draws."""
    return key(seed, Purpose.DATA, word)


def check_counts(what: str, **counts: int) -> None:
    """Counts are positive integers."""
    for name, value in counts.items():
        if not isinstance(value, (int, np.integer)) or value < 1:
            raise ConfigError(f"{what}: {name} must be a positive integer, got {value!r}")
