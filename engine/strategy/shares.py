"""Shares of batches: of each batch, every worker computes the part that leads to its own targets.

A batch is sampled once for all workers, so a node that several shares need is drawn once, and the
shares together have the edges of the batch, no matter how many workers there are. A share is then
the part of it that is found from the targets of one worker. Like views of independent mode, shares
are searched together and dealt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from ...ops.kernels.batch import expand
from ..sampling.candidates import Candidates, Chosen, Frontier, Frontiers, Sample
from ..sampling.sampler import Sampler
from ..sampling.search import PassEdges, SearchResult
from ..view.expand import k_hop_view
from ..view.view import GraphView
from .neighbourhoods import Searched, neighbourhoods
from .strategy import MiniBatch, Strategy
from .task import NO_ROWS, NodeTask


class RepeatedSampler:
    """Chooses the edges that one search has found, of whatever nodes receive.

    A search from some of the targets then finds the part of the first one that leads to them,
    whatever the sampler was: some samplers choose for all nodes of a batch together.

    Args:
        result: Of the search, of one view.
    """

    name: ClassVar[str] = "repeated"

    def __init__(self, result: SearchResult):
        self._edges = result.edges

    @property
    def hops(self) -> int:
        """Number of hops of the search."""
        return len(self._edges)

    def choose(self, frontier: Frontier, *, hop: int, step: int) -> Sample:
        """Choose edges of one pass; see ``Sampler.choose``."""
        return Sample(self.choose_all(frontier.alone, hop=hop, steps=(step,)))

    def choose_all(self, frontiers: Frontiers, *, hop: int, steps: Sequence[int]) -> list[Chosen]:
        """Choose edges of one pass for several views; see ``SamplerOfViews.choose_all``."""
        # searches count hops from the targets on
        of_pass = self._edges[self.hops - 1 - hop][frontiers.relation.name, frontiers.reverse]
        return [_of_rows(c, edges) for c, edges in zip(frontiers.candidates, of_pass, strict=True)]


def _of_rows(c: Candidates, edges: PassEdges) -> Chosen:
    """The edges of a block that were found into some of its rows."""
    block = c.block
    position = edges.stored.items - block.start
    src = block.in_src[position]
    dst = (np.searchsorted(block.in_indptr, position, side="right") - 1).astype(np.int32)
    sender, receiver = (dst, src) if c.reverse else (src, dst)
    order = np.argsort(receiver, kind="stable").astype(np.int32)
    begin, end = (np.searchsorted(receiver[order], c.rows, side=side) for side in ("left", "right"))
    ptr, at, senders = expand(begin, end, order, sender[order])
    chosen = c.of(ptr, position.astype(np.int32)[at], senders)
    return chosen.weighted(None if edges.weight is None else edges.weight[at])


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
