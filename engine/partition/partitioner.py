"""Partitioners: which worker owns a node, and which worker stores an edge.

A partitioner reads the edges and gives every node an owner. Most leave the edges to an edge
placement, which reads them and the owners and gives every edge a worker; one that places edges
itself gives their workers too. Any pair works with any model.

A partitioner or placement is a dataclass, whose fields are its options: the job
``masters="NAME:field=value,..."`` sets them. A field ``seed`` takes the job's seed unless it is
set. ``graphtheta.partitioners`` adds further ones to the two registries, and ``PARTITIONERS.add``
and ``EDGE_PLACEMENTS.add`` those of users.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from math import isqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np

from graphtheta.base.registry import Registry, named_class
from graphtheta.base.rng import Purpose, bits, key
from graphtheta.errors import ConfigError, PartitionError

from ...ops.parallel.buffers import taken
from ..comm.communicator import Comm
from .edge_source import EdgeChunk, EdgeSource

Owners = Callable[[np.ndarray], np.ndarray]


class Assignment(NamedTuple):
    """The result of a partitioner.

    Attributes:
        owner: Function from ids [n] int64 to their owners [n] int, the same on every rank, such as
            ``Directory.owner`` or the look-up in an array.
        worker: Function from a chunk to the workers of its edges, [n] int, called once for each
            chunk of the source, in order. None leaves the edges to the edge placement.
    """

    owner: Owners
    worker: Callable[[EdgeChunk], np.ndarray] | None = None


@dataclass(frozen=True)
class Partitioner(ABC):
    """Gives every node an owner.

    Attributes:
        name: Name in a job.
        by_rule: Whether ``assign`` reads the number of nodes only and returns a function that
            computes owners from ids, without messages.
        sequential: Whether rank 0 runs ``divide`` alone, and what it returns sends no messages.
    """

    name: ClassVar[str]
    by_rule: ClassVar[bool] = False
    sequential: ClassVar[bool] = False

    @abstractmethod
    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        """Divide a graph among the workers.

        Args:
            source: The edges.
            comm: The workers.

        Collective: all ranks of comm.
        """

    def divide(self, source: EdgeSource, comm: Comm) -> Assignment:
        """The same for edges in files, of which each worker reads its share; ``owner`` may be
        collective. By default, ``assign``.
        """
        return self.assign(source, comm)


@dataclass(frozen=True)
class HashPartitioner(Partitioner):
    """Owners by the hash of the id: balanced without reading the graph."""

    name = "hash"
    by_rule = True
    seed: int = 0

    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        of = key(self.seed, Purpose.PLACEMENT)
        size = np.uint64(comm.size)
        return Assignment(lambda ids: (bits(of, ids) % size).astype(np.int32))


@dataclass(frozen=True)
class BlockPartitioner(Partitioner):
    """Owners by contiguous blocks of ids: keeps the locality of the numbering."""

    name = "block"
    by_rule = True

    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        return Assignment(block_owner(source.n_nodes, comm.size))


@dataclass(frozen=True)
class EdgePlacement(ABC):
    """Gives every edge a worker, once nodes have owners.

    Attributes:
        name: Name in a job.
    """

    name: ClassVar[str]

    @abstractmethod
    def place(
        self, source: EdgeSource, owners: np.ndarray, size: int
    ) -> Callable[[EdgeChunk], np.ndarray]:
        """Prepare to place the edges.

        Args:
            source: The edges.
            owners: Owner of every node, [n_nodes] int32.
            size: Number of workers.

        Returns:
            Function from a chunk to the workers of its edges, [n] int, called once for each chunk
            of the source, in order.
        """

    def share(
        self, source: EdgeSource, owner: Owners, comm: Comm
    ) -> Callable[[EdgeChunk], np.ndarray] | None:
        """The same for edges in files, of which each worker places its share. By default None: rank
        0 places all.

        Args:
            source: The edges.
            owner: Function from ids of nodes to their owners; it may be collective.
            comm: The workers.

        Returns:
            Function like that of ``place``, called equally often on all ranks.

        Collective: all ranks of comm.
        """
        return None


@dataclass(frozen=True)
class EdgeRule(EdgePlacement):
    """An edge placement by the id of an edge and the owners of its ends."""

    def share(
        self, source: EdgeSource, owner: Owners, comm: Comm
    ) -> Callable[[EdgeChunk], np.ndarray]:
        return lambda chunk: self.worker(chunk, owner, comm.size)

    @abstractmethod
    def worker(self, chunk: EdgeChunk, owner: Owners, size: int) -> np.ndarray:
        """Workers of the edges of a chunk, [n] int.

        Args:
            chunk: The edges.
            owner: Function from ids of nodes to their owners; it may be collective, so it must be
                called equally often on all ranks.
            size: Number of workers.
        """

    def place(
        self, source: EdgeSource, owners: np.ndarray, size: int
    ) -> Callable[[EdgeChunk], np.ndarray]:
        return lambda chunk: self.worker(chunk, lambda ids: taken(owners, ids), size)


@dataclass(frozen=True)
class EdgesBySource(EdgeRule):
    """1D-edge: the owner of the source stores an edge (the paper's default)."""

    name = "1d-src"

    def worker(self, chunk: EdgeChunk, owner: Owners, size: int) -> np.ndarray:
        return owner(chunk.src)


@dataclass(frozen=True)
class EdgesByDestination(EdgeRule):
    """1D-edge by destination: its owner stores an edge, so every sum is local."""

    name = "1d-dst"

    def worker(self, chunk: EdgeChunk, owner: Owners, size: int) -> np.ndarray:
        return owner(chunk.dst)


@dataclass(frozen=True)
class EdgesOnGrid(EdgeRule):
    """2D-grid vertex-cut: workers form a grid; the source picks the row and the destination the
    column.

    A node then has mirrors in one row and one column only. With a prime number of workers the grid
    has one row and the rule is 1D by destination.
    """

    name = "vertex-cut"

    def worker(self, chunk: EdgeChunk, owner: Owners, size: int) -> np.ndarray:
        cols = size // next(r for r in range(isqrt(size), 0, -1) if size % r == 0)
        return (owner(chunk.src) // cols) * cols + owner(chunk.dst) % cols


PARTITIONERS: Registry[type[Partitioner]] = Registry(
    "node partitioner", named_class(Partitioner), (), (HashPartitioner, BlockPartitioner)
)
EDGE_PLACEMENTS: Registry[type[EdgePlacement]] = Registry(
    "edge placement",
    named_class(EdgePlacement),
    (),
    (EdgesBySource, EdgesByDestination, EdgesOnGrid),
)
DEFAULT_PLACEMENT = EdgesBySource.name


def assign(
    source: EdgeSource, comm: Comm, edge_placement: str, node_partitioner: str, seed: int
) -> tuple[np.ndarray, Callable[[EdgeChunk], np.ndarray]]:
    """Owners of nodes and workers of edges; checks what partitioner and placement return.

    Args:
        source: The edges of a graph in memory.
        comm: The workers.
        edge_placement: Name in ``EDGE_PLACEMENTS``, or FILE.py:NAME; options follow as
            ":field=value,...".
        node_partitioner: Name in ``PARTITIONERS``, or FILE.py:NAME; options follow as
            ":field=value,...".
        seed: Seed of the job.

    Returns:
        Owners of all nodes, [n_nodes] int32, and a function that gives the workers of a chunk's
        edges, [n] int32.

    Raises:
        ConfigError: Unknown name or option, or both place edges.

    Collective: all ranks of comm.
    """
    placement, partitioner = find_pair(edge_placement, node_partitioner, seed)
    assignment = allowed(partitioner.assign(source, comm), partitioner, edge_placement)
    n = source.n_nodes
    name = partitioner.name
    owners = checked(
        assignment.owner(np.arange(n)), n, comm.size, f"masters={name}: the owners of {n} nodes"
    )
    said = f"partitioner={placement.name}" if assignment.worker is None else f"masters={name}"
    workers = (
        placement.place(source, owners, comm.size)
        if assignment.worker is None
        else assignment.worker
    )
    return owners, lambda chunk: checked(
        workers(chunk), len(chunk.ids), comm.size, f"{said}: the workers of {len(chunk.ids)} edges"
    )


def find_pair(
    edge_placement: str, node_partitioner: str, seed: int
) -> tuple[EdgePlacement, Partitioner]:
    """The edge placement and the node partitioner of a job; arguments and errors are those of
    ``assign``.
    """
    return _instance(EDGE_PLACEMENTS, "partitioner", edge_placement, seed), make_partitioner(
        node_partitioner, seed
    )


def allowed(assignment: Assignment, partitioner: Partitioner, edge_placement: str) -> Assignment:
    """What a partitioner returned.

    Raises:
        ConfigError: It places edges itself, and so does the edge placement.
    """
    if assignment.worker is not None and edge_placement != DEFAULT_PLACEMENT:
        raise ConfigError(
            f"partitioner={edge_placement} has no meaning with masters={partitioner.name}, which"
            " places edges itself; drop --partitioner"
        )
    return assignment


def make_partitioner(text: str, seed: int) -> Partitioner:
    """The partitioner that "NAME:field=value,..." or "FILE.py:NAME:field=value,..." describes.

    Raises:
        ConfigError: Unknown name, unknown option, or a value of another type.
    """
    return _instance(PARTITIONERS, "masters", text, seed)


def _instance(registry: Registry[Any], key: str, text: str, seed: int) -> Any:
    """An instance of a class of a registry, with the options of a description."""
    kind, _, options = registry.described(text, key)
    return kind(**({"seed": seed} if "seed" in signature(kind).parameters else {}) | options)


def block_owner(n: int, size: int) -> Callable[[np.ndarray], np.ndarray]:
    """Owners of the ids 0..n-1 by contiguous blocks of equal size."""
    return lambda ids: np.clip(ids * size // max(n, 1), 0, size - 1).astype(np.int32)


def block_bounds(n: int, rank: int, size: int) -> tuple[int, int]:
    """The first id that a worker owns by ``block_owner``, and the first one beyond."""
    return -(-n * rank // size), -(-n * (rank + 1) // size)


def checked(workers: Any, n: int, size: int, what: str) -> np.ndarray:
    """Workers that a partitioner or placement returned, [n] int32.

    Raises:
        PartitionError: They are no integers from 0 to size - 1, or not n.
    """
    workers = np.asarray(workers)
    if workers.shape != (n,) or workers.dtype.kind not in "iu":
        raise PartitionError(
            f"{what} have dtype {workers.dtype} and shape {list(workers.shape)}; expected integers"
            f" of shape [{n}]"
        )
    if n and not 0 <= workers.min() <= workers.max() < size:
        raise PartitionError(
            f"{what} range from {workers.min()} to {workers.max()}; expected 0 to {size - 1}"
        )
    return workers.astype(np.int32, copy=False)
