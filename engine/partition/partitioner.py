"""Partitioners: which worker owns a node, and which worker stores an edge.

A partitioner reads the edges and gives every node an owner. Most leave the edges to an edge placement, which takes the
worker of an edge from the owners of its two ends; one that places edges itself, as vertex-cut partitioners do, gives
their workers too. Any pair works with any model.

A partitioner is a dataclass, whose fields are its options: the job ``masters="NAME:field=value,..."`` sets them. A field
``seed`` takes the job's seed unless it is set. ``PARTITIONERS.add`` and ``EDGE_PLACEMENTS.add`` add further ones.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from math import isqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np

from graphtheta.described import name_and_options, options_of
from graphtheta.errors import ConfigError, PartitionError
from graphtheta.registry import Registry
from graphtheta.rng import Purpose, bits, key

from ...ops.autodiff.buffers import taken
from ..comm.communicator import Comm
from .edge_source import EdgeChunk, EdgeSource


class Assignment(NamedTuple):
    """The result of a partitioner.

    Attributes:
        owner: Function from ids [n] int64 to their owners [n] int, the same on every rank, such as
            ``Directory.owner`` or the look-up in an array.
        worker: Function from a chunk to the workers of its edges, [n] int, called once for each
            chunk of the source, in order. None leaves the edges to the edge placement.
    """

    owner: Callable[[np.ndarray], np.ndarray]
    worker: Callable[[EdgeChunk], np.ndarray] | None = None


@dataclass(frozen=True)
class Partitioner(ABC):
    """Gives every node an owner.

    Attributes:
        name: Name in a job.
    """

    name: ClassVar[str]

    @abstractmethod
    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        """Divide a graph among the workers.

        Args:
            source: The edges.
            comm: The workers.

        Collective: all ranks of comm.
        """


@dataclass(frozen=True)
class HashPartitioner(Partitioner):
    """Owners by the hash of the id: balanced without reading the graph."""

    name = "hash"
    seed: int = 0

    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        of, size = key(self.seed, Purpose.PLACEMENT), np.uint64(comm.size)
        return Assignment(lambda ids: (bits(of, ids) % size).astype(np.int32))


@dataclass(frozen=True)
class BlockPartitioner(Partitioner):
    """Owners by contiguous blocks of ids: keeps the locality of the numbering."""

    name = "block"

    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        return Assignment(lambda ids: (ids * comm.size // max(source.n_nodes, 1)).astype(np.int32))


@dataclass(frozen=True)
class EdgePlacement:
    """Computes the workers of edges from the owners of their two ends.

    Attributes:
        name: Name in a job.
        workers: Function from the owners of the sources and of the destinations, [n] int32 each,
            and the number of workers, to the workers of the edges.
    """

    name: str
    workers: Callable[[np.ndarray, np.ndarray, int], np.ndarray]


def edges_by_source(src_owner: np.ndarray, dst_owner: np.ndarray, size: int) -> np.ndarray:
    """1D-edge: the owner of the source stores an edge (the paper's default)."""
    return src_owner


def edges_by_destination(src_owner: np.ndarray, dst_owner: np.ndarray, size: int) -> np.ndarray:
    """1D-edge by destination: its owner stores an edge, so every sum is local."""
    return dst_owner


def edges_on_grid(src_owner: np.ndarray, dst_owner: np.ndarray, size: int) -> np.ndarray:
    """2D-grid vertex-cut: workers form a grid; the source picks the row and the destination the column.

    A node then has mirrors in one row and one column only. With a prime number of workers the grid has one row and
    the rule is 1D by destination.
    """
    rows = next(r for r in range(isqrt(size), 0, -1) if size % r == 0)
    cols = size // rows
    return (src_owner // cols) * cols + dst_owner % cols


def _is_partitioner(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Partitioner) and thing is not Partitioner


PARTITIONERS: Registry[type[Partitioner]] = Registry("node partitioner", _is_partitioner, (), (HashPartitioner, BlockPartitioner))
EDGE_PLACEMENTS: Registry[EdgePlacement] = Registry("edge placement", lambda thing: isinstance(thing, EdgePlacement), (), (
    EdgePlacement("1d-src", edges_by_source), EdgePlacement("1d-dst", edges_by_destination), EdgePlacement("vertex-cut", edges_on_grid)))
DEFAULT_PLACEMENT = "1d-src"


def assign(source: EdgeSource, comm: Comm, edge_placement: str, node_partitioner: str,
           seed: int) -> tuple[np.ndarray, Callable[[EdgeChunk], np.ndarray]]:
    """Owners of nodes and workers of edges; checks what partitioner and placement return.

    Args:
        source: The edges of a graph in memory.
        comm: The workers.
        edge_placement: Name in ``EDGE_PLACEMENTS``, or FILE.py:NAME.
        node_partitioner: Name in ``PARTITIONERS``, or FILE.py:NAME; options follow as ":field=value,...".
        seed: Seed of the job.

    Returns:
        Owners of all nodes, [n_nodes] int32, and a function that gives the workers of a chunk's edges, [n] int32.

    Raises:
        ConfigError: Unknown name or option, or both place edges.

    Collective: all ranks of comm.
    """
    placement, partitioner = EDGE_PLACEMENTS.find(edge_placement), make_partitioner(node_partitioner, seed)
    name = partitioner.name
    owner_of, worker_of = partitioner.assign(source, comm)
    if worker_of is not None and edge_placement != DEFAULT_PLACEMENT:
        raise ConfigError(f"partitioner={edge_placement} has no meaning with masters={name}, which places edges itself; drop --partitioner")
    n = source.n_nodes
    owners = _checked(owner_of(np.arange(n)), n, comm.size, f"masters={name}: the owners of {n} nodes")

    def worker(chunk: EdgeChunk) -> np.ndarray:
        if worker_of is not None:
            return _checked(worker_of(chunk), len(chunk.ids), comm.size, f"masters={name}: the workers of {len(chunk.ids)} edges")
        found = placement.workers(taken(owners, chunk.src), taken(owners, chunk.dst), comm.size)
        return _checked(found, len(chunk.ids), comm.size, f"partitioner={placement.name}: the workers of {len(chunk.ids)} edges")

    return owners, worker


def make_partitioner(text: str, seed: int) -> Partitioner:
    """The partitioner that "NAME:field=value,..." or "FILE.py:NAME:field=value,..." describes.

    Raises:
        ConfigError: Unknown name, unknown option, or a value of another type.
    """
    name, written = name_and_options(text)
    made = PARTITIONERS.find(name)
    values = options_of(made, text, "masters", written)
    return made(**({"seed": seed} if "seed" in signature(made).parameters else {}) | values)


def _checked(found: Any, n: int, size: int, what: str) -> np.ndarray:
    """Workers that a partitioner returned, [n] int32."""
    found = np.asarray(found)
    if found.shape != (n,) or found.dtype.kind not in "iu":
        raise PartitionError(f"{what} have dtype {found.dtype} and shape {list(found.shape)}; expected integers of shape [{n}]")
    if n and not 0 <= found.min() <= found.max() < size:
        raise PartitionError(f"{what} range from {found.min()} to {found.max()}; expected 0 to {size - 1}")
    return found.astype(np.int32, copy=False)
