"""Inference by blocks: the numbers of a pass over the whole graph, for all models and any number of
workers, and clear refusals.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, FormatError, MemoryLimitError
from graphtheta.inference.forward import blocks, limited, some
from graphtheta.inference.forward.layerwise import LayerWise
from graphtheta.inference.forward.spill import Spill
from graphtheta.inference.forward.top import Asked, top
from graphtheta.models import SAGE, SimpleHGN
from graphtheta.models.registry import PUBLISHED

TASKLESS = {"edge_y": None, "edge_train": None, "edge_val": None, "edge_test": None}
GRAPH = graphs.random_graph(40, 200, **TASKLESS)
KEYS: dict[str, Any] = {
    "epochs": 1,
    "hidden": 4,
    "layers": 3,
    "dtype": "float64",
    "backend": "reference",
    "dropout": 0.0,
}
NAMED = GRAPH.replace(node_ids=np.array([f"n{i}" for i in range(40)]))
RING = graphs.fill(np.arange(300), np.roll(np.arange(300), 1), 300, **TASKLESS)
RNG = np.random.default_rng(3)
TYPED = gt.Graph(
    {
        ("a", "to", "b"): RNG.integers(0, 15, (2, 60)),
        ("b", "of", "a"): RNG.integers(0, 15, (2, 60)),
        ("a", "near", "a"): RNG.integers(0, 15, (2, 40)),
    },
    {"a": 15, "b": 15},
    x={"a": RNG.normal(size=(15, 3)), "b": RNG.normal(size=(15, 2))},
    y={"a": RNG.integers(0, 3, 15)},
    train={"a": np.arange(15) < 8},
    val={"a": np.arange(15) > 11},
    test={"a": np.arange(15) == 10},
)
RELATIONAL = ("rgcn", "rgat", "simple_hgn", "hgt")


def numbers(trainer: gt.Trainer) -> dict[str, np.ndarray]:
    """Metrics, predictions, and embeddings of the first and last layer that sums messages; of rank
    0.
    """
    found = {name: np.array(value) for name, value in trainer.measure().items()}
    embedded = [trainer.embed(layer=i) for i in (0, -1)] if trainer.probe.layers else []
    predicted = trainer.predict()
    if trainer.job.task in ("link", "triple"):
        best = top(
            trainer.setup,
            Asked(nodes=[1, 5, 2], k=4, relation=0 if trainer.job.task == "triple" else None),
        )
        found |= {} if best is None else {"top": best.scores}
    if predicted is None:
        return {}
    return {
        **found,
        "predicted": predicted[1],
        **{f"layer {i}": x[1] for i, x in enumerate(embedded) if x is not None},
    }


def both(
    comm: Any, graph: gt.Graph, n_blocks: int, *, model: Any, **keys: Any
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], int]:
    """The numbers without and with blocks, and the rows of the last pass with blocks."""
    usual = (
        KEYS
        if isinstance(model, str)
        else {key: KEYS[key] for key in ("epochs", "dtype", "backend")}
    )
    trainer = gt.Trainer(model, graph, comm=comm, **{**usual, **keys})
    trainer.fit()
    whole = numbers(trainer)
    passes = []

    class Divided(limited.Limited):
        def divided(self, hops: Any) -> list[np.ndarray]:
            passes.append(hops)
            return np.array_split(np.arange(trainer.partition.n_masters), n_blocks)

    limit = Divided(trainer.job.change(inference_memory=1.0), trainer.partition, trainer.probe)
    trainer.setup.evaluator.by_blocks = limit.outputs
    object.__setattr__(trainer.setup, "limit", limit)
    return whole, numbers(trainer), len(passes)


def check(graph: gt.Graph, size: int, n_blocks: int = 3, **keys: Any) -> None:
    whole, by_blocks, passes = run_simulated(size, both, graph, n_blocks, **keys)[0]
    assert whole.keys() == by_blocks.keys() and passes > 0
    for name, x in whole.items():
        np.testing.assert_allclose(by_blocks[name], x, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("model", PUBLISHED)
def test_every_model(model: str) -> None:
    check(TYPED if model in RELATIONAL else GRAPH, 2, model=model)


@pytest.mark.one_in(13)
@pytest.mark.parametrize(
    ("size", "placement"),
    [(1, ("1d-src", "hash")), (2, ("1d-dst", "block")), (3, ("vertex-cut", "hash"))],
    ids=str,
)
@pytest.mark.parametrize("n_blocks", [1, 7, 60])
def test_workers_and_blocks(size: int, placement: tuple[str, str], n_blocks: int) -> None:
    check(GRAPH, size, n_blocks, model="gat", partitioner=placement[0], masters=placement[1])


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "keys",
    [
        {"model": "sage", "norm": "batch", "residual": True},
        {"model": "sage", "aggregator": "lstm"},
        {"model": "gcn", "jumping": "concat", "direction": "both"},
        {"model": "gcn", "precompute": "yes"},
        {"model": "sage", "task": "link", "eval_negatives": 3},
        {"model": "gat", "direction": "out"},
        {"model": "sage", "task": "link", "eval_negatives": 3, "rank_all": True},
        {"model": "rgcn", "task": "triple", "decoder": "transe", "eval_negatives": 2},
        {"model": "rgcn", "task": "triple", "embedding": 5, "reciprocal": True, "layers": 1},
        {"model": "gin", "strategy": "mini", "batch_size": 9, "fanout": "3,3,3"},
        {"model": "gat", "embedding": 5, "precompute": "no"},
    ],
    ids=lambda keys: " ".join(map(str, keys.values())),
)
def test_options(keys: dict[str, Any]) -> None:
    graph = GRAPH if "task" not in keys else GRAPH.replace(y=None, train=None, val=None, test=None)
    if keys.get("task") == "triple":
        graph = graph.replace(
            edge_columns={**graph.edge_columns, "relation": np.arange(graph.n_edges) % 3}
        )
    check(graph.replace(x=None) if "embedding" in keys else graph, 2, **keys)


class Pair(gt.Model):
    """The second layer reads the attention weights of the first, two layers before it."""

    def __init__(self, d_in: int, d_out: int):
        self.first = SimpleHGN(d_in, 3, 3, 2, d_relation=4, stores_attention=True)
        self.between = SAGE(6, 6)
        self.second = SimpleHGN(6, d_out, 3, 2, d_relation=4, concat=False, beta=0.1)

    def forward(self, graph: Any) -> Any:
        return self.second(graph, self.between(graph, self.first(graph, graph.x)))


def test_edge_values() -> None:
    """Edge values that one layer makes and the next reads, and targets at edges."""
    check(TYPED, 2, model=Pair)
    check(graphs.random_graph(30, 120), 2, model="gat_e", task="edge")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name", [name for name in graphs.odd_graphs() if not name.startswith("one node")]
)
def test_odd_graphs(name: str) -> None:
    check(graphs.odd_graphs()[name].replace(**TASKLESS), 3, model="gat")


def test_each_block_reads_its_edges_once() -> None:
    trainer = gt.Trainer("gat", GRAPH, **KEYS)
    with Spill() as spill, trainer.setup.scope():
        passes = LayerWise(
            trainer.model,
            trainer.partition,
            trainer.probe,
            spill,
            lambda _: np.array_split(np.arange(40), 5),
        )
        passes.outputs(trainer.setup.evaluator._view)  # type: ignore[attr-defined]
        assert (passes.rows, passes.edges) == (3 * 40, 3 * trainer.partition.n_local_edges)


def limits(comm: Any, **keys: Any) -> tuple[bool, np.ndarray | None]:
    trainer = gt.Trainer("sage", RING, comm=comm, **{**KEYS, **keys})
    predicted = trainer.predict()
    return trainer.setup.limit is not None, None if predicted is None else predicted[1]


def test_limit_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks only if the limit asks for them, as many as fit; a limit below that is refused on all
    workers.
    """
    monkeypatch.setattr(limited, "free_now", lambda limit: limit - (1 << 30))
    monkeypatch.setattr(blocks, "free_now", lambda limit: limit - (1 << 30))
    free, expected = run_simulated(2, limits, inference_memory=8.0)[0]
    assert not free and expected is not None
    seen: list[int] = []
    divide = blocks.divided
    monkeypatch.setattr(
        limited, "divided", lambda *a: seen.append(len(found := divide(*a))) or found
    )
    monkeypatch.setattr(blocks, "CHUNK_BYTES", 0)
    for bytes_free, least, most in ((20_000, 2, 16), (4_000, 17, 150)):
        seen.clear()
        chosen, out = run_simulated(2, limits, inference_memory=1 + bytes_free / 2**30)[0]
        assert chosen and least <= max(seen) <= most
        np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-9)
    with pytest.raises(
        MemoryLimitError,
        match=(
            r"inference_memory=0\.5: a block of one node needs about .*B beside the 1\.0 GiB .*"
            r" raise "
        ),
    ):
        run_simulated(2, limits, inference_memory=0.5)


