"""Prepares a job: loads its graph, makes its model, and chooses task and strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from graphtheta.base.described import name_and_options, options_of
from graphtheta.base.logger import logger
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.node_set import NodeSetSampler
from graphtheta.engine.sampling.sampler import Sampler
from graphtheta.engine.strategy.node_sets import NodeSetBatch
from graphtheta.engine.strategy.registry import STRATEGIES, check_complete
from graphtheta.engine.strategy.strategy import ClusterBatch, GlobalBatch, MiniBatch, Strategy
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.view.hop import Layers, depth
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.datasets.dataset import load, parse, preparation
from graphtheta.inference.forward.assembly import Prepared, prepare
from graphtheta.run.embeddings.setup import check_embedding
from graphtheta.run.job.job import Job
from graphtheta.samplers.make_sampler import make_sampler
from graphtheta.samplers.orders.registry import ORDERS
from graphtheta.tasks.kinds.registry import kind_for, readers
from graphtheta.train.loop.make_model import Factory, make_model, refuse_unread
from graphtheta.train.loop.stored_clusters import clusters_of
from graphtheta.train.reuse.staleness.registry import HistoryPolicy, make_exchange, make_history
from graphtheta.train.reuse.staleness.stale_batch import StaleBatch

# keys that have no meaning where a sampler chooses the nodes of a batch
NO_NODE_SETS = frozenset(
    {
        "batch_size",
        "vertex_limit",
        "drop_last",
        "fanout",
        "replace",
        "share_sample",
        "precompute",
        "order",
    }
)
# arguments that every strategy is given
GIVEN = ("partition", "layers", "task", "seed")
# clusters that rank 0 sends to all workers at a time
CLUSTERS_SENT = 1 << 20


def load_graph(job: Job) -> Graph:
    """Load the job's dataset. ``prepare`` handles self loops, whose default depends on the model.

    Raises:
        ConfigError: An option of the dataset and a key of the job differ.
        ConfigError, FormatError, DataError: The dataset cannot be loaded.
    """
    options: dict[str, Any] = {
        "split": job.split,
        "seed": job.seed,
        "symmetric": job.symmetric,
        "largest_component": job.largest_component,
        "normalise_features": job.normalise_features,
        "split_index": job.split_index,
    }
    options |= {n: getattr(job, n) for n in ("train_per_class", "val_per_class") if getattr(job, n)}
    parse(job.dataset, {"self_loops": job.self_loops})
    return load(job.dataset, data_dir=job.data_dir or None, **options)


def choices_of(job: Job) -> dict[str, str]:
    """How ``load_graph`` prepares the dataset; see ``preparation``."""
    return preparation(
        job.dataset, symmetric=job.symmetric, normalise_features=job.normalise_features
    )


def prepare_job(job: Job, graph: Graph, given: Model | Factory | None = None) -> Prepared:
    """Choose the task, make the model, and add or remove edges of the graph as both require.

    Raises:
        ConfigError, DataError: Job, graph and model do not fit together.
    """
    check_embedding(job, graph)
    if graph.x is None and not graph.node_columns and not job.embedding:
        raise DataError(
            f"{graph.name or 'the graph'} has no node features x and no node columns; give it x"
            " (graphtheta import --features COLUMNS), compute some with --structural-features"
            " degree, or learn them with --embedding WIDTH"
        )
    kind = kind_for(job.task, graph)(job)
    refuse_other_tasks(job, kind.name)
    return prepare(job, graph, kind, partial(make_model, job, given=given))


def refuse_other_tasks(job: Job, task: str) -> None:
    """Reject keys that tasks of other names read.

    Raises:
        ConfigError: One of them is not at its default.
    """
    for key, names in readers().items():
        if task not in names:
            refuse_unread(job, {key}, f"task={task}", f"give --task {' or '.join(names)}")


def build_strategy(
    job: Job,
    graph: Graph,
    partition: Partition,
    layers: Layers,
    task: Task,
    precomputed: bool = False,
) -> Strategy:
    """The strategy of a job. Those of the package take their arguments from keys of the job, those
    of users from the text that names them.

    Args:
        job: The job.
        graph: The whole graph.
        partition: This worker's part of it.
        layers: The supersteps of the model.
        task: Gives the targets.
        precomputed: Whether the first layer has totals and is none of ``layers``.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    name, written = name_and_options(job.strategy)
    with comm.agreed():
        strategy_class = STRATEGIES.find(name)
        check_complete(strategy_class)
        made_by: Callable[..., Strategy]
        if strategy_class is GlobalBatch:
            made_by, arguments = _global(job)
        elif strategy_class is MiniBatch:
            made_by, arguments = _mini(job, graph, layers, task, precomputed)
        elif strategy_class is ClusterBatch:
            made_by, arguments = _cluster(job)
        else:
            made_by = strategy_class
            arguments = options_of(strategy_class, job.strategy, "strategy", written, GIVEN)
    if strategy_class is ClusterBatch:
        arguments["clusters"] = _clusters(job, graph, partition)
    strategy = made_by(partition, layers, task, job.seed, **arguments)
    n = strategy.views_of(0)
    if isinstance(strategy, MiniBatch) and job.vertex_limit and comm.rank == 0:
        logger.info(
            f"vertex_limit={job.vertex_limit}: batches of {strategy.batch_size} targets,"
            f" {n} an epoch"
        )
    return strategy


