"""What a trainer needs of a strategy that reuses old values: its state for checkpoints, its
figures, its knob.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from graphtheta.base.logger import logger
from graphtheta.base.rng import bits, key
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.view.view import GraphView

# names of the state in a checkpoint
STATE = "held/"
BOUNDS = "/bounds"
PARTITION = "held_partition"

StateArrays = dict[str, np.ndarray]


class StaleValues(ABC):
    """Values of earlier steps that are used again: their state, and the knob that makes results
    more exact.

    Attributes:
        knobs: Names of the attributes, numbers, that ``tighten`` changes.
    """

    knobs: ClassVar[tuple[str, ...]] = ()

    def held(self) -> StateArrays:
        """This worker's state between two steps: arrays that no later step changes; the same names
        on every rank. By default the knobs.
        """
        return {name: np.array([getattr(self, name)]) for name in self.knobs}

    def hold(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a result of ``held``."""
        for name in self.knobs:
            if name in state:
                setattr(self, name, state[name][0].item())

    @abstractmethod
    def tighten(self) -> str:
        """Move the knob towards exact; returns what it is now, or nothing if it cannot be moved
        further.
        """


class Approximate(StaleValues):
    """A strategy whose views reuse values of earlier steps."""

    @abstractmethod
    def exact(self, epoch: int, i: int) -> GraphView:
        """A view with the targets of view i of an epoch that reuses nothing.

        Collective: all ranks of the partition.
        """

    @abstractmethod
    def settle(self) -> None:
        """As ``Strategy.settle``."""

    @abstractmethod
    def figures(self) -> dict[str, float]:
        """Figures of the views since the last call, such as hit rates, over all workers; always the
        same names.

        Collective: all ranks of the partition.
        """


def fingerprint(partition: Partition) -> int:
    """A number that tells partitions, and numbers of workers, apart.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    mine = [
        bits(key(comm.size, comm.rank, kind), ids)
        for kind, ids in enumerate((partition.masters, partition.edge_gid))
    ]
    total = comm.all_sum(
        np.array(
            [int(np.bitwise_xor.reduce(x, initial=np.uint64(0)) >> np.uint64(16)) for x in mine]
        )
    )
    return int(total.sum())


def gathered(partition: Partition, state: StateArrays) -> dict[str, np.ndarray | int]:
    """The state of all workers for a checkpoint, on rank 0; empty elsewhere.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    whole = {}
    for name in sorted(state):
        parts = comm.gather_rows(state[name])
        if parts is not None:
            whole[STATE + name] = np.concatenate(parts)
            whole[STATE + name + BOUNDS] = np.cumsum([0, *map(len, parts)])
    mark = fingerprint(partition)
    return {**whole, PARTITION: mark} if comm.rank == 0 else {}


def scattered(partition: Partition, arrays: Mapping[str, np.ndarray], mark: int) -> StateArrays:
    """This worker's part of what ``gathered`` returned; empty, with a warning, if the partition is
    another one.

    Args:
        partition: This worker's part of the graph.
        arrays: The arrays of the checkpoint.
        mark: The number of its partition.

    Collective: all ranks of the partition.
    """
    comm: Comm = partition.halo_comm
    if fingerprint(partition) != mark:
        if comm.rank == 0:
            logger.warning(
                "the checkpoint was written with other workers or another partitioner, so its stale"
                " values and histories are dropped: they are computed anew, and the losses differ"
                " from those of an uninterrupted run"
            )
        return {}
    own = {}
    for name, x in arrays.items():
        if name.startswith(STATE) and not name.endswith(BOUNDS):
            a, b = arrays[name + BOUNDS][comm.rank : comm.rank + 2]
            own[name.removeprefix(STATE)] = x[a:b]
    return own
