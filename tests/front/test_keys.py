"""Every key of a job takes effect, or is an error that says what to do, on each way in."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.base.logger import logger
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, GraphThetaError
from graphtheta.run.job.keys import ASKS_NOTHING, FIELDS, OF_DATASET, OF_TRAINING, DataKeys
from graphtheta.run.job.run_files import RESULT_FILE

pytestmark = pytest.mark.reference

N = 60
BASE: dict[str, Any] = {"epochs": 2, "hidden": 4, "backend": "reference", "dtype": "float64"}
MINI = {"strategy": "mini", "batch_size": 8}
INDEPENDENT = {**MINI, "mode": "independent", "macrobatch": "2"}
CLUSTER = {"strategy": "cluster", "clusters": 6, "cluster_method": "clusters.npy"}
TRIPLES = {"model": "mlp", "layers": 0, "embedding": 4, "task": "triple"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, and a log whose level comes back; ``held`` holds a run."""
    monkeypatch.chdir(tmp_path)
    Path("held").mkdir()
    Path("held", RESULT_FILE).touch()
    np.save("clusters.npy", np.arange(N) % 6)
    level = logger.level
    handlers = list(logger.handlers)
    yield tmp_path
    logger.setLevel(level)
    logger.handlers[:] = handlers


@cache
def graphs() -> dict[str, gt.Graph]:
    """Small graphs of all kinds, by name."""
    rng = np.random.default_rng(0)
    edges = rng.integers(0, N, (2, 300))
    part = np.arange(N) % 3
    masks = {"train": part == 0, "val": part == 1, "test": part == 2}
    x = rng.normal(size=(N, 4))
    y = rng.integers(0, 3, N)
    columns = {
        "node_columns": {"time": np.arange(N), "weight_of": 1.0 + np.arange(N)},
        "edge_columns": {"relation": rng.integers(0, 3, 300), "time": rng.integers(0, 9, 300)},
    }
    several = {name: np.stack((mask, np.roll(mask, 1)), axis=1) for name, mask in masks.items()}
    nodes = gt.Graph(edges, N, x=x, y=y, edge_attr=rng.normal(size=(300, 2)), **masks, **columns)
    kinds = {
        ("user", "rates", "item"): edges[:, :200] % 20,
        ("item", "like", "item"): edges[:, 200:] % 20,
    }
    small = [gt.Graph(rng.integers(0, 6, (2, 12)), 6, x=rng.normal(size=(6, 4))) for _ in range(12)]
    third = np.arange(12) % 3
    return {
        "nodes": nodes,
        "splits": nodes.replace(**several),
        "binary": nodes.replace(y=(x[:, 0] > 0.9).astype(int)),
        "bare": nodes.replace(x=None),
        "links": nodes.replace(y=None, train=None, val=None, test=None),
        "triples": nodes.replace(x=None, y=None, train=None, val=None, test=None),
        "parts": nodes.replace(edge_index=edges % 50),
        "types": gt.Graph(kinds, {"user": 20, "item": 20}, x={"user": rng.normal(size=(20, 3))}),
        "whole": gt.whole_graphs(
            small, np.arange(12) % 2, train=third == 0, val=third == 1, test=third == 2
        ),
    }


def numbers(trainer: gt.Trainer, result: Any) -> Any:
    """Losses and metrics of all evaluations."""
    return [
        {name: x for name, x in row.items() if name not in ("seconds", "time")}
        for row in result.history
    ]


def files(trainer: gt.Trainer, result: Any) -> Any:
    return sorted(str(path) for path in Path().rglob("*") if path.name != "clusters.npy")


def log_level(trainer: gt.Trainer, result: Any) -> Any:
    return logging.getLogger("graphtheta").level


def layout(trainer: gt.Trainer, result: Any) -> Any:
    """Masters and edges of a worker."""
    return trainer.partition.masters.tolist(), trainer.partition.edge_gid.tolist()


def of(path: str) -> Callable[[gt.Trainer, Any], Any]:
    """The text of what a trainer uses."""

    def read(trainer: gt.Trainer, result: Any) -> Any:
        value: Any = trainer
        for name in path.split("."):
            value = getattr(value, name)
        return str(value)

    return read


