"""Proximity-aware ordering: batches of targets that are near each other in the graph.

Source: BGL, https://arxiv.org/abs/2112.08541
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, Literal

import numpy as np

from graphtheta.base.logger import logger
from graphtheta.base.rng import Purpose, integers, key
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.ranking import ranks_among_all
from graphtheta.engine.strategy.order import Positions
from graphtheta.engine.strategy.task import Task
from graphtheta.errors import ConfigError
from graphtheta.samplers.orders.breadth_first import breadth_first
from graphtheta.samplers.orders.evenness import Evenness

# sequences that are tried for "auto"; each is a search over the whole graph
MOST = 64


class ProximityOrder:
    """Interleaved breadth-first sequences of all targets, each shifted anew in every epoch.

    A sequence is a breadth-first search over the whole graph from a random root, edges in both
    directions; a pair of nodes counts where its first end is found. Sequences take turns: each
    gives its next target, and a target counts where a sequence gives it first. So every target is
    in one batch of an epoch, as in any other order.

    Args:
        sequences: Number of sequences; fewer make batches more local, more make them more like
            random ones. With "auto" it is the smallest number of which the classes of batches of
            the first epoch are about as even as in a random order, by ``Evenness.error``; if there
            is none of up to ``MOST`` and the targets of a batch, that of the smallest error.
        error: The largest error for "auto"; 0 is the bound of ``Evenness``.
        batch_size: Targets of a batch over all workers, for "auto"; 0 for all.
    """

    name: ClassVar[str] = "proximity"

    def __init__(
        self,
        sequences: int | Literal["auto"] = 5,
        error: float = 0.0,
        batch_size: int = 0,
    ):
        if sequences != "auto" and sequences < 1:
            raise ConfigError(f"order=proximity: sequences is {sequences}; expected at least 1")
        if error < 0:
            raise ConfigError(f"order=proximity: error is {error}; expected at least 0")
        if error and sequences != "auto":
            raise ConfigError(
                f"order=proximity: error={error} is the largest one for sequences=auto; drop it"
            )
        self.sequences = sequences
        self.error = error
        self._batch_size = batch_size

    def positions(self, partition: Partition, task: Task, seed: int) -> Positions:
        """Search the graph from each root; see ``Order.positions``.

        Raises:
            ConfigError: ``sequences`` is "auto", and targets have no classes.

        Collective: all ranks of the partition.
        """
        of = key(seed, Purpose.BATCH)
        if self.sequences == "auto":
            most = min(MOST, self._batch_size or task.n_targets)
        else:
            most = self.sequences
        roots = integers(of, np.arange(most), partition.n_nodes).tolist()
        nearest = (task.at_nodes(order).min(axis=1) for order in breadth_first(partition, roots))
        # place of each target in each sequence
        places = (ranks_among_all(partition, near, task.ids) for near in nearest)

        def interleaved(place: np.ndarray, epoch: int) -> np.ndarray:
            numbers = np.arange(len(place))
            shift = integers(key(seed, Purpose.BATCH, epoch), numbers, task.n_targets)
            turn = (place - shift[:, None]) % task.n_targets * len(place) + numbers[:, None]
            return ranks_among_all(partition, turn.min(axis=0))

        if self.sequences == "auto":
            place = self._even_enough(partition, task, places, interleaved)
        else:
            place = np.stack(list(places))
        return lambda epoch: interleaved(place, epoch)

    def _even_enough(
        self,
        partition: Partition,
        task: Task,
        places: Iterator[np.ndarray],
        interleaved: Callable[[np.ndarray, int], np.ndarray],
    ) -> np.ndarray:
        """The places of the fewest of the sequences that are even enough, [n_sequences, n] int64.

        Args:
            partition, task: As of ``positions``.
            places: Place of each target in each sequence, [n] int64.
            interleaved: Positions in an epoch by the places in some sequences.

        Collective: all ranks of the partition.
        """
        evenness = Evenness(partition, task, self._batch_size)
        allowed = self.error or evenness.bound
        tried: list[np.ndarray] = []
        errors: list[float] = []
        for place in places:
            tried.append(place)
            errors.append(evenness.error(interleaved(np.stack(tried), 0)))
            if errors[-1] <= allowed:
                break
        least = int(np.argmin(errors))
        if partition.halo_comm.rank == 0:
            logger.info(
                f"order=proximity: {least + 1} sequences; classes of batches differ from those of"
                f" all targets by {errors[least]:.2g} more than in random order, of {allowed:.2g}"
                " allowed"
            )
        return np.stack(tried[: least + 1])
