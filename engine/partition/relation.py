"""Relations: kinds of edges. A pass of a superstep is a relation and a direction along its edges.

The edges of a relation are stored with the partition, in blocks, or made for a batch, such as the
pairs a decoder scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .exchange import MovePlan

# the relation of a graph's edges, and the node set at both its ends
EDGE, NODE = "edge", "node"
# the column with the kind of each edge, if a graph has several kinds
RELATION = "relation"
# node column: 1 for a node that stands for a whole graph, 0 for others
READOUT = "readout"


@dataclass(frozen=True)
class EdgeBlock:
    """Edges whose sources are of one kind of row and whose destinations are of one kind.

    Attributes:
        src_kind, dst_kind: MASTER or MIRROR.
        start: Storage position of the first edge.
        in_indptr, in_src: In-edges by destination: sources in storage order.
        out_indptr, out_dst, out_edge: Out-edges by source: destinations, and positions within the
            block.
    """

    src_kind: int
    dst_kind: int
    start: int
    in_indptr: np.ndarray
    in_src: np.ndarray
    out_indptr: np.ndarray
    out_dst: np.ndarray
    out_edge: np.ndarray

    @property
    def n_edges(self) -> int:
        return len(self.in_src)

    def kinds(self, reverse: bool) -> tuple[int, int]:
        """Kinds of the sending and of the receiving rows."""
        return (self.dst_kind, self.src_kind) if reverse else (self.src_kind, self.dst_kind)

    def by_sender(self, reverse: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Bounds of the edges of each sending row, their receiving rows, and their numbers in the
        order of receivers.
        """
        if not reverse:
            return self.out_indptr, self.out_dst, self.out_edge
        at = np.empty(self.n_edges, np.int32)
        at[self.out_edge] = np.arange(self.n_edges, dtype=np.int32)
        return self.in_indptr, self.in_src, at


class Served(NamedTuple):
    """A plan, and the mirror rows (counted from 0) that it fills, ascending."""

    plan: MovePlan
    mirrors: np.ndarray


class Places(NamedTuple):
    """The edges of one block by receiving row and position.

    Attributes:
        listed: Number of each edge and its sending row, [n_edges, 2] int32; empty if in this order.
        position: Position of each edge, ascending within a row, [n_edges] int32; empty if each row
            has all its edges in the block, or none.
    """

    listed: np.ndarray
    position: np.ndarray


@dataclass(frozen=True)
class Positions:
    """The number of each edge among all edges into its receiving node, over all workers.

    Attributes:
        places: Edges of each block, by kinds of source and destination.
        degree: Edges of the receiving rows over all workers, by kind of row, [n] int64; empty if
            every row has all its edges in one block.
    """

    places: dict[tuple[int, int], Places]
    degree: dict[int, np.ndarray]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(
            x.nbytes
            for x in [
                *self.degree.values(),
                *(x for places in self.places.values() for x in places),
            ]
        )


@dataclass(frozen=True, eq=False)
class Relation:
    """A kind of edges.

    Attributes:
        name: Name of the relation.
        gid: Global ids of its edges by storage position, [n] int64; random draws are keyed by them.
        columns: Whether ``Partition.edge`` holds values of its edges.
        ends: Node sets of the sources and of the destinations.
    """

    name: str
    gid: np.ndarray
    columns: bool
    ends: tuple[str, str] = (NODE, NODE)


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredRelation(Relation):
    """A relation whose edges are stored in blocks.

    Attributes:
        n_edges: Number of edges over all workers; global ids are 0 to n_edges - 1.
        blocks: Edge blocks, core first.
        sources, destinations: Plans for the mirrors that are sources of edges here, and for those
            that are destinations.
    """

    n_edges: int
    blocks: list[EdgeBlock]
    sources: Served
    destinations: Served

    @cached_property
    def positions(self) -> dict[bool, Positions]:
        """Positions of the edges by direction, as far as ``positions_of`` has made them."""
        return {}

    @cached_property
    def degrees(self) -> dict[bool, dict[int, np.ndarray]]:
        """Degrees of receiving rows by direction, as far as ``degrees_of`` has made them."""
        return {}

    @cached_property
    def readers(self) -> dict[bool, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Workers that read masters, by direction, as far as searches have listed them."""
        return {}

    @cached_property
    def parallel(self) -> list[np.ndarray]:
        """What ``parallel_of`` has computed, if it was called."""
        return []

    def served(self, reverse: bool) -> tuple[Served, Served]:
        """Plans for the sending ends and for the receiving ends."""
        return (self.destinations, self.sources) if reverse else (self.sources, self.destinations)
