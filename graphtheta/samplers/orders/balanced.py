"""Batches with equal numbers of targets of each class."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphtheta.base.rng import Permutation, Purpose, key
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.ranking import ranks_among_all
from graphtheta.engine.strategy.order import Positions
from graphtheta.engine.strategy.task import Task


class BalancedOrder:
    """Classes take turns, and the targets of a class, in an order that is new in each epoch, take
    turns within it.

    An epoch has as many draws as there are targets. Those of a class with fewer targets than its
    share come repeatedly, and of a class with more targets a random part comes. A batch has a
    target once, so a batch that is larger than the number of classes times the targets of the
    smallest class has all of these, and fewer than of other classes. Targets of unknown class are
    left out.
    """

    name: ClassVar[str] = "balanced"

    def positions(self, partition: Partition, task: Task, seed: int) -> Positions:
        """Number the targets of each class; see ``Order.positions``.

        Raises:
            ConfigError: Targets have no classes.

        Collective: all ranks of the partition.
        """
        of = task.classes_of_targets()
        comm = partition.halo_comm
        rank = ranks_among_all(partition, of, task.ids)
        n_classes = int(comm.all_max(np.array(of.max(initial=-1)))) + 1
        counts = comm.all_sum(np.bincount(of + 1, minlength=n_classes + 1))
        number = rank - (np.cumsum(counts) - counts)[of + 1]
        present = np.flatnonzero(counts[1:])

        def positions(epoch: int) -> tuple[np.ndarray, np.ndarray]:
            targets = []
            places = []
            for turn, c in enumerate(present.tolist()):
                own = np.flatnonzero(of == c)
                n = int(counts[c + 1])
                first = Permutation(key(seed, Purpose.BATCH, epoch, c), n).position(number[own])
                # draws of this class in an epoch, and how many of them are each target's
                draws = -(-(task.n_targets - turn) // len(present))
                times = np.maximum(-(-(draws - first) // n), 0)
                again = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
                targets.append(np.repeat(own, times))
                places.append((np.repeat(first, times) + again * n) * len(present) + turn)
            return np.concatenate([np.zeros(0, np.int64), *targets]), np.concatenate(
                [np.zeros(0, np.int64), *places]
            )

        return positions