def test_a_limit_below_any_evaluation_is_refused_before_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limited, "free_now", lambda limit: limit - (1 << 30))
    monkeypatch.setattr(blocks, "free_now", lambda limit: limit - (1 << 30))
    trainer = gt.Trainer("sage", RING, **{**KEYS, "inference_memory": 0.5, "epochs": 3})
    with pytest.raises(MemoryLimitError, match="a block of one node"):
        trainer.fit()
    assert trainer.step == 0


def some_nodes(comm: Any, nodes: Any, **keys: Any) -> Any:
    trainer = gt.Trainer(graph=NAMED, comm=comm, **{**KEYS, **keys})
    return trainer.predict(), trainer.predict(nodes)


@pytest.mark.parametrize(
    "keys",
    [
        {"model": "gat"},
        {"model": "gcn", "direction": "both", "jumping": "concat"},
        {"model": "sage", "precompute": "yes", "partitioner": "vertex-cut"},
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [1, 3])
def test_some_nodes(size: int, keys: dict[str, Any]) -> None:
    nodes = ["n7", "n0", "n39", "n7"]
    (ids, out), (given, found) = run_simulated(size, some_nodes, nodes, **keys)[0]
    assert given.tolist() == nodes
    np.testing.assert_allclose(
        found, [out[ids.tolist().index(node)] for node in nodes], rtol=1e-12, atol=1e-12
    )


def test_some_nodes_compute_their_neighbourhood(monkeypatch: pytest.MonkeyPatch) -> None:
    views = []
    search = some.k_hop_view
    monkeypatch.setattr(some, "k_hop_view", lambda *a: views.append(search(*a)) or views[-1])
    found = gt.Trainer("sage", RING, **KEYS).predict([5])
    assert found is not None and found[1].shape == (1, 3)
    # three hops along a ring: one further node and edge each
    assert views[0].space.n == 4 and [level.n_edges for level in views[0].levels] == [3, 2, 1]


def test_some_nodes_that_are_refused() -> None:
    with pytest.raises(ConfigError, match="the graph has no node 'n40'"):
        run_simulated(2, some_nodes, ["n1", "n40"], model="gcn")
    with pytest.raises(ConfigError, match="needs a task with outputs of nodes"):
        run_simulated(2, some_nodes, ["n1"], model="sage", task="link", eval_negatives=3)


class Centred(gt.Model):
    """Subtracts the mean over all nodes."""

    def __init__(self, d_in: int, d_out: int):
        self.layer = SAGE(d_in, d_out)

    def forward(self, graph: Any) -> Any:
        h = self.layer(graph, graph.x)
        return h - gt.graph_mean(h)


def test_refusals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reads a sum over all nodes"):
        run_simulated(2, both, GRAPH, 2, model=Centred)
    monkeypatch.setattr(
        os,
        "posix_fallocate",
        lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")),
    )
    with pytest.raises(
        FormatError,
        match=(
            r"values of a layer need .* No space left on device; set TMPDIR to a folder on a larger"
            r" disk"
        ),
    ):
        run_simulated(2, both, GRAPH, 2, model="gcn")
    with pytest.raises(
        FormatError, match="values of layers cannot be written: No such file or directory"
    ):
        Spill(tmp_path / "none")
