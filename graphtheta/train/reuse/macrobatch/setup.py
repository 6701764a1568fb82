"""The macrobatches of a job."""

from __future__ import annotations

import numpy as np

from graphtheta.base.console import amount
from graphtheta.base.costs import LIST_BYTES_PER_EDGE
from graphtheta.base.memory import available_bytes
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.strategy.strategy import Strategy
from graphtheta.engine.train.deal import structure
from graphtheta.engine.train.parts import parts_of
from graphtheta.engine.train.supply import groups_of
from graphtheta.engine.view.view import GraphView
from graphtheta.run.job.job import Job
from graphtheta.train.reuse.caching.setup import Caches
from graphtheta.train.reuse.macrobatch.ahead import Macrobatches
from graphtheta.train.reuse.macrobatch.merged import MergedComm

# per row of a view: ids, and numbers in moves
ROW_BYTES = 40
# share of the free memory of a worker that macrobatch=auto may use
SHARE = 0.25


def comm_of_views(job: Job, comm: Comm) -> Comm:
    """The communicator by which workers make views: one that merges messages, if a job makes the
    views of several steps together, or its workers compute views of their own.
    """
    return MergedComm(comm) if job.macrobatch != "1" or job.mode != "cooperative" else comm


def make_macrobatches(
    job: Job,
    strategy: Strategy,
    caches: Caches,
    views_per_step: int,
    independent: bool,
    room: int | None = None,
) -> Macrobatches | None:
    """The macrobatches of a job; None if it has none.

    Args:
        job: The job.
        strategy: Makes the views, from a partition whose ``halo_comm`` is a ``MergedComm``.
        caches: Fetch the features of views that a worker computes alone.
        views_per_step: Views of a step.
        independent: Whether each worker computes views of its own.
        room: Bytes of this worker that macrobatch=auto may use; None for its share of a part of the
            free memory.

    Collective: all ranks of the strategy's partition.
    """
    if job.macrobatch == "1":
        return None
    comm = strategy.partition.halo_comm
    width = strategy.partition.halo_comm.size if independent else 1
    (begin, end), *_ = groups_of(strategy.steps_per_epoch, views_per_step, width)[0]
    makers = strategy.makers(0, begin, end)
    view = (
        structure(parts_of(strategy, 0, begin, end), strategy.layers)
        if independent
        else makers[0]()
    )
    first = bytes_of(view, independent)
    n_bytes = max(int(comm.all_max(np.array(first))), 1)
    line = ""
    if job.macrobatch == "auto":
        workers = int((comm.machines == comm.machines[comm.rank]).sum())
        limit = int(
            comm.all_min(
                np.array(int(SHARE * available_bytes()) // workers if room is None else room)
            )
        )
        groups = sum(map(len, groups_of(strategy.steps_per_epoch, views_per_step, width)))
        size = min(max(limit // n_bytes, 1), groups)
        line = (
            f"macrobatch=auto: {size} of the {groups} groups of views of an epoch are expanded"
            f" together; a group takes about {amount(n_bytes)} of a worker's memory, and they may"
            f" take {amount(limit)}"
        )
    else:
        size = int(job.macrobatch)
    fetched = min(job.fetch_batch or size, size)
    foresight = caches.foresight
    if foresight is not None and size < min(
        foresight.window, sum(map(len, groups_of(strategy.steps_per_epoch, views_per_step, width)))
    ):
        foresight = None
    return Macrobatches(
        strategy=strategy,
        features=caches.features if independent else None,
        views_per_step=views_per_step,
        size=size,
        fetched=fetched,
        foresight=foresight,
        nbytes=size * n_bytes,
        line=line,
    )


def bytes_of(view: GraphView, independent: bool) -> int:
    """About the memory of a view on this worker, with the columns that it holds.

    Args:
        view: The view.
        independent: Whether the worker holds all of it, without the wide columns.
    """
    levels = {id(level): level for level in view.levels}.values()
    total = view.space.n * ROW_BYTES + sum(level.n_edges * LIST_BYTES_PER_EDGE for level in levels)
    return total + view.partition.nbytes() if independent else total
