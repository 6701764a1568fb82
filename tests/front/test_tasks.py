"""Kinds of task: which one a graph means, which keys it reads, and that a job asks the kind."""

from __future__ import annotations

from collections.abc import Iterator

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.strategy.task import NodeTask
from graphtheta.engine.train.metrics import METRICS, choose_metric, fitting
from graphtheta.errors import ConfigError
from graphtheta.run.job.job import choices
from graphtheta.tasks.kinds.link import LinkKind
from graphtheta.tasks.kinds.node import NodeKind
from graphtheta.tasks.kinds.registry import TASKS, kind_for, readers

KEYS = {"epochs": 2, "hidden": 4, "backend": "reference", "dtype": "float64"}


@pytest.fixture(autouse=True)
def left_as_found() -> Iterator[None]:
    before = [(table, set(table)) for table in (TASKS, METRICS)]
    yield
    for table, names in before:
        for name in set(table) - names:
            del table[name]


def test_auto_takes_what_there_are_labels_for() -> None:
    graph = graphs.random_graph()
    bare = graph.replace(y=None, train=None, val=None, test=None)
    found = [
        kind_for("auto", g).name
        for g in (
            graph,
            bare,
            bare.replace(edge_y=None, edge_train=None, edge_val=None, edge_test=None),
        )
    ]
    assert found == ["node", "edge", "link"]
    related = gt.Graph([[0, 1], [1, 0]], edge_columns={"relation": np.array([0, 1])})
    assert sorted([*found, kind_for("auto", related).name]) == sorted(TASKS)

    class Mine(NodeKind):
        name, summary = "mine", "what I like"

    assert TASKS.add(Mine) is kind_for("auto", graph) and kind_for("node", graph) is NodeKind


def test_keys_and_choices_follow_from_the_registries() -> None:
    assert choices("task") == ("auto", "node", "link", "triple", "edge")
    assert choices("metric") == (
        "auto",
        "accuracy",
        "balanced_accuracy",
        "f1_micro",
        "f1_macro",
        "f1",
        "auc",
        "average_precision",
        "ece",
        "mrr",
        "hits1",
        "hits3",
        "hits10",
        "recall10",
        "recall20",
        "recall50",
        "ndcg10",
        "ndcg20",
        "ndcg50",
        "mae",
        "rmse",
        "r2",
    )
    assert LinkKind.keys == (
        "negatives",
        "eval_negatives",
        "negative_groups",
        "negatives_from",
        "link_loss",
        "adversarial_temperature",
        "decoder",
        "sample_weights",
        "link_relation",
        "rank_all",
    )
    of_nodes = {key: ["node"] for key in ("precompute", "class_weights", "threshold", "positive")}
    assert readers() == {
        **of_nodes,
        **{key: ["link", "triple"] for key in LinkKind.keys},
        "sample_weights": ["node", "link", "triple", "edge"],
        "link_relation": ["link"],
        "rank_all": ["link"],
        "margin": ["triple"],
        "reciprocal": ["triple"],
    }

    class Ranked(LinkKind):
        name, summary = "ranked", "links"

    TASKS.add(Ranked)
    assert "ranked" in choices("task") and readers()["negatives"] == ["link", "triple", "ranked"]
    assert gt.Job(task="ranked", negatives=3, metric="mrr").task == "ranked"
    with pytest.raises(
        ConfigError,
        match=(
            "metric=mrr does not measure task=node; give --task link or triple or ranked, or"
            " another"
        ),
    ):
        gt.Job(task="node", metric="mrr")


def test_half_a_kind_is_refused() -> None:
    class Half(gt.TaskKind):
        name, summary = "half", "nothing"

    with pytest.raises(ConfigError, match="is not a kind of task"):
        TASKS.add(Half)


