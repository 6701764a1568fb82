"""Clusters of nodes for cluster-batch training, found by Louvain or Leiden (NetworKit) or METIS
(pymetis).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.base.npy import read_npy
from graphtheta.errors import ConfigError, FormatError, PartitionError

# methods that determine their number of clusters, and all
COMMUNITIES = ("louvain", "leiden")
METHODS = (*COMMUNITIES, "metis")


def find_clusters(
    src: np.ndarray,
    dst: np.ndarray,
    n_nodes: int,
    method: str = "louvain",
    n_clusters: int = 0,
    seed: int = 0,
) -> np.ndarray:
    """The cluster of every node.

    Args:
        src, dst: Edges; direction is ignored.
        method: "louvain", "leiden", "metis", or the path of an .npy file with one cluster number
            per node.
        n_clusters: For Louvain and Leiden, 0 returns the communities as found; a larger number
            packs them into so many clusters of similar size. METIS needs a number of 1 or more. Of
            a file it is 0, or the number of clusters in it.
        seed: Seed of the method.

    Returns:
        [n_nodes] int64, numbered from 0 without gaps.

    Raises:
        ConfigError: Unknown method, missing library, or invalid number of clusters.
        PartitionError: METIS was stopped, or had too little memory.
        FormatError: The file does not have one integer for each node.

    Source: Blondel et al., https://arxiv.org/abs/0803.0476; Traag et al.,
    https://arxiv.org/abs/1810.08473; Karypis and Kumar, METIS.
    """
    return clusters_of(
        near=lambda: neighbours(src, dst, n_nodes),
        n_nodes=n_nodes,
        method=method,
        n_clusters=n_clusters,
        seed=seed,
    )


def clusters_of(
    near: Callable[[], Any], n_nodes: int, method: str, n_clusters: int, seed: int
) -> np.ndarray:
    """The cluster of every node; results, errors and the other arguments are those of
    ``find_clusters``.

    Args:
        near: Makes what ``neighbours`` returns; called once at most, so that the edges need not be
            in memory longer.
    """
    if method in COMMUNITIES:
        cluster = _communities(near, n_nodes, method, seed)
        cluster = _pack(cluster, n_clusters, method) if n_clusters else cluster
    elif method == "metis":
        cluster = _metis(near, n_nodes, n_clusters, seed)
    else:
        cluster = _from_file(method, n_nodes)
        several = len(np.unique(cluster))
        if n_clusters not in (0, several):
            raise ConfigError(
                f"clusters={n_clusters}, but {method} has {several}; drop --clusters, or give"
                " another --cluster-method"
            )
    return np.unique(cluster, return_inverse=True)[1].astype(np.int64)


def _communities(near: Callable[[], Any], n_nodes: int, method: str, seed: int) -> np.ndarray:
    """Communities by one thread, because those of several threads differ from run to run."""
    try:
        import networkit
    except ImportError:
        raise ConfigError(
            f"clusters by {method} need networkit: pip install 'graphtheta[cluster]'"
        ) from None
    from scipy.sparse import triu

    pairs = triu(near(), format="coo")
    if not pairs.nnz:
        return np.arange(n_nodes)
    graph = networkit.GraphFromCoo((np.ones(pairs.nnz), pairs.coords), n=n_nodes)
    del pairs
    threads = networkit.getMaxNumberOfThreads()
    networkit.setNumberOfThreads(1)
    try:
        networkit.setSeed(seed, False)
        search = (
            networkit.community.ParallelLeiden(graph, randomize=False)
            if method == "leiden"
            else networkit.community.PLM(graph)
        )
        return np.asarray(search.run().getPartition().getVector())
    finally:
        networkit.setNumberOfThreads(threads)


def _metis(near: Callable[[], Any], n_nodes: int, n_clusters: int, seed: int) -> np.ndarray:
    try:
        import pymetis
    except ImportError:
        raise ConfigError(
            "cluster batches by METIS need pymetis: pip install 'graphtheta[metis]', "
            "or use --cluster-method louvain"
        ) from None
    if not 1 <= n_clusters <= n_nodes:
        raise ConfigError(
            f"METIS needs the number of clusters, 1 to {n_nodes}: set --clusters (got {n_clusters})"
        )
    if n_clusters == 1:
        return np.zeros(n_nodes, np.int64)
    adjacency = near()
    # pymetis copies other types, and arrays that are not contiguous, number by number
    graph = pymetis.CSRAdjacency(
        adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int64)
    )
    try:
        return np.asarray(
            pymetis.part_graph(n_clusters, graph, options=pymetis.Options(seed=seed))[1]
        )
    except RuntimeError as error:
        raise PartitionError(
            f"METIS ended without parts ({error}): it was stopped by SIGTERM, for example by a time"
            f" limit, or memory was short; {n_nodes} nodes and {len(graph.adjacent) // 2} edges"
            f" need about {24 * len(graph.adjacent) / 2**30:.1f} GiB; use another method"
        ) from None


def neighbours(src: np.ndarray, dst: np.ndarray, n_nodes: int) -> Any:
    """The neighbours of each node along edges of both directions, ascending, each once, without the
    node itself.

    Args:
        src, dst: Edges, [n_edges] integers.
        n_nodes: Number of nodes.

    Returns:
        A CSR array of SciPy, [n_nodes, n_nodes] bool, True for neighbours.
    """
    from scipy.sparse import coo_array

    other = src != dst
    kind = np.int32 if n_nodes <= np.iinfo(np.int32).max else np.int64
    ends = tuple(
        end.astype(kind, copy=False) if other.all() else end[other].astype(kind)
        for end in (src, dst)
    )
    # each conversion sorts by counting
    out = coo_array((np.ones(len(ends[0]), bool), ends), (n_nodes, n_nodes)).tocsc().tocsr()
    del ends
    out.sum_duplicates()
    return out + out.T.tocsr()


def _pack(community_of: np.ndarray, n: int, method: str) -> np.ndarray:
    """Join communities into n clusters: largest first, each into the smallest cluster so far."""
    sizes = np.bincount(community_of)
    if n > len(sizes):
        raise ConfigError(
            f"{method.title()} found {len(sizes)} communities, fewer than the {n} clusters asked"
            f" for; set --clusters to at most {len(sizes)}, or use --clusters 0 (communities as"
            " found) or --cluster-method metis"
        )
    load = np.zeros(n, np.int64)
    home = np.empty(len(sizes), np.int64)
    for community in np.lexsort((np.arange(len(sizes)), -sizes)):
        home[community] = np.argmin(load)
        load[home[community]] += sizes[community]
    return home[community_of]


def _from_file(path: str, n_nodes: int) -> np.ndarray:
    if not Path(path).exists():
        raise ConfigError(
            f"cluster method {path!r} is neither {' nor '.join(METHODS)} nor a file; give one of"
            " these or an .npy file"
        )
    clusters = read_npy(path, "cluster numbers", "iu", 1)
    if len(clusters) != n_nodes:
        raise FormatError(
            f"{path} holds {len(clusters)} cluster numbers; expected one integer for each of the"
            f" {n_nodes} nodes"
        )
    return clusters
