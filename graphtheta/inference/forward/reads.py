"""The stored columns that a model reads, found by a pass over an empty graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.view.hop import Layers
from graphtheta.engine.view.level import Level
from graphtheta.inference.forward.empty import empty_view
from graphtheta.ops.autodiff.tape import Tape


class _Reading(ActiveGraph):
    """A pass that lists the stored columns that are read."""

    def __init__(self, view: Any):
        self.columns: set[str] = set()
        super().__init__(view)

    def node(self, name: str, n: int | None = None) -> Any:
        self.columns.add(f"node.{name}")
        return super().node(name, n)

    def read_begin(self, names: Iterable[str], n: int) -> None:
        names = list(names)
        self.columns |= {f"node.{name}" for name in names if name in self.node_names()}
        super().read_begin(names, n)

    def edges(self, names: list[str], level: Level) -> Any:
        self.columns |= {
            f"edge.{name}"
            for name in names
            if name not in self._carried and name not in level.given
        }
        return super().edges(names, level)

    def _stored(self, name: str) -> Any:
        self.columns.add(f"edge.{name}")
        return super()._stored(name)


def columns_read(model: Model, partition: Partition, layers: Layers) -> list[str]:
    """Names of the columns that a model reads, "node.NAME" and "edge.NAME", sorted; degrees are
    columns too.

    Args:
        model: The model.
        partition: Has the columns.
        layers: The supersteps of the model.
    """
    graph = _Reading(empty_view(partition, layers))
    with Tape(record=False, training=False):
        model.run(graph)
    return sorted(graph.columns)
