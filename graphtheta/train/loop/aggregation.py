"""The aggregation cache of a job: whether the first layer's totals are computed before training.

Source: BatchGNN, https://arxiv.org/abs/2306.13814
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from graphtheta.base.logger import logger
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.precompute import Saving, precompute
from graphtheta.engine.layer.settings import PassSettings, pass_scope, pass_settings
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.view.hop import depth, hops
from graphtheta.errors import ConfigError, UserFunctionError
from graphtheta.inference.forward.assembly import Prepared
from graphtheta.inference.forward.self_loops import check_loops
from graphtheta.ops.autodiff.tape import Parameter
from graphtheta.ops.edge.backend.fused import backend_scope
from graphtheta.samplers.hidden import refuse, why_refused
from graphtheta.train.loop.prepare import build_strategy

# batches that are measured
MEASURED = 4


class Totals(NamedTuple):
    """The partition and the settings of the passes with the totals, and what these save; None
    without totals.
    """

    partition: Partition
    settings: PassSettings
    saving: Saving | None


def passes_of(
    prepared: Prepared, partition: Partition, frozen: frozenset[Parameter] = frozenset()
) -> Totals:
    """The settings of the passes of a job, and the partition that they read.

    Args:
        prepared: Gives job, model and task.
        partition: This worker's part of the graph.
        frozen: Parameters that are not trained.

    Raises:
        ConfigError, DataError, UserFunctionError: The model does not fit the graph, or as
            ``first_totals``.

    Collective: all ranks of the partition.
    """
    segments = prepared.model.checkpoint_segments() if prepared.job.recompute else ()
    settings = PassSettings(frozenset(map(id, segments)), frozen=frozen)
    with pass_scope(settings), backend_scope(prepared.job.backend):
        check_loops(prepared.model, partition, prepared.unknown)
        return first_totals(prepared, partition)


def first_totals(prepared: Prepared, partition: Partition) -> Totals:
    """Compute the totals of the first layer, if the job says so or, with ``precompute=auto``, if
    they make batches smaller.

    Args:
        prepared: Gives job, model and task.
        partition: This worker's part of the graph.

    Raises:
        ConfigError, UserFunctionError: The job asks for totals, and the first layer has none that
            never change.

    Collective: all ranks of the partition.
    """
    job = prepared.job
    without = Totals(partition, pass_settings(), None)
    if job.precompute == "no":
        return without
    rank = partition.halo_comm.rank
    if job.precompute == "auto" and (why := why_refused("precompute", job)):
        if rank == 0:
            logger.info(f"precompute=auto: off, {why}")
        return without
    refuse("precompute", job)
    if job.precompute == "auto" and job.strategy == "mini":
        before, added = _rows(prepared, partition)
        if rank == 0:
            logger.info(
                f"precompute=auto: {'on' if before < added else 'off'}; in the first batches, the"
                f" first layer reads {added:,} rows of neighbours, and would read {before:,} totals"
            )
        if before >= added:
            return without
    try:
        extended, settings, saving = precompute(prepared.model, partition)
        with pass_scope(settings):
            probe(prepared.model, extended)
    except (ConfigError, UserFunctionError) as error:
        if job.precompute != "auto":
            raise
        if rank == 0:
            logger.info(f"precompute=auto: off, {error}")
        return without
    return Totals(extended, settings, replace(saving, sampled=bool(job.fanout)))


def _rows(prepared: Prepared, partition: Partition) -> tuple[int, int]:
    """Rows after the first layer in a few batches of all workers, and the further rows that it
    reads.

    Collective: all ranks of the partition.
    """
    layers = probe(prepared.model, partition).layers
    strategy = build_strategy(
        job=prepared.job,
        graph=prepared.graph,
        partition=partition,
        layers=layers,
        task=prepared.task(partition),
    )
    first = next(
        (i for i, hop in enumerate(hops(layers)) if hop.from_end == depth(layers) - 1), None
    )
    if first is None:
        return 0, 0
    batches = (strategy.batch(0, i) for i in range(min(MEASURED, strategy.steps_per_epoch)))
    counts = [view.levels[first].counts for view in batches]
    return sum(n.rows_out for n in counts), sum(n.rows_in - n.rows_out for n in counts)
