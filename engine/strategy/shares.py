"""Shares of batches: of each batch, every worker computes the part that leads to its own targets.

A batch is sampled once for all workers, so a node that several shares need is drawn once, and the
shares together have the edges of the batch, no matter how many workers there are. A share is then
the part of it that is found from the targets of one worker. Like views of independent mode, shares
are searched together and dealt.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..sampling.repeated import RepeatedSampler
from ..sampling.sampler import Sampler
from ..view.expand import k_hop_view
from ..view.view import GraphView
from .neighbourhoods import Searched, neighbourhoods
from .strategy import MiniBatch, Strategy
from .task import NO_ROWS, NodeTask


class SharedBatch(Strategy):
    """The shares of mini-batches: on n workers, views i * n to i * n + n - 1 are those of batch i.

    Args:
        batches: Makes the batches. Their targets are nodes.
    """

    def __init__(self, batches: MiniBatch):
        super().__init__(batches.partition, batches.layers, batches.task, batches.seed)
        assert isinstance(batches.task, NodeTask)
        self._batches = batches
        self._rows = batches.task.rows
        self._workers = batches.partition.halo_comm.size

    @property
    def steps_per_epoch(self) -> int:
        return self._batches.steps_per_epoch * self._workers

    def makers(self, epoch: int, first: int, last: int) -> list[Callable[[], GraphView]]:
        self._batches.makers(epoch, first // self._workers, -(-last // self._workers))
        return super().makers(epoch, first, last)

    def search(self, epoch: int, first: int, last: int) -> Searched | None:
        # a group is a batch
        sampler = self._repeated(epoch, first // self._workers)
        return neighbourhoods(
            partition=self.partition,
            layers=self.layers,
            task=self.task,
            own=[self._share(epoch, view) for view in range(first, last)],
            steps=[0] * (last - first),
            sampler=sampler,
        )

    def batch(self, epoch: int, i: int) -> GraphView:
        targets = np.zeros(self.partition.n_masters, bool)
        targets[self._rows[self._share(epoch, i)]] = True
        sampler = self._repeated(epoch, i // self._workers)
        return k_hop_view(self.partition, targets, self.layers, sampler=sampler)

    def _share(self, epoch: int, view: int) -> np.ndarray:
        """This worker's targets of a view, as ``Task.seeds`` takes them."""
        batch, worker = divmod(view, self._workers)
        mine = worker == self.partition.halo_comm.rank
        return self._batches.targets(epoch, batch) if mine else NO_ROWS

    def _repeated(self, epoch: int, batch: int) -> Sampler | None:
        """Chooses the edges of a batch again; None if a batch has all edges.

        Collective: all ranks of the partition.
        """
        if self._batches.sampler is None:
            return None
        searched = self._batches.search(epoch, batch, batch + 1)
        assert searched is not None
        return RepeatedSampler(searched.result)
