"""Evaluation and prediction: the figures of plain NumPy over the whole graph, on any ranks, by
global id.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from whole_links import links_at

import graphtheta.ops as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.strategy.task import EdgeTask, LinkTask, NodeTask, label_kind
from graphtheta.engine.train.metrics import choose_metric
from graphtheta.inference.outputs.predictions import in_order
from graphtheta.ops import Parameter
from graphtheta.tasks.evaluation.evaluate import EdgeEvaluator, LinkEvaluator, NodeEvaluator

RUNS = [(size, graphs.PLACEMENTS[i]) for size, i in ((1, 0), (2, 3), (3, 4), (4, 1), (8, 5))]


class Nodes(Model):
    """Sum of neighbours and dropout, which evaluation must not apply."""

    def __init__(self, width):
        self.layer = Layer()
        self.w = Parameter(np.random.default_rng(0).standard_normal((4, width)))

    def forward(self, graph):
        return gt.dropout(self.layer(graph, gt.matmul(graph.x, self.w)), 0.5)


class Pairs(Nodes):
    """Inner products of them."""

    def __init__(self):
        super().__init__(2)
        self.decoder = Layer()
        self.decoder.sum = None
        self.decoder.gather = lambda edge: (edge.src.h * edge.dst.h).sum(-1)

    def forward(self, graph):
        return self.decoder(graph, self.layer(graph, gt.matmul(graph.x, self.w)))


def node_values(graph, w):
    out = np.zeros((graph.n_nodes, w.shape[1]))
    np.add.at(out, graph.dst, graph.x.astype(float)[graph.src] @ w)
    return out


def evaluate(graph, build, model):
    """Metrics and predictions of every run; the metrics are equal on all ranks, and the default
    metric is one of them.
    """

    def program(comm, placement):
        evaluator = build(build_partition(graph, comm, *placement, dtype=np.float64))
        return (
            evaluator.metrics(model),
            None if (rows := in_order(comm, evaluator.outputs(model), True)) is None else rows[1],
            choose_metric("auto", (evaluator.task.kind,)).name,
        )

    for size, placement in RUNS:
        found = run_simulated(size, program, placement)
        for metrics, _, _ in found:
            np.testing.assert_equal(metrics, found[0][0])
        assert all(p is None for _, p, _ in found[1:])
        assert any(name.endswith(found[0][2]) for name in found[0][0])
        yield found[0][0], found[0][1]


def node_runs(graph, width):
    model = Nodes(width)
    return node_values(graph, model.w.value), evaluate(graph, nodes_of(graph), model)


def nodes_of(graph):
    kind = label_kind(graph.y, graph.multilabel)
    return lambda p: NodeEvaluator(p, ["in"], NodeTask(p, kind))


def links_of(held):
    return lambda p: LinkEvaluator(p, ["in"], LinkTask(p, held(p)["test"]), held(p))


def test_classes():
    graph = graphs.random_graph(40, 150)
    out, runs = node_runs(graph, 3)
    losses = np.log(np.exp(out).sum(axis=1)) - out[np.arange(40), graph.y]
    for metrics, predicted in runs:
        np.testing.assert_allclose(predicted, out, atol=1e-12)
        for split in ("train", "val", "test"):
            mask = getattr(graph, split)
            right = np.mean(out.argmax(axis=1)[mask] == graph.y[mask])
            assert (
                metrics[f"{split}_accuracy"] == right == pytest.approx(metrics[f"{split}_f1_micro"])
            )
            assert metrics[f"{split}_loss"] == pytest.approx(losses[mask].mean())


def test_unlabelled_nodes_and_missing_splits_are_left_out():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 40)
    train = np.arange(40) < 10
    test = np.arange(40) >= 25
    y[30:] = -1
    # a split may hold unlabelled nodes only outside of training
    graph = graphs.random_graph(40, 150, y=y, train=train, val=None, test=test & (y >= 0))
    out, runs = node_runs(graph, 3)
    for metrics, _ in runs:
        assert {name.split("_")[0] for name in metrics} == {"train", "test"}
        assert metrics["test_accuracy"] == np.mean(out[25:30].argmax(axis=1) == y[25:30])


def test_several_labels():
    y = (np.random.default_rng(0).random((40, 3)) < 0.4).astype(np.float32)
    graph = graphs.random_graph(40, 150, y=y, n_classes=None)
    out, runs = node_runs(graph, 3)
    mask = graph.test
    said, true = out[mask] > 0, y[mask] > 0
    for metrics, _ in runs:
        assert metrics["test_f1_micro"] == pytest.approx(
            2 * (said & true).sum() / (said.sum() + true.sum())
        )
        assert 0 < metrics["test_auc"] < 1
        z = out[mask]
        assert metrics["test_loss"] == pytest.approx(
            np.mean(np.log1p(np.exp(-np.abs(z))) + np.maximum(z, 0) - z * true)
        )


@pytest.mark.parametrize("width", [1, 2])
def test_real_values(width):
    y = np.random.default_rng(0).standard_normal((40, width)).astype(np.float32)
    graph = graphs.random_graph(40, 150, y=y, n_classes=None)
    out, runs = node_runs(graph, width)
    error = (out - y)[graph.val]
    for metrics, _ in runs:
        assert metrics["val_mae"] == pytest.approx(np.abs(error).mean())
        assert metrics["val_rmse"] == pytest.approx(np.sqrt((error**2).mean()))
        assert metrics["val_loss"] == pytest.approx((error**2).mean())


def test_edges():
    graph = graphs.random_graph(40, 150)
    model = Pairs()
    h = node_values(graph, model.w.value)
    expected = (h[graph.src] * h[graph.dst]).sum(axis=1)

    def build(p):
        return EdgeEvaluator(
            p,
            ["in"],
            EdgeTask(p, p.edge.read("train")),
            {n: p.edge.read(n) for n in ("train", "val", "test")},
        )

    for metrics, predicted in evaluate(graph, build, model):
        np.testing.assert_allclose(predicted, expected, atol=1e-10)
        for split in ("train", "val", "test"):
            mask = getattr(graph, f"edge_{split}")
            assert metrics[f"{split}_rmse"] == pytest.approx(
                np.sqrt(np.mean((expected - graph.edge_y)[mask] ** 2))
            )


def test_links():
    graph, model = graphs.random_graph(40, 100, hub=False), Pairs()
    h = node_values(graph, model.w.value)
    known = np.unique(np.concatenate((graph.src * 40 + graph.dst, graph.dst * 40 + graph.src)))
    src, dst = graph.src[30:47], graph.dst[30:47]

    def held(p):
        return {
            "val": links_at(p, graph.src[:30], graph.dst[:30], known, 9, 1),
            "test": links_at(p, src, dst, known, 9, 2),
        }

    negative = run_simulated(
        1, lambda comm: held(build_partition(graph, comm))["test"].draw(np.arange(17), 40)[0]
    )[0]
    positive = (h[src] * h[dst]).sum(axis=1)
    others = np.einsum("nf,nkf->nk", h[src], h[negative])
    rank = (
        1
        + (others > positive[:, None]).sum(axis=1)
        + 0.5 * (others == positive[:, None]).sum(axis=1)
    )
    for metrics, predicted in evaluate(graph, links_of(held), model):
        np.testing.assert_allclose(predicted, positive, atol=1e-10)
        assert metrics["test_mrr"] == pytest.approx(np.mean(1 / rank))
        assert metrics["test_hits3"] == pytest.approx(np.mean(rank <= 3))
        area = np.mean(
            (positive[:, None] > others.ravel()) + 0.5 * (positive[:, None] == others.ravel())
        )
        assert metrics["test_auc"] == pytest.approx(area)


def test_links_without_negatives_have_no_rank(caplog):
    n = 9
    graph = graphs.fill(np.zeros(n - 1, int), np.arange(1, n), n)
    known = np.unique(np.concatenate((graph.src * n + graph.dst, graph.dst * n + graph.src)))
    held = lambda p: {"test": links_at(p, graph.src[:4], graph.dst[:4], known, 3, 1)}
    for metrics, _ in evaluate(graph, links_of(held), Pairs()):
        assert np.isnan(metrics["test_mrr"]) and np.isfinite(metrics["test_loss"])
    text = (
        "mrr and hits1 and hits3 and hits10 of the test set are not defined (NaN): none of its"
        " links has a candidate"
    )
    # rank 0 of each run says it
    assert sum(text in message for message in caplog.messages) == len(RUNS)


def test_evaluation_leaves_the_model_alone():
    graph = graphs.random_graph(40, 150)
    model = Nodes(3)
    before = model.w.value.copy()
    first = [metrics for metrics, _ in evaluate(graph, nodes_of(graph), model)]
    np.testing.assert_array_equal(model.w.value, before)
    np.testing.assert_equal(
        first, [metrics for metrics, _ in evaluate(graph, nodes_of(graph), model)]
    )
