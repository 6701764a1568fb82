"""Where nodes, edges and copies lie: counts for any number of workers, from an assignment alone.

A master is copied to every other worker that has an edge at it. The counts of a view follow from
its nodes and edges and from the workers that these are assigned to; the workers themselves are not
needed, because a view has the same nodes and edges on any number of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphtheta.engine.layer.traffic import Traffic, Widths
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import assign
from graphtheta.engine.view.level import Counts, Level, Pass
from graphtheta.engine.view.scored_pairs import PairLevel
from graphtheta.engine.view.view import GraphView
from graphtheta.errors import PartitionError
from graphtheta.graph.data.graph import Graph
from graphtheta.ops.kernels.partition.copies import mark_copies
from graphtheta.partitioners.placed import Placed
from graphtheta.partitioners.report import OneOf

# edges whose ends are looked up at a time
CHUNK = 1 << 20


@dataclass(frozen=True)
class Ends:
    """Copies at the sending and at the receiving ends of a pass.

    Attributes:
        senders, receivers: Masters of worker p that worker q reads, [size, size] int64.
        crossing: Edges into masters of worker p that worker q has, [size, size] int64.
    """

    senders: np.ndarray
    receivers: np.ndarray
    crossing: np.ndarray

    def moved(self, widths: Widths) -> tuple[np.ndarray, np.ndarray]:
        """Bytes that each worker sends, forward and backward, [size] each."""
        s = self.senders
        r = self.receivers
        rows = widths.moved(s.sum(axis=1), s.sum(axis=0), r.sum(axis=1), r.sum(axis=0))
        edges = widths.in_turn(self.crossing.sum(axis=0), self.crossing.sum(axis=1))
        return rows[0] + edges[0], rows[1] + edges[1]

    @property
    def pairs(self) -> Ends:
        """1 for each pair of workers with anything to send."""
        return Ends(*(np.minimum(x, 1) for x in (self.senders, self.receivers, self.crossing)))


@dataclass(frozen=True)
class Share:
    """A level of a view, divided among the workers.

    Attributes:
        rows_in, rows_out, edges: Of each worker, [size] int64.
        ends: Copies, by pass.
        counts: Size over all workers, by which layers order products and sums.
    """

    rows_in: np.ndarray
    rows_out: np.ndarray
    edges: np.ndarray
    ends: list[Ends]
    counts: Counts

    @cached_property
    def mirrors(self) -> np.ndarray:
        """Mirrors of each worker at most, [size]: those of both ends."""
        return np.sum([e.senders.sum(axis=0) + e.receivers.sum(axis=0) for e in self.ends], axis=0)

    @cached_property
    def sent(self) -> np.ndarray:
        """Master rows of each worker that others read, at both ends, [size]."""
        return np.sum([e.senders.sum(axis=1) + e.receivers.sum(axis=1) for e in self.ends], axis=0)


class Placement(Placed):
    """The nodes and edges of a graph, assigned to workers.

    Args:
        graph: The message-passing graph.
        size: Number of workers.
    """

    def __init__(self, graph: Graph, size: int):
        super().__init__(EdgeSource(graph), size)
        self._graph = graph

    @classmethod
    def of(cls, graph: Graph, size: int, partitioner: str, masters: str, seed: int) -> Placement:
        """Assign a graph.

        Args:
            graph: The message-passing graph.
            size: Number of workers.
            partitioner: Edge placement, as the key of a job.
            masters: Node partitioner, as the key of a job.
            seed: Seed of the job.

        Raises:
            ConfigError: Unknown name or option.
            PartitionError: Fewer nodes than workers.
            CommError: The partitioner communicates.
        """
        if size > graph.n_nodes:
            raise PartitionError(
                f"the graph has {graph.n_nodes} nodes; plan at most {graph.n_nodes} workers"
            )
        placement = cls(graph, size)
        placement.place(*assign(EdgeSource(graph), OneOf(size), partitioner, masters, seed))
        return placement

    def share(self, view: GraphView, level: Level) -> Share:
        """A level of a view on one worker, divided among the workers."""
        rows_in, rows_out = (self.owned(view.space.gid[:n]) for n in (level.n_in, level.n_out))
        if isinstance(level, PairLevel):
            edges, ends = self._pairs(level)
        else:
            parts = [self._pass(p) for p in level.passes]
            edges = sum((part[0] for part in parts), np.zeros(self.size, np.int64))
            ends = [part[1] for part in parts]
        counts = level.counts
        if view.rows is not None:
            counts = counts._replace(
                moved=int(sum(e.senders.sum() + e.receivers.sum() for e in ends))
            )
        return Share(rows_in=rows_in, rows_out=rows_out, edges=edges, ends=ends, counts=counts)

    @cached_property
    def planned(self) -> np.ndarray:
        """Rows of the plans for sources and for destinations of each worker, [size]."""
        at_source, at_destination = self.ends(self._each())
        return at_source.sum(axis=1) + at_destination.sum(axis=1)

    def owned(self, gid: np.ndarray) -> np.ndarray:
        """Some nodes by owner, [size]."""
        return np.bincount(self.owners[gid], minlength=self.size)

    def _pass(self, p: Pass) -> tuple[np.ndarray, Ends]:
        """Edges of each worker, and copies."""
        into = self._graph.src if p.reverse else self._graph.dst
        # edges by the master of their receiver and by their worker
        placed = np.zeros(self.size**2, np.int64)
        for gid in _chunks(p):
            pairs = self.owners[into[gid]].astype(np.int64) * self.size + self.workers[gid]
            placed += np.bincount(pairs, minlength=self.size**2)
        crossing = placed.reshape(self.size, self.size)
        edges = crossing.sum(axis=0)
        np.fill_diagonal(crossing, 0)
        ends = self.ends(
            (self._graph.src[gid], self._graph.dst[gid], self.workers[gid]) for gid in _chunks(p)
        )
        return edges, Ends(*(ends[::-1] if p.reverse else ends), crossing)

    def _pairs(self, level: PairLevel) -> tuple[np.ndarray, list[Ends]]:
        """The same for scored pairs, whose ends come from one plan."""
        pairs = level.pairs
        copies = self.no_copies()
        worker = self.owners[pairs.src] if pairs.stored is None else self.workers[pairs.gid]
        for end in (pairs.src, pairs.dst):
            mark_copies(end, worker, copies)
        read = self.read(copies)
        # the values of pairs are not summed
        return np.bincount(worker, minlength=self.size), [Ends(read, read, 0 * read)]


def moved(traffic: Traffic, again: bool, share: Share) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and messages that each worker sends in a phase, forward and backward, [size] each.

    Args:
        traffic: Widths of the phase.
        again: Whether it is a forward pass that a checkpoint segment repeats.
        share: The level it runs over.
    """
    back = traffic.learned and not again
    # a message for each pair of workers, where there are rows to send
    sums = []
    for widths, ends in (
        (traffic.widths, share.ends),
        (traffic.widths.messages, [e.pairs for e in share.ends]),
    ):
        both = [e.moved(widths) for e in ends]
        sums.append(np.sum([forward + back * backward for forward, backward in both], axis=0))
    return sums[0], sums[1]


def _chunks(p: Pass) -> Iterator[np.ndarray]:
    """Global ids of the edges of a pass."""
    for s in p.selections:
        for a in range(0, s.n_edges, CHUNK):
            stored = (
                np.arange(a, min(a + CHUNK, s.n_edges))
                if s.edges is None
                else s.edges[a : a + CHUNK].astype(np.int64)
            )
            yield s.gid[s.start + stored]
