"""Node partitioners that cut the ids into ranges of equal weight, which keep the locality of the numbering."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import Assignment, Partitioner
from graphtheta.partitioners.stream import check_option, degrees


def ranges(weight: np.ndarray, size: int) -> Assignment:
    """Owners by ranges of ids: each takes nodes until it has its share of the weight that is left.

    A range exceeds the share by less than the weight of its last node.

    Args:
        weight: Weight of each node, [n] int64.
        size: Number of workers.
    """
    total = np.cumsum(weight)
    ends, taken = np.empty(size, np.int64), 0
    for p in range(size):
        share = (weight.sum() - taken) / (size - p)
        ends[p] = min(int(np.searchsorted(total, taken + share)) + 1, len(weight))
        taken = int(total[ends[p] - 1])
    ends[-1] = len(weight)
    return Assignment(lambda ids: np.searchsorted(ends, ids, side="right"))


@dataclass(frozen=True)
class DegreeBlockPartitioner(Partitioner):
    """Ranges of ids that have about the same number of edges: a node weighs its degree, plus ``node``.

    Attributes:
        node: Weight of a node beside its edges.
    """

    name = "degree-block"
    sequential = True
    node: int = 1

    def __post_init__(self) -> None:
        check_option(self, "node", self.node >= 1, "at least 1")

    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        return ranges(degrees(source) + self.node, comm.size)


@dataclass(frozen=True)
class GeminiPartitioner(Partitioner):
    """The chunks of Gemini: ranges of ids, in which a node weighs its out-degree + 8 (workers - 1).

    Source: Zhu et al., OSDI 2016, https://www.usenix.org/conference/osdi16/technical-sessions/presentation/zhu
    """

    name = "gemini"
    sequential = True

    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        return ranges(degrees(source, incoming=False) + 8 * (comm.size - 1), comm.size)
