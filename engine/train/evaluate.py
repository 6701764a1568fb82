"""Evaluation and prediction over the whole graph, by the code that trains: the same model, views and supersteps."""
from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ...ops.autodiff.tape import Tape, Var
from ..comm.communicator import Comm
from ..layer.layer import Model
from ..partition.partition import Partition
from ..view.hop import Layers
from ..view.scored_pairs import PairPlan
from ..view.strategy import whole
from ..view.task import EdgeTask, Links, Seeds, link_pairs, loss_of
from ..view.view import GraphView
from . import metric

# the watchdog gives steps less time than other code
RUNS_STEPS = True

SPLITS = ("train", "val", "test")
# of each kind of label, the default first
METRICS = {"classes": ("accuracy", "f1_micro", "f1_macro"), "labels": ("f1_micro", "f1_macro", "auc"), "values": ("r2", "mae", "rmse")}
Metrics = dict[str, float]


class Evaluator(ABC):
    """Metrics of a model by split: "val_accuracy", "val_loss", ...

    Attributes:
        names: The metrics, without loss.
        default_metric: What the best model is chosen by if nobody says.
    """

    names: tuple[str, ...]
    default_metric: str

    def __init__(self, partition: Partition, layers: Layers):
        self.partition, self.layers = partition, layers

    @property
    def comm(self) -> Comm:
        return self.partition.comm

    @abstractmethod
    def metrics(self, model: Model) -> Metrics:
        """All metrics of all splits.

        Collective: all ranks of the partition.
        """

    @abstractmethod
    def predict(self, model: Model) -> np.ndarray | None:
        """Outputs by global id on rank 0, None elsewhere.

        Collective: all ranks of the partition.
        """

    def run(self, model: Model, view: GraphView) -> Any:
        """The outputs of a model without training it."""
        with Tape(record=False, training=False, all_sum=self.comm.all_sum):
            out = model(view)
        # given, and not made, in the passes that measure it
        return Var(out.value, out.space)

    def score(self, split: str, kind: str, y: np.ndarray, out: Any, rows: np.ndarray) -> Metrics:
        """Metrics of some rows of this worker, summed over all of them."""
        with Tape(record=False, training=False, all_sum=self.comm.all_sum):
            loss = float(self.comm.all_sum(np.asarray(loss_of(kind, out, y, rows).value, np.float64)))
        found = _MEASURES[kind](self.comm, y[rows], out.value[rows])
        return {f"{split}_{name}": value for name, value in {"loss": loss, **found}.items()}


class NodeEvaluator(Evaluator):
    """Of node labels.

    Args:
        kind: "classes", "labels" or "values".
    """

    def __init__(self, partition: Partition, layers: Layers, kind: str):
        super().__init__(partition, layers)
        self.kind = kind
        self.names, self.default_metric = METRICS[kind], METRICS[kind][0]
        self._view = whole(partition, layers)

    def metrics(self, model: Model) -> Metrics:
        out, y = self.run(model, self._view), self.partition.node["y"]
        y = y.reshape(out.shape) if self.kind == "values" else y
        found: Metrics = {}
        for split in SPLITS:
            mask = self.partition.node.get(split)
            if mask is not None and self.comm.all_sum(np.asarray(np.count_nonzero(mask))) > 0:
                found |= self.score(split, self.kind, y, out, mask & (y >= 0) if self.kind == "classes" else mask)
        return found

    def predict(self, model: Model) -> np.ndarray | None:
        """Outputs of all nodes by global id, [n_nodes, ...] on rank 0, None elsewhere.

        Collective: all ranks of the partition.
        """
        out = self.run(model, self._view).value
        ids, rows = self.comm.gather_rows(self.partition.masters), self.comm.gather_rows(out)
        return _ordered(ids, rows, self.partition.n_nodes)


class EdgeEvaluator(Evaluator):
    """Of values of stored edges; ``masks`` are by split, over the local edges in storage order."""

    def __init__(self, partition: Partition, layers: Layers, task: EdgeTask, masks: dict[str, np.ndarray]):
        super().__init__(partition, layers)
        self._masks, self.kind = masks, task.kind
        self.names, self.default_metric = METRICS[task.kind], METRICS[task.kind][0]
        self._view = whole(partition, layers, task.masked(np.ones(partition.n_local_edges, bool)))

    def metrics(self, model: Model) -> Metrics:
        out, pairs = self.run(model, self._view), self._view.pairs
        assert pairs is not None
        found: Metrics = {}
        for split, mask in self._masks.items():
            if self.comm.all_sum(np.asarray(np.count_nonzero(mask))) == 0:
                continue
            found |= self.score(split, self.kind, pairs.label.reshape(out.shape), out, mask[pairs.stored])
        return found

    def predict(self, model: Model) -> np.ndarray | None:
        """Outputs of all edges by global id, [n_edges, ...] on rank 0, None elsewhere.

        Collective: all ranks of the partition.
        """
        out, pairs = self.run(model, self._view).value, self._view.pairs
        assert pairs is not None
        return _ordered(self.comm.gather_rows(pairs.gid), self.comm.gather_rows(out), self.partition.n_edges)


