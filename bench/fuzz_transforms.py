"""Random graphs, changed by the methods of ``gt.Graph`` and by ``gt.transform_store``, and compared
with loops over edges in Python.

    python bench/fuzz_transforms.py --graphs 2000 --seed 1

A graph has loops, duplicates, nodes without edges, one hub, no edges, or one node; perhaps
relations, ids, columns, weights, attributes, masks and labels. It is in memory or in a store, whose
edges are mapped files. Other edges, values, ids or counts than the loops give are faults, as are
errors of other libraries, and make the exit code 1.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import seeds

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import GraphThetaError
from graphtheta.graph.store.from_graph import write_store

Rng = np.random.Generator
# source, destination, relation, and the number of the edge whose values it has
Edge = tuple[int, int, int, int]
MASKS = ("edge_train", "edge_val")
OPTIONS = {"self_loops": "drop", "duplicates": "drop", "reverse": "add", "component": "largest"}


def drawn(rng: Rng) -> gt.Graph:
    """A graph whose values of edges and nodes say which they are."""
    n = int(rng.choice([1, 2, 3, 6, 12, 40]))
    e = int(rng.choice([0, 1, 5, 30, 600]))
    src, dst = rng.integers(0, max(1, n - n // 4), (2, e))
    if rng.random() < 0.2:
        dst[:] = n - 1
    several = rng.random() < 0.5
    columns = {"number": np.arange(e)}
    if several:
        columns["relation"] = rng.integers(-1, 3, e)
    values: dict[str, Any] = {
        "edge_weight": np.arange(e) + 0.5,
        "edge_attr": np.stack((np.arange(e), -np.arange(e)), 1),
        "edge_y": np.arange(e) * 2.0,
        "x": np.arange(n, dtype=np.float32)[:, None],
        "y": np.arange(n) % 3 - 1,
        "train": np.arange(n) % 3 == 2,
        "node_ids": np.array([f"n{i}" for i in range(n)]) if several else 7 * np.arange(n),
    }
    values |= {mask: np.arange(e) % 4 == k for k, mask in enumerate(MASKS)}
    kept = {name: x for name, x in values.items() if rng.random() < 0.6}
    if "y" not in kept:
        kept.pop("train", None)
    nodes = {"place": np.arange(n)}
    return gt.Graph((src, dst), n, edge_columns=columns, node_columns=nodes, **kept)


def edges_of(graph: gt.Graph) -> list[Edge]:
    codes = graph.edge_columns.get("relation", np.zeros(graph.n_edges, int))
    numbers = range(graph.n_edges)
    return list(zip(graph.src.tolist(), graph.dst.tolist(), codes.tolist(), numbers, strict=True))


# ---- the changes, edge by edge


def without_loops(edges: list[Edge]) -> list[Edge]:
    return [edge for edge in edges if edge[0] != edge[1]]


def without_duplicates(edges: list[Edge]) -> list[Edge]:
    first: dict[Any, Edge] = {}
    for edge in edges:
        first.setdefault(edge[:3], edge)
    return list(first.values())


def with_reverses(edges: list[Edge]) -> list[Edge]:
    """The edges, and behind them the reverse of each first one that has none."""
    present = {edge[:3] for edge in edges}
    return edges + [
        (b, a, code, number)
        for a, b, code, number in without_duplicates(edges)
        if (b, a, code) not in present
    ]


def turned(edges: list[Edge]) -> list[Edge]:
    return [(b, a, code, number) for a, b, code, number in edges]


def largest(n: int, edges: list[Edge]) -> list[int]:
    """The nodes of the largest component, of several of that with the lowest node."""
    label = list(range(n))
    changed = True
    while changed:
        changed = False
        for a, b, _, _ in edges:
            low = min(label[a], label[b])
            changed |= label[a] != low or label[b] != low
            label[a] = label[b] = low
    parts = [[i for i in range(n) if label[i] == k] for k in range(n)]
    return max(parts, key=len)


def between(nodes: list[int], edges: list[Edge]) -> list[Edge]:
    """Edges between some nodes, whose new numbers are their places in the list."""
    place = {node: k for k, node in enumerate(nodes)}
    return [(place[a], place[b], *rest) for a, b, *rest in edges if a in place and b in place]


# ---- comparing


def check(
    what: str, given: gt.Graph, changed: gt.Graph, nodes: list[int], edges: list[Edge]
) -> None:
    """Compare a graph with the nodes and edges of another one that it must have.

    Raises:
        AssertionError: It has others.
    """
    equal(f"{what}: ends", [edge[:2] for edge in edges_of(changed)], [edge[:2] for edge in edges])
    of = np.array([edge[3] for edge in edges], np.int64)
    rows = np.array(nodes, np.int64)
    for name in ("edge_weight", "edge_attr", "edge_y", *MASKS, "x", "y", "train"):
        x = getattr(given, name)
        y = getattr(changed, name)
        if x is not None:
            at = of if name.startswith("edge") else rows
            equal(f"{what}: {name}", np.asarray(y[:]).tolist(), np.asarray(x[:])[at].tolist())
        elif y is not None:
            raise AssertionError(f"{what}: a new {name}")
    for field, at in (("edge_columns", of), ("node_columns", rows)):
        for name, x in getattr(given, field).items():
            y = np.asarray(getattr(changed, field)[name])
            equal(f"{what}: {name}", y.tolist(), np.asarray(x)[at].tolist())
    equal(f"{what}: ids", changed.original_ids.tolist(), given.original_ids[rows].tolist())
    equal(f"{what}: labels", changed.label_kind, given.label_kind)


def equal(what: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise AssertionError(f"{what}: {str(found)[:200]} for {str(wanted)[:200]}")


def in_memory(rng: Rng, graph: gt.Graph) -> None:
    """Compare what the methods of a graph make of it."""
    edges, every = edges_of(graph), list(range(graph.n_nodes))
    of_edges: dict[str, tuple[Callable[[], gt.Graph], list[Edge]]] = {
        "without_self_loops": (graph.without_self_loops, without_loops(edges)),
        "deduplicated": (graph.deduplicated, without_duplicates(edges)),
        "symmetrised": (graph.symmetrised, with_reverses(without_duplicates(edges))),
        "reversed": (graph.reversed, turned(edges)),
    }
    for what, (change, wanted) in of_edges.items():
        check(what, graph, change(), every, wanted)
    few = rng.permutation(graph.n_edges)[: rng.integers(0, graph.n_edges + 1)]
    check("keep_edges", graph, graph.keep_edges(few), every, [edges[i] for i in few])
    some = rng.permutation(graph.n_nodes)[: rng.integers(1, graph.n_nodes + 1)].tolist()
    check("subset", graph, graph.subset(some), some, between(some, edges))
    part = largest(graph.n_nodes, edges)
    check("largest_component", graph, graph.largest_component(), part, between(part, edges))


def in_stores(rng: Rng, graph: gt.Graph, folder: Path) -> None:
    """Compare what ``gt.transform_store`` makes of a store."""
    chosen = {key: value for key, value in OPTIONS.items() if rng.random() < 0.5}
    nodes: list[int] = list(range(graph.n_nodes))
    if chosen.get("component"):
        nodes = largest(graph.n_nodes, edges_of(graph))
    elif rng.random() < 0.5:
        mask = rng.random(graph.n_nodes) < 0.6
        mask[rng.integers(graph.n_nodes)] = True
        nodes = np.flatnonzero(mask).tolist()
        chosen["nodes"] = mask
    edges = between(nodes, edges_of(graph))
    if "self_loops" in chosen:
        edges = without_loops(edges)
    rest = without_duplicates(edges) if "duplicates" in chosen else edges
    added = with_reverses(edges)[len(edges) :] if "reverse" in chosen else []
    run_simulated(
        min(graph.n_nodes, int(rng.integers(1, 4))),
        lambda comm: gt.transform_store(folder, to=folder / "new", comm=comm, **chosen),
    )
    changed = gt.load(folder / "new", split="stored")
    check(f"transform_store {sorted(chosen)}", graph, changed, nodes, rest + added)


def one(seed: int) -> str:
    """Change a graph in every way, and compare; returns the words in which it was refused."""
    rng = np.random.default_rng(seed)
    graph = drawn(rng)
    with tempfile.TemporaryDirectory() as folder:
        try:
            in_memory(rng, graph)
            write_store(graph, Path(folder, "s"), SerialComm())
            # rows of features in files are not selected
            in_memory(rng, gt.load(Path(folder, "s"), split="stored").replace(x=graph.x))
            in_stores(rng, graph, Path(folder, "s"))
        except GraphThetaError as error:
            return str(error)
    return ""


def search(numbers: range) -> seeds.Outcomes:
    """How many graphs were accepted and refused, and the faults."""
    return seeds.outcomes(numbers, one)


if __name__ == "__main__":
    sys.exit(seeds.main(__doc__, "graphs", 300, search))
