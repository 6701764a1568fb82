"""GraphView: which rows and edges each superstep of a batch runs over.

A view borrows the topology of its partition: it holds lists of active rows, lists of chosen edges where not all edges
of a block take part, and restricted move plans. No subgraph is copied.

Frame rows are ordered so that the nodes needed k hops before the end are a prefix of those needed k + 1 hops before it.
Values of different depth therefore fit together by being cut to the shorter one. Supersteps of the same hop and
direction share their level.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ops.autodiff.space import RowSpace
from ...ops.functions.index import take_rows
from ..partition.partition import Partition
from .hop import Layers, hops
from .level import Level, directions, full_pass
from .scored_pairs import PairLevel

PRECOMPUTED = "precomputed"
HIDDEN = ("y", "train", "val", "test", PRECOMPUTED)


@dataclass
class GraphView:
    """One batch.

    Attributes:
        partition: The partition it looks at.
        levels: One per superstep, in the order of calls.
        rows: Master rows in frame order; None for all, in order.
        space: Row space of the frame.
        pairs: The level of node pairs a decoder runs over, for edge and link tasks.
        node, edge: Columns that replace those of the partition inside this view (frame order; storage order).
    """

    partition: Partition
    levels: list[Level]
    rows: np.ndarray | None
    space: RowSpace
    pairs: PairLevel | None = None
    node: dict[str, np.ndarray] = field(default_factory=dict)
    edge: dict[str, np.ndarray] = field(default_factory=dict)
    _taken: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def n_targets(self) -> int:
        """Frame rows at the end of the model."""
        return min((level.n_out for level in self.levels), default=self.space.n)

    def node_column(self, name: str, n: int) -> Any:
        """A column of the masters for the first n frame rows; KeyError if there is none."""
        if name in self.node:
            return self.node[name][:n]
        if self.rows is None:
            column = self.partition.node[name]
            return column if n == self.space.n else column[:n]
        known = self._taken.get(name)
        if known is None or known.shape[0] < n:
            known = self._taken[name] = take_rows(self.partition.node[name], self.rows[:n])
        return known if known.shape[0] == n else known[:n]

    def edge_column(self, name: str) -> np.ndarray:
        """A stored edge column, in storage order; KeyError if there is none."""
        return self.edge[name] if name in self.edge else self.partition.edge[name]

    def edge_names(self) -> list[str]:
        """Stored edge values that gather may read; targets and masks are not among them."""
        return [n for n in {**self.partition.edge, **self.edge} if n not in HIDDEN]


def global_view(partition: Partition, layers: Layers) -> GraphView:
    """The view in which all is active, for such supersteps."""
    n, along = partition.n_masters, [hop.direction for hop in hops(layers)]
    made = {d: Level(n, n, [full_pass(partition, reverse) for reverse in directions(d)], d) for d in set(along)}
    return GraphView(partition, [made[d] for d in along], None, RowSpace(partition.masters))
