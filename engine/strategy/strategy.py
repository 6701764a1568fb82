"""Strategies: sources of views, which alone determine the nodes and edges of each batch.

Batches are made by keyed permutations of global numbers, so they are the same for every number of
workers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from graphtheta.base.rng import Permutation, Purpose, key
from graphtheta.errors import ConfigError, DataError

from ..partition.partition import MASTER, MIRROR, Partition
from ..sampling.cluster_nodes import NodesByCluster
from ..sampling.sampler import Checked, PreparedSampler, Sampler, Timed, TimedPairs
from ..view.expand import Frame, all_passes, induced, k_hop_nodes, k_hop_view
from ..view.hop import Layers, depth, hops
from ..view.view import GraphView, global_view
from .neighbourhoods import Searched, neighbourhoods
from .order import BatchOrder, Order, RandomOrder, TimeOrder, groups_of_size
from .task import NodeTask, Seeds, Task

# a batch size is adapted to a number of nodes by measuring some batches, a few times; a change by a
# smaller share ends it
MEASURED = 4
MOST_ROUNDS = 12
CLOSE = 0.02


class Strategy(ABC):
    """A source of views.

    Args:
        partition: The partition that views refer to.
        layers: The supersteps of the model.
        task: Gives the targets.
        seed: Seed of the order of batches.

    Raises:
        DataError: There are no targets.

    Attributes:
        name: Name in a job.
        alone: Whether view i is made and computed by worker i % n of n, who needs no other one for
            its structure.
    """

    name: ClassVar[str] = ""
    alone = False

    def __init__(self, partition: Partition, layers: Layers, task: Task, seed: int = 0):
        if not task.n_targets:
            raise DataError(
                "the training set is empty; give the graph a mask of training nodes (train) or"
                " edges (edge_train), or choose a split"
            )
        self.partition = partition
        self.layers = layers
        self.task = task
        self.seed = seed

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int:
        """Number of views of the first epoch; of every one, unless ``views_of`` differs."""

    def views_of(self, epoch: int) -> int:
        """Number of views of an epoch.

        Collective: all ranks of the partition, when it is first asked for an epoch.
        """
        return self.steps_per_epoch

    def views_before(self, epoch: int) -> int:
        """Number of views of all epochs before one; collective as ``views_of``."""
        return epoch * self.steps_per_epoch

    @abstractmethod
    def batch(self, epoch: int, i: int) -> GraphView:
        """View i of an epoch.

        Collective: all ranks of the partition.
        """

    def makers(self, epoch: int, first: int, last: int) -> list[Callable[[], GraphView]]:
        """Functions that make views ``first`` to ``last`` - 1 of an epoch, each in a work item of
        its own.

        Collective: all ranks of the partition.
        """
        return [partial(self.batch, epoch, i) for i in range(first, last)]

    def search(self, epoch: int, first: int, last: int) -> Searched | None:
        """This worker's part of views ``first`` to ``last`` - 1 of an epoch, found by one search;
        None if views must be made one by one.

        ``makers`` has been called for these views.

        Collective: all ranks of the partition.
        """
        return None

    def settle(self) -> None:  # noqa: B027
        """End what views have begun; called at the end of each call of ``Training.run``.

        Collective: all ranks of the partition.
        """

    def views(self, epoch: int) -> Iterator[GraphView]:
        """The views of one epoch.

        Collective: all ranks of the partition.
        """
        for i in range(self.views_of(epoch)):
            yield self.batch(epoch, i)

    def _step(self, epoch: int, i: int) -> int:
        return self.views_before(epoch) + i


def whole(partition: Partition, layers: Layers, seeds: Seeds | None = None) -> GraphView:
    """The view of the whole graph, with the pairs and without the excluded edges of ``seeds``.

    Collective: all ranks of the partition.
    """
    if seeds is None or seeds.excluded is None:
        view = global_view(partition, layers)
    else:
        view = induced(
            partition, np.ones(partition.n_masters, bool), layers, excluded=seeds.excluded
        )
    return with_pairs(view, seeds)


def with_pairs(view: GraphView, seeds: Seeds | None) -> GraphView:
    """The view with the level of its pairs."""
    if seeds is None or seeds.pairs is None:
        return view
    if view.rows is None:
        return replace(view, pairs=seeds.pairs.level(None, view.n_targets))
    with Frame(view.partition, view.rows) as frame:
        return replace(view, pairs=seeds.pairs.level(frame.row_of, view.n_targets))


class GlobalBatch(Strategy):
    """Every node, every edge, one step an epoch."""

    name: ClassVar[str] = "global"

    def __init__(self, partition: Partition, layers: Layers, task: Task, seed: int = 0):
        super().__init__(partition, layers, task, seed)
        self._view: GraphView | None = None

    @property
    def steps_per_epoch(self) -> int:
        return 1

    def batch(self, epoch: int, i: int) -> GraphView:
        if self._view is None:
            seeds = self.task.seeds(np.arange(len(self.task.ids)), epoch)
            view = whole(self.partition, self.layers, seeds)
            # a view with excluded edges depends on the epoch and is not stored
            if seeds.excluded is not None:
                return view
            # features in files are copied once, not in each step
            view.node.holds = True
            self._view = view
        return self._view


def check_batches(n: int, there: str, size: str) -> None:
    """Refuse to leave out the only batch of an epoch.

    Args:
        n: Batches of an epoch without the last, smaller one.
        there: What there is to make batches of.
        size: Key and value of the size of a batch.

    Raises:
        ConfigError: There is no batch.
    """
    if n < 1:
        raise ConfigError(
            f"drop_last leaves out the only batch of an epoch, since {size} is more than the"
            f" {there}; give a smaller {size.partition('=')[0]}, or leave drop_last off"
        )


class MiniBatch(Strategy):
    """Batches of targets with their k-hop neighbourhoods, complete or sampled.

    Args:
        batch_size: Targets per batch over all workers; the last batch of an epoch may be smaller.
        sampler: None for no sampling.
        vertex_limit: If above 0, ``batch_size`` is only a first guess, and is changed so that a
            view holds about this many nodes over all workers.
        order: The order of targets; None for a random one, or of targets with times for random
            batches of consecutive targets.
        drop_last: Leave out the last batch of an epoch if it has fewer targets.

    Raises:
        ConfigError: An argument is out of range, ``drop_last`` leaves out the only batch, or the
            sampler does not fit the model or the targets.

    Attributes:
        batch_size: Targets per batch, the same for the whole run.
    """

    name: ClassVar[str] = "mini"

    def __init__(
        self,
        partition: Partition,
        layers: Layers,
        task: Task,
        seed: int = 0,
        *,
        batch_size: int,
        sampler: Sampler | None = None,
        vertex_limit: int = 0,
        order: Order | None = None,
        drop_last: bool = False,
    ):
        super().__init__(partition, layers, task, seed)
        if batch_size < 1:
            raise ConfigError(f"batch_size: got {batch_size}, expected at least 1")
        if sampler is not None and sampler.hops not in (None, depth(layers)):
            raise ConfigError(
                f"the sampler is made for {sampler.hops} hop(s), but the model has {depth(layers)};"
                " make a sampler with one fanout for each hop of the model"
            )
        if isinstance(sampler, Timed) and not isinstance(task, NodeTask):
            if task.cutoffs is None or not isinstance(sampler, TimedPairs):
                raise ConfigError(
                    f"sampler={sampler.name}: the targets of this task have no times that it knows;"
                    " give --task node, or another --sampler, such as neighbour"
                )
            sampler = sampler.of_pairs()
        if isinstance(sampler, Checked):
            sampler.check(partition)
        self.sampler = sampler
        # samplers that prepare do so for views with all edges of their rows
        if isinstance(sampler, PreparedSampler) and not task.excludes:
            for relation, reverse in all_passes(partition, hops(layers)).values():
                sampler.prepare(partition, relation, reverse)
        by_time = order is None and task.cutoffs is not None
        positions = (order or (TimeOrder() if by_time else RandomOrder())).positions(
            partition, task, seed
        )

        def batches(size: int, drop_last: bool = False) -> BatchOrder:
            return BatchOrder(
                positions=positions,
                n_targets=task.n_targets,
                batch_size=size,
                shuffle=seed if by_time else None,
                drop_last=drop_last,
            )

        # batches that are measured may be smaller than a first guess of their size
        self._order = batches(batch_size)
        self.batch_size = batch_size
        for _ in range(MOST_ROUNDS if vertex_limit else 0):
            wanted = min(
                max(round(self.batch_size * vertex_limit / self._nodes()), 1), task.n_targets
            )
            if abs(wanted - self.batch_size) <= CLOSE * self.batch_size:
                break
            self._order = batches(wanted)
            self.batch_size = wanted
        if drop_last:
            self._order = batches(self.batch_size, drop_last)
            check_batches(
                self._order.n_batches, f"{task.n_targets} targets", f"batch_size={self.batch_size}"
            )

    def _nodes(self) -> float:
        """Mean number of nodes, over all workers, of the first full batches of the first epoch.

        Collective: all ranks of the partition.
        """
        n = min(max(self.task.n_targets // self.batch_size, 1), MEASURED)
        return (
            int(
                self.partition.halo_comm.all_sum(
                    np.array(sum(self.batch(0, i).space.n for i in range(n)))
                )
            )
            / n
        )

    @property
    def steps_per_epoch(self) -> int:
        return self._order.n_batches

    def makers(self, epoch: int, first: int, last: int) -> list[Callable[[], GraphView]]:
        # not by the first of several work items
        self._order.begin(epoch)
        return super().makers(epoch, first, last)

    def targets(self, epoch: int, i: int) -> np.ndarray:
        """Which of this worker's targets are in a batch: their positions in ``task.ids``,
        ascending, [k] int64.

        Collective: all ranks of the partition, unless the epoch has begun.
        """
        return self._order.own(epoch, i)

    def search(self, epoch: int, first: int, last: int) -> Searched | None:
        # a subclass may make other views
        if type(self).batch is not MiniBatch.batch:
            return None
        targets = [self.targets(epoch, i) for i in range(first, last)]
        steps = [self._step(epoch, i) for i in range(first, last)]
        return neighbourhoods(
            partition=self.partition,
            layers=self.layers,
            task=self.task,
            own=targets,
            steps=steps,
            sampler=self.sampler,
        )

    def batch(self, epoch: int, i: int) -> GraphView:
        step = self._step(epoch, i)
        seeds = self.task.seeds(self.targets(epoch, i), step)
        view = k_hop_view(
            self.partition,
            seeds.nodes,
            self.layers,
            sampler=self.sampler,
            excluded=seeds.excluded,
            step=step,
            cutoff=seeds.cutoff,
        )
        return with_pairs(view, seeds)


class ClusterBatch(Strategy):
    """A few clusters at a time, with all edges inside and between them.

    Args:
        clusters: Cluster of each master of this worker, [n_masters] int64, numbered from 0.
        per_batch: Clusters per batch (stochastic multiple partitions of Cluster-GCN).
        boundary_hops: Number of hops by which a batch is extended beyond its clusters; values of
            the added nodes are computed, but they are not targets.
        degrees: "graph" keeps the degrees of the whole graph, "view" counts the edges inside the
            batch, so that layers normalise by batch (Cluster-GCN).
        diagonal: Self loops weigh 1 + diagonal times as much (the diagonal enhancement of
            Cluster-GCN).
        drop_last: Leave out the last batch of an epoch if it has fewer clusters.

    Raises:
        ConfigError: An option is out of range, or ``drop_last`` leaves out the only batch.
        DataError: No cluster holds a training target.

    Source: Cluster-GCN, https://arxiv.org/abs/1905.07953
    """

    name: ClassVar[str] = "cluster"

    def __init__(
        self,
        partition: Partition,
        layers: Layers,
        task: Task,
        seed: int = 0,
        *,
        clusters: np.ndarray,
        per_batch: int = 1,
        boundary_hops: int = 0,
        degrees: str = "graph",
        diagonal: float = 0.0,
        drop_last: bool = False,
    ):
        super().__init__(partition, layers, task, seed)
        if boundary_hops not in (0, 1, 2):
            raise ConfigError(f"boundary_hops: got {boundary_hops}, expected 0, 1 or 2")
        if degrees not in ("graph", "view"):
            raise ConfigError(f"degrees: got {degrees!r}, expected 'graph' or 'view'")
        self.clusters = clusters
        self.boundary_hops = boundary_hops
        self.degrees = degrees
        self.diagonal = diagonal
        n = int(partition.halo_comm.all_max(np.array(clusters.max(initial=-1)))) + 1
        self._touched = task.at_nodes(clusters)
        # a batch without targets would be a step without a gradient
        inside = self._touched[(self._touched == self._touched[:, :1]).all(axis=1), 0]
        self._useful = np.flatnonzero(partition.halo_comm.all_sum(np.bincount(inside, minlength=n)))
        self._n_clusters = n
        self._nodes = NodesByCluster(partition, clusters, n) if task.draws_nodes else None
        if not len(self._useful):
            raise DataError(
                "no cluster holds a training target, so there is nothing to train on; an edge or a"
                " link counts only if both its ends lie in one cluster: use fewer and larger"
                " clusters, or another strategy"
            )
        if not 1 <= per_batch <= n:
            raise ConfigError(
                f"clusters_per_batch: got {per_batch}, expected 1 to {n}, the number of clusters"
            )
        self.per_batch = per_batch
        self._n_batches = groups_of_size(len(self._useful), per_batch, drop_last)
        if drop_last:
            check_batches(
                self._n_batches,
                f"{len(self._useful)} clusters with targets",
                f"clusters_per_batch={per_batch}",
            )

    @property
    def steps_per_epoch(self) -> int:
        return self._n_batches

    def chosen(self, epoch: int, i: int) -> np.ndarray:
        """Clusters of a batch, ascending."""
        order = Permutation(key(self.seed, Purpose.BATCH, epoch), len(self._useful))
        first = i * self.per_batch
        return self._useful[
            np.sort(order.item(np.arange(first, min(first + self.per_batch, order.n))))
        ]

    def batch(self, epoch: int, i: int) -> GraphView:
        p = self.partition
        chosen = self.chosen(epoch, i)
        inside = np.zeros(self._n_clusters, bool)
        inside[chosen] = True
        inside_edges = np.flatnonzero(inside[self._touched].all(axis=1))
        seeds = self.task.seeds(
            inside_edges,
            self._step(epoch, i),
            None if self._nodes is None else self._nodes.members(chosen),
        )
        core = inside[self.clusters]
        view = with_pairs(
            induced(
                p, k_hop_nodes(p, core, self.boundary_hops), self.layers, excluded=seeds.excluded
            ),
            seeds,
        )
        assert view.rows is not None
        node = {"train": p.node.read("train") & core} if "train" in p.node else {}
        if self.degrees == "view":
            node |= {
                name: _degrees(view, reverse, seeds.excluded)
                for name, reverse in (("in_degree", False), ("out_degree", True))
            }
        return replace(
            view, partition=p.overlay(node, {"weight": self._weight} if self.diagonal else {})
        )

    @cached_property
    def _weight(self) -> np.ndarray:
        """Edge weights with the diagonal enhanced, in storage order."""
        src, dst = self.partition.edge_ends()
        weight = self.partition.edge.read("weight")
        return np.where(src == dst, weight * (1 + self.diagonal), weight).astype(weight.dtype)


def _degrees(view: GraphView, reverse: bool, excluded: np.ndarray | None) -> np.ndarray:
    """In-degree (reverse: out-degree) of each master within the view, without excluded edges."""
    p = view.partition
    nodes = np.zeros(p.n_masters, bool)
    nodes[view.rows] = True
    sweep = induced(p, nodes, ["out" if reverse else "in"], excluded=excluded).levels[0].passes[0]
    counts = {
        MASTER: np.zeros(view.space.n, np.int64),
        MIRROR: np.zeros(sweep.receivers.plan.n_halo, np.int64),
    }
    for s in sweep.selections:
        counts[s.kinds[1]][s.row] += np.diff(s.ptr)
    columns = {"n": counts[MASTER]}
    sweep.receivers.to_masters_add({"n": counts[MIRROR]}, columns)
    degrees = np.zeros(p.n_masters, p.node.column("in_degree").dtype)
    degrees[view.rows] = columns["n"]
    return degrees