@dataclass(frozen=True)
class Effect:
    """How a key shows that it takes effect.

    Attributes:
        value: Of the key.
        more: Other keys of both jobs.
        on: The graph.
        shows: What differs with the key.
        ranks: Number of workers.
        needed: Whether the other keys need the key.
    """

    value: Any
    more: dict[str, Any] = field(default_factory=dict)
    on: str = "nodes"
    shows: Callable[[gt.Trainer, Any], Any] = numbers
    ranks: int = 1
    needed: bool = False


TABLE: dict[str, Effect] = {
    "dataset": Effect("ring"),
    "data_dir": Effect("gone", {"dataset": "cora"}),
    "split": Effect("time"),
    "split_index": Effect(1, on="splits"),
    "train_per_class": Effect(2, {"split": "random"}),
    "val_per_class": Effect(2, {"split": "random"}),
    "self_loops": Effect("no"),
    "symmetric": Effect("yes"),
    "largest_component": Effect("yes", on="parts"),
    "embedding": Effect(3, on="bare", needed=True),
    "embedding_types": Effect("item", {"embedding": 3, "task": "link"}, on="types", needed=True),
    "embedding_optimiser": Effect("sgd", {"embedding": 3}, on="bare"),
    "embedding_lr": Effect(0.5, {"embedding": 3}, on="bare"),
    "structural_features": Effect("degree"),
    "normalise_features": Effect("standard"),
    "model": Effect("sage"),
    "layers": Effect(3),
    "hidden": Effect(5),
    "heads": Effect(2, {"model": "gat"}),
    "out_heads": Effect(3, {"model": "gat"}),
    "dropout": Effect(0.9),
    "attention_dropout": Effect(0.9, {"model": "gat"}),
    "residual": Effect(True, {"layers": 3}),
    "norm": Effect("layer"),
    "jumping": Effect("concat"),
    "aggregator": Effect("max", {"model": "sage"}),
    "neighbours": Effect(3, {"model": "sage", "aggregator": "concat"}, needed=True),
    "neighbour_order": Effect("time", {"model": "sage", "aggregator": "lstm"}),
    "activation": Effect("tanh"),
    "feature_dropout": Effect(0.9),
    "edge_drop": Effect(0.5),
    "edge_attributes": Effect(True, {"model": "gatv2"}),
    "share": Effect(True, {"model": "gatv2"}),
    "skip": Effect(False, {"model": "transformer"}),
    "beta": Effect(True, {"model": "transformer"}),
    "alpha": Effect(0.5, {"model": "appnp"}),
    "propagations": Effect(2, {"model": "appnp"}),
    "theta": Effect(1.5, {"model": "gcnii"}),
    "shared_weights": Effect(False, {"model": "gcnii"}),
    "towers": Effect(2, {"model": "pna"}),
    "normalisation": Effect("row"),
    "separate": Effect(True, {"model": "sage", "direction": "both"}),
    "train_eps": Effect(True, {"model": "gin"}),
    "reduce": Effect("mean", {"model": "gipa"}),
    "direction": Effect("out", {"model": "sage"}),
    "decoder": Effect("hadamard", {"task": "link"}, on="links"),
    "margin": Effect(3.0, {**TRIPLES, "decoder": "transe"}, on="triples"),
    "reciprocal": Effect(True, TRIPLES, on="triples"),
    "readout": Effect("max", {"readout": "mean"}, on="whole"),
    "bases": Effect(2, {"model": "rgcn"}),
    "blocks": Effect(1, {"model": "rgcn"}),
    "relation_sum": Effect(True, {"model": "rgcn"}),
    "d_relation": Effect(3, {"model": "simple_hgn"}),
    "strategy": Effect("mini", shows=lambda t, r: type(t.strategy)),
    "batch_size": Effect(5, {"strategy": "mini"}),
    "vertex_limit": Effect(12, MINI),
    "drop_last": Effect(True, MINI),
    "order": Effect("balanced", MINI),
    "fanout": Effect(1, MINI),
    "eval_fanout": Effect(1, MINI),
    "sampler": Effect("labor", {**MINI, "fanout": 2}),
    "replace": Effect(True, {**MINI, "fanout": 2}),
    "share_sample": Effect(True, {**MINI, "fanout": 2}),
    "clusters": Effect(4, {"strategy": "cluster", "cluster_method": "metis", "clusters": 6}),
    "clusters_per_batch": Effect(2, CLUSTER),
    "cluster_method": Effect("clusters.npy", {"strategy": "cluster"}),
    "boundary_hops": Effect(1, CLUSTER),
    "degrees": Effect("view", CLUSTER),
    "diagonal": Effect(0.5, CLUSTER),
    "history": Effect("gas", CLUSTER),
    "partitioner": Effect("vertex-cut", ranks=2, shows=layout),
    "masters": Effect("block", ranks=2, shows=layout),
    "backend": Effect("fused", {"epochs": 0}, shows=of("training.backend")),
    "mode": Effect("independent", MINI, ranks=2, shows=of("setup.independent")),
    "views_in_flight": Effect(3, MINI, shows=of("training.queue.in_flight")),
    "pipeline": Effect(
        "auto", {**MINI, "views_in_flight": 2}, shows=lambda t, r: t.pipeline is None
    ),
    "stage_threads": Effect(
        "auto", {**MINI, "views_in_flight": 2}, shows=lambda t, r: t.pipeline is None
    ),
    "macrobatch": Effect("2", MINI, shows=lambda t, r: t.macrobatches is None),
    "fetch_batch": Effect(1, INDEPENDENT, ranks=2, shows=of("macrobatches.fetched")),
    "feature_cache": Effect(
        "9", {**INDEPENDENT, "macrobatch": "1"}, ranks=2, shows=lambda t, r: len(t.caches.caches)
    ),
    "machine_cache": Effect(
        "9",
        {**INDEPENDENT, "macrobatch": "1"},
        ranks=4,
        shows=lambda t, r: t.caches.machine is None,
    ),
    "cache_policy": Effect(
        "lru",
        {**INDEPENDENT, "macrobatch": "1", "feature_cache": "9"},
        ranks=2,
        shows=of("caches.line"),
    ),
    "precompute": Effect("yes", {"dropout": 0.0}, shows=lambda t, r: t.setup.saving is None),
    "audit": Effect(1, {**CLUSTER, "history": "gas"}),
    "audit_limit": Effect(
        1e-9, {**CLUSTER, "history": "gas", "audit": 1}, shows=of("strategy.hops")
    ),
    "recompute": Effect(True, {"layers": 3}, shows=lambda t, r: len(t.setup.settings.recomputed)),
    "inference_memory": Effect(1e-6),
    "halo": Effect("bf16", {"hidden": 16, "layers": 3, "dtype": "float32"}, ranks=2),
    "exchange": Effect("bns:rate=0.5", {"partitioner": "1d-dst"}, ranks=2),
    "task": Effect("link"),
    "metric": Effect("f1_macro", shows=of("setup.metric")),
    "class_weights": Effect("balanced"),
    "sample_weights": Effect("weight_of"),
    "threshold": Effect("0.05", on="binary"),
    "positive": Effect("0", on="binary"),
    "epochs": Effect(3),
    "steps": Effect(1),
    "views_per_step": Effect(2, MINI),
    "staleness": Effect(1, MINI),
    "lr": Effect(0.5),
    "lr_schedule": Effect("step", {"lr_decay_updates": 1}, needed=True),
    "lr_decay_updates": Effect(1, {"lr_schedule": "cosine"}, needed=True),
    "lr_decay": Effect(0.5, {"lr_schedule": "step", "lr_decay_updates": 1}),
    "lr_patience": Effect(1, {"lr_schedule": "plateau"}, needed=True),
    "lr_warmup_updates": Effect(3),
    "clip_norm": Effect(1e-3, {"optimiser": "sgd"}),
    "optimiser": Effect("sgd"),
    "momentum": Effect(0.9, {"optimiser": "sgd"}),
    "centered": Effect(True, {"optimiser": "rmsprop"}),
    "weight_decay": Effect(0.5),
    "decay_first_layer_only": Effect(True, {"weight_decay": 0.5}),
    "link_relation": Effect("1", {"task": "link"}, on="links"),
    "negatives": Effect(3, {"task": "link"}, on="links"),
    "eval_negatives": Effect(3, {"task": "link"}, on="links"),
    "rank_all": Effect(True, {"task": "link"}, on="links"),
    "negative_groups": Effect(2, {"task": "link", **MINI}, on="links"),
    "negatives_from": Effect("batch", {"task": "link", **MINI}, on="links"),
    "link_loss": Effect("softmax", {"task": "link", "negatives": 3}, on="links"),
    "adversarial_temperature": Effect(
        3.0, {"task": "link", "link_loss": "adversarial", "negatives": 3}, on="links"
    ),
    "patience": Effect(1, {"epochs": 20, "lr": 3.0}),
    "eval_every": Effect(2),
    "seed": Effect(1),
    "seeds": Effect(2),
    "dtype": Effect("float32", {"dtype": "float64"}),
    "values": Effect("bfloat16", {"hidden": 16, "layers": 3, "dtype": "float32"}),
    "out": Effect("run", shows=files),
    "checkpoint_every": Effect(1, shows=files),
    "keep": Effect(1, {"out": "run", "checkpoint_every": 1, "epochs": 4}, shows=files),
    "resume": Effect(True, shows=files),
    "overwrite": Effect(True, {"out": "held"}, needed=True),
    "save_predictions": Effect(True, shows=files),
    "scores": Effect("logits", shows=lambda t, r: t.predict()[1]),
    "trace": Effect(True, shows=files),
    "log_level": Effect("info", shows=log_level),
}


