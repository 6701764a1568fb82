"""What a step computes and sends, worker by worker, in the units of the cost model."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from graphtheta.engine.layer.dry_run import Operation, Probe
from graphtheta.engine.train.doubling import sent
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.engine.view.view import GraphView
from graphtheta.ops.autodiff.buffers import BLOCK
from graphtheta.ops.autodiff.primitive import PRIMITIVES
from graphtheta.ops.autodiff.tape import Gradients, Parameter
from graphtheta.ops.edge.cost import edge_cost, most_pairs, node_cost, pair_cost
from graphtheta.partitioners.report import OneOf
from graphtheta.planning.placement import Placement, Share, moved
from graphtheta.planning.skeleton import Skeleton

# what the time of a step depends on
PARTS = ("product flops", "sparse product flops", "node bytes", "edge bytes", "edges", "operations", "divided operations")
PRODUCT, SPARSE, NODES, EDGES, EDGE_COUNT, OPERATIONS, DIVIDED = range(len(PARTS))
# the interpreter's share of a phase of a superstep and of the loss and update of a step, in operations
PHASE, STEP = 4, 10
# passes over the parameters in an update: gradient, two slots, value, read and written
UPDATE_PASSES = 8


@dataclass(frozen=True)
class Work:
    """A view, forward and backward, on every worker.

    Attributes:
        parts: By worker, of operations that use one thread or all threads, and entry of ``PARTS``,
            [size, 2, parts].
        sent, messages: Bytes and messages of halo moves, [size] int64.
        shares: The levels of the summing supersteps, in their order.
        nodes: Rows of the view by owner, [size].
        found: Dry run of the model over levels of this size.
        searched: Whether building the view lists its edges; the whole graph is used as it is.
    """

    parts: np.ndarray
    sent: np.ndarray
    messages: np.ndarray
    shares: list[Share]
    nodes: np.ndarray
    found: Probe
    searched: bool


def work_of(skeleton: Skeleton, view: GraphView, placement: Placement) -> Work:
    """Count a view.

    Args:
        skeleton: The job.
        view: One of its views on one worker.
        placement: Divides the view.
    """
    levels = {id(level): placement.share(view, level) for level in view.levels}
    pairs = None if view.pairs is None else placement.share(view, view.pairs)
    return divided(skeleton, [levels[id(level)] for level in view.levels], pairs, placement.owned(view.space.gid), view.rows is not None)


def divided(skeleton: Skeleton, shares: list[Share], pairs: Share | None, nodes: np.ndarray, searched: bool) -> Work:
    """Count a view that is divided among workers.

    Args:
        skeleton: The job.
        shares: The levels of the summing supersteps, in their order; equal levels may be one object.
        pairs: Scored pairs, if there are any.
        nodes: Rows of the view by owner, [size].
        searched: Whether building the view lists its edges.
    """
    found = skeleton.traced([share.counts for share in shares])
    summing, by_step = iter(shares), {}
    for number, step in enumerate(found.supersteps):
        if step.program is not None and step.made_by is not None:
            share = next(summing) if step.made_by.sum is not None else pairs
            assert share is not None
            by_step[number] = share
    sent = messages = np.zeros(len(nodes), np.int64)
    for again, entries in ((False, found.traffic), (True, found.again)):
        for entry in entries:
            part = moved(entry, again, by_step[entry.superstep])
            sent, messages = sent + part[0], messages + part[1]
    parts = _parts(skeleton, found, by_step, nodes)
    if searched and copies_features(found):
        # rows of the features are copied into the frame of the view
        parts.add(NODES, 2 * skeleton.feature_bytes * nodes, skeleton.feature_bytes * nodes // np.dtype(skeleton.job.dtype).itemsize)
    return Work(parts.found, sent, messages, shares, nodes, found, searched)


def _parts(skeleton: Skeleton, found: Probe, by_step: dict[int, Share], nodes: np.ndarray) -> _Parts:
    """What each worker computes."""
    itemsize, parts = np.dtype(skeleton.job.dtype).itemsize, _Parts(len(nodes))
    first, learned = True, bool(skeleton.job.embedding)
    for o in found.operations:
        if o.name == "gather":
            continue
        rows, cost = _rows(o, by_step, nodes), node_cost(PRIMITIVES.get(o.name), o.inputs, o.outputs, itemsize)
        numbers = max(map(prod, [o.inputs[0], *o.outputs])) * rows
        # before the first product values are features, which may be sparse, and need no gradient unless they are learned
        stored = skeleton.density if first else 1.0
        if is_product(o):
            parts.add(SPARSE if stored < 1 else PRODUCT, stored * (2 if first and not learned else 3) * cost.flops * rows, numbers)
            first = False
        else:
            parts.add(NODES, stored * cost.bytes * rows, numbers)
    for again, entries in ((False, found.traffic), (True, found.again)):
        numbers_of: dict[int, int] = {}
        for entry in entries:
            program, at = found.supersteps[entry.superstep].program, numbers_of.get(entry.superstep, 0)
            assert program is not None
            numbers_of[entry.superstep] = at + 1
            each, edges = edge_cost(program.phases[at]), by_step[entry.superstep].edges
            sweeps = (1 if again or not entry.learned else 2) + entry.widths.passes
            if program.phases[at].grouped:
                product, pairs = pair_cost(program.phases[at]), most_pairs(program.phases[at], nodes, edges)
                # a gradient of the matrices, and one of the values where they need it
                parts.add(PRODUCT, (1 if again else 2 + entry.learned) * product.flops * pairs, product.bytes // itemsize * pairs)
            parts.add(EDGES, sweeps * each.bytes * edges, each.flops * edges)
            parts.add(EDGE_COUNT, sweeps * edges, each.flops * edges)
            parts.add(OPERATIONS, PHASE * sweeps)
    parts.add(NODES, UPDATE_PASSES * found.parameters * itemsize)
    parts.add(OPERATIONS, len(found.operations) + STEP)
    return parts


def copies_features(found: Probe) -> bool:
    """Whether a view copies the rows of the features: a sum reads them where they are stored, other operations copies."""
    first = next((o.name for o in found.operations), "gather")
    return first != "gather"


class _Parts:
    """Sums of work by worker, threads and part."""

    def __init__(self, size: int):
        self.found = np.zeros((size, 2, len(PARTS)))

    def add(self, part: int, work: Any, numbers: Any = 0) -> None:
        """Add work of an operation, of all workers or [size], that computes so many numbers: in blocks on all threads, or in one."""
        threaded = np.broadcast_to(np.asarray(numbers) > BLOCK, len(self.found))
        self.found[:, 0, part] += np.where(threaded, 0, work)
        self.found[:, 1, part] += np.where(threaded, work, 0)
        # giving blocks to threads takes time
        self.found[:, 1, DIVIDED] += threaded


def is_product(o: Operation) -> bool:
    """Whether an operation multiplies matrices."""
    prim = PRIMITIVES.get(o.name)
    return prim is not None and prim.traits.work == "contraction"


def _rows(o: Operation, by_step: dict[int, Share], nodes: np.ndarray) -> np.ndarray:
    """Rows of each worker that an operation computes."""
    before = [number for number in by_step if number <= o.superstep]
    if not before:
        return nodes
    share = by_step[max(before)]
    return share.rows_in if o.stage == "transform" else share.rows_out


def reduced(order: Sequence[Parameter], parameters: list[Parameter], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and messages that each worker sends to sum the gradients of a step, [size] int64 each.

    Args:
        order: Parameters in the order in which their gradients are final.
        parameters: All that are trained.
        size: Number of workers.
    """
    # no other worker receives what is sent, or sends anything, so the sums are meaningless
    with np.errstate(all="ignore"):
        total = GradientSum(OneOf(size), parameters)
        for p in order:
            total.add(p, None)
        total.finish(Gradients())
    each = [sent(len(one.total), one.total.itemsize, size) for one in total.sums]
    n_bytes, messages = np.sum(each, axis=0) if each else np.zeros((2, size), np.int64)
    return n_bytes, messages
