"""Random jobs for ``equality.py``: graph, targets and keys of a training, by seed and number.

Models, strategies, optimisers, kinds of targets and graphs take turns, so that consecutive jobs
cover them all; each optimiser is combined with batch norm in turn. Everything else is drawn. This
file does not know which combinations are valid: the program refuses the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from equality_ways import FEATURES
from scipy.sparse import csr_array

import graphtheta as gt
from graphtheta.graph.data.graph import Graph
from graphtheta.run.job.job import ALL_NEIGHBOURS, Job
from graphtheta.run.job.rules import flag

MODELS = ("gcn", "sage", "gin", "gine", "gat", "gat_e", "gipa", "mlp")
STRATEGIES = ("mini", "cluster", "global")
OPTIMISERS = ("adam", "adamw", "sgd", "momentum")
TARGETS = ("classes", "labels", "values", "edges", "links")
GRAPHS = ("sbm", "rmat", "ring", "star", "duplicates", "self loops", "isolated", "hub", "few nodes")
RATES = {"adam": 0.01, "adamw": 0.01, "sgd": 0.01, "momentum": 0.002}
# share of the jobs whose graph is computed as a large one
LARGE = 0.5


@dataclass(frozen=True)
class Plan:
    """A job on a graph of one type.

    Attributes:
        number, attempt: What it was drawn from, beside the seed.
        graph: Name of its graph.
        targets: What is predicted.
        ranks: How many are compared with one.
        keys: Of the job.
        seed: Of the draws.
    """

    number: int
    attempt: int
    graph: str
    targets: str
    ranks: int
    keys: dict[str, Any]
    seed: int

    draws: ClassVar[str] = "plain"
    # largest difference between ranks
    allowed: ClassVar[float] = 1e-9

    def exact(self) -> Plan | None:
        """The same job with exact values, where those of this one are rounded on purpose."""
        return None

    @property
    def features(self) -> str:
        """Type and place of the features on several ranks, of ``equality_ways.FEATURES``."""
        return one(np.random.default_rng((self.seed, self.number, self.attempt, 5)), *FEATURES)

    @property
    def is_large(self) -> bool:
        """Whether several ranks compute the graph as a large one."""
        return np.random.default_rng((self.seed, self.number, self.attempt, 6)).random() < LARGE

    def words(self) -> str:
        """The keys that differ from the defaults, as flags."""
        changed = {k: v for k, v in self.keys.items() if v != Job.model_fields[k].default}
        return " ".join(
            flag(k) if v is True else f"{flag(k)} {_text(v)}" for k, v in changed.items()
        )

    def made_graph(self) -> Graph:
        """The graph with its targets."""
        return graph_of(
            self.graph,
            self.targets,
            np.random.default_rng((self.seed, self.number, self.attempt, 1)),
        )


def draw(seed: int, number: int, attempt: int = 0, fused: float = 0.85) -> Plan:
    """The job of these numbers.

    Args:
        seed: Of all jobs.
        number: Of the job.
        attempt: How many drawn before it for this number were refused.
        fused: Share of the jobs on the fused back end.
    """
    rng = np.random.default_rng((seed, number, attempt))
    model = MODELS[number % len(MODELS)]
    strategy = STRATEGIES[number % len(STRATEGIES)]
    optimiser = OPTIMISERS[number % len(OPTIMISERS)]
    targets = TARGETS[number % len(TARGETS)]
    norm = "batch" if number // len(OPTIMISERS) % 2 == 0 else one(rng, "none", "layer")
    keys = {
        "model": model,
        "strategy": strategy,
        "norm": norm,
        "dtype": "float64",
        "keep": 0,
        "seed": int(rng.integers(1000)),
        "backend": "fused" if rng.random() < fused else "reference",
        "task": {"edges": "edge", "links": "link"}.get(targets, "node"),
        "epochs": int(rng.integers(2, 5)),
    }
    keys |= (
        optimiser_keys(rng, optimiser)
        | network_keys(rng, model)
        | views_keys(rng, strategy, keys["task"])
        | placement_keys(rng)
    )
    layers = keys["layers"]
    if strategy == "mini":
        keys |= mini_keys(rng, layers, norm)
    elif strategy == "cluster":
        keys |= cluster_keys(rng)
    if keys["task"] == "link":
        keys |= {
            "decoder": one(rng, "dot", "hadamard"),
            "negatives": int(rng.integers(1, 4)),
            "eval_negatives": int(rng.integers(1, 12)),
        }
    if rng.random() < 0.1:
        # a key that most jobs have no use for
        odd: list[dict[str, Any]] = [
            {"heads": 3},
            {"fanout": "2"},
            {"momentum": 0.5},
            {"precompute": True},
            {"diagonal": 0.1},
            {"negatives": 2},
        ]
        keys |= odd[rng.integers(len(odd))]
    ranks = int(rng.integers(2, 6))
    if strategy == "global" and rng.random() < 0.25:
        # any number of ranks must choose the same
        keys = {key: value for key, value in keys.items() if key != "precompute"}
        keys["strategy"] = "auto"
    return Plan(
        number=number,
        attempt=attempt,
        graph=GRAPHS[(number * 2 + number // len(GRAPHS)) % len(GRAPHS)],
        targets=targets,
        ranks=ranks,
        keys=keys,
        seed=seed,
    )


def _text(value: Any) -> str:
    return (
        ",".join("all" if n == ALL_NEIGHBOURS else str(n) for n in value)
        if isinstance(value, tuple)
        else str(value)
    )


def one(rng: np.random.Generator, *of: Any) -> Any:
    return of[rng.integers(len(of))]


def optimiser_keys(rng: np.random.Generator, name: str) -> dict[str, Any]:
    keys = {
        "optimiser": "sgd" if name == "momentum" else name,
        "lr": RATES[name],
        "weight_decay": one(rng, 0.0, 5e-4, 0.05),
        "decay_first_layer_only": one(rng, False, False, True),
    }
    return keys | ({"momentum": 0.9} if name == "momentum" else {})


def network_keys(rng: np.random.Generator, model: str) -> dict[str, Any]:
    keys = {
        "layers": int(rng.integers(1, 5)),
        "hidden": one(rng, 4, 6, 9),
        "dropout": one(rng, 0.0, 0.3, 0.5),
        "residual": one(rng, False, True),
        "jumping": one(rng, "none", "none", "concat", "max"),
        "direction": one(rng, "in", "in", "out", "both"),
        "activation": one(rng, "auto", "auto", "relu", "tanh", "gelu"),
    }
    own: dict[str, dict[str, tuple[Any, ...]]] = {
        "gcn": {"normalisation": ("sym", "row")},
        "sage": {"aggregator": ("mean", "max", "sum")},
        "gin": {"train_eps": (False, True)},
        "gine": {"train_eps": (False, True)},
        "gat": {
            "heads": (1, 2, 3),
            "out_heads": (1, 2),
            "attention_dropout": (0.0, 0.3),
            "feature_dropout": (0.0, 0.2),
            "separate": (False, True),
        },
        "gat_e": {
            "heads": (1, 2, 3),
            "out_heads": (1, 2),
            "attention_dropout": (0.0, 0.3),
            "feature_dropout": (0.0, 0.2),
        },
        "gipa": {
            "heads": (1, 2),
            "reduce": ("sum", "mean", "max"),
            "attention_dropout": (0.0, 0.3),
            "edge_drop": (0.0, 0.2),
        },
    }
    if model == "mlp":
        # it passes no messages
        del keys["direction"]
    return keys | {key: one(rng, *values) for key, values in own.get(model, {}).items()}


def views_keys(rng: np.random.Generator, strategy: str, task: str) -> dict[str, Any]:
    keys = {
        "recompute": one(rng, False, False, True),
        "staleness": one(rng, 0, 0, 1, 2),
        "self_loops": one(rng, "auto", "yes", "no"),
    }
    if strategy != "global":
        keys |= {
            "views_per_step": one(rng, 1, 1, 2, 3),
            "views_in_flight": one(rng, 1, 2, 4),
            "mode": one(rng, "cooperative", "independent", "auto"),
        }
    if (
        task == "node"
        and strategy != "cluster"
        and keys.get("mode", "cooperative") == "cooperative"
    ):
        keys["precompute"] = one(rng, False, False, True)
    return keys


def placement_keys(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "partitioner": one(rng, "1d-src", "1d-dst", "vertex-cut"),
        "masters": one(rng, "hash", "block"),
    }


def mini_keys(rng: np.random.Generator, layers: int, norm: str) -> dict[str, Any]:
    # batch norm over the few rows of one target makes training chaotic, on any number of ranks
    keys: dict[str, Any] = {"batch_size": one(rng, 0, 5, 12, 30, 5 if norm == "batch" else 1)}
    if rng.random() < 0.6:
        keys |= {
            "fanout": one(
                rng,
                (3,),
                (1,),
                tuple(int(n) for n in rng.choice((ALL_NEIGHBOURS, 1, 2, 4), layers)),
            ),
            "replace": one(rng, False, True),
            "share_sample": one(rng, False, True),
        }
    return keys


def cluster_keys(rng: np.random.Generator) -> dict[str, Any]:
    method = one(rng, "louvain", "metis")
    return {
        "cluster_method": method,
        "clusters": one(rng, 3, 5) if method == "metis" else one(rng, 0, 0, 2, 3),
        "clusters_per_batch": one(rng, 1, 2),
        "boundary_hops": int(rng.integers(3)),
        "degrees": one(rng, "graph", "view"),
        "diagonal": one(rng, 0.0, 0.5),
    }


# ---- graphs


def ends_of(name: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
    """Sources, destinations and number of nodes of a small graph."""
    seed, n = int(rng.integers(1 << 30)), int(rng.integers(20, 70))
    embedded = {
        "sbm": lambda: gt.load("sbm", n_nodes=n, n_edges=5 * n, classes=3, graph_seed=seed),
        "rmat": lambda: gt.load(
            "rmat", scale=5 + n % 2, edge_factor=4, graph_seed=seed, directed=n % 3 == 0
        ),
        "ring": lambda: gt.load("ring", n=n),
        "star": lambda: gt.load("star", n=n),
    }
    if name in embedded:
        graph = embedded[name]()
        return graph.src, graph.dst, graph.n_nodes
    n = n % 5 + 4 if name == "few nodes" else n
    src, dst = rng.integers(0, n, (2, 4 * n))
    if name == "duplicates":
        src = np.repeat(src, 3)
        dst = np.repeat(dst, 3)
    elif name == "self loops":
        src = np.append(src, np.arange(n))
        dst = np.append(dst, np.arange(n))
    elif name == "hub":
        dst[: 2 * n] = n // 2
    elif name == "isolated":
        # a third of the nodes have no edges
        src, dst = src % (2 * n // 3), dst % (2 * n // 3)
    return src, dst, n


def graph_of(name: str, targets: str, rng: np.random.Generator) -> Graph:
    """A small graph with features, attributes and these targets; original ids are other numbers."""
    src, dst, n = ends_of(name, rng)
    e = len(src)
    columns: dict[str, Any] = {
        "x": rng.standard_normal((n, 5)),
        "edge_attr": rng.standard_normal((e, 3)),
        "node_ids": rng.permutation(n) * 7 + 1000,
    }
    if rng.random() < 0.5:
        columns["edge_weight"] = rng.uniform(0.5, 2, e)
    if rng.random() < 0.2:
        columns["x"] = csr_array(
            np.where(rng.random((n, 16)) < 0.15, rng.standard_normal((n, 16)), 0)
        )
    if targets == "edges":
        columns |= {
            "edge_y": rng.standard_normal((e, 2)[: 1 + int(rng.integers(2))]),
            **masks(e, "edge_", rng),
        }
    elif targets != "links":
        parts = masks(n, "", rng)
        made: dict[str, Any] = {
            "classes": rng.integers(0, 3, n),
            "labels": rng.integers(0, 2, (n, 4)).astype(float),
            "values": rng.standard_normal((n, 2)[: 1 + int(rng.integers(2))]),
        }
        y = made[targets]
        y[~np.any(list(parts.values()), axis=0)] = -1 if targets == "classes" else np.nan
        columns |= {
            "y": y,
            "multilabel": targets == "labels",
            "n_classes": 3 if targets == "classes" else None,
            **parts,
        }
    return Graph((src, dst), n, name=name, **columns)


def masks(n: int, prefix: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
    part = rng.permutation(n) % 5
    return {
        f"{prefix}{split}": np.isin(part, of)
        for split, of in (("train", (0, 1)), ("val", (2,)), ("test", (3,)))
    }
