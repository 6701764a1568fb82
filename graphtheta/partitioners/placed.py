"""A graph that is divided among workers: what they hold and send, counted in one process without building their parts."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from graphtheta.engine.partition.edge_source import EdgeChunk, EdgeSource
from graphtheta.ops.partition.copies import count_copies, mark_copies
from graphtheta.partitioners.cuts import no_copies
from graphtheta.rng import Purpose, key, shuffle

# mini-batches that stand for all of an epoch
BATCHES = 4


class Placed:
    """Owners of nodes and workers of edges.

    Args:
        source: The edges.
        size: Number of workers.

    Attributes:
        owners: Owner of each node, [n_nodes]; set by ``place``.
    """

    def __init__(self, source: EdgeSource, size: int) -> None:
        self._source, self._size = source, size
        # written now, so that measurements of memory that begin now do not count it
        self._workers = np.full(source.n_edges, -1, np.int32)
        self.owners = np.zeros(source.n_nodes, np.int32)

    def place(self, owners: np.ndarray, workers: Callable[[EdgeChunk], np.ndarray]) -> None:
        """Set the owners, and the workers of all edges.

        Args:
            owners: Owner of each node, [n_nodes] int32.
            workers: As of ``EdgePlacement.place``.
        """
        self.owners, end = owners, 0
        for chunk in self._source.chunks():
            self._workers[end: end + len(chunk.ids)] = workers(chunk)
            end += len(chunk.ids)

    @property
    def nodes(self) -> np.ndarray:
        """Nodes of each worker, [size]."""
        return np.bincount(self.owners, minlength=self._size)

    @property
    def edges(self) -> np.ndarray:
        """Edges of each worker, [size]."""
        return np.bincount(self._workers, minlength=self._size)

    def cut(self) -> int:
        """Edges whose ends have different owners."""
        return sum(int(np.count_nonzero(self.owners[src] != self.owners[dst])) for src, dst, _ in self._each())

    def copies(self) -> np.ndarray:
        """Nodes of which each worker has a copy, as their owner or with one of their edges, [size] int64."""
        copies = self._owned()
        for src, dst, worker in self._each():
            mark_copies(src, worker, copies)
            mark_copies(dst, worker, copies)
        return self._counted(copies)

    def sent(self, wanted: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None) -> int:
        """Rows that all workers send in one direction of a superstep along the edges.

        A row is sent for each pair of a node and another worker with an edge from it, and for each
        pair with an edge to it.

        Args:
            wanted: Function from sources and destinations [n] to whether these edges are used, [n] bool.
        """
        at_source, at_destination = self._owned(), self._owned()
        for src, dst, worker in self._each():
            used = slice(None) if wanted is None else wanted(src, dst)
            mark_copies(src[used], worker[used], at_source)
            mark_copies(dst[used], worker[used], at_destination)
        return int(self._counted(at_source).sum() + self._counted(at_destination).sum()) - 2 * len(self.owners)

    def sent_by_batches(self, train: np.ndarray, batch_size: int, layers: int, seed: int) -> int:
        """Rows sent in one direction in all mini-batches of an epoch with full neighbourhoods, estimated from some of them.

        Args:
            train: The targets, [n_nodes] bool.
            batch_size: Targets per batch.
            layers: Supersteps of a batch.
            seed: Seed of the batches.
        """
        targets = shuffle(key(seed, Purpose.BATCH), np.flatnonzero(train))
        n_batches, rows = -(-len(targets) // batch_size), 0
        counted = min(n_batches, BATCHES)
        for b in range(counted):
            needed = np.zeros(len(self.owners), bool)
            needed[targets[b * batch_size: (b + 1) * batch_size]] = True
            for _ in range(layers):
                rows += self.sent(partial(_into, needed.copy(), needed))
        return rows * n_batches // max(counted, 1)

    def _each(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Sources, destinations and workers of the edges, by chunks."""
        end = 0
        for chunk in self._source.chunks():
            yield chunk.src, chunk.dst, self._workers[end: end + len(chunk.ids)]
            end += len(chunk.ids)

    def _owned(self) -> np.ndarray:
        copies = no_copies(len(self.owners), self._size)
        mark_copies(np.arange(len(self.owners)), self.owners, copies)
        return copies

    def _counted(self, copies: np.ndarray) -> np.ndarray:
        return count_copies(copies, np.zeros(self._size, np.int64))


def _into(receiving: np.ndarray, reached: np.ndarray, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Whether edges lead to receiving nodes; marks the sources of those that do as reached."""
    found = receiving[dst]
    reached[src[found]] = True
    return found


def imbalance(counts: np.ndarray) -> float:
    """The largest over the mean; 0 if there is nothing."""
    return float(counts.max() * len(counts) / max(counts.sum(), 1))
