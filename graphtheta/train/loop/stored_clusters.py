"""Clusters in a folder beside a store, so that they are computed once for any number of jobs and
workers.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from graphtheta.base.atomic import NEW, atomic_file, make_folder
from graphtheta.base.logger import logger
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.graph.data.graph import Graph
from graphtheta.partitioners.communities import METHODS, find_clusters


def clusters_of(graph: Graph, method: str, n_clusters: int = 0, seed: int = 0) -> np.ndarray:
    """The cluster of every node; for a graph of a store they are read from ``clusters_file``, or
    computed and written to it.

    Args:
        graph: The graph.
        method, n_clusters, seed: As in ``find_clusters``.

    Raises:
        ConfigError: As in ``find_clusters``.
        FormatError: A file does not have one integer for each node.
    """
    path = (
        clusters_file(graph, method, n_clusters, seed)
        if graph.folder and method in METHODS
        else None
    )
    if path is not None and path.exists():
        return find_clusters(graph.src, graph.dst, graph.n_nodes, str(path))
    clusters = find_clusters(
        src=np.asarray(graph.src),
        dst=np.asarray(graph.dst),
        n_nodes=graph.n_nodes,
        method=method,
        n_clusters=n_clusters,
        seed=seed,
    )
    if path is None:
        return clusters
    try:
        make_folder(path.parent)
        with atomic_file(path, NEW) as file:
            np.save(file, clusters)
    except OSError as error:
        logger.warning(
            f"{path}: clusters cannot be kept ({error.strerror}) and will be computed again by the"
            " next job"
        )
    return clusters


def clusters_file(graph: Graph, method: str, n_clusters: int, seed: int) -> Path:
    """The file of some clusters, in the folder STORE.clusters. Its name holds the options and a
    checksum of the edges.

    Args:
        graph: A graph of a store.
        method, n_clusters, seed: As in ``find_clusters``.
    """
    sums = hashlib.blake2b(str(graph.n_nodes).encode(), digest_size=16)
    for chunk in EdgeSource(graph).chunks():
        for end in (chunk.src, chunk.dst):
            sums.update(np.ascontiguousarray(end, "<i8").data)
    folder = Path(graph.folder)
    return (
        folder.with_name(f"{folder.name}.clusters")
        / f"{method}-{n_clusters}-{seed}-{sums.hexdigest()}.npy"
    )
