"""Proximity-aware ordering: batches of targets that are near each other in the graph.

Source: BGL, https://arxiv.org/abs/2112.08541
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphtheta.base.rng import Purpose, integers, key
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.ranking import ranks_among_all
from graphtheta.engine.strategy.order import Positions
from graphtheta.engine.strategy.task import Task
from graphtheta.errors import ConfigError
from graphtheta.samplers.orders.breadth_first import breadth_first


class ProximityOrder:
    """Interleaved breadth-first sequences of all targets, each shifted anew in every epoch.

    A sequence is a breadth-first search over the whole graph from a random root, edges in both
    directions; a pair of nodes counts where its first end is found. Sequences take turns: each
    gives its next target, and a target counts where a sequence gives it first. So every target is
    in one batch of an epoch, as in any other order.

    Args:
        sequences: Number of sequences; fewer make batches more local, more make them more like
            random ones.
    """

    name: ClassVar[str] = "proximity"

    def __init__(self, sequences: int = 5):
        if sequences < 1:
            raise ConfigError(f"order=proximity: sequences is {sequences}; expected at least 1")
        self.sequences = sequences

    def positions(self, partition: Partition, task: Task, seed: int) -> Positions:
        """Search the graph from each root; see ``Order.positions``.

        Collective: all ranks of the partition.
        """
        numbers = np.arange(self.sequences)
        roots = integers(key(seed, Purpose.BATCH), numbers, partition.n_nodes).tolist()
        nearest = (task.at_nodes(order).min(axis=1) for order in breadth_first(partition, roots))
        # place of each target in each sequence
        place = np.stack([ranks_among_all(partition, near, task.ids) for near in nearest])

        def positions(epoch: int) -> np.ndarray:
            shift = integers(key(seed, Purpose.BATCH, epoch), numbers, task.n_targets)
            turn = (place - shift[:, None]) % task.n_targets * self.sequences + numbers[:, None]
            return ranks_among_all(partition, turn.min(axis=0))

        return positions
