"""Graph algorithms against networkx on odd graphs, and against themselves on other workers,
partitions and blocks of threads.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pytest
from graphs import fill, odd_graphs, random_graph

import graphtheta as gt
from graphtheta.analytics import betweenness, local_edges, paths
from graphtheta.analytics.registry import ALGORITHMS, make_algorithm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError
from graphtheta.ops.parallel.pool import set_threads, threads

GRAPHS = odd_graphs() | {"random": random_graph(30, 80), "dense": random_graph(16, 120, hub=False)}
# node partitioners with edge placements; "random" puts duplicates of an edge on several workers
PARTITIONS = [("hash", "1d-src"), ("block", "1d-dst"), ("hash", "vertex-cut"), ("block", "random")]
DIRECTED = [
    "pagerank",
    "components",
    "degree",
    "bfs",
    "sssp",
    "betweenness:sources=0",
    "random_walks:paths=2,length=4,p=0.5,q=2",
]
UNDIRECTED = ["core_number", "triangles", "label_propagation"]


@cache
def graph_of(name: str, undirected: bool) -> gt.Graph:
    """A graph, with its reverse edges if it is to be undirected."""
    return GRAPHS[name].symmetrised() if undirected and GRAPHS[name].n_edges else GRAPHS[name]


def networkx_of(graph: gt.Graph, loops: bool) -> nx.DiGraph:
    """Edges with the number of their duplicates, and the least of their weights."""
    g = nx.DiGraph()
    g.add_nodes_from(range(graph.n_nodes))
    for s, d, w in zip(
        graph.src.tolist(),
        graph.dst.tolist(),
        graph.edge_weight.astype(float).tolist(),
        strict=True,
    ):
        if loops or s != d:
            old = g.edges.get((s, d), {"count": 0, "weight": np.inf})
            g.add_edge(s, d, count=old["count"] + 1, weight=min(w, old["weight"]))
    return g


def propagated(g: nx.Graph, iterations: int) -> list[int]:
    """Label propagation, node by node."""
    label = list(g)
    for _ in range(iterations):
        counts = [Counter(label[u] for u in g[v]) for v in g]
        label = [
            min(c, key=lambda x, c=c: (-c[x], x)) if c else label[v]
            for v, c in zip(g, counts, strict=True)
        ]
    return label


def listed(found: dict[int, Any], n: int, missing: Any) -> list[Any]:
    return [found.get(v, missing) for v in range(n)]


def expected(algorithm: str, graph: gt.Graph) -> Any:
    """What networkx finds."""
    n = graph.n_nodes
    g = networkx_of(graph, loops=True)
    plain = networkx_of(graph, loops=False)
    if algorithm == "pagerank":
        return listed(nx.pagerank(g, weight="count", tol=1e-12, max_iter=10000), n, None)
    if algorithm == "components":
        parts = list(nx.weakly_connected_components(g))
        return [min(next(part for part in parts if v in part)) for v in range(n)]
    if algorithm == "degree":
        return listed(dict(g.in_degree(weight="count")), n, 0)
    if algorithm == "bfs":
        return listed(nx.single_source_shortest_path_length(g, 0), n, -1)
    if algorithm == "sssp":
        return listed(nx.single_source_dijkstra_path_length(g, 0), n, np.inf)
    if algorithm == "betweenness:sources=0":
        return listed(nx.betweenness_centrality(g), n, None)
    if algorithm == "core_number":
        return listed(nx.core_number(plain.to_undirected()), n, None)
    if algorithm == "triangles":
        return listed(nx.triangles(plain.to_undirected()), n, None)
    return propagated(plain.to_undirected(), 10)


def run(
    graph: gt.Graph,
    algorithm: str,
    size: int = 1,
    masters: str = "hash",
    partitioner: str = "1d-src",
) -> np.ndarray:
    """The values, which are the same on all ranks."""
    made = make_algorithm(algorithm)
    found = run_simulated(
        size,
        lambda comm: gt.analyse(graph, made, comm=comm, masters=masters, partitioner=partitioner),
    )
    assert all(np.array_equal(x, found[0]) for x in found)
    return found[0]


@pytest.mark.parametrize("name", GRAPHS)
def test_values_equal_those_of_networkx(name: str) -> None:
    for algorithm in DIRECTED[:-1] + UNDIRECTED:
        graph = graph_of(name, algorithm in UNDIRECTED)
        # duplicates are paths of their own
        graph = graph.deduplicated() if algorithm.startswith("betweenness") else graph
        np.testing.assert_allclose(
            run(graph, algorithm), expected(algorithm, graph), rtol=0, atol=1e-8, err_msg=algorithm
        )


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", GRAPHS)
def test_values_do_not_depend_on_workers_and_partitions(name: str) -> None:
    for algorithm in DIRECTED + UNDIRECTED:
        graph = graph_of(name, algorithm in UNDIRECTED)
        alone = run(graph, algorithm)
        for i, size in enumerate((1, 2, 3, 3)):
            if size <= graph.n_nodes:
                assert np.array_equal(run(graph, algorithm, size, *PARTITIONS[i]), alone), (
                    algorithm,
                    size,
                    PARTITIONS[i],
                )


def test_values_do_not_depend_on_threads_and_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    many = threads()
    for algorithm in DIRECTED + UNDIRECTED:
        graph = graph_of("dense", algorithm in UNDIRECTED)
        whole = run(graph, algorithm)
        for n in (1, 2):
            with monkeypatch.context() as patch:
                patch.setattr(local_edges, "EDGES", 7)
                patch.setattr(local_edges, "ROWS", 3)
                set_threads(min(n, many))
                assert np.array_equal(run(graph, algorithm, 2), whole), algorithm
    set_threads(many)


def test_a_worker_without_nodes_or_edges_takes_part() -> None:
    # nodes of the last blocks have no edges
    graph = fill([0, 1, 0, 2], [1, 0, 2, 0], 9)
    for algorithm in DIRECTED + UNDIRECTED:
        assert np.array_equal(run(graph, algorithm, 3, "block"), run(graph, algorithm)), algorithm


def test_a_long_path_crosses_workers_many_times() -> None:
    n = 60
    path = fill(np.arange(n - 1), np.arange(1, n), n, edge_weight=np.full(n - 1, 0.1))
    assert run(path, "bfs", 3).tolist() == list(range(n))
    assert run(path, "components", 3).tolist() == [0] * n
    assert run(path, "sssp", 3)[-1] == np.cumsum(np.full(n - 1, np.float64(np.float32(0.1))))[-1]
    assert run(path.symmetrised(), "core_number", 3).tolist() == [1] * n


def test_one_worker_passes_over_all_nodes_for_few_levels_of_a_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time is not that of the square of the nodes; a wide level in the middle is searched by all
    threads.
    """
    passes = 0

    def counted(*given: Any) -> Any:
        nonlocal passes
        passes += 1
        return level(*given)

    level = paths.next_level
    monkeypatch.setattr(paths, "next_level", counted)
    n, wide = 1000, 300
    ends = np.concatenate((np.arange(n - 1), np.full(wide, n // 2)))
    others = np.concatenate((np.arange(1, n), n + np.arange(wide)))
    graph = fill(ends, others, n + wide)
    distance = gt.bfs(graph, 0)
    assert distance[:n].tolist() == list(range(n)) and set(distance[n:].tolist()) == {n // 2 + 1}
    assert 1 <= passes <= paths.WIDE_LEVELS
    monkeypatch.setattr(betweenness, "dependencies_of", None)
    path = fill(np.arange(n - 1), np.arange(1, n), n)
    before = np.arange(n)
    expected = before * before[::-1] / ((n - 1) * (n - 2))
    np.testing.assert_allclose(gt.betweenness(path, sources=0), expected, rtol=1e-12)


def test_functions_take_options_and_original_ids() -> None:
    graph = gt.Graph(([0, 1, 2], [1, 2, 0]), 4, node_ids=["a", "b", "c", "d"])
    assert gt.bfs(graph, "b").tolist() == [2, 0, 1, -1] and gt.sssp(graph, source="b").tolist() == [
        2,
        0,
        1,
        np.inf,
    ]
    assert gt.pagerank(graph, damping=0.0).tolist() == [0.25] * 4
    assert gt.degree(graph).tolist() == [1, 1, 1, 0] and gt.components(graph).tolist() == [
        0,
        0,
        0,
        3,
    ]
    assert gt.random_walks(graph, paths=1, length=2)[:, 0].tolist() == [
        [0, 1, 2],
        [1, 2, 0],
        [2, 0, 1],
        [3, -1, -1],
    ]
    assert (
        gt.betweenness(graph, sources=4).tolist()
        == gt.betweenness(graph, sources=0).tolist()
        == [1 / 6] * 3 + [0]
    )
    both = graph.symmetrised()
    assert [f(both).tolist() for f in (gt.core_number, gt.triangles, gt.label_propagation)] == [
        [2, 2, 2, 0],
        [1, 1, 1, 0],
        [0, 0, 0, 3],
    ]


def test_sampled_betweenness_is_the_mean_over_the_drawn_sources() -> None:
    graph = graph_of("dense", True).deduplicated().without_self_loops()
    found = np.mean(
        [gt.betweenness(graph, sources=graph.n_nodes // 4, seed=s) for s in range(40)], axis=0
    )
    whole = gt.betweenness(graph, sources=0)
    assert 0 < np.abs(found - whole).max() < 0.15 * whole.max()
    assert gt.betweenness(graph, 4, 0).tolist() != gt.betweenness(graph, 4, 1).tolist()


def test_paths_that_cannot_be_counted_are_an_error() -> None:
    # 1,030 times two edges one after the other have 2**1030 paths
    ends = np.repeat(np.arange(1030), 2)
    with pytest.raises(DataError, match="1e308"):
        gt.betweenness(fill(ends, ends + 1, 1031), sources=0)


def test_steps_of_random_walks_follow_the_weights_of_node2vec() -> None:
    # 0 and 1 share neighbour 2; 3 is near 1 only
    graph = gt.Graph(([0, 1, 2, 0, 1, 3, 1, 2], [1, 0, 0, 2, 3, 1, 2, 1]), 4)
    paths = gt.random_walks(graph, paths=6000, length=2, p=4.0, q=0.25).reshape(-1, 3)
    paths = paths[(paths[:, 0] == 0) & (paths[:, 1] == 1)]
    share = np.bincount(paths[:, 2], minlength=4) / len(paths)
    # back to 0: 1/p, to 2, a neighbour of 0: 1, to 3: 1/q
    np.testing.assert_allclose(share, np.array([0.25, 0, 1, 4]) / 5.25, atol=0.02)
    edges = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    assert {tuple(step) for step in np.unique(paths[:, 1:], axis=0).tolist()} <= edges


@pytest.mark.parametrize(
    ("algorithm", "error", "text"),
    [
        *((name, DataError, "reverse") for name in UNDIRECTED),
        ("sssp:source=1", DataError, "weight -1"),
        ("bfs:source=9", ConfigError, "no node '9'"),
        ("pagerank:damping=1", ConfigError, "damping is 1.0"),
        ("pagerank:iterations=0", ConfigError, "iterations 0"),
        ("label_propagation:iterations=0", ConfigError, "at least 1"),
        ("betweenness:sources=-1", ConfigError, "at least 0"),
        ("random_walks:p=0", ConfigError, "p and q above 0"),
        ("random_walks:p=100,q=0.05", ConfigError, "factor of 1,000"),
        ("pagerank:dampin=1", ConfigError, "there is no option 'dampin'"),
        ("pagrank", ConfigError, "did you mean 'pagerank'"),
    ],
)
def test_bad_input_is_one_error_on_all_ranks(
    algorithm: str, error: type[Exception], text: str
) -> None:
    graph = fill([0, 1, 2], [1, 2, 3], 5, edge_weight=[1, 1, -1])
    said = []

    def program(comm: Any) -> None:
        try:
            gt.analyse(graph, make_algorithm(algorithm), comm=comm)
        except error as e:
            said.append(str(e))

    run_simulated(2, program)
    assert len(said) == 2 and all(text in line for line in said)


def test_something_that_is_no_graph_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"expected a gt\.Graph"):
        gt.pagerank(np.zeros((2, 3)))


def test_ranks_that_do_not_converge_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    gt.pagerank(GRAPHS["random"], iterations=1)
    assert "after 1 iterations" in caplog.text


def test_every_algorithm_has_a_function() -> None:
    assert set(ALGORITHMS) <= set(gt.__all__)
