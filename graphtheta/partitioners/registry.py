"""Node partitioners and edge placements by name: those of the engine, and those of this package."""

from __future__ import annotations

from graphtheta.engine.partition.partitioner import DEFAULT_PLACEMENT, EDGE_PLACEMENTS, PARTITIONERS
from graphtheta.partitioners.clusters import LeidenPartitioner, LouvainPartitioner, MetisPartitioner
from graphtheta.partitioners.cuts import HdrfCut, HybridCut, LibraCut, ObliviousCut, RandomCut
from graphtheta.partitioners.file import FilePartitioner
from graphtheta.partitioners.greedy import FennelPartitioner, LdgPartitioner
from graphtheta.partitioners.grem import GremPartitioner
from graphtheta.partitioners.multi_source import BglPartitioner
from graphtheta.partitioners.ranges import DegreeBlockPartitioner, GeminiPartitioner

__all__ = ["DEFAULT_PLACEMENT", "EDGE_PLACEMENTS", "PARTITIONERS"]

NODE_PARTITIONERS = (
    DegreeBlockPartitioner,
    GeminiPartitioner,
    LdgPartitioner,
    FennelPartitioner,
    BglPartitioner,
    GremPartitioner,
    LouvainPartitioner,
    LeidenPartitioner,
    MetisPartitioner,
    FilePartitioner,
)
PARTITIONERS.include(*NODE_PARTITIONERS)
EDGE_PLACEMENTS.include(RandomCut, HybridCut, HdrfCut, ObliviousCut, LibraCut)
