"""GraphTheta as a contender: single parts of a step, through names that older versions have too.

    PYTHONPATH=bench python bench/own/parts.py TIMES

wide        epoch of a GAT layer of 8 heads of 256 numbers, whose messages do not fit in registers
chain       epoch of 12 elementwise operations on 200,000 x 32 numbers, without edges
columns     epoch in which two numbers multiply and shift 2 million rows: their gradients are sums
auc, ap, r2 metrics of 10 million rows, a tenth of them equal scores
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np
from contender import drawn, report

import graphtheta as gt
from graphtheta.models import GAT

ROWS = 10_000_000


class Wide(gt.Model):
    """One attention layer and a mean over heads that is the output."""

    def __init__(self, d_in: int, d_out: int, d_edge: int):
        self.layer = GAT(d_in, 256, 8)
        self.last = gt.Linear(2048, d_out)

    def forward(self, graph: Any) -> Any:
        return self.last(self.layer(graph, graph.x))


class Chain(gt.Model):
    """Elementwise operations that are computed together."""

    def __init__(self, d_in: int, d_out: int, d_edge: int):
        self.last = gt.Linear(d_in, d_out)

    def forward(self, graph: Any) -> Any:
        h = graph.x
        for _ in range(4):
            h = gt.sigmoid(h) * 2.0 - h
        return self.last(h)


class Columns(gt.Model):
    """A factor and a shift that all rows share."""

    def __init__(self, d_in: int, d_out: int, d_edge: int):
        self.factor = gt.Parameter(np.ones(1, np.float32))
        self.shift = gt.Parameter.zeros(1)

    def forward(self, graph: Any) -> Any:
        return graph.x * self.factor + self.shift


def graph_of(n: int, width: int, edges: int, classes: int) -> gt.Graph:
    """A random graph with n nodes."""
    ends = np.random.default_rng(0).integers(0, n, (2, edges))
    labels = np.arange(n) % classes
    return gt.Graph(
        (ends[0], ends[1]), n, x=drawn(n, width), y=labels, n_classes=classes, train=labels >= 0
    )


def epochs(model: type[gt.Model], graph: gt.Graph, times: int) -> tuple[list[float], float]:
    """Seconds of each epoch after two, and the first loss."""
    trainer = gt.Trainer(model, graph, strategy="global", lr=0.01, weight_decay=0.0, seed=1)
    loss = trainer.train_epoch(0)
    trainer.train_epoch(1)
    return timed(lambda i: trainer.train_epoch(2 + i), times), loss


def timed(work: Callable[[int], object], times: int) -> list[float]:
    """Seconds of each call."""
    seconds = []
    for i in range(times):
        began = perf_counter()
        work(i)
        seconds.append(perf_counter() - began)
    return seconds


def metric_module(name: str) -> Any:
    """A module of metrics, which lay beside the functions once."""
    beside = "graphtheta.ops.metrics"
    return import_module(
        f"{beside if find_spec(beside) else 'graphtheta.ops.functions.metrics'}.{name}"
    )


def metrics(times: int) -> dict[str, list[float]]:
    """Seconds of metrics of ROWS rows."""
    scores, regression = metric_module("scores"), metric_module("regression")
    draw = np.random.default_rng(0)
    labels = (draw.random(ROWS) < 0.3).astype(np.float64)
    chance = (draw.standard_normal(ROWS) + labels).astype(np.float32)
    chance[: ROWS // 10] = 0.5
    work = {
        "auc": lambda _: scores.auc(labels, chance),
        "ap": lambda _: scores.average_precision(labels, chance),
        "r2": lambda _: regression.r2(
            regression.regression_sums(labels[:, None], chance[:, None].astype(np.float64))
        ),
    }
    return {name: timed(run, times) for name, run in work.items()}


def main(times: str) -> None:
    seconds: dict[str, list[float]] = {}
    losses: dict[str, list[float]] = {}
    works = {
        "wide": (Wide, graph_of(10_000, 64, 100_000, 8)),
        "chain": (Chain, graph_of(200_000, 32, 10, 8)),
        "columns": (Columns, graph_of(2_000_000, 2, 10, 2)),
    }
    for name, (model, graph) in works.items():
        seconds[name], loss = epochs(model, graph, int(times))
        losses[name] = [loss]
    seconds.update(metrics(max(1, int(times) // 3)))
    report(seconds, losses, f"graphtheta {gt.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
