"""GraphView: which rows and edges each superstep of a batch runs over.

A view borrows the topology of its partition: it holds lists of active rows, lists of chosen edges
where not all edges of a block take part, and restricted move plans. No subgraph is copied.

Frame rows are ordered so that the nodes needed k hops before the end are a prefix of those needed
k + 1 hops before it. Values of different depth are therefore combined by cutting to the shorter
one. Supersteps of the same hop and direction share their level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...ops.autodiff.space import RowSpace
from ...ops.autodiff.tape import Var
from ..partition.partition import Partition
from .hop import Layers, hops
from .level import Counts, Level, full_pass, passes_of
from .scored_pairs import PairLevel

# the column of a total that was computed before training
PRECOMPUTED = "precomputed"


@dataclass
class GraphView:
    """One batch.

    Attributes:
        partition: The partition, with additional columns that are valid in this view only.
        levels: One per superstep, in the order of calls.
        rows: Master rows in frame order; None for all, in order.
        space: Row space of the frame.
        pairs: The level of node pairs a decoder runs over, for edge and link tasks.
        revise: Given the number of a level and the result of its layer, returns the values that
            later layers read, which may have more rows; None if they read the result.
        node: Reads columns of the masters for the first frame rows.
    """

    partition: Partition
    levels: list[Level]
    rows: np.ndarray | None
    space: RowSpace
    pairs: PairLevel | None = None
    revise: Callable[[int, Var], Var] | None = None

    def __post_init__(self) -> None:
        self.node = self.partition.node.prefixes(self.rows)

    @property
    def n_targets(self) -> int:
        """Frame rows at the end of the model."""
        return min((level.n_out for level in self.levels), default=self.space.n)


def global_view(partition: Partition, layers: Layers) -> GraphView:
    """The view of the whole graph: all rows and edges are active in every superstep."""
    along = [hop.direction for hop in hops(layers)]
    level_of = {d: _full_level(partition, d) for d in set(along)}
    return GraphView(partition, [level_of[d] for d in along], None, RowSpace(partition.masters))


def _full_level(partition: Partition, direction: str) -> Level:
    n = partition.n_masters
    along = passes_of(partition, direction)
    counts = Counts(
        partition.n_nodes, partition.n_nodes, sum(relation.n_edges for relation, _ in along)
    )
    return Level(n, n, [full_pass(partition, *key) for key in along], direction, counts=counts)
