"""A graph that is divided among workers: what they hold and send, counted in one process without
building their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial

import numpy as np

from graphtheta.base.rng import Purpose, key, shuffle
from graphtheta.engine.partition.edge_source import EdgeChunk, EdgeSource
from graphtheta.ops.kernels.partition.copies import count_pairs, mark_copies
from graphtheta.partitioners.cuts import no_copies

# mini-batches that stand for all of an epoch
BATCHES = 4
# sources, destinations and workers of some edges, [n] integers each
Edges = tuple[np.ndarray, np.ndarray, np.ndarray]


class Placed:
    """Owners of nodes and workers of edges.

    Args:
        source: The edges.
        size: Number of workers.

    Attributes:
        size: Number of workers.
        owners: Owner of each node, [n_nodes] int32; set by ``place``.
        workers: Worker of each edge, [n_edges] int32; set by ``place``.
    """

    def __init__(self, source: EdgeSource, size: int) -> None:
        self._source = source
        self.size = size
        # written now, so that measurements of memory that begin now do not count it
        self.workers = np.full(source.n_edges, -1, np.int32)
        self.owners = np.zeros(source.n_nodes, np.int32)

    def place(self, owners: np.ndarray, workers: Callable[[EdgeChunk], np.ndarray]) -> None:
        """Set the owners, and the workers of all edges.

        Args:
            owners: Owner of each node, [n_nodes] int32.
            workers: As of ``EdgePlacement.place``.
        """
        self.owners = owners
        end = 0
        for chunk in self._source.chunks():
            self.workers[end : end + len(chunk.ids)] = workers(chunk)
            end += len(chunk.ids)

    @property
    def nodes(self) -> np.ndarray:
        """Nodes of each worker, [size]."""
        return np.bincount(self.owners, minlength=self.size)

    @property
    def edges(self) -> np.ndarray:
        """Edges of each worker, [size]."""
        return np.bincount(self.workers, minlength=self.size)

    def cut(self) -> int:
        """Edges whose ends have different owners."""
        return sum(
            int(np.count_nonzero(self.owners[src] != self.owners[dst]))
            for src, dst, _ in self._each()
        )

    @cached_property
    def mirrors(self) -> np.ndarray:
        """Nodes of other workers with an edge on each worker, [size] int64."""
        copies = self.no_copies()
        for src, dst, worker in self._each():
            mark_copies(src, worker, copies)
            mark_copies(dst, worker, copies)
        return self.read(copies).sum(axis=0)

    def no_copies(self) -> np.ndarray:
        """A bit for each node and worker, all 0; see ``mark_copies``."""
        return no_copies(len(self.owners), self.size)

    def read(self, copies: np.ndarray) -> np.ndarray:
        """Nodes of worker p of which another worker q has a copy, [size, size] int64."""
        counts: np.ndarray = count_pairs(
            copies, self.owners, np.zeros((self.size, self.size), np.int64)
        )
        return counts

    def ends(self, edges: Iterable[Edges]) -> tuple[np.ndarray, np.ndarray]:
        """Nodes of worker p that worker q reads as sources of some edges, and as destinations,
        [size, size] int64 each.
        """
        at_source = self.no_copies()
        at_destination = self.no_copies()
        for src, dst, worker in edges:
            mark_copies(src, worker, at_source)
            mark_copies(dst, worker, at_destination)
        return self.read(at_source), self.read(at_destination)

    def sent(self, wanted: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None) -> int:
        """Rows that all workers send in one direction of a superstep along the edges.

        A row is sent for each pair of a node and another worker with an edge from it, and for each
        pair with an edge to it.

        Args:
            wanted: Function from sources and destinations [n] to whether these edges are used, [n]
                bool.
        """
        at_source, at_destination = self.ends(self._each(wanted))
        return int(at_source.sum() + at_destination.sum())

    def sent_by_batches(self, train: np.ndarray, batch_size: int, layers: int, seed: int) -> int:
        """Rows sent in one direction in all mini-batches of an epoch with full neighbourhoods,
        estimated from some of them.

        Args:
            train: The targets, [n_nodes] bool.
            batch_size: Targets per batch.
            layers: Supersteps of a batch.
            seed: Seed of the batches.
        """
        targets = shuffle(key(seed, Purpose.BATCH), np.flatnonzero(train))
        n_batches = -(-len(targets) // batch_size)
        rows = 0
        counted = min(n_batches, BATCHES)
        for b in range(counted):
            needed = np.zeros(len(self.owners), bool)
            needed[targets[b * batch_size : (b + 1) * batch_size]] = True
            for _ in range(layers):
                rows += self.sent(partial(_into, needed.copy(), needed))
        return rows * n_batches // max(counted, 1)

    def _each(
        self, wanted: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    ) -> Iterator[Edges]:
        """The edges that are wanted (all if None), by chunks."""
        end = 0
        for chunk in self._source.chunks():
            used = slice(None) if wanted is None else wanted(chunk.src, chunk.dst)
            yield chunk.src[used], chunk.dst[used], self.workers[end : end + len(chunk.ids)][used]
            end += len(chunk.ids)


def _into(
    receiving: np.ndarray, reached: np.ndarray, src: np.ndarray, dst: np.ndarray
) -> np.ndarray:
    """Whether edges lead to receiving nodes; marks the sources of those that do as reached."""
    into = receiving[dst]
    reached[src[into]] = True
    return into


def imbalance(counts: np.ndarray) -> float:
    """The largest over the mean; 0 if there is nothing."""
    return float(counts.max() * len(counts) / max(counts.sum(), 1))