# what makes a strategy, and its arguments beside those of every strategy
Making = tuple[Callable[..., Strategy], dict[str, Any]]


def _global(job: Job) -> Making:
    exchange = make_exchange(job.exchange, job.seed)
    return (GlobalBatch, {}) if exchange is None else (StaleBatch, {"exchange": exchange})


def _mini(job: Job, graph: Graph, layers: Layers, task: Task, precomputed: bool) -> Making:
    history = _history(job)
    sampler = build_sampler(job, depth(layers), precomputed, graph.relation_names)
    if isinstance(sampler, NodeSetSampler):
        if history is not None:
            raise ConfigError(
                f"history={job.history} needs a sampler of neighbours, but sampler={job.sampler}"
                " chooses nodes; choose another --sampler, or drop --history"
            )
        return NodeSetBatch, {"sampler": sampler}
    arguments = {
        "batch_size": job.batch_size or task.n_targets,
        "sampler": sampler,
        "drop_last": job.drop_last,
    }
    if history is not None:
        mode = {"independent": True} if job.mode == "independent" else {}
        return history.open, {**arguments, **mode}
    offered = {"batch_size": arguments["batch_size"]}
    order = None if job.is_default("order") else ORDERS.make(job.order, "order", offered)
    return MiniBatch, {**arguments, "vertex_limit": job.vertex_limit, "order": order}


def _cluster(job: Job) -> Making:
    history = _history(job)
    arguments: dict[str, Any] = {
        "per_batch": job.clusters_per_batch,
        "drop_last": job.drop_last,
    }
    if history is not None:
        return history.open, arguments
    keys = ("boundary_hops", "degrees", "diagonal")
    return ClusterBatch, {**arguments, **{key: getattr(job, key) for key in keys}}


def _history(job: Job) -> HistoryPolicy | None:
    """The history of a job; None if it has none.

    Raises:
        ConfigError: It does not fit the strategy, the mode or macrobatches.
    """
    history = make_history(job.history)
    if history is None:
        return None
    if history.strategy != job.strategy:
        raise ConfigError(
            f"history={job.history} stores values in batches of strategy={history.strategy}, not of"
            f" strategy={job.strategy}; give --strategy {history.strategy}, or another --history"
        )
    if job.mode not in history.modes:
        raise ConfigError(
            f"history={job.history} needs --mode {' or '.join(history.modes)}, and not {job.mode};"
            " drop --mode or --history"
        )
    if job.macrobatch != "1":
        tightened = (
            "an audit may change the knob, which views made ahead would not see"
            if job.audit_limit
            else ""
        )
        if why := history.one_by_one or tightened:
            raise ConfigError(
                f"history={job.history} cannot be combined with macrobatch={job.macrobatch}: {why};"
                " drop --macrobatch"
            )
    return history


def build_sampler(
    job: Job, hops: int, precomputed: bool = False, relations: Sequence[Any] = ()
) -> Sampler | NodeSetSampler | None:
    """The sampler of a job for a model of ``hops`` hops; None for all neighbours.

    Args:
        job: The job.
        hops: Hops to sample.
        precomputed: Whether the model has a further hop, whose totals are stored; the last number
            of ``fanout`` is then not used.
        relations: ``Graph.relation_names``.

    Raises:
        ConfigError: There is no sampler of that name, or it does not read a key that is given.
    """
    fanouts = job.fanouts(hops + precomputed)[:hops][::-1]
    if not fanouts and (job.fanout or job.is_default("sampler")):
        return None
    sampler, taken = make_sampler(
        job.sampler,
        {
            "fanouts": fanouts,
            "seed": job.seed,
            "replace": job.replace,
            "shared": job.share_sample,
            "relation_names": relations,
        },
    )
    if isinstance(sampler, NodeSetSampler):
        refuse_unread(job, NO_NODE_SETS, f"sampler={job.sampler}", "choose another sampler")
        return sampler
    if not fanouts:
        raise ConfigError(
            "sampler configures neighbour sampling, but no fanout is given; give --fanout, or drop"
            " --sampler"
        )
    unread = {"replace": "replace", "shared": "share_sample"}
    refuse_unread(
        job,
        {key for name, key in unread.items() if name not in taken},
        f"sampler={job.sampler}",
        "choose a sampler that reads it",
    )
    return sampler


def _clusters(job: Job, graph: Graph, partition: Partition) -> np.ndarray:
    """Clusters of this worker's masters, [n_masters] int64; rank 0 finds those of all nodes."""
    comm = partition.halo_comm
    masters = partition.masters
    clusters = None
    with comm.agreed():
        if comm.rank == 0:
            clusters = clusters_of(graph, job.cluster_method, job.clusters, job.seed)
    own = np.empty(len(masters), np.int64)
    for begin in range(0, partition.n_nodes, CLUSTERS_SENT):
        inside = (masters >= begin) & (masters < begin + CLUSTERS_SENT)
        own[inside] = comm.broadcast(
            None if clusters is None else clusters[begin : begin + CLUSTERS_SENT]
        )[masters[inside] - begin]
    return own
