"""The order of targets: batches that are the same for every number of workers.

An order gives each target a position in an epoch, or several positions or none. A worker knows the
positions of its own targets only, so no worker needs a list of all targets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

import numpy as np

from graphtheta.base.rng import Permutation, Purpose, key

from ..partition.partition import Partition
from ..sampling.ranking import ranks_among_all
from .task import Task

# from the number of an epoch to the positions of this worker's targets in it, [n] int64; or to the
# numbers of those of them that have positions, and the positions, [m] int64 each. Those of all
# workers are a permutation of the numbers of all targets; a collective call
Positions = Callable[[int], np.ndarray | tuple[np.ndarray, np.ndarray]]


class Order(Protocol):
    """How the targets of an epoch are ordered, the same on any number of workers.

    Attributes:
        name: Name in a job.
    """

    name: ClassVar[str]

    def positions(self, partition: Partition, task: Task, seed: int) -> Positions:
        """Positions of this worker's targets by epoch.

        Args:
            partition: Holds the graph.
            task: Has the targets.
            seed: Seed of the order.

        Collective: all ranks of the partition.
        """


class RandomOrder:
    """A keyed permutation of the targets, which are numbered by the order of their ids."""

    name: ClassVar[str] = "random"

    def positions(self, partition: Partition, task: Task, seed: int) -> Positions:
        numbers = ranks_among_all(partition, task.ids)
        n = task.n_targets
        return lambda epoch: Permutation(key(seed, Purpose.BATCH, epoch), n).position(numbers)


class IdOrder:
    """The targets by their ids, in every epoch: for evaluation."""

    name: ClassVar[str] = "ids"

    def positions(self, partition: Partition, task: Task, seed: int) -> Positions:
        numbers = ranks_among_all(partition, task.ids)
        return lambda epoch: numbers


class TimeOrder:
    """The targets by their cutoffs, those of equal ones by id, in every epoch; for batches that are
    shuffled as wholes.

    Of targets that share a node the earliest counts, so targets of about the same time should share
    a batch.
    """

    name: ClassVar[str] = "time"

    def positions(self, partition: Partition, task: Task, seed: int) -> Positions:
        assert task.cutoffs is not None
        numbers = ranks_among_all(partition, _as_integers(task.cutoffs), task.ids)
        return lambda epoch: numbers


def _as_integers(x: np.ndarray) -> np.ndarray:
    """Integers in the order of the numbers, [n] int64."""
    if x.dtype.kind != "f":
        return x.astype(np.int64)
    # the bits of negative numbers rise as these fall; -0.0 + 0.0 is 0.0
    bits = (x.astype(np.float64) + 0.0).view(np.int64)
    return np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)


def groups_of_size(n: int, size: int, drop_last: bool) -> int:
    """Number of groups of ``size`` among n items, with or without a last, smaller one."""
    return n // size if drop_last else -(-n // size)


class BatchOrder:
    """Batches of targets, in another order each epoch. A target that has several positions in a
    batch is in it once.

    Args:
        positions: Positions of this worker's targets by epoch.
        n_targets: Targets of all workers.
        batch_size: Targets of a batch over all workers; the last one may be smaller.
        shuffle: Seed by which the batches are shuffled as wholes in every epoch; None to leave them
            in the order of the positions.
        drop_last: Leave out the last batch if it is smaller; its targets are those of the last
            positions.

    Attributes:
        n_batches: Batches of an epoch.
    """

    def __init__(
        self,
        positions: Positions,
        n_targets: int,
        batch_size: int,
        shuffle: int | None = None,
        drop_last: bool = False,
    ):
        self._positions = positions
        self._size = batch_size
        self._shuffle = shuffle
        self.n_batches = groups_of_size(n_targets, batch_size, drop_last)
        self._epoch: tuple[int, np.ndarray, np.ndarray] | None = None

    def begin(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """This worker's targets in the order of their batches, and the batch of each, [n] int64.

        Collective: all ranks of the partition, unless the epoch has begun.
        """
        if self._epoch is None or self._epoch[0] != epoch:
            positions = self._positions(epoch)
            target, position = (
                positions
                if isinstance(positions, tuple)
                else (np.arange(len(positions)), positions)
            )
            batch = position // self._size
            in_batch = batch < self.n_batches
            target, batch = target[in_batch], batch[in_batch]
            if self._shuffle is not None:
                batch = Permutation(
                    key(self._shuffle, Purpose.BATCH, epoch), self.n_batches
                ).position(batch)
            by_batch = np.lexsort((target, batch))
            target, batch = target[by_batch], batch[by_batch]
            first = np.append(True, (np.diff(target) != 0) | (np.diff(batch) != 0))[: len(target)]
            self._epoch = (epoch, target[first], batch[first])
        return self._epoch[1:]

    def own(self, epoch: int, i: int) -> np.ndarray:
        """Which of this worker's targets are in a batch: their positions in ``task.ids``,
        ascending, [k] int64.

        Collective: all ranks of the partition, unless the epoch has begun.
        """
        by_batch, batch = self.begin(epoch)
        return by_batch[slice(*np.searchsorted(batch, (i, i + 1)))]
