"""Models that read the values of edges, and graphs whose later edges have another value."""

from __future__ import annotations

import numpy as np

import graphtheta as gt
from graphtheta.models import DotDecoder

# a graph refuses NaN; this value makes every number it reaches unlike the others
POISON = 1e6
# of the outputs of the model: probabilities near 0 and 1 hide differences
JOB = {"epochs": 2, "backend": "reference", "dtype": "float64", "scores": "logits"}


class Valued(gt.Layer):
    """Sums neighbours times the column "value" of the edges."""

    def __init__(self, d_in, d_out):
        self.weight = gt.Parameter.glorot(d_in, d_out)
        self.own = gt.Parameter.glorot(d_in, d_out)

    def transform(self, node):
        return {"z": node.h @ self.weight}

    def gather(self, edge):
        return edge.src.z * edge.value

    def apply(self, node, total):
        return total + node.h @ self.own


class Scores(gt.Model):
    """A layer, and the scores of pairs."""

    def __init__(self, d_in):
        self.layer = Valued(d_in, 6)
        self.score = DotDecoder()

    def forward(self, graph):
        return self.score(graph, self.layer(graph, graph.x))


def outputs_of_batches(one):
    """The view of each batch of an epoch of a trainer, its outputs, and its loss."""
    for i in range(one.strategy.steps_per_epoch):
        view = one.strategy.batch(0, i)
        out = one.setup.evaluator.run(one.model, view)
        yield view, out.value, float(one.strategy.task.loss(view, out).value)


def late(graph, time, value=POISON):
    """The graph with another value at all edges later than a time."""
    return graph.replace(
        edge_columns={
            **graph.edge_columns,
            "value": np.where(
                graph.edge_columns["time"] > time, value, graph.edge_columns["value"]
            ),
        }
    )
