"""Rare classes: weights of classes and rows, batches with even classes, thresholds, the report of
each class.
"""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
from own_loops import GRAPH, close, weights

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError

KEYS: dict[str, Any] = {
    "hidden": 5,
    "dtype": "float64",
    "backend": "reference",
    "norm": "none",
    "dropout": 0.2,
    "lr": 0.05,
    # losses and thresholds are computed by hand from what the model returns
    "scores": "logits",
}
STRATEGIES = {
    "global": {},
    "mini": {"strategy": "mini", "batch_size": 9, "fanout": "3,2"},
    "independent": {
        "strategy": "mini",
        "batch_size": 9,
        "mode": "independent",
        "views_per_step": 1,
    },
    "clusters": {"strategy": "cluster", "clusters": 4, "clusters_per_batch": 2},
    "saint": {"strategy": "mini", "sampler": "saint_node:budget=15"},
}
RNG = np.random.default_rng(5)
ROWS = RNG.integers(0, 4, GRAPH.n_nodes) / 2
WEIGHTED = GRAPH.replace(node_columns={"w": ROWS.astype(np.float32)})
# one node in four is of the rare class
RARE = GRAPH.replace(y=np.where(RNG.random(60) < 0.25, 1, 0), n_classes=2)
LABELS = GRAPH.replace(
    y=np.where(RNG.random((60, 3)) < 0.1, np.nan, RNG.random((60, 3)) < [0.1, 0.5, 0.9]).astype(
        np.float32
    ),
    n_classes=None,
    multilabel=True,
)


def trained(comm: Any, graph: gt.Graph, **keys: Any) -> tuple[Any, ...]:
    trainer = gt.Trainer("gcn", graph, comm=comm, **{**KEYS, **keys})
    losses = [trainer.train_epoch(i) for i in range(2)]
    return losses, weights(trainer), trainer.measure(), trainer.predict(), trainer.class_report()


def cross_entropy(y: np.ndarray, out: np.ndarray) -> np.ndarray:
    return np.log(np.exp(out).sum(axis=1)) - out[np.arange(len(y)), y]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", STRATEGIES)
