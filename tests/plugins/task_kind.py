"""A kind of task: ordered classes, predicted by one binary label for each pair of neighbours."""

import numpy as np

import graphtheta as gt
from graphtheta.errors import DataError
from graphtheta.tasks.kinds.node import NodeKind


@gt.TASKS.add
class Ordinal(NodeKind):
    name = "ordinal"
    summary = "ordered classes of nodes"
    label_kinds = ("labels",)

    @classmethod
    def fits(cls, graph):
        return False

    def take(self, graph):
        if graph.label_kind != "classes":
            raise DataError(
                f"task 'ordinal' needs one class per node and {graph.name} has labels of kind"
                f" {graph.label_kind}"
            )
        above = graph.y[:, None] > np.arange(graph.n_classes - 1)
        return super().take(graph.replace(y=np.where(graph.y[:, None] < 0, np.nan, above)))

    def named(self, info, rows, out):
        ids, out = super().named(info, rows, out)
        return ids, (out > 0).sum(axis=1)
