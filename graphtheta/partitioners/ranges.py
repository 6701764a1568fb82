"""Node partitioners that cut the ids into ranges of equal weight, which keep the locality of the
numbering.

Each worker weighs the nodes of a block of ids.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphtheta.engine.comm.channel import Tag
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import Owners, block_bounds
from graphtheta.partitioners.stream import check_option
from graphtheta.partitioners.streaming.degrees import block_degrees
from graphtheta.partitioners.streaming.shared import SharedPartitioner


def ranges(weight: np.ndarray, comm: Comm, n: int, size: int) -> Owners:
    """Owners by ranges of ids: each takes nodes until it has its share of the weight that is left.

    A range exceeds the share by less than the weight of its last node. The ranges that end in the
    block of a worker are found there, from the first worker to the last.

    Args:
        weight: Weight of each node of this worker's block of ids, [n_block] int64.
        comm: The workers.
        n: Number of nodes.
        size: Number of ranges.

    Collective: all ranks of comm.
    """
    weights = np.array(comm.all_gather(int(weight.sum())))
    total = weights[: comm.rank].sum() + np.cumsum(weight)
    first = block_bounds(n, comm.rank, comm.size)[0]
    # for each range the first node beyond it, then the number of ranges found, and the weight in
    # them
    state = np.zeros(size + 2, np.int64)
    for rank in range(comm.size):
        here = comm.rank == rank
        following = comm.rank == rank + 1
        if here:
            _find_ends(state, total, first, int(weights.sum()))
        sends = [(rank + 1, state)] if here and rank + 1 < comm.size else []
        comm.move_begin(sends, [(rank, state)] if following else [], Tag.ROWS).end()
    ends = comm.broadcast(state[:-2], comm.size - 1)
    # rounding may leave the last ones
    ends[-1] = n
    return lambda ids: np.searchsorted(ends, ids, side="right")


def _find_ends(state: np.ndarray, total: np.ndarray, first: int, weight: int) -> None:
    """Find the ranges that end in a block of ids.

    Args:
        state: Ends of all ranges, the number found, and the weight in them, [size + 2] int64;
            changed.
        total: Weight of the nodes up to each one of the block, [n] int64.
        first: The first node of the block.
        weight: That of all nodes.
    """
    size = len(state) - 2
    while state[-2] < size:
        passed = state[-1]
        at = int(np.searchsorted(total, passed + (weight - passed) / (size - state[-2])))
        if at == len(total):
            break
        state[state[-2]] = first + at + 1
        state[-1] = total[at]
        state[-2] += 1


@dataclass(frozen=True)
class DegreeBlockPartitioner(SharedPartitioner):
    """Ranges of ids that have about the same number of edges: a node weighs its degree, plus
    ``node``.

    Attributes:
        node: Weight of a node beside its edges.
    """

    name = "degree-block"
    node: int = 1

    def __post_init__(self) -> None:
        check_option(self, "node", self.node >= 1, "at least 1")

    def owners(self, source: EdgeSource, comm: Comm, size: int) -> Owners:
        return ranges(block_degrees(source, comm) + self.node, comm, source.n_nodes, size)


@dataclass(frozen=True)
class GeminiPartitioner(SharedPartitioner):
    """The chunks of Gemini: ranges of ids, in which a node weighs its out-degree + 8 (workers - 1).

    Source: Zhu et al., OSDI 2016,
    https://www.usenix.org/conference/osdi16/technical-sessions/presentation/zhu
    """

    name = "gemini"

    def owners(self, source: EdgeSource, comm: Comm, size: int) -> Owners:
        return ranges(
            block_degrees(source, comm, incoming=False) + 8 * (size - 1), comm, source.n_nodes, size
        )
