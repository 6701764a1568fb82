"""What a step reads of graphs too large to be stored, in the proportions of papers100M and Alipay.

A batch reads a small part of a graph: the clusters that it consists of, or its targets and their
neighbourhood. Both are drawn alone here, from the distribution that an R-MAT graph has, so that
batches are of the size that they have on hundreds of workers. The engine makes one step of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import graphtheta as gt
from graphtheta.graph.data.transform import pair_key

# a batch has so many targets or clusters of all
SHARE = 0.01
# sizes of clusters are powers of two, of which this one is the smallest
SMALLEST = 4


@dataclass(frozen=True)
class Original:
    """A graph that is too large.

    Attributes:
        name: Its name.
        nodes: Their number.
        degree: Edges of a node.
        features, edge_features: Widths of the attributes of nodes and edges.
        classes: Their number.
        training: Number of training nodes.
        cluster: Nodes of a cluster, on average.
        power: Numbers of clusters fall with this power of their size, which makes this average.
    """

    name: str
    nodes: int
    degree: int
    features: int
    edge_features: int
    classes: int
    training: int
    cluster: int
    power: float


# clusters of papers100M are as large as those of Amazon (8,500 clusters of 2.4 million nodes)
PAPERS = Original(
    name="papers100M",
    nodes=111_059_956,
    degree=14,
    features=128,
    edge_features=0,
    classes=172,
    training=1_207_179,
    cluster=284,
    power=1.88,
)
# 4.14 billion edges and 4.9 million clusters; half of the nodes are for training. The classes are
# levels of risk, which are scored by F1 and AUC
ALIPAY = Original(
    name="Alipay",
    nodes=1_400_000_000,
    degree=3,
    features=575,
    edge_features=57,
    classes=2,
    training=700_000_000,
    cluster=286,
    power=1.92,
)
# quadrants of R-MAT, as of Graph500
A, B = 0.57, 0.19


@dataclass(frozen=True)
class Drawn:
    """A graph for the engine.

    Attributes:
        graph: The graph; only shapes of its features and labels matter.
        times: How many times as large what it stands for is.
    """

    graph: gt.Graph
    times: float


def whole(scale: int, seed: int = 0) -> Drawn:
    """An R-MAT graph of 2**scale nodes, of which as many have labels as of papers100M."""
    drawn = gt.load(
        f"rmat:scale={scale},edge_factor={PAPERS.degree // 2},features=1,classes=1,seed={seed}"
    )
    targets = np.zeros(drawn.n_nodes, bool)
    targets[:: round(PAPERS.nodes / PAPERS.training)] = True
    return Drawn(stored(drawn.src, drawn.dst, targets), PAPERS.nodes / drawn.n_nodes)


def neighbourhood(scale: int, layers: int = 2, seed: int = 0, *, of: Original = PAPERS) -> Drawn:
    """What a mini-batch without sampling reads of an R-MAT graph of 2**scale nodes: the edges into
    all nodes that are computed.

    The edges into a node do not depend on those into another here, so that an edge may lack its
    reverse. Targets have neighbours, as all nodes of papers100M have.

    Args:
        scale: Of the graph.
        layers: Hops.
        seed: Seed of everything.
        of: The graph that it stands for.
    """
    random = np.random.default_rng(seed)
    n = 1 << scale
    targets = max(round(of.training * SHARE * n / of.nodes), 1)
    # half of the nodes of an R-MAT graph have no edges
    new = random.permutation(n)[: 8 * targets]
    degrees = _degrees(random, new, scale, of.degree)
    new = new[degrees > 0][:targets]
    degrees = degrees[degrees > 0][:targets]
    first = new
    computed = new
    ends = []
    for _ in range(layers):
        dst = np.repeat(new, degrees)
        src = _neighbours(random, dst, scale)
        ends.append((src, dst))
        new = distinct(src)
        new = new[~np.isin(new, computed)]
        computed = np.concatenate((computed, new))
        degrees = _degrees(random, new, scale, of.degree)
    src, dst = (np.concatenate(each) for each in zip(*ends, strict=True))
    nodes = distinct(np.concatenate((computed, new)))
    src = np.searchsorted(nodes, src)
    dst = np.searchsorted(nodes, dst)
    edges = simple(src, dst, len(nodes))
    return Drawn(stored(*edges, np.isin(nodes, first), of), of.nodes / n)


def clusters(inside: float, seed: int = 0, *, of: Original = PAPERS, times: int = 1) -> Drawn:
    """A batch of clusters, each of which is an R-MAT graph, without boundary.

    There are as many clusters of each size as a batch has on average, so that the largest ones,
    which few batches have, are left out.

    Args:
        inside: Share of the edges of a node that stay in its cluster.
        seed: Seed of the edges.
        of: The graph that it stands for.
        times: So many times as many clusters as are drawn make the batch.
    """
    levels = cluster_levels(round(of.nodes / of.cluster * SHARE / times), of)
    src, dst = _within(np.random.default_rng(seed), levels, inside, of.degree)
    n = int((1 << levels).sum())
    return Drawn(stored(*simple(src, dst, n), np.ones(n, bool), of), float(times))


def communities(n: int, inside: float, seed: int = 0) -> tuple[gt.Graph, np.ndarray]:
    """A graph of n such clusters, whose other edges have any ends, and the cluster of each node.

    Args:
        n: Number of clusters.
        inside, seed: As of ``clusters``.
    """
    random = np.random.default_rng(seed)
    levels = cluster_levels(n)
    cluster = np.repeat(np.arange(len(levels)), 1 << levels)
    nodes = len(cluster)
    src, dst = _within(random, levels, inside, PAPERS.degree)
    other = random.integers(0, nodes, (2, round((1 - inside) * PAPERS.degree / 2 * nodes)))
    src, dst = (np.concatenate((one, *ends)) for one, ends in ((src, other), (dst, other[::-1])))
    return stored(*simple(src, dst, nodes), np.ones(nodes, bool)), cluster


def _within(
    random: np.random.Generator, levels: np.ndarray, inside: float, degree: int
) -> tuple[np.ndarray, np.ndarray]:
    """Edges inside of clusters, in both directions."""
    sizes = 1 << levels
    drawn = np.rint(inside * degree / 2 * sizes).astype(np.int64)
    # ascending, so that the edges of larger clusters are the last ones
    level = np.repeat(levels, drawn)
    src, dst = (np.zeros(len(level), np.int64) for _ in range(2))
    for bit in range(levels.max()):
        begin = np.searchsorted(level, bit, side="right")
        u = random.random(len(level) - begin, np.float32)
        src[begin:] |= (u >= A + B).astype(np.int64) << bit
        dst[begin:] |= (((u >= A) & (u < A + B)) | (u >= A + 2 * B)).astype(np.int64) << bit
    start = np.repeat(np.cumsum(sizes) - sizes, drawn)
    src, dst = src + start, dst + start
    return np.concatenate((src, dst)), np.concatenate((dst, src))


def cluster_levels(n: int, of: Original = PAPERS) -> np.ndarray:
    """Sizes of n clusters of a power law, ascending, as powers of two; the largest possible one has
    1.6 % of the nodes.
    """
    levels = np.arange(SMALLEST, round(np.log2(0.016 * of.nodes)) + 1)
    share = 2.0 ** (levels * (1 - of.power))
    return np.repeat(levels, np.rint(n * share / share.sum()).astype(np.int64))


def _degrees(random: np.random.Generator, nodes: np.ndarray, scale: int, degree: int) -> np.ndarray:
    """Edges into nodes of an R-MAT graph, whose bits decide how probably an edge ends there."""
    ones = np.bitwise_count(nodes).astype(np.int64)
    return random.poisson(float(degree << scale) * (A + B) ** (scale - ones) * (1 - A - B) ** ones)


def _neighbours(random: np.random.Generator, nodes: np.ndarray, scale: int) -> np.ndarray:
    """The other end of edges at nodes: with each bit of a node, a bit of the other end has another
    probability.
    """
    found = np.zeros_like(nodes)
    one = np.array([B / (A + B), 1 - B / (1 - A - B)], np.float32)
    for bit in range(scale):
        found |= (random.random(len(nodes), np.float32) < one[nodes >> bit & 1]).astype(
            np.int64
        ) << bit
    return found


def simple(src: np.ndarray, dst: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges without self loops and duplicates."""
    loose = src != dst
    kept = distinct(pair_key(src[loose], dst[loose], n))
    return kept // n, kept % n


def distinct(x: np.ndarray) -> np.ndarray:
    """Ascending numbers, each once; sorting is faster than the hash table of ``np.unique``."""
    ordered = np.sort(x)
    return ordered[np.diff(ordered, prepend=-1) != 0]


def stored(src: np.ndarray, dst: np.ndarray, train: np.ndarray, of: Original = PAPERS) -> gt.Graph:
    n = len(train)
    return gt.Graph(
        (src, dst),
        n,
        x=np.zeros((n, of.features), np.float32),
        y=np.arange(n) % of.classes,
        n_classes=of.classes,
        edge_attr=np.zeros((len(src), of.edge_features), np.float32) if of.edge_features else None,
        train=train,
        val=~train,
        test=np.zeros(n, bool),
        name=of.name,
    )
