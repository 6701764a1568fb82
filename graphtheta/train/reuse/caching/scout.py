"""What the batches of a run will read, found before they run: all draws of samplers are hashes, so
the sampler can be run ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from graphtheta.engine.strategy.strategy import Strategy
from graphtheta.engine.train.deal import members
from graphtheta.engine.train.parts import parts_of
from graphtheta.engine.train.supply import groups_of
from graphtheta.engine.view.view import GraphView
from graphtheta.train.reuse.caching.relay import ROW_BITS, Agents


class Reader(Protocol):
    """What policies may ask about the reads of a cache, by keys of its rows."""

    @property
    def groups_per_epoch(self) -> int:
        """Groups of views of an epoch."""

    def dry_run(self, epoch: int, first: int, n: int) -> Iterator[np.ndarray]:
        """Keys of the rows that are read for each of n groups of views, [n] int64, from view
        ``first`` of an epoch on; collective.
        """

    def most_connected(self, n: int) -> np.ndarray:
        """Keys of the n rows of the largest out-degrees that may be read, [n] int64; collective."""


class Scout:
    """Runs the sampler of a run ahead, without features.

    Keys of rows are global ids in independent mode, and otherwise numbers of this worker's master
    rows.

    Args:
        strategy: Makes the batches.
        views_per_step: Views of a step.
        independent: Whether each worker computes views of its own.
        own: In independent mode, whether rows of this worker's masters count.

    Attributes:
        partition: This worker's part of the graph.
    """

    def __init__(self, strategy: Strategy, views_per_step: int, independent: bool, own: bool):
        self._strategy = strategy
        self.partition = strategy.partition
        self._per_step = views_per_step
        self._independent = independent
        self._own = own

    @property
    def groups_per_epoch(self) -> int:
        """Groups of views of the first epoch."""
        return sum(map(len, self._groups(0)))

    def _groups(self, epoch: int) -> list[list[tuple[int, int]]]:
        width = self.partition.halo_comm.size if self._independent else 1
        return groups_of(self._strategy.views_of(epoch), self._per_step, width)

    def groups_from(self, epoch: int, first: int, n: int) -> list[tuple[int, int, int]]:
        """Groups of views: epoch, first view, last view plus 1.

        Args:
            epoch, first: The first view, at the beginning of a step.
            n: Number of groups; those of the last step are complete.
        """
        following = list[tuple[int, int, int]]()
        while len(following) < n and (steps := self._groups(epoch)):
            for groups in steps:
                if groups[0][0] >= first and len(following) < n:
                    following += [(epoch, begin, end) for begin, end in groups]
            epoch = epoch + 1
            first = 0
        return following

    def dry_run(self, epoch: int, first: int, n: int) -> Iterator[np.ndarray]:
        """Keys of the rows that this worker reads for each of n groups of views, [n] int64;
        arguments as for ``groups_from``.

        Collective: all ranks of the partition.
        """
        for at, begin, end in self.groups_from(epoch, first, n):
            makers = self._strategy.makers(at, begin, end)
            yield (
                self._of_nodes(members(parts_of(self._strategy, at, begin, end)))
                if self._independent
                else self._of_view(makers[0]())
            )

    def reads(self, view: GraphView) -> np.ndarray:
        """Keys of the rows that this worker reads for a view, [n] int64.

        Args:
            view: Of a group in cooperative mode, and otherwise this worker's own, dealt to it.

        Collective: all ranks of the partition.
        """
        return self._of_nodes(view.partition.masters) if self._independent else self._of_view(view)

    def _of_view(self, view: GraphView) -> np.ndarray:
        """Keys of the rows of a view that all workers compute together."""
        return (
            np.arange(self.partition.n_masters)
            if view.rows is None
            else view.rows.astype(np.int64, copy=False)
        )

    def _of_nodes(self, ids: np.ndarray) -> np.ndarray:
        """Keys of the rows of some nodes, [n] int64, that this worker computes alone.

        Collective: all ranks of the partition.
        """
        return (
            ids
            if self._own
            else ids[self.partition.directory.owner(ids) != self.partition.halo_comm.rank]
        )

    def most_connected(self, n: int) -> np.ndarray:
        """Keys of the n rows of the largest out-degrees that this worker may read, [n] int64; among
        equals those of lower ids.

        Collective: all ranks of the partition.
        """
        p = self.partition
        degree = p.node.read("out_degree")
        best = np.lexsort((p.masters, -degree))[:n]
        if not self._independent:
            return best.astype(np.int64)
        comm = p.halo_comm
        ids, degrees = (
            np.concatenate(
                [
                    x
                    for q, x in enumerate(comm.all_to_all([x[best]] * comm.size))
                    if self._own or q != comm.rank
                ]
            )
            for x in (p.masters, degree)
        )
        return np.asarray(ids[np.lexsort((ids, -degrees))[:n]])


class MachineScout:
    """The reads that the workers of a machine ask an agent for; see ``relay.py`` for its keys.

    Args:
        scout: Tells what each worker reads, in independent mode.
        agents: Who asks whom.
    """

    def __init__(self, scout: Scout, agents: Agents):
        self._scout = scout
        self._agents = agents

    @property
    def groups_per_epoch(self) -> int:
        """Groups of views of an epoch."""
        return self._scout.groups_per_epoch

    def dry_run(self, epoch: int, first: int, n: int) -> Iterator[np.ndarray]:
        """See ``Reader.dry_run``."""
        for ids in self._scout.dry_run(epoch, first, n):
            yield self._agents.served(*self._scout.partition.directory.locate(ids))

    def most_connected(self, n: int) -> np.ndarray:
        """See ``Reader.most_connected``."""
        p = self._scout.partition
        comm = self._agents.comm
        degree = p.node.read("out_degree")
        best = np.lexsort((p.masters, -degree))[: int(comm.all_max(np.array(n)))]
        keys = comm.rank << ROW_BITS | best.astype(np.int64)
        sent = [
            [x if q in self._agents.of_others else x[:0] for q in range(comm.size)]
            for x in (keys, degree[best], p.masters[best])
        ]
        keys, degrees, ids = (np.concatenate(comm.all_to_all(x)) for x in sent)
        return np.asarray(keys[np.lexsort((ids, -degrees))[:n]])
