"""``strategy=auto``: what it chooses, that all workers and later runs choose the same, and that a
run which it began is like any other.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.cli.warmup import jobs_of
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.dry_run import Probe
from graphtheta.errors import ConfigError
from graphtheta.train.loop import chosen_strategy
from graphtheta.train.loop.chosen_strategy import CHOSEN, UPDATES, Degrees, Facts, choose_strategy

SBM = "sbm:n_nodes=200,n_edges=900,classes=3,features=6"
KEYS: dict[str, Any] = {
    "dataset": SBM,
    "strategy": "auto",
    "hidden": 8,
    "epochs": 3,
    "backend": "reference",
}
GIB = 1 << 30


@cache
def probe_of(model: str, layers: int) -> Probe:
    keys = {**KEYS, "strategy": "global", "model": model, "layers": layers, "hidden": 64}
    return gt.Trainer(**keys).probe


def chosen(
    model: str = "gcn", layers: int = 2, epochs: int = 200, eval_every: int = 1, **facts: Any
) -> dict[str, Any]:
    """The keys that are chosen for a graph of about Reddit's size, unless facts say otherwise."""
    usual = {"nodes": 200_000, "edges": 10_000_000, "targets": 150_000}
    usual |= {"nodes_per_target": 1.0, "density": 1.0, "memory": 64 * GIB} | facts
    degree = np.array([usual["edges"] / usual["nodes"]])
    degrees = Degrees(nodes=np.array([usual["nodes"]]), into=degree, out=degree)
    job = gt.Job(strategy="auto", model=model, layers=layers, epochs=epochs, eval_every=eval_every)
    choice = choose_strategy(job, probe_of(model, layers), Facts(degrees=degrees, **usual))
    assert choice.reason.startswith("strategy=auto: strategy=" + choice.job.strategy)
    assert "\n" not in choice.reason
    return {key: getattr(choice.job, key) for key in CHOSEN}


def test_a_small_graph_is_computed_whole() -> None:
    for targets in (100, 3_000):
        keys = chosen(nodes=5_000, edges=40_000, targets=targets)
        assert keys["strategy"] == "global" and keys["fanout"] == ()


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_a_large_graph_with_many_targets_is_sampled(model: str) -> None:
    keys = chosen(model)
    assert keys["strategy"] == "mini" and keys["batch_size"] >= 256 and keys["fanout"] == (10,)


def test_few_targets_are_batches_with_all_neighbours() -> None:
    few = {"nodes": 2_000_000, "edges": 8_000_000, "targets": 200}
    keys = chosen(**few)
    # an evaluation of the whole graph is worth more updates than one
    assert keys == {"strategy": "mini", "batch_size": 128, "fanout": (), "clusters": 0}
    assert chosen(eval_every=100, **few) == {**keys, "batch_size": 200}


def test_the_time_of_evaluations_counts_against_few_updates_of_an_epoch() -> None:
    facts = {"nodes": 50_000, "edges": 4_000_000, "targets": 30_000}
    assert [chosen(eval_every=n, **facts)["strategy"] for n in (1, 1000)] == ["mini", "global"]


def test_neighbourhoods_have_the_expected_sizes_with_and_without_hubs() -> None:
    """Beside drawn batches of graphs whose ends of edges are drawn at random."""
    rng = np.random.default_rng(0)
    n, size = 4000, 40
    hubs = rng.lognormal(0, 1.2, (2, n))
    for weight in (hubs, np.ones((2, n))):
        src, dst = (rng.choice(n, 20_000, p=x / x.sum()) for x in weight)
        trainer = gt.Trainer(graph=labelled(gt.Graph((src, dst), n)), **OF_DRAWN)
        degrees = chosen_strategy.degrees_of(trainer.partition)
        assert degrees.nodes.sum() == n and degrees.nodes @ degrees.into == 20_000
        facts = Facts(
            nodes=n,
            edges=20_000,
            degrees=degrees,
            targets=n,
            nodes_per_target=1.0,
            density=1.0,
            memory=GIB,
        )
        for sampled in (0, 3):
            rows, edges = chosen_strategy._neighbourhood(trainer.probe, facts, size, sampled)
            real = np.mean([reached(rng, (src, dst), n, size, sampled) for _ in range(99)], axis=0)
            np.testing.assert_allclose([*rows, *edges], real, rtol=0.1)


def labelled(graph: gt.Graph) -> gt.Graph:
    n = graph.n_nodes
    return graph.replace(x=np.ones((n, 3)), y=np.arange(n) % 2, train=np.ones(n, bool))


OF_DRAWN: dict[str, Any] = {"model": "sage", "layers": 2, "hidden": 4, "backend": "reference"}


def reached(
    rng: np.random.Generator, ends: tuple[Any, Any], n: int, size: int, sampled: int
) -> list[int]:
    """Nodes within 0, 1 and 2 hops of some nodes, and edges of each hop."""
    inside = np.isin(np.arange(n), rng.choice(n, size, replace=False))
    rows = [size]
    edges = []
    for _ in range(2):
        src, dst = (end[inside[ends[1]]] for end in ends)
        order = np.lexsort((rng.random(len(dst)), dst))
        src = src[order]
        dst = dst[order]
        number = np.arange(len(dst)) - np.searchsorted(dst, dst)
        used = src[number < sampled] if sampled else src
        inside[used] = True
        rows.append(int(inside.sum()))
        edges.append(len(used))
    return [*rows, *edges]


def test_sampling_a_deep_network_reaches_the_whole_graph_and_saves_nothing() -> None:
    assert chosen(layers=8, edges=2_000_000)["strategy"] == "global"


