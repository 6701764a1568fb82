"""How evenly an order mixes the classes of targets over batches, beside a random order.

Source: BGL, https://arxiv.org/abs/2112.08541; Meng et al., https://arxiv.org/abs/1709.10432, on
shuffling that is not quite random; Diaconis and Zabell, Statistical Science 1991, on mean
deviations.
"""

from __future__ import annotations

import numpy as np
import scipy

from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.strategy.task import Task

# full batches that are counted, at most
BATCHES = 1000


class Evenness:
    """The shuffling error of orders of the targets of a task, estimated by their classes.

    The distance of a batch is the total variation distance between the classes of its targets and
    those of all targets, with unknown classes as one of their own. The error of an order is the
    mean distance of its full batches, less the mean of batches of a random order.

    Args:
        partition: Its workers share the targets.
        task: Has the targets and their classes.
        batch_size: Targets of a batch over all workers; 0 for all.

    Attributes:
        bound: sqrt(b) / n for batches of b of n targets: shuffling of no larger error changes no
            rate of convergence.

    Raises:
        ConfigError: Targets have no classes.

    Collective: all ranks of the partition.
    """

    def __init__(self, partition: Partition, task: Task, batch_size: int):
        n = task.n_targets
        self._comm = partition.halo_comm
        self._class = task.classes_of_targets() + 1
        self._n_classes = int(self._comm.all_max(np.array(self._class.max(initial=0)))) + 1
        self._counts = self._comm.all_sum(np.bincount(self._class, minlength=self._n_classes))
        self._size = min(batch_size or n, n)
        self._random = random_distance(self._counts, self._size)
        self.bound = self._size**0.5 / n

    def error(self, positions: np.ndarray) -> float:
        """The error of an order.

        Args:
            positions: Positions of this worker's targets in an epoch, [n] int64; those of all
                workers are a permutation.

        Collective: all ranks of the partition.
        """
        n = self._counts.sum()
        n_batches = min(n // self._size, BATCHES)
        batch = positions // self._size
        counted = batch < n_batches
        cell = batch[counted] * self._n_classes + self._class[counted]
        counts = self._comm.all_sum(np.bincount(cell, minlength=n_batches * self._n_classes))
        shares = counts.reshape(n_batches, self._n_classes) / self._size
        distance = np.abs(shares - self._counts / n).sum(axis=1).mean() / 2
        return float(distance - self._random)


def random_distance(counts: np.ndarray, size: int) -> float:
    """The mean total variation distance between the classes of some targets, drawn without
    replacement, and those of all.

    Args:
        counts: Targets of each class, [n_classes] int64.
        size: Targets that are drawn, at least 1.
    """
    n = counts.sum()
    # the first number of drawn targets of a class that is above its mean
    above = counts * size // n + 1
    rest = n - counts - size + above
    possible = (above <= counts) & (above <= size) & (rest > 0)
    log_chance = (
        _log_choices(counts, above)
        + _log_choices(n - counts, size - above)
        - _log_choices(n, np.array(size))
    )
    deviation = 2 * above * rest / n * np.exp(np.where(possible, log_chance, -np.inf))
    return float(deviation.sum() / (2 * size))


def _log_choices(n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """The logarithm of the number of ways to choose k of n, element by element; anything if there
    is none.
    """
    log_factorial = scipy.special.gammaln
    logarithm: np.ndarray = (
        log_factorial(n + 1.0)
        - log_factorial(np.maximum(k, 0) + 1.0)
        - log_factorial(np.maximum(n - k, 0) + 1.0)
    )
    return logarithm
