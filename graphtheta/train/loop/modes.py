"""Cooperative or independent: what each mode computes and sends for a group of views, and which is
faster.

Both modes compute the same views. Cooperative workers compute one after another together, and wait
for each other's slowest at every view. Independent workers compute one view each, and the group
takes as long as its largest view. The estimate is in multiply-adds, like the order of products and
sums, from counts over all workers, so every worker decides alike:

    cooperative   for each view the largest work of a worker + MOVED x the most numbers it sends
                  + PHASE x phases
    independent   the largest work of a view + DEALT x its edges + MOVED x the most numbers a
                  worker sends + PHASE x phases + GROUP
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graphtheta.base.costs import DEALT, GROUP, MOVED, PASSES, PHASE
from graphtheta.engine.layer.dry_run import Probe
from graphtheta.engine.layer.traffic import Widths
from graphtheta.engine.strategy.strategy import Strategy
from graphtheta.engine.train.deal import dealt_bytes
from graphtheta.engine.train.parts import sweeps_of
from graphtheta.engine.view.level import Level
from graphtheta.engine.view.view import GraphView
from graphtheta.train.loop.level_work import level_work, row_work, steps_of


@dataclass(frozen=True)
class ModeCounts:
    """The first group of views of a run, summed over all workers.

    Attributes:
        views: Views of the group.
        nodes, edges: Nodes that are computed, and edges that hops use, in independent mode.
        unique_nodes, unique_edges: The same without those that several views have in common.
        sent: Bytes that each mode sends.
        cost: Estimated time of each mode, in multiply-adds.
    """

    views: int
    nodes: int
    edges: int
    unique_nodes: int
    unique_edges: int
    sent: dict[str, int]
    cost: dict[str, float]

    @property
    def faster(self) -> str:
        """The mode with the shorter estimated time; "cooperative" if both are equal."""
        return min(("cooperative", "independent"), key=lambda mode: self.cost[mode])

    def __str__(self) -> str:
        nodes, edges = (
            f"{n:,} {what} ({1 - unique / max(n, 1):.0%} duplicates)"
            for n, unique, what in (
                (self.nodes, self.unique_nodes, "nodes"),
                (self.edges, self.unique_edges, "edges"),
            )
        )
        sent, cost = ([of["independent"], of["cooperative"]] for of in (self.sent, self.cost))
        return (
            f"first {self.views} view(s): {nodes}, {edges}; independent workers send"
            f" {sent[0] / 2**20:.2f} MiB, cooperative ones {sent[1] / 2**20:.2f} MiB, and the"
            f" estimated times are {cost[0] / max(cost[1], 1):.2f} : 1"
        )


def count_modes(strategy: Strategy, probe: Probe, views: int, itemsize: int) -> ModeCounts:
    """Build the first group of views of a run, and count what each mode does with it.

    Args:
        strategy: Makes the views.
        probe: Dry run of the model.
        views: Views of a step.
        itemsize: Bytes of a number.

    Collective: all ranks of the partition.
    """
    comm = strategy.partition.halo_comm
    group = [
        make() for make in strategy.makers(0, 0, min(views, comm.size, strategy.steps_per_epoch))
    ]
    own = [_counts(view, probe, itemsize) for view in group]
    # [workers, views, (work, edges, bytes)], and of each worker what it sends to deal the views
    each = np.array(comm.all_gather(np.array(own, np.float64)))
    dealt = np.array(comm.all_gather(dealt_bytes(group, strategy.layers)))
    work, edges, sent = np.moveaxis(each, 2, 0)
    phases = PHASE * sum(
        len(step.program.phases) for step in probe.supersteps if step.program is not None
    )
    cost = {
        "cooperative": float(
            np.sum(work.max(axis=0) + MOVED * sent.max(axis=0) / itemsize + phases)
        ),
        "independent": float(
            np.max(work.sum(axis=0) + DEALT * edges.sum(axis=0))
            + MOVED * dealt.max() / itemsize
            + phases
            + GROUP
        ),
    }
    nodes, used, unique_nodes, unique_edges = comm.all_sum(
        np.array(_unique(group), np.int64)
    ).tolist()
    return ModeCounts(
        views=len(group),
        nodes=nodes,
        edges=used,
        unique_nodes=unique_nodes,
        unique_edges=unique_edges,
        sent={"cooperative": int(sent.sum()), "independent": int(dealt.sum())},
        cost=cost,
    )


def _unique(group: list[GraphView]) -> tuple[int, int, int, int]:
    """Nodes and edges of all views on this worker, and those without what several views have in
    common.
    """
    nodes = np.concatenate([view.space.gid for view in group])
    # by sweep, the edges of every view
    used = [
        [np.concatenate([np.zeros(0, np.int64), *(s.stored for s in p.selections)]) for p in same]
        for same in zip(*map(sweeps_of, group), strict=True)
    ]
    return (
        len(nodes),
        sum(len(x) for same in used for x in same),
        len(np.unique(nodes)),
        sum(len(np.unique(np.concatenate(same))) for same in used),
    )


def _counts(view: GraphView, probe: Probe, itemsize: int) -> tuple[float, int, int]:
    """Multiply-adds, edges, and bytes sent of this worker's part of a view."""
    work = 0.0
    sent = 0
    for number, level, widths in _levels(view, probe):
        work += level_work(
            probe=probe,
            superstep=number,
            widths=widths,
            itemsize=itemsize,
            rows_in=level.n_in,
            rows_out=level.n_out,
            edges=level.n_edges,
        )
        sent += sum(sum(each.sent(level)) for each in widths)
    between = sum(row_work(probe, number, "other") for number in range(-1, len(probe.supersteps)))
    return (
        PASSES * (work + between * view.n_targets),
        sum(level.n_edges for level in view.levels),
        sent,
    )


def _levels(view: GraphView, probe: Probe) -> Iterator[tuple[int, Level, list[Widths]]]:
    """Number, level and widths of the phases of each superstep that runs over a level."""
    levels = iter(view.levels)
    for step in steps_of(probe):
        level = next(levels) if step.sums else view.pairs
        assert level is not None
        yield step.number, level, step.widths