@pytest.mark.parametrize(
    "kinds, names, default",
    [
        (
            ("classes",),
            ["accuracy", "balanced_accuracy", "f1_micro", "f1_macro", "ece"],
            "accuracy",
        ),
        (("binary",), ["f1", "auc", "average_precision"], "f1"),
        (
            ("labels",),
            ["balanced_accuracy", "f1_micro", "f1_macro", "auc", "average_precision", "ece"],
            "f1_micro",
        ),
        (("values",), ["mae", "rmse", "r2"], "r2"),
        (
            ("ranks", "labels"),
            [
                "balanced_accuracy",
                "f1_micro",
                "f1_macro",
                "auc",
                "average_precision",
                "ece",
                "mrr",
                "hits1",
                "hits3",
                "hits10",
            ],
            "mrr",
        ),
    ],
)
def test_metrics_of_each_kind_of_label(
    kinds: tuple[str, ...], names: list[str], default: str
) -> None:
    assert [m.name for m in fitting(kinds)] == names and choose_metric(
        "auto", kinds
    ).name == default
    assert {m.name for m in METRICS.values() if m.smaller_is_better} == {"mae", "rmse", "ece"}


def test_labels_that_no_metric_measures() -> None:
    with pytest.raises(ConfigError, match="no metric measures counts"):
        choose_metric("auto", ("counts",))
    METRICS.add(gt.Metric("mine", {"counts": lambda y, out: np.zeros(1)}, lambda sums: 0.0))
    assert choose_metric("auto", ("counts",)).name == "mine"


def test_metrics_share_their_sums() -> None:
    calls = []

    def sums(y, out):
        calls.append(len(y))
        return np.array([len(y)])

    for name in ("first", "second"):
        METRICS.add(gt.Metric(name, {"classes": sums}, lambda total: total[0]))
    trainer = gt.Trainer("gcn", graph := graphs.random_graph(), **KEYS)
    found = trainer.evaluate("test")
    assert found["test_first"] == found["test_second"] == graph.test.sum() and len(calls) == 3


def test_evaluation_measures_the_loss_that_training_minimises() -> None:
    class Doubled(NodeTask):
        def mean_loss(self, out, y, mask, weights=None):
            return super().mean_loss(out, y, mask, weights) * 2.0

    class Twice(NodeKind):
        name, summary = "twice", "classes of nodes"

        def objective(self, graph, partition):
            return Doubled(partition, self.labels)

    TASKS.add(Twice)
    graph = graphs.random_graph(40, 150)

    def program(comm, task):
        trainer = gt.Trainer("gcn", graph, comm=comm, task=task, **{**KEYS, "dropout": 0.0})
        return trainer.evaluate("train")["train_loss"], trainer.train_epoch(0)

    ((once, first),) = run_simulated(1, program, "node")
    for size in (1, 3):
        for evaluated, trained in run_simulated(size, program, "twice"):
            assert (
                evaluated == pytest.approx(2 * once)
                and trained == pytest.approx(2 * first)
                and evaluated == pytest.approx(trained)
            )


def test_whole_numbers_as_floats_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    graph = graphs.random_graph(test=None)
    classes = graph.y.astype(float)
    values = np.linspace(0, 1, graph.n_nodes)
    unknown = np.where(graph.train | graph.val, classes, np.nan)
    for y, warned in ((graph.y, 0), (classes, 1), (values, 0), (unknown, 1), (classes + 1, 0)):
        caplog.clear()
        run_simulated(
            3,
            lambda comm, y=y: gt.Trainer(
                graph=graph.replace(y=y, n_classes=None), comm=comm, **KEYS
            ),
        )
        told = [
            r.getMessage()
            for r in caplog.records
            if "floating-point numbers 0 to 2" in r.getMessage()
        ]
        assert len(told) == warned and all("give them as integers" in text for text in told)


@pytest.mark.parametrize(
    ("loss", "biased"), [("binary", True), ("adversarial", True), ("softmax", False)]
)
def test_scores_of_links_have_a_bias_where_the_loss_depends_on_it(loss: str, biased: bool) -> None:
    trainer = gt.Trainer(
        "sage",
        graphs.random_graph(20, 80, y=None),
        task="link",
        decoder="hadamard",
        link_loss=loss,
        epochs=1,
        backend="reference",
    )
    trainer.fit()
    assert [bias is not None for bias in trainer.model.decoder.mlp.biases] == [True, biased]
