"""Clusters of nodes for cluster-batch training, found by Louvain or Leiden (NetworKit) or METIS (pymetis)."""
from __future__ import annotations

from pathlib import Path

import numpy as np

from graphtheta.errors import ConfigError, FormatError
from graphtheta.npy import read_npy

# methods that determine their number of clusters, and all
COMMUNITIES = ("louvain", "leiden")
METHODS = (*COMMUNITIES, "metis")


def find_clusters(src: np.ndarray, dst: np.ndarray, n_nodes: int, method: str = "louvain", n_clusters: int = 0,
                  seed: int = 0) -> np.ndarray:
    """The cluster of every node.

    Args:
        src, dst: Edges; direction is ignored.
        method: "louvain", "leiden", "metis", or the path of an .npy file with one cluster number
            per node.
        n_clusters: For Louvain and Leiden, 0 returns the communities as found; a larger number
            packs them into so many clusters of similar size. METIS needs a number of 1 or more.
        seed: Seed of the method.

    Returns:
        [n_nodes] int64, numbered from 0 without gaps.

    Raises:
        ConfigError: Unknown method, missing library, or invalid number of clusters.
        FormatError: The file does not have one integer for each node.

    Source: Blondel et al., https://arxiv.org/abs/0803.0476; Traag et al., https://arxiv.org/abs/1810.08473; Karypis and Kumar, METIS.
    """
    if method in COMMUNITIES:
        found = _communities(src, dst, n_nodes, method, seed)
        found = _pack(found, n_clusters, method) if n_clusters else found
    elif method == "metis":
        found = _metis(src, dst, n_nodes, n_clusters, seed)
    else:
        found = _from_file(method, n_nodes)
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def _communities(src: np.ndarray, dst: np.ndarray, n_nodes: int, method: str, seed: int) -> np.ndarray:
    """Communities by one thread, because those of several threads differ from run to run."""
    try:
        import networkit
    except ImportError:
        raise ConfigError(f"clusters by {method} need networkit: pip install 'graphtheta[cluster]'") from None
    low, high = _undirected(src, dst, n_nodes).T
    if not len(low):
        return np.arange(n_nodes)
    graph = networkit.GraphFromCoo((np.ones(len(low)), (low, high)), n=n_nodes)
    threads = networkit.getMaxNumberOfThreads()
    networkit.setNumberOfThreads(1)
    try:
        networkit.setSeed(seed, False)
        found = networkit.community.ParallelLeiden(graph, randomize=False) if method == "leiden" else networkit.community.PLM(graph)
        return np.asarray(found.run().getPartition().getVector())
    finally:
        networkit.setNumberOfThreads(threads)


def _metis(src: np.ndarray, dst: np.ndarray, n_nodes: int, n_clusters: int, seed: int) -> np.ndarray:
    try:
        import pymetis
    except ImportError:
        raise ConfigError("cluster batches by METIS need pymetis: pip install 'graphtheta[metis]', "
                          "or use --cluster-method louvain") from None
    if not 1 <= n_clusters <= n_nodes:
        raise ConfigError(f"METIS needs the number of clusters, 1 to {n_nodes}: set --clusters (got {n_clusters})")
    pairs = _undirected(src, dst, n_nodes)
    both = np.concatenate((pairs, pairs[:, ::-1]))
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    ptr = np.concatenate(([0], np.cumsum(np.bincount(both[:, 0], minlength=n_nodes))))
    if n_clusters == 1:
        return np.zeros(n_nodes, np.int64)
    _, parts = pymetis.part_graph(n_clusters, pymetis.CSRAdjacency(ptr, both[:, 1]), options=pymetis.Options(seed=seed))
    return np.asarray(parts)


def _undirected(src: np.ndarray, dst: np.ndarray, n_nodes: int) -> np.ndarray:
    """Each unordered pair once, without self loops, [n, 2]."""
    low, high = np.minimum(src, dst), np.maximum(src, dst)
    keys = np.unique((low * np.int64(n_nodes) + high)[low != high])
    return np.stack((keys // n_nodes, keys % n_nodes), axis=1)


def _pack(found: np.ndarray, n: int, method: str) -> np.ndarray:
    """Join communities into n clusters: largest first, each into the smallest cluster so far."""
    sizes = np.bincount(found)
    if n > len(sizes):
        raise ConfigError(f"{method.title()} found {len(sizes)} communities, fewer than the {n} clusters asked for; "
                          f"set --clusters to at most {len(sizes)}, or use --clusters 0 (communities as found) or --cluster-method metis")
    load, home = np.zeros(n, np.int64), np.empty(len(sizes), np.int64)
    for community in np.lexsort((np.arange(len(sizes)), -sizes)):
        home[community] = np.argmin(load)
        load[home[community]] += sizes[community]
    return home[found]


def _from_file(path: str, n_nodes: int) -> np.ndarray:
    if not Path(path).exists():
        raise ConfigError(f"cluster method {path!r} is neither {' nor '.join(METHODS)} nor a file; give one of these or an .npy file")
    found = read_npy(path, "cluster numbers", "iu", 1)
    if len(found) != n_nodes:
        raise FormatError(f"{path} holds {len(found)} cluster numbers; expected one integer for each of the {n_nodes} nodes")
    return found
