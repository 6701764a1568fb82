"""Graph algorithms as functions of a graph; every worker gets the values of all nodes.

Each function takes further arguments ``comm`` (the workers; by default those the process was
started with), ``masters`` and ``partitioner`` (as the keys of a job) by name. Results do not depend
on them. The classes of the algorithms describe definitions and sources.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.analytics.analyse import analyse
from graphtheta.analytics.betweenness import Betweenness
from graphtheta.analytics.components import Components
from graphtheta.analytics.page_rank import PageRank
from graphtheta.analytics.paths import Bfs, Sssp
from graphtheta.analytics.random_walks import RandomWalks
from graphtheta.analytics.structure import CoreNumber, Degree, LabelPropagation, Triangles
from graphtheta.base.arguments import checked
from graphtheta.graph.data.graph import Graph


@checked
def pagerank(
    graph: Graph,
    damping: float = 0.85,
    tolerance: float = 1e-9,
    iterations: int = 1000,
    **where: Any,
) -> np.ndarray:
    """PageRank of each node, [n_nodes] float64; all add up to 1.

    Args:
        graph: The graph.
        damping: Probability of following an edge.
        tolerance: Iterations end when the sum of the absolute changes of all ranks is at most this.
        iterations: The most iterations.
        **where: Workers and partition, as for ``analyse``.

    Raises:
        ConfigError: An option is out of range.

    Collective: all ranks.
    """
    return analyse(graph, PageRank(damping, tolerance, iterations), **where)


@checked
def components(graph: Graph, **where: Any) -> np.ndarray:
    """The lowest node of the weakly connected component of each node, [n_nodes] int64.

    Args:
        graph: The graph.
        **where: Workers and partition, as for ``analyse``.

    Collective: all ranks.
    """
    return analyse(graph, Components(), **where)


@checked
def degree(graph: Graph, **where: Any) -> np.ndarray:
    """Edges into each node, [n_nodes] int64.

    Args:
        graph: The graph.
        **where: Workers and partition, as for ``analyse``.

    Collective: all ranks.
    """
    return analyse(graph, Degree(), **where)


@checked
def core_number(graph: Graph, **where: Any) -> np.ndarray:
    """The core number of each node of an undirected graph, [n_nodes] int32.

    Args:
        graph: The graph.
        **where: Workers and partition, as for ``analyse``.

    Raises:
        DataError: The graph is directed.

    Collective: all ranks.
    """
    return analyse(graph, CoreNumber(), **where)


@checked
def triangles(graph: Graph, **where: Any) -> np.ndarray:
    """The triangles at each node of an undirected graph, [n_nodes] int64.

    Args:
        graph: The graph.
        **where: Workers and partition, as for ``analyse``.

    Raises:
        DataError: The graph is directed.

    Collective: all ranks.
    """
    return analyse(graph, Triangles(), **where)


@checked
def label_propagation(graph: Graph, iterations: int = 10, **where: Any) -> np.ndarray:
    """The community of each node of an undirected graph, named by one of the nodes, [n_nodes]
    int64.

    Args:
        graph: The graph.
        iterations: The most iterations.
        **where: Workers and partition, as for ``analyse``.

    Raises:
        ConfigError: An option is out of range.
        DataError: The graph is directed.

    Collective: all ranks.
    """
    return analyse(graph, LabelPropagation(iterations), **where)


@checked
def bfs(graph: Graph, source: int | str, **where: Any) -> np.ndarray:
    """The fewest edges of a path from a source to each node, [n_nodes] int32; -1 without a path.

    Args:
        graph: The graph.
        source: Original id of the source.
        **where: Workers and partition, as for ``analyse``.

    Raises:
        ConfigError: The graph has no such node.

    Collective: all ranks.
    """
    return analyse(graph, Bfs(str(source)), **where)


@checked
def sssp(graph: Graph, source: int | str, **where: Any) -> np.ndarray:
    """The least sum of edge weights of a path from a source to each node, [n_nodes] float64;
    infinite without one.

    Args:
        graph: The graph.
        source: Original id of the source.
        **where: Workers and partition, as for ``analyse``.

    Raises:
        ConfigError: The graph has no such node.
        DataError: A weight is negative.

    Collective: all ranks.
    """
    return analyse(graph, Sssp(str(source)), **where)


@checked
def betweenness(graph: Graph, sources: int = 100, seed: int = 0, **where: Any) -> np.ndarray:
    """The share of shortest paths that lead through each node, [n_nodes] float64.

    Args:
        graph: The graph.
        sources: Nodes drawn as sources of paths; 0 is all nodes, which gives exact values.
        seed: Seed of the draw.
        **where: Workers and partition, as for ``analyse``.

    Raises:
        ConfigError: An option is out of range.

    Collective: all ranks.
    """
    return analyse(graph, Betweenness(sources, seed), **where)


@checked
def random_walks(
    graph: Graph,
    paths: int = 10,
    length: int = 80,
    p: float = 1.0,
    q: float = 1.0,
    seed: int = 0,
    **where: Any,
) -> np.ndarray:
    """Random walks of node2vec from each node, [n_nodes, paths, length + 1] int64; -1 after a node
    without out-edges.

    Args:
        graph: The graph.
        paths, length: Paths from each node, and steps of each.
        p, q: Return and in-out parameters.
        seed: Seed of the draws.
        **where: Workers and partition, as for ``analyse``.

    Raises:
        ConfigError: An option is out of range.

    Collective: all ranks.
    """
    return analyse(graph, RandomWalks(paths=paths, length=length, p=p, q=q, seed=seed), **where)
