"""What a worker holds in memory, from counts: its part of the graph, and the largest view."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from graphtheta.engine.layer.dry_run import Probe
from graphtheta.engine.layer.memory import Extent, MemoryBound
from graphtheta.engine.partition.relation import EDGE
from graphtheta.job.job import Job
from graphtheta.ops.backend.fused import backend_scope, usable
from graphtheta.planning.placement import Placement
from graphtheta.planning.skeleton import Skeleton
from graphtheta.planning.work import Work
from graphtheta.train.build import memory_of

# an id; bounds of the edges into and out of a row, in two of four blocks each
ID_BYTES, BOUND_BYTES = 8, 32
# gradients that are alive at once, in units of the widest value: values are freed as backward passes them
GRADIENTS = 1


def largest_bound(job: Job, held: Skeleton, placement: Placement, works: Sequence[Work]) -> MemoryBound:
    """Bytes by purpose of the worker that needs most, for the largest of some views.

    Args:
        job: The job, with its mode.
        held: The job without features.
        placement: The workers.
        works: The views.
    """
    parts = partition_bytes(held, placement)
    found = [_bound(job, held, placement, work, rank, int(parts[rank])) for work in works for rank in range(placement.size)]
    return max(found, key=lambda bound: bound.total)


def partition_bytes(held: Skeleton, placement: Placement) -> np.ndarray:
    """What ``Partition.nbytes`` returns on each worker after it is built, [size]."""
    p, size = held.partition, placement.size
    masters, edges = (np.bincount(x, minlength=size) for x in (placement.owners, placement.workers))
    node, edge = _column_bytes(held)
    core = p.relations[EDGE].blocks[0]
    topology = ID_BYTES + sum(x.itemsize for x in (core.in_src, core.out_dst, core.out_edge))
    # four blocks have one bound more than rows, at each of both ends
    bounds = (masters + placement.mirrors) * (ID_BYTES + BOUND_BYTES) + 8 * ID_BYTES
    found: np.ndarray = p.directory.nbytes + bounds + ID_BYTES * placement.planned + edges * (topology + edge) + masters * node
    return found


def _column_bytes(held: Skeleton) -> tuple[float, float]:
    """Bytes of the columns of a node and of an edge."""
    p = held.partition
    return p.node.nbytes / max(p.n_nodes, 1) + held.feature_bytes, p.edge.nbytes / max(p.n_edges, 1)


def _bound(job: Job, held: Skeleton, placement: Placement, work: Work, rank: int, partition: int) -> MemoryBound:
    node, edge = _column_bytes(held)
    mirrors, edges, sent = (max((int(x[rank]) for x in each), default=0) for each in (
        [share.mirrors for share in work.shares], [share.edges for share in work.shares], [share.sent for share in work.shares]))
    extent = Extent(int(work.nodes[rank]), mirrors, edges, sent, int(work.nodes.sum()),
                    max((share.counts.edges for share in work.shares), default=0), node, edge)
    bound = memory_of(job, partition, extent, work.found, rank, placement.size, GRADIENTS)
    if not work.searched:
        # views of the whole graph read columns in memory where they are stored
        columns = {name: held.partition.node.column(name) for name in work.found.stored if name in held.partition.node}
        read = sum(prod(x.shape[1:]) for name, x in columns.items() if x.nbytes or name in held.blank)
        bound = replace(bound, views=0, values=max(bound.values - read * extent.rows * np.dtype(job.dtype).itemsize, 0))
    with backend_scope(job.backend):
        return bound if _in_chunks(work.found) else replace(bound, chunks=0)


def _in_chunks(found: Probe) -> bool:
    """Whether a phase runs on the reference back end, which stores values of a chunk of edges."""
    return not all(usable(phase) for step in found.supersteps if step.program is not None for phase in step.program.phases)