class LinkEvaluator(Evaluator):
    """Of held-back links by split, against fixed negatives; the messages run along the training links only."""

    names = ("mrr", "hits1", "hits3", "hits10", *METRICS["labels"])
    default_metric = "mrr"

    def __init__(self, partition: Partition, layers: Layers, links: dict[str, Links]):
        super().__init__(partition, layers)
        self.links = links
        self._views = {}
        for split, held in links.items():
            plan = PairPlan(self.partition, link_pairs(self.partition, held, np.arange(len(held.src))))
            self._views[split] = whole(self.partition, self.layers, Seeds(plan.needed, plan))

    def metrics(self, model: Model) -> Metrics:
        found: Metrics = {}
        for split, view in self._views.items():
            if not len(self.links[split].src):
                continue
            assert view.pairs is not None
            out = self.run(model, view)
            found |= self.score(split, "labels", view.pairs.label.reshape(out.shape), out, np.ones(out.shape[0], bool))
            scores = np.empty(len(view.pairs.order), out.dtype)
            # what could not be found is below everything
            scores[view.pairs.order] = np.where(np.isnan(view.pairs.label), -np.inf, out.value.reshape(-1))
            table = scores.reshape(-1, self.links[split].negatives + 1)
            sums = self.comm.all_sum(metric.ranking_sums(metric.ranks(table[:, 0], table[:, 1:])))
            found |= {f"{split}_mrr": metric.mrr(sums)}
            found |= {f"{split}_hits{k}": value for k, value in zip((1, 3, 10), metric.hits(sums), strict=True)}
        return found

    def predict(self, model: Model) -> np.ndarray | None:
        """Scores of the test links, [n_test] on rank 0, None elsewhere.

        Collective: all ranks of the partition.
        """
        view, per = self._views["test"], self.links["test"].negatives + 1
        assert view.pairs is not None
        out = self.run(model, view).value.reshape(-1)
        positive = view.pairs.gid % per == 0
        ids, rows = self.comm.gather_rows(view.pairs.gid[positive] // per), self.comm.gather_rows(out[positive])
        return _ordered(ids, rows, len(self.links["test"].src))


def _classes(comm: Comm, y: np.ndarray, out: np.ndarray) -> Metrics:
    table = comm.all_sum(metric.confusion(y, out.argmax(axis=1), out.shape[1]))
    counts = metric.counts_of(table)
    return {"accuracy": metric.accuracy(table), "f1_micro": metric.f1(counts, "micro"), "f1_macro": metric.f1(counts, "macro")}


def _labels(comm: Comm, y: np.ndarray, out: np.ndarray) -> Metrics:
    # links have one label each and no axis for it
    y, out = (x[:, None] if x.ndim == 1 else x for x in (y, out))
    counts = comm.all_sum(metric.label_counts(y, (out > 0).astype(y.dtype)))
    labels, scores = comm.gather_rows(y), comm.gather_rows(out)
    area = 0.0 if labels is None or scores is None else metric.auc(np.concatenate(labels), np.concatenate(scores))
    return {"f1_micro": metric.f1(counts, "micro"), "f1_macro": metric.f1(counts, "macro"), "auc": comm.broadcast(area)}


def _values(comm: Comm, y: np.ndarray, out: np.ndarray) -> Metrics:
    sums = comm.all_sum(metric.regression_sums(y, out))
    return {"mae": metric.mae(sums), "rmse": metric.rmse(sums), "r2": metric.r2(sums)}


_MEASURES = {"classes": _classes, "labels": _labels, "values": _values}


def _ordered(ids: list[np.ndarray] | None, rows: list[np.ndarray] | None, n: int) -> np.ndarray | None:
    if ids is None or rows is None:
        return None
    found = np.zeros((n, *rows[0].shape[1:]), rows[0].dtype)
    found[np.concatenate(ids)] = np.concatenate(rows)
    return found
