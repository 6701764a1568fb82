"""An upper bound of the memory that a worker needs, computed before it is allocated.

Every node and edge of the worker is assumed to take part in every superstep, whatever the
strategy. Without sampling, a deep mini-batch on a graph with hubs comes close to the bound and
never exceeds it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from math import prod

import numpy as np

from graphtheta.base.bfloat16 import BFLOAT16
from graphtheta.base.costs import (
    CHECKPOINT_COPIES,
    CHUNKS_ALIVE,
    DEALT_BYTES,
    DRAWN_PAIR_BYTES,
    GRADIENTS_ALIVE,
    HELD_PAIR_BYTES,
    LIST_BYTES_PER_EDGE,
    PARAMETER_COPIES,
    RANKED_PAIR_BYTES,
    SAMPLE_BYTES,
    SEARCH_BYTES_PER_EDGE,
    SORT_BYTES_PER_USE,
)
from graphtheta.base.memory import available_bytes
from graphtheta.engine.layer.context import Superstep
from graphtheta.engine.layer.dry_run import Probe
from graphtheta.engine.layer.in_order import turns_of, width_of_message
from graphtheta.engine.layer.opened import message_of
from graphtheta.engine.partition.partition import Partition
from graphtheta.errors import MemoryLimitError
from graphtheta.ops.edge.backend.fused import saved_width
from graphtheta.ops.edge.backend.reference import CHUNK_BYTES
from graphtheta.ops.edge.cost import most_pairs, pair_cost
from graphtheta.ops.edge.program import Phase
from graphtheta.ops.edge.turns import edges_of_block
from graphtheta.tasks.kinds.pair_counts import NO_PAIRS, PairCounts


@dataclass(frozen=True)
class MemoryBound:
    """Bytes of one worker by purpose."""

    partition: int
    values: int
    halo: int
    edges: int
    pairs: int
    chunks: int
    views: int
    parameters: int
    versions: int

    @property
    def total(self) -> int:
        """The bound: the sum over all purposes."""
        return sum(getattr(self, f.name) for f in fields(self))


@dataclass(frozen=True)
class Extent:
    """How much of a graph a worker computes at a time.

    Attributes:
        rows, mirrors, edges: Masters, mirrors and edges of this worker.
        sent: Master rows that others read, at both ends of the edges.
        whole_rows, whole_edges: The same of all workers, of a view that one worker may compute
            alone.
        node_bytes, edge_bytes: Bytes of the columns of a node and of an edge.
    """

    rows: int
    mirrors: int
    edges: int
    sent: int
    whole_rows: int
    whole_edges: int
    node_bytes: float
    edge_bytes: float

    @classmethod
    def of(cls, p: Partition) -> Extent:
        """All of a worker's part."""
        sent = sum(
            len(x.plan.rows) for r in p.relations.values() for x in (r.sources, r.destinations)
        )
        return cls(
            rows=p.n_masters,
            mirrors=p.n_mirrors,
            edges=p.n_local_edges,
            sent=sent,
            whole_rows=p.n_nodes,
            whole_edges=p.n_edges,
            node_bytes=p.node.nbytes / max(p.n_masters, 1),
            edge_bytes=p.edge.nbytes / max(p.n_local_edges, 1),
        )


