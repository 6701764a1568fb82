"""Evaluation over sampled neighbourhoods: the draws depend on seed, epoch and node alone, in every
task; what is recorded says so, and the commands find the same figures again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
from ties import tolerance

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.errors import ConfigError
from graphtheta.ops.autodiff.tape import Tape

pytestmark = pytest.mark.reference

GRAPH = graphs.random_graph(60, 500)
TIMED = GRAPH.replace(
    edge_columns={"time": np.arange(500) % 9}, node_columns={"time": 5 + np.arange(60) % 4}
)
EDGES = TIMED.replace(y=None, train=None, val=None, test=None)
LINKS = EDGES.replace(edge_y=None)
TRIPLES = gt.Graph(
    (GRAPH.src, GRAPH.dst),
    60,
    x=GRAPH.x,
    edge_columns={"relation": np.arange(500) % 3, "time": np.arange(500) % 9},
    edge_train=np.arange(500) % 7 < 5,
    edge_val=np.arange(500) % 7 == 5,
    edge_test=np.arange(500) % 7 == 6,
)
OF_TRIPLES = {
    "graph": TRIPLES,
    "task": "triple",
    "batch_size": 90,
    "negatives": 2,
    "eval_negatives": 2,
}
WHOLE = gt.whole_graphs(
    [graphs.random_graph(6 + i % 3, 40, seed=i, hub=False) for i in range(11)],
    np.arange(11) % 2,
    train=np.arange(11) < 6,
    val=np.arange(11) >= 6,
)
KEYS: dict[str, Any] = {
    "model": "sage",
    "hidden": 4,
    "layers": 2,
    "dtype": "float64",
    "backend": "reference",
    "strategy": "mini",
    "batch_size": 7,
    "fanout": "3,2",
    "eval_fanout": "2,2",
    "epochs": 2,
    "seed": 1,
    "keep": 0,
}
TASKS: dict[str, dict[str, Any]] = {
    "nodes": {},
    "nodes of all sizes": {"model": "gcn", "norm": "batch", "eval_fanout": "2"},
    "nodes, all in one hop": {"eval_fanout": "2,all", "replace": True},
    "nodes in time": {"graph": TIMED, "sampler": "temporal"},
    "stored totals": {"precompute": "yes", "model": "sage", "dropout": 0.0},
    "vertices": {"sampler": "labor"},
    "sets of nodes": {
        "sampler": "saint_node:budget=20,normalise=no",
        "fanout": "",
        "batch_size": 0,
    },
    "edges": {"graph": EDGES, "task": "edge", "batch_size": 50},
    "edges in time": {"graph": EDGES, "task": "edge", "batch_size": 50, "sampler": "temporal"},
    "links": {"graph": LINKS, "task": "link", "batch_size": 90, "eval_negatives": 3},
    "links in time": {
        "graph": LINKS,
        "task": "link",
        "batch_size": 90,
        "eval_negatives": 3,
        "sampler": "temporal",
    },
    "ranked links": {
        "graph": LINKS,
        "task": "link",
        "batch_size": 90,
        "eval_negatives": 3,
        "rank_all": True,
    },
    "triples": {**OF_TRIPLES, "model": "rgcn", "bases": 2},
    "triples in time": {**OF_TRIPLES, "sampler": "temporal"},
    "whole graphs": {"graph": WHOLE, "model": "gin", "readout": "mean", "batch_size": 3},
}


def trainer(comm: Comm, graph: gt.Graph = GRAPH, **keys: Any) -> gt.Trainer:
    return gt.Trainer(graph=graph, comm=comm, **{**KEYS, **keys})


def rows_of(comm: Comm, **keys: Any) -> list[dict[str, Any]]:
    """The rows of a run, without times."""
    return [
        {name: x for name, x in row.items() if name not in ("seconds", "time")}
        for row in trainer(comm, **keys).fit().history
    ]


def close(found: list[dict[str, Any]], expected: list[dict[str, Any]], tied: bool) -> bool:
    """Whether rows are equal to rounding; ranks of tied scores, if there are any, to a tie."""
    return len(found) == len(expected) and all(
        a.keys() == b.keys()
        and all(
            a[name] == b[name]
            if isinstance(a[name], str)
            else np.isclose(a[name], b[name], 1e-9, atol=tolerance(name, 1e-8) if tied else 1e-8)
            for name in a
        )
        for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("name", TASKS)
def test_figures_are_those_of_any_number_of_workers(name: str) -> None:
    keys = TASKS[name]
    (one,) = run_simulated(1, rows_of, **keys)
    exact = run_simulated(1, rows_of, **{**keys, "eval_fanout": ""})[0]
    # 2 and 3 workers meet every placement
    number = list(TASKS).index(name)
    size = 2 + number // len(graphs.PLACEMENTS) % 2
    partitioner, masters = graphs.PLACEMENTS[number % len(graphs.PLACEMENTS)]
    for found in run_simulated(size, rows_of, **keys, partitioner=partitioner, masters=masters):
        assert close(found, one, tied=name == "triples")
    # the same training, measured otherwise
    assert [row["loss"] for row in one] == [row["loss"] for row in exact]
    losses = [[row["val_loss"] for row in rows] for rows in (one, exact)]
    assert not np.isclose(*losses).any()
    assert all("eval_fanout" in row for row in one) and "eval_fanout" not in exact[0]


@pytest.mark.parametrize("placement", graphs.PLACEMENTS, ids=str)
def test_a_node_has_the_output_of_its_own_neighbourhood(placement: tuple[str, str]) -> None:
    def outputs(comm: Comm) -> dict[int, np.ndarray]:
        partitioner, masters = placement
        one = trainer(comm, partitioner=partitioner, masters=masters)
        evaluator = one.setup.evaluator
        p = one.partition
        with one.setup.scope(), evaluator.at(4):
            out = evaluator.run(one.model, evaluator._view).value
            for node in (3, 11, 40):
                target = p.masters == node
                view = k_hop_view(
                    p, target, evaluator.layers, sampler=evaluator.sampled.sampler, step=4
                )
                with Tape(record=False, training=False, all_sum=comm.all_sum):
                    np.testing.assert_allclose(one.model(view).value, out[target], rtol=1e-9)
        return dict(zip(p.masters.tolist(), out, strict=True))

    found = [outputs_of for size in (1, 3) for outputs_of in run_simulated(size, outputs)]
    whole, parts = found[0], {k: v for part in found[1:] for k, v in part.items()}
    for node, out in whole.items():
        np.testing.assert_allclose(parts[node], out, rtol=1e-9)


def test_draws_are_others_in_each_epoch_and_those_of_all_neighbours_are_exact() -> None:
    def measured(comm: Comm, epochs: tuple[int, ...], **keys: Any) -> list[float]:
        one = trainer(comm, **keys)
        found = []
        for epoch in epochs:
            one.epoch = epoch
            found.append(one.measure()["val_loss"])
        return found

    (found,) = run_simulated(1, measured, (1, 2, 1, 0))
    assert found[0] == found[2] and len(set(found)) == 3
    assert run_simulated(1, measured, (1,), seed=2)[0][0] not in found
    exact = run_simulated(1, measured, (1, 2), eval_fanout="")[0]
    for numbers in ("all", "all,all", -1, "1000"):
        np.testing.assert_allclose(
            run_simulated(2, measured, (1, 2), eval_fanout=numbers)[0], exact, rtol=1e-9
        )
    assert exact[0] == exact[1] and exact[0] not in found


def test_predictions_and_training_read_what_they_read_without() -> None:
    def program(comm: Comm, **keys: Any) -> tuple[np.ndarray, np.ndarray]:
        one = trainer(comm, **keys)
        one.train_epoch(0)
        one.measure()
        return one.predict()[1], one.predict([3, 8])[1]

    expected = run_simulated(1, program, eval_fanout="")[0]
    for found, wanted in zip(run_simulated(1, program)[0], expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_an_own_loop_measures_as_the_trainer_does() -> None:
    def own(comm: Comm) -> list[dict[str, float]]:
        keys = {key: x for key, x in KEYS.items() if key not in ("epochs", "keep")}
        run = gt.Run(graph=GRAPH, comm=comm, **keys)
        found = []
        for epoch in range(2):
            for view in run.views(epoch):
                run.backward(run.loss(run.forward(view), view))
                run.step()
            found.append(run.measure())
        return found

    rows = run_simulated(1, rows_of)[0]
    for measured, row in zip(run_simulated(2, own)[0], rows, strict=True):
        for name, value in measured.items():
            np.testing.assert_allclose(value, row[name], rtol=1e-9)


def test_early_stopping_and_resumed_runs_go_by_these_figures(tmp_path: Path) -> None:
    def fitted(comm: Comm, folder: Path, **keys: Any) -> tuple[Any, dict[str, float]]:
        one = trainer(
            comm,
            out=str(folder),
            checkpoint_every=1,
            keep=2,
            resume=True,
            patience=4,
            **{"epochs": 30, **keys},
        )
        result = one.fit()
        return result, one.measure()

    result, again = run_simulated(2, fitted, tmp_path / "whole")[0]
    rows = result.history
    assert len(rows) == result.best_epoch + 4 < 30
    best = rows[result.best_epoch - 1]
    assert best["val_accuracy"] == max(row["val_accuracy"] for row in rows)
    # the model has the weights of the best epoch, and is measured with its draws
    assert again == result.metrics and result.eval_fanout == "2,2"
    run_simulated(2, fitted, tmp_path / "parts", epochs=0, steps=7)
    found, _ = run_simulated(3, fitted, tmp_path / "parts")[0]
    assert found.best_epoch == result.best_epoch
    for name, value in result.metrics.items():
        np.testing.assert_allclose(found.metrics[name], value, rtol=1e-9)


@pytest.mark.usefixtures("without_charts")
def test_what_is_printed_and_recorded_says_that_neighbourhoods_are_sampled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    flags = ["--dataset", "sbm:n_nodes=200,n_edges=900", "--strategy", "mini", "--fanout", "3,2"]
    flags += ["--eval-fanout", "2,1", "--epochs", "3", "--backend", "reference"]
    said = "metrics are of sampled neighbourhoods, eval_fanout=2,1"
    assert main(["train", *flags, "--batch-size", "50", "--out", str(folder)]) == 0
    assert said in capsys.readouterr().out
    result = json.loads((folder / "result.json").read_text())
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {result["eval_fanout"], *(row["eval_fanout"] for row in rows)} == {"2,1"}
    assert main(["evaluate", str(folder), "--classes"]) == 0
    out = capsys.readouterr().out
    assert said in out and f"{result['metrics']['test_loss']:.4g}"[:5] in out
    # on the graph as another one, and exactly
    one = gt.open_run(folder)
    for name, value in one.measure().items():
        np.testing.assert_allclose(value, result["metrics"][name], rtol=1e-5)
    classes = one.class_report().model_dump()["splits"]["test"]
    assert classes == result["classes"]["splits"]["test"]
    assert main(["evaluate", str(folder), "--eval-fanout", "all"]) == 0
    assert "sampled" not in capsys.readouterr().out
    exact = gt.open_run(folder, eval_fanout="all").measure()
    assert exact["test_loss"] != result["metrics"]["test_loss"]
    assert main(["report", str(folder)]) == 0
    (page,) = tmp_path.rglob("*.html")
    assert "Metrics are of sampled neighbourhoods, eval_fanout=2,1." in page.read_text()


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"eval_fanout": "2,2,2"}, "eval_fanout=2,2,2 has 3 numbers and layers=2"),
        ({"eval_fanout": "0"}, "eval_fanout: got '0', expected numbers of at least 1, or all"),
        ({"eval_fanout": "2,0"}, "expected numbers of at least 1, or all"),
        ({"eval_fanout": [2, -3]}, "expected numbers of at least 1, or all"),
        ({"eval_fanout": "some"}, "expected numbers of at least 1, or all"),
        ({"eval_fanout": 2.5}, "expected numbers of at least 1, or all"),
        (
            {"strategy": "global", "batch_size": 0, "fanout": ""},
            "eval_fanout=2,2 has no meaning with strategy=global",
        ),
        ({"inference_memory": 1.0}, "eval_fanout=2,2 .* inference_memory=1.0"),
        ({"share_sample": True, "fanout": "2", "eval_fanout": "2,1"}, "needs equal fanouts"),
        (
            {"graph": WHOLE, "model": "gin", "readout": "mean", "eval_fanout": "2,2,2"},
            "eval_fanout=2,2,2 has 3 numbers",
        ),
    ],
    ids=str,
)
def test_errors(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        run_simulated(2, trainer, **keys)


def test_a_loader_has_no_evaluation() -> None:
    with pytest.raises(ConfigError, match=r"eval_fanout has no meaning for gt\.Loader"):
        gt.Loader(GRAPH, fanout=[2, 2], eval_fanout=[2, 2])
