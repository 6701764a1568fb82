"""Views of what was known at a time, for evaluation: messages of later edges reach no metric and no
prediction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.base.logger import logger
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.sampler import Sampler, Timed
from graphtheta.engine.strategy.strategy import with_pairs
from graphtheta.engine.strategy.task import Seeds
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.engine.view.hop import Layers, depth
from graphtheta.engine.view.view import GraphView
from graphtheta.tasks.evaluation.sampled import SampledViews

# so many views make an evaluation long
MANY = 200


class Past:
    """The graph as it was at the times of targets.

    Targets of the same cutoff share a view, as they do in a batch; those of different cutoffs do
    not, so that each sees all that is allowed.

    Args:
        partition: The graph.
        layers: The supersteps of the model.
        sampler: Says which edges a cutoff allows; its other choices do not matter.

    Attributes:
        sampled: Chooses some of these edges while its epoch is set; None for all.
    """

    sampled: SampledViews | None = None

    def __init__(self, partition: Partition, layers: Layers, sampler: Timed):
        self._partition = partition
        self._layers = layers
        self._sampler = sampler.complete(depth(layers))

    def times(self, cutoffs: np.ndarray) -> np.ndarray:
        """The different cutoffs of the targets of all workers, ascending.

        Args:
            cutoffs: Those of the targets of this worker, [n].

        Collective: all ranks of the partition.
        """
        comm = self._partition.halo_comm
        times = np.unique(np.concatenate(comm.all_gather(np.unique(cutoffs))))
        if len(times) > MANY and comm.rank == 0:
            logger.warning(
                f"targets have {len(times):,} different times, and an evaluation computes a view"
                " for each; round the times with the option grain of the sampler, or evaluate less"
                " often with --eval-every"
            )
        return times

    def view(self, seeds: Seeds, time: Any) -> GraphView:
        """The view of some targets and the edges that a cutoff allows; cutoffs of ``seeds`` are not
        used.

        Collective: all ranks of the partition.
        """
        cutoff = np.full(np.count_nonzero(seeds.nodes), time)
        sampler: Sampler = self._sampler
        step = 0
        if self.sampled is not None and self.sampled.epoch is not None:
            sampler = self.sampled.sampler
            step = self.sampled.epoch
        view = k_hop_view(
            self._partition, seeds.nodes, self._layers, sampler=sampler, step=step, cutoff=cutoff
        )
        return with_pairs(view, seeds)