def memory_bound(
    partition_bytes: int,
    extent: Extent,
    probe: Probe,
    itemsize: int,
    fanout: int = 0,
    in_flight: int = 1,
    staleness: int = 0,
    checkpoints: int = 0,
    batches: bool = False,
    dealt: int = 1,
    gradients: int = GRADIENTS_ALIVE,
    scored: PairCounts = NO_PAIRS,
    short: bool = False,
) -> MemoryBound:
    """The most that training holds on this worker.

    Args:
        partition_bytes: Bytes of the worker's part.
        extent: What the worker computes at a time, at most.
        probe: Dry run of the model.
        itemsize: Bytes of a number.
        fanout: Largest number of sampled neighbours, 0 without sampling.
        in_flight: Number of pipelined views.
        staleness: Updates that a view may miss.
        checkpoints: Number of checkpoints that wait to be written, or are being written, at a
            time.
        batches: Whether views have more rows before a layer than after it, where its sum may come
            before its product.
        dealt: Number of workers if each may hold whole views with their columns, beside its part
            of those that it deals to others; 1 if not.
        gradients: Gradients of intermediate values that are alive at once, in units of the widest
            value.
        scored: Pairs of nodes that the workers score.
        short: Whether wide values of nodes are stored as bfloat16.

    Returns:
        Bytes by purpose; ``partition`` counts memory that is allocated already.
    """
    rows = extent.rows
    mirrors = extent.mirrors
    edges = extent.edges
    # a halo column is stored at the mirrors and, during a move, packed at both ends
    deferred = probe.deferred_width if batches else 0
    halo = (probe.halo_width + deferred) * (2 * mirrors + extent.sent)
    phases = [
        (step, phase) for step in probe.supersteps if step.program for phase in step.program.phases
    ]
    residuals = max(
        (
            saved_width(phase) + sum(width_of_message(name, phase) for name in step.in_order(phase))
            for step, phase in phases
        ),
        default=0,
    )
    # what the steps of a block of rows compute, and its gradients
    in_turn = 2 * max(
        (_numbers_in_turn(step, phase, extent.whole_edges) for step, phase in phases), default=0
    )
    # values of pairs of nodes and codes, and their gradients
    of_pairs = sum(
        2 * int(most_pairs(phase, rows + mirrors, edges)) * pair_cost(phase).bytes
        for _, phase in phases
        if phase.grouped
    )
    search = edges * SEARCH_BYTES_PER_EDGE + (rows + mirrors) * fanout * SAMPLE_BYTES
    search += len(set(probe.layers)) * (edges * LIST_BYTES_PER_EDGE + (rows + 3 * mirrors) * 20)
    if dealt > 1:
        # the parts of all views of a group are built before any is sent
        search = search * dealt + _dealt_bytes(extent, len(set(probe.layers)))
        rows = extent.whole_rows
        edges = extent.whole_edges
    parameters = probe.parameters * itemsize
    score = (2 * probe.edge_width + residuals) * itemsize
    # a pair is at the owner of one of its ends or, if it is a stored edge, where that is
    share = max(rows / max(extent.whole_rows, 1), edges / max(extent.whole_edges, 1))
    pairs = share * (
        in_flight * scored.batch * (DRAWN_PAIR_BYTES + score)
        + scored.evaluated * (HELD_PAIR_BYTES + score)
    )
    pairs += scored.ranked * (RANKED_PAIR_BYTES + score)
    # a gradient that is multiplied, or read by edges, is rounded beside itself
    copied = BFLOAT16.itemsize * (probe.widest + deferred) if short else 0
    stored = probe.node_width + deferred + gradients * (probe.widest + deferred)
    return MemoryBound(
        partition=partition_bytes,
        values=in_flight * (stored * itemsize + copied) * rows,
        halo=in_flight * halo * itemsize,
        edges=in_flight * (score * edges + of_pairs),
        pairs=round(pairs),
        chunks=in_flight * (CHUNKS_ALIVE * CHUNK_BYTES + in_turn * itemsize),
        views=in_flight * search,
        parameters=PARAMETER_COPIES * parameters,
        # versions that stale views use, gradients of views that finish before their turn, and
        # copies in checkpoints
        versions=(staleness + 2 * (in_flight - 1) + checkpoints * (CHECKPOINT_COPIES + staleness))
        * parameters,
    )


def _numbers_in_turn(step: Superstep, phase: Phase, edges: int) -> int:
    """The most numbers that the steps of a block of rows compute, which messages reach in order."""
    return max(
        (
            min(edges_of_block(prod(phase.outputs[message_of(name)].dims)), edges)
            * sum(prod(y) for call in turns_of(a, name, phase).called for y in call.outputs)
            for name, a in step.in_order(phase).items()
        ),
        default=0,
    )


def _dealt_bytes(extent: Extent, levels: int) -> int:
    """Bytes of whole views, held three times, as messages, put together, and read; and of the lists
    of their levels.
    """
    each = [(extent.whole_rows, extent.node_bytes), (extent.whole_edges, extent.edge_bytes)]
    columns = 3 * sum(int(n * (DEALT_BYTES + n_bytes)) for n, n_bytes in each)
    return columns + levels * extent.whole_edges * (LIST_BYTES_PER_EDGE + SORT_BYTES_PER_USE)


@contextmanager
def memory_errors(what: str, remedy: str) -> Iterator[None]:
    """A block in which too little memory raises a ``MemoryLimitError``.

    Args:
        what: What does not fit, with "does" or "do" at its end.
        remedy: What to do about it.
    """
    try:
        yield
    except MemoryError as error:
        raise MemoryLimitError(f"{what} not fit into memory: {error}; {remedy}") from None


def check_memory(bound: MemoryBound, partition: Partition, whole: bool) -> None:
    """Refuse a job that cannot fit, before it allocates memory.

    Args:
        bound: The bound of this worker.
        partition: The worker's part.
        whole: Whether every step runs over the whole graph and so stores all its values; otherwise
            only parameters and scored pairs are counted.

    Raises:
        MemoryLimitError: It does not fit; raised on all ranks, with the numbers.

    Collective: all ranks of the partition.
    """
    comm = partition.job_comm
    needed = bound.parameters + bound.pairs + whole * (bound.values + bound.halo)
    total = int(comm.all_sum(np.asarray(needed)))
    available = (
        int(comm.all_min(np.asarray(available_bytes()))) if comm.size > 1 else available_bytes()
    )
    hosts = len(set(comm.all_gather(socket.gethostname())))
    if total > available * hosts:
        raise MemoryLimitError(
            f"a step of this job needs about {total / 2**30:.1f} GiB in all, and {hosts} machine(s)"
            f" have {available / 2**30:.1f} GiB free each; use --recompute, fewer or narrower"
            " layers, fewer negatives, or more machines"
        )
