"""Random jobs for ``equality.py --draws typed``: relations and types, whole graphs, triples and
time.

Kinds of graphs and models take turns; everything else is drawn, with caches, macrobatches, learned
features and samplers. Results of histories and inexact exchanges depend on the workers, so
those are not drawn. As in ``equality_jobs.py``, the program refuses what is not valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from equality_jobs import (
    OPTIMISERS,
    STRATEGIES,
    Plan,
    cluster_keys,
    ends_of,
    masks,
    mini_keys,
    network_keys,
    one,
    optimiser_keys,
    views_keys,
)

from graphtheta.graph.data.graph import Graph
from graphtheta.graph.graph_level.whole_graphs import whole_graphs

Rng = np.random.Generator
GRAPHS = ("types", "whole graphs", "triples", "types", "time")
TARGETS = {
    "types": ("classes", "labels", "values", "edges", "links"),
    "whole graphs": ("classes", "labels", "values"),
    "triples": ("triples",),
    "time": ("classes", "values", "edges", "links", "triples"),
}
RELATIONAL = ("rgcn", "rgat", "simple_hgn", "hgt")
MODELS = {
    "types": (*RELATIONAL, "gcn", "sage", "gat"),
    "whole graphs": ("gin", "gine", "gcn", "rgcn", "gat", "gat_e"),
    "triples": ("mlp", "rgcn", "rgat", "simple_hgn", "gat"),
    "time": ("sage", "gin", "gat", "gipa", "gat_e"),
}
SAMPLERS = {
    "types": (
        "neighbour",
        "per_relation",
        "labor",
        "labor:iterations=1",
        "ladies",
        "pladies",
        "neighbour:weight=w",
    ),
    "whole graphs": ("neighbour", "labor", "per_relation"),
    "triples": ("neighbour", "per_relation", "labor", "ladies"),
    "time": ("temporal", "temporal:grain=3", "temporal:strategy=last"),
}
# these draw the nodes of a batch
SAINT = (
    "saint_node:budget=20,coverage=5",
    "saint_edge:budget=15,coverage=5",
    "saint_walk:roots=6,depth=2,coverage=5",
    "saint_frontier:budget=20,frontier=5,coverage=5",
)


class TypedPlan(Plan):
    """A job on a graph of another kind."""

    draws: ClassVar[str] = "typed"

    def made_graph(self) -> Graph:
        rng = np.random.default_rng((self.seed, self.number, self.attempt, 1))
        return MAKERS[self.graph](self.targets, rng)


def draw(seed: int, number: int, attempt: int = 0, fused: float = 0.85) -> TypedPlan:
    """The job of these numbers; arguments as in ``equality_jobs.draw``."""
    rng = np.random.default_rng((seed, number, attempt, 2))
    graph = GRAPHS[number % len(GRAPHS)]
    turn = number // len(GRAPHS)
    model = MODELS[graph][turn % len(MODELS[graph])]
    targets = one(rng, *TARGETS[graph])
    strategy = "mini" if graph == "time" else STRATEGIES[turn % len(STRATEGIES)]
    task = {"edges": "edge", "links": "link", "triples": "triple"}.get(targets, "node")
    keys = {
        "model": model,
        "strategy": strategy,
        "norm": one(rng, "none", "layer", "batch"),
        "dtype": "float64",
        "keep": 0,
        "task": task,
        "seed": int(rng.integers(1000)),
        "backend": "fused" if rng.random() < fused else "reference",
        "epochs": int(rng.integers(2, 4)),
    }
    keys |= (
        optimiser_keys(rng, OPTIMISERS[number % len(OPTIMISERS)])
        | network_keys(rng, model)
        | views_keys(rng, strategy, task)
    )
    keys |= _model_keys(rng, model) | _partition_keys(rng)
    if graph == "triples" and rng.random() < 0.4:
        keys |= {"layers": 0, "jumping": "none"}
    if strategy == "mini":
        keys |= mini_keys(rng, keys["layers"], keys["norm"]) | _sampler_keys(
            rng, graph, keys["layers"]
        )
    elif strategy == "cluster":
        keys |= cluster_keys(rng)
    if strategy != "global":
        keys |= _cache_keys(rng, keys["mode"])
    keys |= _target_keys(rng, targets) | _kind_keys(rng, graph, keys)
    return TypedPlan(number, attempt, graph, targets, int(rng.integers(2, 6)), keys, seed)


def _model_keys(rng: Rng, model: str) -> dict[str, Any]:
    heads: dict[str, tuple[Any, ...]] = {"heads": (1, 2), "attention_dropout": (0.0, 0.3)}
    own: dict[str, dict[str, tuple[Any, ...]]] = {
        "rgcn": {"bases": (0, 2), "relation_sum": (False, True)},
        "rgat": {"bases": (0, 2), **heads},
        "simple_hgn": {"d_relation": (1, 3), **heads},
        "hgt": heads,
    }
    # self loops that are added have no relation
    loops = {"self_loops": one(rng, "auto", "no")} if model in RELATIONAL else {}
    return loops | {key: one(rng, *values) for key, values in own.get(model, {}).items()}


def _partition_keys(rng: Rng) -> dict[str, Any]:
    return {
        "partitioner": one(rng, "1d-src", "1d-dst", "vertex-cut", "hybrid", "libra", "random"),
        "masters": one(rng, "hash", "block", "ldg", "fennel"),
    }


def _sampler_keys(rng: Rng, graph: str, layers: int) -> dict[str, Any]:
    if not layers or (graph != "time" and rng.random() < 0.4):
        return {"fanout": (), "replace": False, "share_sample": False}
    if graph in ("types", "whole graphs") and rng.random() < 0.5:
        return {
            "sampler": one(rng, *SAINT),
            "batch_size": 0,
            "fanout": (),
            "replace": False,
            "share_sample": False,
        }
    return {
        "sampler": one(rng, *SAMPLERS[graph]),
        "fanout": tuple(int(n) for n in rng.integers(1, 5, layers)),
        "replace": rng.random() < 0.2,
        "share_sample": False,
    }


def _cache_keys(rng: Rng, mode: str) -> dict[str, Any]:
    keys = {"macrobatch": one(rng, "1", "2", "auto")}
    if mode != "cooperative" and rng.random() < 0.6:
        keys |= {
            "feature_cache": one(rng, "5", "30%"),
            "fetch_batch": one(rng, 0, 1),
            "machine_cache": one(rng, "0", "0", "20%"),
            "cache_policy": one(
                rng, "fifo", "lru", "lfu", "clock", "degree", "probability", "belady"
            ),
        }
    return keys


def _target_keys(rng: Rng, targets: str) -> dict[str, Any]:
    """Of the task, with weights and thresholds."""
    if targets == "classes":
        return {
            "class_weights": one(rng, "none", "balanced"),
            "metric": one(rng, "auto", "balanced_accuracy", "f1_macro"),
        }
    if targets == "labels":
        return {
            "metric": one(rng, "auto", "auc", "average_precision"),
            "threshold": one(rng, "0.5", "f1"),
        }
    if targets == "links":
        return {
            "decoder": one(rng, "dot", "hadamard"),
            "rank_all": one(rng, False, True),
            **_negative_keys(rng),
        }
    if targets == "triples":
        return {
            "decoder": one(rng, "distmult", "transe", "complex", "rotate"),
            "reciprocal": one(rng, False, True),
            **_negative_keys(rng),
        }
    return {}


def _negative_keys(rng: Rng) -> dict[str, Any]:
    return {
        "negatives": int(rng.integers(1, 4)),
        "eval_negatives": int(rng.integers(1, 9)),
        "negative_groups": one(rng, 0, 0, 1, 3),
        "negatives_from": one(rng, "nodes", "nodes", "batch"),
        "link_loss": one(rng, "binary", "softmax", "adversarial"),
    }


def _kind_keys(rng: Rng, graph: str, keys: dict[str, Any]) -> dict[str, Any]:
    """What only some kinds of graphs have."""
    # which features cannot be kept, because they change in every step
    learned = {
        "embedding_optimiser": one(rng, "adam", "adagrad", "sgd"),
        "embedding_lr": one(rng, 0.0, 0.05),
        "staleness": 0,
        "precompute": False,
        **{name: "0" for name in ("feature_cache", "machine_cache") if name in keys},
    }
    learned |= {"cache_policy": "fifo"} if "cache_policy" in keys else {}
    if graph == "whole graphs":
        return {"readout": one(rng, "sum", "mean", "max", "attention", "set2set")}
    if graph == "triples":
        return {"embedding": 6, "hidden": 6, **learned}
    if graph == "types":
        types = one(rng, "", "tag", "tag=4,user", "item=3")
        of = {"link_relation": one(rng, "", "buys")} if keys["task"] == "link" else {}
        of |= {"normalise_features": one(rng, "none", "none", "standard")}
        return of | ({"embedding": 5, "embedding_types": types, **learned} if types else {})
    return {}


# ---- graphs


def types_of(targets: str, rng: Rng) -> Graph:
    """Users, items and tags; users have targets, or the edges from users to items."""
    users, items, tags = (int(rng.integers(*of)) for of in ((15, 40), (4, 30), (1, 8)))
    ends = {
        ("user", "buys", "item"): (users, items, 90),
        ("user", "knows", "user"): (users, users, 60),
        ("item", "has", "tag"): (items, tags, 30),
        ("item", "like", "item"): (items, items, one(rng, 0, 20)),
    }
    edges = {
        name: (rng.integers(0, a, n), rng.integers(0, b, n)) for name, (a, b, n) in ends.items()
    }
    columns: dict[str, Any] = {
        "x": {
            "user": rng.standard_normal((users, 3)),
            "item": _sparse(rng.standard_normal((items, 12)), rng),
        },
        "edge_columns": {"w": {name: rng.uniform(0.5, 2, n) for name, (_, _, n) in ends.items()}},
    }
    if rng.random() < 0.5:
        columns["edge_attr"] = {("user", "buys", "item"): rng.standard_normal((90, 2))}
    if targets == "edges":
        columns |= {
            "edge_y": {("user", "buys", "item"): rng.standard_normal(90)},
            **{
                name: {("user", "buys", "item"): mask}
                for name, mask in masks(90, "edge_", rng).items()
            },
        }
    elif targets != "links":
        y, more = _labels(users, targets, rng)
        columns |= {
            "y": {"user": y},
            **more,
            **{name: {"user": mask} for name, mask in masks(users, "", rng).items()},
        }
    graph = Graph(edges, {"user": users, "item": items, "tag": tags}, name="types", **columns)
    return graph.with_inverse_relations() if rng.random() < 0.7 else graph


def whole_graphs_of(targets: str, rng: Rng) -> Graph:
    """Rings, hubs, single nodes and graphs without edges."""
    made = []
    n_graphs = int(rng.integers(12, 25))
    for i in range(n_graphs):
        n = int(rng.integers(1, 9))
        src, dst = (
            rng.integers(0, n, (2, int(rng.integers(0, 3 * n))))
            if i % 3
            else (np.arange(n), np.roll(np.arange(n), 1))
        )
        made.append(
            Graph(
                (src, dst),
                n,
                x=rng.standard_normal((n, 4)),
                edge_attr=rng.standard_normal((len(src), 2)),
            )
        )
    y, more = _labels(n_graphs, targets, rng)
    return whole_graphs(made, y, name="whole graphs", **more, **masks(n_graphs, "", rng))


def triples_of(targets: str, rng: Rng) -> Graph:
    """Nodes without features, and triples of which some relations are rare."""
    src, dst, n = ends_of(one(rng, "rmat", "hub", "isolated", "self loops", "duplicates"), rng)
    relation = np.minimum(rng.geometric(0.4, len(src)) - 1, 4)
    return Graph(
        (src, dst),
        n,
        name=targets,
        edge_columns={"relation": relation},
        **masks(len(src), "edge_", rng),
    )


def time_of(targets: str, rng: Rng) -> Graph:
    """Nodes and edges with times, of which some are equal."""
    src, dst, n = ends_of(
        one(rng, "rmat", "hub", "isolated", "self loops", "duplicates", "few nodes"), rng
    )
    e = len(src)
    last = one(rng, 3, 40)
    columns: dict[str, Any] = {
        "x": rng.standard_normal((n, 4)),
        "edge_attr": rng.standard_normal((e, 2)),
        "edge_columns": {"time": rng.integers(0, last, e)},
        "node_columns": {"time": rng.integers(0, last, n)},
    }
    if targets == "edges":
        columns |= {"edge_y": rng.standard_normal(e), **masks(e, "edge_", rng)}
    elif targets == "links":
        columns |= masks(e, "edge_", rng)
    elif targets == "triples":
        columns |= masks(e, "edge_", rng)
        columns["edge_columns"]["relation"] = rng.integers(0, 3, e)
    else:
        y, more = _labels(n, targets, rng)
        columns |= {"y": y, **more, **masks(n, "", rng)}
    return Graph((src, dst), n, name="time", **columns)


MAKERS: dict[str, Callable[[str, Rng], Graph]] = {
    "types": types_of,
    "whole graphs": whole_graphs_of,
    "triples": triples_of,
    "time": time_of,
}


def _labels(n: int, targets: str, rng: Rng) -> tuple[np.ndarray, dict[str, Any]]:
    """Labels of n targets, of which some are unknown, and what a graph is told of them."""
    if targets == "classes":
        return rng.integers(0, 3, n), {"n_classes": 3}
    if targets == "labels":
        return np.where(rng.random((n, 4)) < 0.2, np.nan, rng.integers(0, 2, (n, 4))), {
            "multilabel": True
        }
    return rng.standard_normal((n, 2)), {}


def _sparse(x: np.ndarray, rng: Rng) -> np.ndarray:
    """Mostly zeros, or as it is."""
    return np.where(rng.random(x.shape) < 0.2, x, 0) if rng.random() < 0.5 else x