def outcome(way: Callable[..., gt.Trainer], one: Effect, **keys: Any) -> Any:
    """What a job shows: an error, or what the table says."""

    def program(comm: Any) -> Any:
        if comm is not None:
            # two workers share a machine
            comm.machines = np.arange(comm.size) // 2
        trainer = way(comm=comm, **{**BASE, **one.more, **keys})
        return one.shows(trainer, trainer.fit())

    try:
        return run_simulated(one.ranks, program) if one.ranks > 1 else program(None)
    except GraphThetaError as error:
        return error


def test_every_key_is_in_the_table() -> None:
    assert list(TABLE) == list(FIELDS)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("key", TABLE)
def test_a_key_takes_effect_on_a_graph_or_is_an_error(key: str) -> None:
    one = TABLE[key]

    # all keys of a dataset are refused
    one = replace(one, more={k: x for k, x in one.more.items() if k not in OF_DATASET})

    def way(**keys: Any) -> gt.Trainer:
        return gt.Trainer(graph=graphs()[one.on], **keys)

    without = outcome(way, one)
    assert not isinstance(without, GraphThetaError) or one.needed, without
    # a run is not written over another one
    shutil.rmtree("run", ignore_errors=True)
    result = outcome(way, one, **{key: one.value})
    assert str(result) != str(without)
    if isinstance(result, GraphThetaError):
        assert re.search(rf"{key}.*(drop|make|give|choose|raise)", str(result)), result