def test_what_does_not_fit_is_computed_in_parts() -> None:
    assert chosen(memory=GIB // 4)["strategy"] == "mini"
    keys = chosen(layers=8, memory=GIB // 4)
    assert keys["strategy"] == "cluster"
    assert chosen(layers=8, memory=GIB // 8)["clusters"] > keys["clusters"] > 1


def test_few_epochs_make_enough_updates() -> None:
    small = {"nodes": 20_000, "edges": 200_000, "targets": 12_000}
    assert chosen(**small)["strategy"] == "global"
    keys = chosen(epochs=5, **small)
    assert keys["strategy"] == "mini" and 5 * -(-12_000 // keys["batch_size"]) >= UPDATES
    # no way makes enough: the one that makes most
    assert chosen(epochs=1, nodes=500, edges=900, targets=300)["batch_size"] == 128


class Seen(gt.Layer):
    """Makes an edge value, which a later layer may read."""

    def __init__(self) -> None:
        self.weight = gt.Parameter.glorot(6, 3)

    def transform(self, node: Any) -> Any:
        return {"z": node.h @ self.weight}

    def gather(self, edge: Any) -> Any:
        return edge.src.z, {"seen": edge.src.z}


def test_where_layers_make_edge_values_nothing_is_sampled() -> None:
    class Net(gt.Model):
        def __init__(self) -> None:
            self.layer = Seen()

        def forward(self, graph: Any) -> Any:
            return self.layer(graph, graph.x)

    made = gt.Trainer(Net(), dataset=SBM, backend="reference").probe
    assert not chosen_strategy._may_sample(made)
    assert all(chosen_strategy._may_sample(probe_of(m, 2)) for m in ("gcn", "sage", "gat"))


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"epochs": 1},
        {"task": "link"},
        {"direction": "both"},
        {"dataset": "sbm:n_nodes=4,n_edges=8,classes=2"},
    ],
    ids=["usual", "one epoch", "links", "both directions", "a worker without nodes"],
)
def test_all_numbers_of_workers_choose_the_same(keys: dict[str, Any]) -> None:
    def program(comm: Comm) -> tuple[str, str, float]:
        trainer = gt.Trainer(comm=comm, **{**KEYS, **keys})
        text = " ".join(trainer.job.as_text(key) for key in CHOSEN)
        return text, trainer.setup.strategy_line, trainer.train_epoch(0)

    (alone,) = run_simulated(1, program)
    for size in (2, 3):
        for text, line, loss in run_simulated(size, program):
            assert (text, line) == alone[:2] and loss == pytest.approx(alone[2], rel=1e-4)


@pytest.mark.parametrize(
    "keys",
    [
        {"batch_size": 20},
        {"fanout": "5,5"},
        {"sampler": "labor"},
        {"clusters": 4},
        {"views_in_flight": 2},
        {"mode": "independent"},
        {"exchange": "pipegcn"},
        {"history": "gas"},
        {"precompute": "yes"},
    ],
)
def test_keys_of_one_strategy_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="has no meaning with strategy=auto, only with"):
        gt.Job(strategy="auto", **keys)


def test_it_has_no_options_and_no_namesake() -> None:
    with pytest.raises(ConfigError, match="auto has no options"):
        gt.Job(strategy="auto:batch_size=3")
    with pytest.raises(ConfigError, match="has no meaning with strategy=auto, only with mini"):
        gt.Loader(gt.load(SBM), strategy="auto", fanout=[3])


def test_a_run_records_what_was_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # of 300 targets, so that an epoch can be more than one update
    of_many = {"dataset": SBM.replace("200", "500"), "split": "fraction", "epochs": 1}
    flags = [f"--{key}={value}" for key, value in {**KEYS, **of_many}.items()]
    out = str(tmp_path / "run")
    assert main(["train", *flags, "--out", out]) == 0
    first = capsys.readouterr().out
    line = json.loads(Path(out, "result.json").read_text())["strategy"]
    assert line in first and line.startswith("strategy=auto: strategy=mini, batch_size=")
    job = gt.Job.from_yaml(Path(out, "job.yaml"))
    assert job.strategy == "mini" and job.batch_size > 0
    assert main(["evaluate", out]) == 0
    assert main(["predict", out]) == 0
    # more epochs would choose the whole graph, but the run goes on as it began
    more = [*flags, "--epochs=300", "--steps=6", "--out", out, "--resume"]
    capsys.readouterr()
    assert main(["train", *more]) == 0
    assert f"strategy=auto: as the run in {out} began" in capsys.readouterr().out
    assert gt.Job.from_yaml(Path(out, "job.yaml")).batch_size == job.batch_size


def test_the_folder_has_the_name_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *(f"--{key}={value}" for key, value in KEYS.items())]) == 0
    assert Path("runs/sbm-gcn-auto/job.yaml").is_file()
    trainer = gt.Trainer(**{**KEYS, "model": "sage", "checkpoint_every": 1})
    trainer.fit()
    assert trainer.job.strategy != "auto" and Path("runs/sbm-sage-auto/job.yaml").is_file()
    # without a folder of the run nothing is written
    gt.Trainer(**{**KEYS, "model": "gat"}).fit()
    assert sorted(p.name for p in Path("runs").iterdir()) == ["sbm-gcn-auto", "sbm-sage-auto"]


def test_plans_and_explanations_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert "strategy=auto: strategy=" in gt.explain(**KEYS)
    assert {job.strategy for job in jobs_of(KEYS)} == {"global", "mini"}
