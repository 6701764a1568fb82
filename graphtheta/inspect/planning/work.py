"""What a step computes and sends, worker by worker, in the units of the cost model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any

import numpy as np

from graphtheta.engine.layer.dry_run import Probe, RowOperation
from graphtheta.engine.layer.in_order import turns_of
from graphtheta.engine.layer.traffic import Traffic
from graphtheta.engine.train.doubling import sent
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.engine.view.view import GraphView
from graphtheta.inspect.planning.placement import Placement, Share, moved
from graphtheta.inspect.planning.skeleton import Skeleton
from graphtheta.ops.autodiff.gradients import Gradients
from graphtheta.ops.autodiff.primitive import PRIMITIVES
from graphtheta.ops.autodiff.stored import WIDE
from graphtheta.ops.autodiff.tape import Parameter
from graphtheta.ops.edge.backend.edges import EDGES_PER_BLOCK
from graphtheta.ops.edge.cost import edge_cost, most_pairs, node_cost, pair_cost
from graphtheta.ops.edge.program import Phase
from graphtheta.ops.functions.recurrence import Called
from graphtheta.ops.parallel.buffers import LEAST_BLOCK, LINE
from graphtheta.partitioners.report import OneOf
from graphtheta.train.loop.level_work import is_product

# what the time of a step depends on: first what grows with the graph, then the work of the
# interpreter. "node bytes" are those of elementwise operations and of updates, "drawn" those of
# operations that draw random numbers, "combined" those of all others. A view that is made for a
# step has edges that are listed anew, and levels that nothing was prepared for
PARTS = (
    "product flops",
    "sparse product flops",
    "node bytes",
    "drawn bytes",
    "combined bytes",
    "edge bytes",
    "edges",
    "listed edges",
    "levels",
    "operations",
    "passes",
    "expressions",
    "parameters",
    "steps",
)
(
    PRODUCT,
    SPARSE,
    NODES,
    DRAWN,
    COMBINED,
    EDGES,
    EDGE_COUNT,
    LISTED,
    LEVELS,
    OPERATIONS,
    PASSES,
    EXPRESSIONS,
    PARAMETERS,
    STEPS,
) = range(len(PARTS))
# passes over the parameters in an update: gradient, two slots, value, read and written
UPDATE_PASSES = 8


@dataclass(frozen=True)
class Load:
    """What workers compute, operation by operation, forward and backward.

    Attributes:
        parts: By worker, operation and entry of ``PARTS``, [size, n, parts].
        blocks: Blocks of a kernel of each operation, which threads take, [size, n].
        kernels: Kernels that run one after another in each operation, [n].
    """

    parts: np.ndarray
    blocks: np.ndarray
    kernels: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """Of all workers, by entry of ``PARTS``, [parts]."""
        return np.asarray(self.parts.sum(axis=(0, 1)))


@dataclass(frozen=True)
class ViewWork:
    """A view, forward and backward, on every worker.

    Attributes:
        load: What each worker computes.
        alone: What one worker computes if the view is its own.
        sent, messages: Bytes and messages of halo moves, [size] int64.
        shares: The levels of the summing supersteps, in their order.
        nodes: Rows of the view by owner, [size].
        dry_run: Dry run of the model over levels of this size.
        searched: Whether building the view lists its edges; the whole graph is used as it is.
    """

    load: Load
    alone: Load
    sent: np.ndarray
    messages: np.ndarray
    shares: list[Share]
    nodes: np.ndarray
    dry_run: Probe
    searched: bool


def work_of(skeleton: Skeleton, view: GraphView, placement: Placement) -> ViewWork:
    """Count a view.

    Args:
        skeleton: The job.
        view: One of its views on one worker.
        placement: Divides the view.
    """
    levels = {id(level): placement.share(view, level) for level in view.levels}
    pairs = None if view.pairs is None else placement.share(view, view.pairs)
    return divided(
        skeleton=skeleton,
        shares=[levels[id(level)] for level in view.levels],
        pairs=pairs,
        nodes=placement.owned(view.space.gid),
        searched=view.rows is not None,
    )


def divided(
    skeleton: Skeleton, shares: list[Share], pairs: Share | None, nodes: np.ndarray, searched: bool
) -> ViewWork:
    """Count a view that is divided among workers.

    Args:
        skeleton: The job.
        shares: The levels of the summing supersteps, in their order; equal levels may be one
            object.
        pairs: Scored pairs, if there are any.
        nodes: Rows of the view by owner, [size].
        searched: Whether building the view lists its edges.
    """
    dry_run = skeleton.traced([share.counts for share in shares])
    summing = iter(shares)
    by_step = {}
    for number, step in enumerate(dry_run.supersteps):
        if step.program is not None and step.made_by is not None:
            share = next(summing) if step.made_by.sum is not None else pairs
            assert share is not None
            by_step[number] = share
    sent = messages = np.zeros(len(nodes), np.int64)
    for again, entries in ((False, dry_run.traffic), (True, dry_run.again)):
        for entry in entries:
            part = moved(entry, again, by_step[entry.superstep])
            sent, messages = sent + part[0], messages + part[1]
    loads = _loads(skeleton, dry_run, by_step, nodes)
    for share in {id(share): share for share in shares}.values() if searched else ():
        loads.add({LISTED: share.edges, LEVELS: 1})
    if searched and copies_features(skeleton, dry_run):
        # rows of the features are copied into the frame of the view
        loads.add(
            {NODES: 2 * skeleton.feature_bytes * nodes},
            skeleton.feature_bytes * nodes / np.dtype(skeleton.job.dtype).itemsize / LEAST_BLOCK,
        )
    return ViewWork(*loads.loads(), sent, messages, shares, nodes, dry_run, searched)


def _loads(
    skeleton: Skeleton, dry_run: Probe, by_step: dict[int, Share], nodes: np.ndarray
) -> _Loads:
    """What each worker computes."""
    itemsize = np.dtype(skeleton.job.dtype).itemsize
    loads = _Loads(len(nodes))
    _add_operations(loads=loads, skeleton=skeleton, dry_run=dry_run, by_step=by_step, nodes=nodes)
    for again, entries in ((False, dry_run.traffic), (True, dry_run.again)):
        phases_of: dict[int, Iterator[Phase]] = {}
        for entry in entries:
            step = dry_run.supersteps[entry.superstep]
            assert step.program is not None
            phase = next(phases_of.setdefault(entry.superstep, iter(step.program.phases)))
            edges = by_step[entry.superstep].edges
            _add_sweeps(
                loads=loads, phase=phase, entry=entry, edges=edges, nodes=nodes, again=again
            )
            for name, a in step.in_order(phase).items():
                for call in turns_of(a, name, phase).called:
                    cost = node_cost(PRIMITIVES.get(call.name), call.inputs, call.outputs, itemsize)
                    # the steps run forward, again for backward, and backward
                    if is_product(call):
                        loads.add({PRODUCT: (1 if again else 4) * cost.flops * edges})
                    else:
                        loads.add({_kind(call): (1 if again else 3) * cost.bytes * edges})
    loads.add({NODES: UPDATE_PASSES * dry_run.parameters * itemsize})
    loads.add({OPERATIONS: len(dry_run.operations), PARAMETERS: len(skeleton.order), STEPS: 1})
    return loads


def _add_operations(
    loads: _Loads,
    skeleton: Skeleton,
    dry_run: Probe,
    by_step: dict[int, Share],
    nodes: np.ndarray,
) -> None:
    """Add the operations on rows of nodes and pairs, forward and backward."""
    itemsize = np.dtype(skeleton.job.dtype).itemsize
    first = True
    learned = bool(skeleton.job.embedding)
    for o in dry_run.operations:
        if o.name == "gather":
            continue
        rows = _rows(o, by_step, nodes)
        cost = node_cost(PRIMITIVES.get(o.name), o.inputs, o.outputs, itemsize)
        blocks = max(map(prod, [o.inputs[0], *o.outputs])) * rows / LEAST_BLOCK
        # before the first product values are features, which may be sparse, and need no gradient
        # unless they are learned
        stored = skeleton.density if first else 1.0
        if is_product(o):
            products = 2 if first and not learned else 3
            loads.add(
                {SPARSE if stored < 1 else PRODUCT: stored * products * cost.flops * rows},
                blocks,
                products,
            )
            first = False
        else:
            passes = 1 if first and not learned else 2
            loads.add({_kind(o): stored * passes * cost.bytes * rows}, blocks, passes)


def _add_sweeps(
    loads: _Loads, phase: Phase, entry: Traffic, edges: np.ndarray, nodes: np.ndarray, again: bool
) -> None:
    """Add the sweeps of a phase over its edges, and its products of pairs.

    Args:
        entry: The phase in the dry run.
        edges: Edges of each worker, [size].
        nodes: Rows of the view by owner, [size].
        again: Whether it only runs forward, once more.
    """
    each = edge_cost(phase)
    blocks = edges / EDGES_PER_BLOCK
    sweeps = (1 if again or not entry.learned else 2) + entry.widths.passes
    if phase.grouped:
        product = pair_cost(phase)
        pairs = most_pairs(phase, nodes, edges)
        # a gradient of the matrices, and one of the values where they need it
        products = 1 if again else 2 + entry.learned
        loads.add({PRODUCT: products * product.flops * pairs}, blocks, products)
    loads.add({EDGES: sweeps * each.bytes * edges, EDGE_COUNT: sweeps * edges}, blocks, sweeps)
    loads.add({PASSES: sweeps, EXPRESSIONS: sweeps * len(phase.order)})


def copies_features(skeleton: Skeleton, dry_run: Probe) -> bool:
    """Whether a view copies the rows of the features: sums, fused loops and, if they are wide,
    products read them where they are stored, other operations copies.
    """
    first = next(iter(dry_run.operations), None)
    if first is None or first.name == "gather":
        return False
    least = WIDE if is_product(first) else LINE if fuses(first) else inf
    return skeleton.density < 1 or skeleton.feature_bytes < least


def fuses(o: RowOperation) -> bool:
    """Whether an operation is elementwise, so that a run of them is computed at once."""
    primitive = PRIMITIVES.get(o.name)
    return primitive is not None and (primitive.scalar is not None or bool(primitive.traits.lazy))


class _Loads:
    """Operations that are added one after another."""

    def __init__(self, size: int):
        self._size = size
        self._each: list[tuple[np.ndarray, np.ndarray, int]] = []

    def add(self, work: dict[int, Any], blocks: Any = 0, kernels: int = 1) -> None:
        """Add an operation: work by entry of ``PARTS``, which each worker does or which they share,
        [size], in blocks of some kernels.
        """
        # the last row is that of a worker with a view of its own, which does alone what others
        # share
        parts = np.zeros((self._size + 1, len(PARTS)))
        for part, amount in work.items():
            parts[:, part] = np.append(np.broadcast_to(amount, self._size), np.sum(amount))
        self._each.append(
            (
                parts,
                np.append(np.broadcast_to(blocks, self._size), np.sum(blocks)).astype(float),
                kernels,
            )
        )

    def loads(self) -> tuple[Load, Load]:
        """What each worker computes, and what one with a view of its own does."""
        parts, blocks, kernels = zip(*self._each, strict=True)
        work = np.stack(parts, axis=1)
        at = np.stack(blocks, axis=1)
        every, alone = (
            Load(work[rows], at[rows], np.array(kernels)) for rows in (slice(-1), slice(-1, None))
        )
        return every, alone


def _kind(o: RowOperation | Called) -> int:
    """The entry of ``PARTS`` for the bytes of an operation on node values."""
    prim = PRIMITIVES.get(o.name)
    if prim is not None and prim.traits.random:
        return DRAWN
    return NODES if prim is not None and prim.scalar is not None else COMBINED


def _rows(o: RowOperation, by_step: dict[int, Share], nodes: np.ndarray) -> np.ndarray:
    """Rows of each worker that an operation computes."""
    before = [number for number in by_step if number <= o.superstep]
    if not before:
        return nodes
    share = by_step[max(before)]
    return share.rows_in if o.stage == "transform" else share.rows_out


def reduced(
    order: Sequence[Parameter], parameters: list[Parameter], size: int
) -> tuple[np.ndarray, np.ndarray]:
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
