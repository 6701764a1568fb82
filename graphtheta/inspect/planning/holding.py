"""What a worker holds in memory, from counts: its part of the graph, and the largest view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphtheta.engine.layer.dry_run import Probe
from graphtheta.engine.partition.relation import EDGE
from graphtheta.inspect.planning.placement import Placement
from graphtheta.inspect.planning.skeleton import Skeleton
from graphtheta.inspect.planning.work import ViewWork, copies_features
from graphtheta.ops.edge.backend.fused import backend_scope, usable
from graphtheta.run.job.job import Job
from graphtheta.run.memory.bound import Extent, MemoryBound
from graphtheta.train.loop.build import memory_of

# an id; bounds of the edges into and out of a row, in two of four blocks each
ID_BYTES, BOUND_BYTES = 8, 32
# gradients that are alive at once, in units of the widest value, as of a sum and of its product:
# values are freed as backward passes them
GRADIENTS = 2


def largest_bound(
    job: Job, skeleton: Skeleton, placement: Placement, works: Sequence[ViewWork]
) -> MemoryBound:
    """Bytes by purpose of the worker that needs most, for the largest of some views.

    Args:
        job: The job, with its mode.
        skeleton: The job without features.
        placement: The workers.
        works: The views.
    """
    parts = partition_bytes(skeleton, placement)
    bounds = [
        _bound(
            job=job,
            skeleton=skeleton,
            placement=placement,
            work=work,
            rank=rank,
            partition=int(parts[rank]),
        )
        for work in works
        for rank in range(placement.size)
    ]
    return max(bounds, key=lambda bound: bound.total)


def partition_bytes(skeleton: Skeleton, placement: Placement) -> np.ndarray:
    """What ``Partition.nbytes`` returns on each worker after it is built, [size]."""
    p = skeleton.partition
    size = placement.size
    masters, edges = (np.bincount(x, minlength=size) for x in (placement.owners, placement.workers))
    node, edge = _column_bytes(skeleton)
    core = p.relations[EDGE].blocks[0]
    topology = ID_BYTES + sum(x.itemsize for x in (core.in_src, core.out_dst, core.out_edge))
    # four blocks have one bound more than rows, at each of both ends
    bounds = (masters + placement.mirrors) * (ID_BYTES + BOUND_BYTES) + 8 * ID_BYTES
    n_bytes: np.ndarray = (
        p.directory.nbytes
        + bounds
        + ID_BYTES * placement.planned
        + edges * (topology + edge)
        + masters * node
    )
    return n_bytes


def _column_bytes(skeleton: Skeleton) -> tuple[float, float]:
    """Bytes of the columns of a node and of an edge."""
    p = skeleton.partition
    return p.node.nbytes / max(p.n_nodes, 1) + skeleton.feature_bytes, p.edge.nbytes / max(
        p.n_edges, 1
    )


def _bound(
    job: Job, skeleton: Skeleton, placement: Placement, work: ViewWork, rank: int, partition: int
) -> MemoryBound:
    node, edge = _column_bytes(skeleton)
    mirrors, edges, sent = (
        max((int(x[rank]) for x in each), default=0)
        for each in (
            [share.mirrors for share in work.shares],
            [share.edges for share in work.shares],
            [share.sent for share in work.shares],
        )
    )
    extent = Extent(
        rows=int(work.nodes[rank]),
        mirrors=mirrors,
        edges=edges,
        sent=sent,
        whole_rows=int(work.nodes.sum()),
        whole_edges=max((share.counts.edges for share in work.shares), default=0),
        node_bytes=node,
        edge_bytes=edge,
    )
    # a dry run over levels of known sizes has sums and products in the order of the step
    stored = replace(work.dry_run, node_width=_stored_width(skeleton, work), deferred_width=0)
    scored = skeleton.prepared.kind.scored()
    bound, values = (
        memory_of(
            job=job,
            partition_bytes=partition,
            extent=extent,
            dry_run=dry_run,
            rank=rank,
            size=placement.size,
            scored=scored,
            gradients=GRADIENTS,
        )
        for dry_run in (work.dry_run, stored)
    )
    bound = replace(bound, views=bound.views if work.searched else 0, values=values.values)
    with backend_scope(job.backend):
        return bound if _in_chunks(work.dry_run) else replace(bound, chunks=0)


def _stored_width(skeleton: Skeleton, work: ViewWork) -> int:
    """Numbers per row that a step stores: copied features and results."""
    numbers = skeleton.stored([share.counts for share in work.shares])
    copied = (
        skeleton.feature_bytes / np.dtype(skeleton.job.dtype).itemsize
        if work.searched and copies_features(skeleton, work.dry_run)
        else 0.0
    )
    return round(copied + numbers.learned + numbers.constant + skeleton.density * numbers.sparse)


def _in_chunks(dry_run: Probe) -> bool:
    """Whether a phase runs on the reference back end, which stores values of a chunk of edges."""
    return not all(
        usable(phase)
        for step in dry_run.supersteps
        if step.program is not None
        for phase in step.program.phases
    )
