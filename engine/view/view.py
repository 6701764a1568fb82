"""GraphView: which rows and edges each superstep of a batch runs over.

A view borrows the topology of its partition: it holds lists of active rows, lists of chosen edges
where not all edges of a block take part, and restricted move plans. No subgraph is copied.

Frame rows are ordered so that the nodes needed k hops before the end are a prefix of those needed
k + 1 hops before it. Values of different depth are therefore combined by cutting to the shorter
one. Supersteps of the same hop and direction share their level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ops.autodiff.space import RowSpace
from ...ops.autodiff.tape import Var
from ...ops.rows.row_list import ArrayOrList, RowList
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
    """

    partition: Partition
    levels: list[Level]
    rows: np.ndarray | None
    space: RowSpace
    pairs: PairLevel | None = None
    revise: Callable[[int, Var], Var] | None = None

    def __post_init__(self) -> None:
        self._node = self.partition.node.prefixes(self.rows)

    @property
    def n_targets(self) -> int:
        """Frame rows at the end of the model."""
        return min((level.n_out for level in self.levels), default=self.space.n)

    def read_begin(self, names: Iterable[str], n: int) -> None:
        """Begin to read some columns of the masters for the first n frame rows; ``node_column``
        returns them.

        Raises:
            KeyError: There is no such column.
        """
        none = np.zeros(0, np.int64)
        # rows in memory as bfloat16 are read where they are
        stored = [name for name in names if self.partition.node.short(name, none) is None]
        self._node.read_begin(stored, n)

    def node_column(self, name: str, n: int) -> Any:
        """A column of the masters for the first n frame rows; KeyError if there is none."""
        return self._node.read(name, n)

    def listed(self, name: str, n: int) -> RowList | None:
        """The same rows where they are stored; None if they must be copied; KeyError if there is no
        such column.
        """
        return self._node.listed(name, n)

    def lent(self, name: str, n: int) -> RowList | None:
        """The same rows where they are in memory, if they are all rows, for the first pass that
        asks; otherwise None.
        """
        return (
            self.partition.node.lent(name)
            if self.rows is None and n == self.partition.n_masters
            else None
        )

    def short(self, name: str, n: int) -> ArrayOrList | None:
        """The same rows as ``BFLOAT16`` where they are in memory; None if they are stored
        otherwise.
        """
        rows = self.partition.node.short(name, None if self.rows is None else self.rows[:n])
        return rows[:n] if isinstance(rows, np.ndarray) else rows

    def edge_column(self, name: str) -> Any:
        """A stored edge column, in storage order; KeyError if there is none."""
        return self.partition.edge.read(name)


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