def test_weights_are_the_same_on_any_workers_and_those_of_an_own_loss(name: str) -> None:
    keys = {**STRATEGIES[name], "class_weights": "1,4,0.5"}

    def own(out: Any, y: Any) -> Any:
        return -gt.pick(gt.log_softmax(out), y), np.array([1.0, 4.0, 0.5])[y.value]

    one = run_simulated(1, trained, GRAPH, **keys)[0]
    three = run_simulated(3, trained, GRAPH, **keys, masters="block")[0]
    np.testing.assert_allclose(three[0], one[0], rtol=1e-9)
    close(three[1], one[1])
    assert three[2] == pytest.approx(one[2], rel=1e-8)
    plain = run_simulated(1, trained, GRAPH, **STRATEGIES[name])[0]
    assert not np.allclose(plain[0], one[0])
    # with GraphSAINT the sum of the weights of an own loss is estimated, and that of known weights
    # is not
    if name != "saint":
        of_ours = run_simulated(1, trained, GRAPH, **STRATEGIES[name], loss=own)[0]
        np.testing.assert_allclose(of_ours[0], one[0], rtol=1e-9)
        assert of_ours[2] == pytest.approx(one[2], rel=1e-9)


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    utils = pytest.importorskip("sklearn.utils")
    y = GRAPH.y[GRAPH.train]
    wanted = utils.class_weight.compute_class_weight("balanced", classes=np.unique(y), y=y)
    given = run_simulated(1, trained, GRAPH, class_weights=[float(w) for w in wanted])[0]
    found = run_simulated(2, trained, GRAPH, class_weights="balanced")[0]
    np.testing.assert_allclose(found[0], given[0], rtol=1e-9)
    # a class that does not occur in training changes nothing
    more = run_simulated(
        2, trained, GRAPH.replace(n_classes=GRAPH.n_classes + 1), class_weights="balanced", epochs=0
    )[0]
    _, out = more[3]
    by = np.append(wanted, 1)[y]
    assert more[2]["train_loss"] == pytest.approx(
        (by * cross_entropy(y, out[GRAPH.train])).sum() / by.sum()
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", STRATEGIES)
def test_weights_of_rows_multiply_those_of_classes(name: str) -> None:
    keys = {**STRATEGIES[name], "class_weights": "1,4,0.5", "sample_weights": "w"}
    one, three = (run_simulated(size, trained, WEIGHTED, **keys)[0] for size in (1, 3))
    np.testing.assert_allclose(three[0], one[0], rtol=1e-9)
    close(three[1], one[1])
    _, out = one[3]
    for split in ("train", "test"):
        rows = np.flatnonzero(getattr(GRAPH, split))
        y = GRAPH.y[rows]
        by = np.array([1, 4, 0.5])[y] * ROWS[rows]
        assert one[2][f"{split}_loss"] == pytest.approx(
            (by * cross_entropy(y, out[rows])).sum() / by.sum()
        )


@pytest.mark.parametrize(
    "class_weights, of", [("balanced", None), ("2,3,4", np.array([[1.0, 1, 1], [2, 3, 4]]))]
)
def test_labels_have_a_weight_of_1_and_of_0(class_weights: str, of: np.ndarray | None) -> None:
    graph = LABELS.replace(node_columns=WEIGHTED.node_columns)
    keys = {"class_weights": class_weights, "sample_weights": "w"}
    one, three = (run_simulated(size, trained, graph, **keys)[0] for size in (1, 3))
    np.testing.assert_allclose(three[0], one[0], rtol=1e-9)
    _, out = one[3]
    y = graph.y[graph.train]
    if of is None:
        counts = np.stack([(y == v).sum(axis=0) for v in (0, 1)])
        of = counts.sum(axis=0) / (2 * counts)
    by = np.where(np.isnan(y), 0, np.where(y == 1, of[1], of[0])) * ROWS[graph.train, None]
    each = np.where(
        np.isnan(y), 0, np.logaddexp(0, out[graph.train]) - np.nan_to_num(y) * out[graph.train]
    )
    assert one[2]["train_loss"] == pytest.approx((by * each).sum() / by.sum())


@pytest.mark.parametrize(
    "keys",
    [{}, STRATEGIES["mini"], STRATEGIES["independent"]],
    ids=["global", "mini", "independent"],
)
def test_edges_have_weights_too(keys: dict[str, Any]) -> None:
    w = np.random.default_rng(1).integers(0, 3, 120)
    graph = graphs.random_graph(30, 120, y=None, n_classes=None).replace(edge_columns={"trust": w})
    one, three = (
        run_simulated(size, trained, graph, **keys, sample_weights="trust")[0] for size in (1, 3)
    )
    np.testing.assert_allclose(three[0], one[0], rtol=1e-9)
    close(three[1], one[1])
    ids, out = one[3]
    rows = np.flatnonzero(graph.edge_train)
    error = (out.reshape(-1)[np.searchsorted(ids, rows)] - graph.edge_y.reshape(-1)[rows]) ** 2
    assert one[2]["train_loss"] == pytest.approx((w[rows] * error).sum() / w[rows].sum())


def batches(comm: Any, graph: gt.Graph, epochs: int, **keys: Any) -> list[list[np.ndarray]]:
    strategy = gt.Trainer(
        "gcn", graph, comm=comm, strategy="mini", order="balanced", **KEYS, **keys
    ).strategy
    return [
        [strategy.task.ids[strategy._order.own(e, i)] for i in range(strategy.steps_per_epoch)]
        for e in range(epochs)
    ]


def joined(size: int, *args: Any, **keys: Any) -> list[list[np.ndarray]]:
    parts = run_simulated(size, batches, *args, **keys)
    return [
        [np.sort(np.concatenate(own)) for own in zip(*same, strict=True)]
        for same in zip(*parts, strict=True)
    ]


@pytest.mark.parametrize(
    "graph",
    [
        GRAPH,
        RARE,
        RARE.replace(y=np.where(RARE.y == 1, 1.0, 0)[:, None], n_classes=None, multilabel=True),
        GRAPH.replace(y=np.full(60, 2)),
    ],
    ids=["classes", "rare", "a label", "one class"],
)
def test_classes_of_a_batch_are_even(graph: gt.Graph) -> None:
    y = graph.y.reshape(-1)
    train = np.flatnonzero(graph.train)
    present = np.unique(y[train][y[train] >= 0])
    assert min(np.sum(y[train] == c) for c in present) >= 2
    epochs = joined(1, graph, 6, batch_size=2 * len(present))
    for batch in chain(*(epoch[:-1] for epoch in epochs)):
        counts = [np.sum(y[batch] == c) for c in present]
        # two of each; one if a class begins again within a batch with the target that it ended with
        assert max(counts) == 2 and min(counts) >= 1 and len(batch) == sum(counts)
    drawn = np.concatenate([*chain(*epochs)])
    # over some epochs all targets come, and no others
    assert np.array_equal(np.unique(drawn), train[y[train] >= 0])
    assert any(not np.array_equal(a, b) for a, b in zip(*epochs[:2], strict=True))
    for a, b in zip(
        chain(*joined(3, graph, 6, batch_size=2 * len(present), masters="block")),
        chain(*epochs),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_balanced_batches_train_the_same_on_any_workers() -> None:
    keys = {**STRATEGIES["mini"], "order": "balanced", "views_in_flight": 2, "macrobatch": "2"}
    one, three = (run_simulated(size, trained, RARE, **keys)[0] for size in (1, 3))
    np.testing.assert_allclose(three[0], one[0], rtol=1e-9)
    close(three[1], one[1])


@pytest.mark.parametrize(
    "goal, of", [("f1", "f1_score"), ("balanced_accuracy", "balanced_accuracy_score")]
)
def test_a_threshold_is_chosen_on_the_validation_rows(goal: str, of: str) -> None:
    skl = pytest.importorskip("sklearn.metrics")
    one, three = (run_simulated(size, trained, RARE, threshold=goal)[0] for size in (1, 3))
    assert three[2] == pytest.approx(one[2], rel=1e-8) and three[4].splits == one[4].splits
    (cut,) = one[4].thresholds
    assert three[4].thresholds == pytest.approx([cut])
    _, out = one[3]
    p = 1 / (1 + np.exp(out[:, 0] - out[:, 1]))
    measure = getattr(skl, of)
    best = max(measure(RARE.y[RARE.val], p[RARE.val] > t) for t in (-1, *p[RARE.val]))
    for split in ("val", "test"):
        mask = getattr(RARE, split)
        assert one[2][f"{split}_{goal}"] == pytest.approx(measure(RARE.y[mask], p[mask] > cut))
        assert one[2][f"{split}_auc"] == pytest.approx(skl.roc_auc_score(RARE.y[mask], p[mask]))
        assert one[2][f"{split}_average_precision"] == pytest.approx(
            skl.average_precision_score(RARE.y[mask], p[mask])
        )
    assert one[2][f"val_{goal}"] == pytest.approx(best)
    # what reads probabilities is not shifted
    plain = run_simulated(1, trained, RARE)[0]
    assert {n: one[2][n] for n in ("test_ece", "test_loss", "test_auc")} == {
        n: plain[2][n] for n in ("test_ece", "test_loss", "test_auc")
    }


def test_labels_have_a_threshold_each_and_a_fixed_one_is_for_all() -> None:
    found = run_simulated(2, trained, LABELS, threshold="f1")[0]
    assert len(found[4].thresholds) == 3
    fixed = run_simulated(2, trained, LABELS, threshold=0.7)[0]
    assert fixed[4].thresholds == pytest.approx([0.7] * 3)
    _, out = fixed[3]
    said = 1 / (1 + np.exp(-out[LABELS.test])) > 0.7
    y = LABELS.y[LABELS.test]
    columns = fixed[4].splits["test"]
    assert columns.recall == pytest.approx([said[y[:, c] == 1, c].mean() for c in range(3)])
    assert columns.support == [int(np.nansum(y[:, c])) for c in range(3)]


def test_the_report_of_each_class_is_that_of_scikit_learn() -> None:
    skl = pytest.importorskip("sklearn.metrics")
    one, three = (run_simulated(size, trained, GRAPH)[0] for size in (1, 3))
    assert (
        one[4] == three[4]
        and list(one[4].splits) == ["train", "val", "test"]
        and not one[4].thresholds
    )
    y = GRAPH.y[GRAPH.test]
    said = one[3][1][GRAPH.test].argmax(axis=1)
    wanted = skl.precision_recall_fscore_support(
        y, said, labels=range(GRAPH.n_classes), zero_division=0
    )
    for (_, column), numbers in zip(one[4].splits["test"], wanted, strict=True):
        assert column == pytest.approx(list(numbers))
    assert "balanced_accuracy" in str(one[2]) and one[2]["test_balanced_accuracy"] == pytest.approx(
        skl.balanced_accuracy_score(y, said)
    )
    named = GRAPH.replace(meta={"class_names": ["a", "b", "c"]})
    assert run_simulated(1, trained, named)[0][4].text("test").splitlines()[2].split()[0] == "a"


@pytest.mark.parametrize(
    "keys, error, words",
    [
        ({"class_weights": "1,2"}, ConfigError, "has 2 number.* the data has 3 classes"),
        ({"class_weights": "balance"}, ConfigError, "did you mean 'balanced'"),
        ({"class_weights": "1,-2,3"}, ConfigError, "a number of at least 0 for each class"),
        ({"class_weights": "0,0,0"}, ConfigError, "a number of at least 0 for each class"),
        ({"sample_weights": "x"}, ConfigError, "no such column.*it has w"),
        ({"threshold": "f1"}, ConfigError, "decides between two classes.*has 3 classes"),
        ({"threshold": "1"}, ConfigError, "a number between 0 and 1, f1 or balanced_accuracy"),
        ({"threshold": "nan"}, ConfigError, "a number between 0 and 1"),
        ({"task": "link", "class_weights": "balanced"}, ConfigError, "task=link"),
        (
            {"task": "link", "strategy": "mini", "batch_size": 9, "order": "balanced"},
            ConfigError,
            "no class each",
        ),
        ({"order": "balanced"}, ConfigError, "strategy"),
        ({"metric": "f1"}, ConfigError, "does not measure this task"),
    ],
)
def test_what_does_not_fit_is_an_error(
    keys: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        gt.Trainer("gcn", WEIGHTED, **{**KEYS, **keys})


def test_weights_that_are_wrong_or_all_zero_are_an_error() -> None:
    columns = {
        "row 0 is -1": [-1.0] + [1.0] * 59,
        r"shape is \[60, 2\]": np.zeros((60, 2)),
        "all training targets": [0.0] * 60,
    }
    for words, values in columns.items():
        graph = GRAPH.replace(node_columns={"w": np.asarray(values)})
        with pytest.raises(DataError, match=words):
            run_simulated(2, trained, graph, sample_weights="w")
    with pytest.raises(ConfigError, match="no meaning for real values"):
        gt.Trainer(
            "gcn",
            GRAPH.replace(y=np.ones((60, 1), np.float32) / 3, n_classes=None),
            class_weights="balanced",
            **KEYS,
        )


@pytest.mark.parametrize("size", [1, 3])
def test_a_set_that_weighs_nothing_has_no_loss(size: int, caplog: pytest.LogCaptureFixture) -> None:
    graph = WEIGHTED.replace(node_columns={"w": GRAPH.train.astype(np.float32)})

    def program(comm: Any) -> dict[str, float]:
        trainer = gt.Trainer("gcn", graph, comm=comm, epochs=2, sample_weights="w", **KEYS)
        return trainer.fit().metrics

    caplog.clear()
    metrics = run_simulated(size, program)[0]
    assert np.isfinite(metrics["train_loss"]) and np.isfinite(metrics["val_accuracy"])
    assert np.isnan(metrics["val_loss"]) and np.isnan(metrics["test_loss"])
    assert caplog.text.count("rows all weigh 0") == 1


@pytest.mark.usefixtures("without_charts")
def test_the_commands_show_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    job = [
        "--dataset",
        "sbm:n_nodes=80,n_edges=300,classes=2,features=4",
        "--backend",
        "reference",
        "--epochs",
        "3",
        "--metric",
        "f1",
        "--class-weights",
        "balanced",
        "--threshold",
        "f1",
        "--strategy",
        "mini",
        "--batch-size",
        "10",
        "--order",
        "balanced",
    ]
    assert main(["train", *job, "--out", "run"]) == 0
    assert "test f1" in capsys.readouterr().out
    result = json.loads(Path("run/result.json").read_text())
    assert {"test_f1", "test_ece", "val_average_precision", "val_balanced_accuracy"} <= set(
        result["metrics"]
    )
    assert "class_weights: balanced" in Path("run/job.yaml").read_text()
    assert (
        len(result["classes"]["thresholds"]) == 1
        and sum(result["classes"]["splits"]["test"]["support"]) > 0
    )
    assert main(["evaluate", "run", "--on", "test", "--classes"]) == 0
    shown = capsys.readouterr().out
    assert all(
        word in shown for word in ("average_precision", "ece", "precision  recall", "thresholds: ")
    )
    assert main(["report", "run"]) == 0
    page = Path("run/report.html").read_text()
    assert "<h2>Classes</h2>" in page and "test: class" in page and "Thresholds: " in page
    result["classes"]["splits"]["test"]["recall"] = [2]
    Path("run/result.json").write_text(json.dumps(result))
    assert main(["report", "run"]) != 0
    assert "result.json: classes: " in capsys.readouterr().err