@pytest.mark.parametrize("key", ASKS_NOTHING)
def test_a_key_that_asks_for_nothing_is_allowed_on_a_graph(key: str) -> None:
    one = TABLE[key]

    def way(**keys: Any) -> gt.Trainer:
        return gt.Trainer(graph=graphs()[one.on], **keys)

    assert outcome(way, one, **{key: ASKS_NOTHING[key]}) == outcome(way, one)


@pytest.mark.parametrize("key", [key for key in DataKeys.model_fields if key != "dataset"])
def test_a_key_of_the_data_takes_effect_on_a_dataset(key: str) -> None:
    one = TABLE[key]
    gt.import_graph(graphs()[one.on], to="store")

    def way(**keys: Any) -> gt.Trainer:
        return gt.Trainer(**{"dataset": "store", **keys})

    assert str(outcome(way, one, **{key: one.value})) != str(outcome(way, one))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a run that has ended."""
    folder = str(tmp_path_factory.mktemp("finished") / "run")
    words = [
        "--dataset",
        "sbm:n_nodes=60,n_edges=300",
        "--epochs",
        "1",
        "--hidden",
        "4",
        "--backend",
        "reference",
        "--out",
        folder,
    ]
    assert main(["train", *words]) == 0
    return folder


@pytest.mark.parametrize("key", sorted(OF_TRAINING))
def test_a_key_that_only_training_reads_is_refused_with_a_run_that_is_over(
    key: str, finished: str
) -> None:
    one = TABLE[key]
    # those of learned features need others, which a run that is over does not take
    with pytest.raises(
        ConfigError,
        match="drop --embedding-" if key.startswith("embedding_") else "training is over; drop --",
    ):
        gt.open_run(
            finished, **{k: x for k, x in one.more.items() if k in OF_TRAINING} | {key: one.value}
        )


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_commands_refuse_them_too(
    command: str, finished: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, finished, "--lr", "0.5"]) == 2
    assert "lr=0.5 has no meaning for" in capsys.readouterr().err
    # the value of the run changes nothing
    assert (
        main(
            [command, finished, "--epochs", "1", "--to", "p.npz"][
                : 4 if command == "evaluate" else None
            ]
        )
        == 0
    )
