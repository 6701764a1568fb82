"""Strategies that users write: each view is described by its targets, nodes, edges and weights.

A description is the same for any division of the graph: a mask has a place for each row of this
worker, and an array of ids is the same on all workers. The view is built from it by the code of the
other strategies. A description depends on the seed and on the number of the view alone, so views
can be made again, ahead, and by a run that resumes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np

from graphtheta.base.wording import shown
from graphtheta.errors import ConfigError

from ..partition.partition import Partition
from ..sampling.cluster_nodes import nodes_of
from ..view.expand import induced, k_hop_nodes, k_hop_view
from ..view.hop import Layers
from ..view.view import GraphView, global_view
from .strategy import Strategy, with_pairs
from .task import IMPORTANCE, NodeTask, Task


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What a view is made of. A mask, [n] bool, has a place for each of this worker's rows; an
    array of ids, [k] of integers, is the same on all workers, in any order.

    Attributes:
        targets: Training targets: a mask over ``task.ids``, or ids as there; None for all whose
            nodes are among ``nodes``.
        nodes: Nodes of the view, which is the subgraph that they induce: a mask over the masters,
            or ids; None for the neighbourhoods of the targets, of as many hops as the model has.
        hops: With ``nodes``, hops around them that are computed too, along edges in both
            directions.
        edges: Edges that messages may use: a mask over the edges of this worker in storage order,
            or ids; None for all.
        edge_weights: With ``nodes``, importance weight of each edge of this worker, by which sums
            multiply its messages, [n_local_edges] float; None if all are 1.
        loss_weights: Weight of each master of this worker in the loss, [n_masters] float, in a
            strategy with ``weighs_loss``: the loss of a view is the sum of the weighted losses of
            its targets, divided by the number of labels of all targets; with a user-defined loss,
            their weighted mean. None for the mean.
    """

    targets: np.ndarray | None = None
    nodes: np.ndarray | None = None
    hops: int = 0
    edges: np.ndarray | None = None
    edge_weights: np.ndarray | None = None
    loss_weights: np.ndarray | None = None


class OwnStrategy(Strategy):
    """The base class of strategies that users write.

    A subclass has a ``name`` and the methods ``n_batches`` and ``choose``. Keyword arguments of its
    constructor are options of the job. Whatever the constructor computes must follow from its
    arguments, because a run that resumes calls it again.

    Attributes:
        weighs_loss: Whether its batches have ``loss_weights``; for targets that are nodes.

    Raises:
        ConfigError: It weighs losses, and targets are not nodes.

    Collective: all ranks of the partition, here and in ``choose``.
    """

    weighs_loss: ClassVar[bool] = False

    def __init__(self, partition: Partition, layers: Layers, task: Task, seed: int = 0):
        super().__init__(partition, layers, task, seed)
        # views before each epoch, as far as they were counted
        self._before = [0]
        if self.weighs_loss:
            if not isinstance(task, NodeTask):
                raise ConfigError(
                    f"strategy={self.name} weighs the losses of nodes, and the targets of this task"
                    " are edges or links; choose another strategy, or give --task node"
                )
            self._labels = max(task.n_labels(), 1)
            # all views have the same columns
            self.partition = partition.overlay({IMPORTANCE: np.zeros(partition.n_masters)}, {})

    @abstractmethod
    def n_batches(self, epoch: int) -> int:
        """Number of batches of an epoch, at least 1; epochs may have different numbers. It sends no
        messages.
        """

    @abstractmethod
    def choose(self, epoch: int, i: int) -> Batch:
        """Batch i of an epoch. Batches are made in any order, and repeatedly.

        Collective: all ranks of the partition.
        """

    @property
    def steps_per_epoch(self) -> int:
        return self.views_of(0)

    def views_of(self, epoch: int) -> int:
        return self.views_before(epoch + 1) - self._before[epoch]

    def views_before(self, epoch: int) -> int:
        uncounted = range(len(self._before) - 1, epoch)
        if uncounted:
            for n in self._counted(uncounted):
                self._before.append(self._before[-1] + n)
        return self._before[epoch]

    def _counted(self, epochs: range) -> list[int]:
        """Number of views of some epochs, the same on all workers.

        Raises:
            ConfigError: ``n_batches`` returned no number, or another one than on another worker; on
                all ranks together.

        Collective: all ranks of the partition.
        """
        comm = self.partition.halo_comm
        with comm.agreed():
            numbers = [self.n_batches(epoch) for epoch in epochs]
            for epoch, n in zip(epochs, numbers, strict=True):
                if not _is_whole(n, 1):
                    raise ConfigError(
                        f"strategy={self.name}: n_batches({epoch}) returned {shown(n)}; expected an"
                        " integer of at least 1, the number of batches of the epoch"
                    )
        each = np.array(comm.all_gather([int(n) for n in numbers]))
        for epoch, of_ranks in zip(epochs, each.T, strict=True):
            self._refuse_different(f"n_batches({epoch})", "number", of_ranks.tolist())
        return each[0].tolist()

    def _refuse_different(self, call: str, what: str, of_ranks: list[Any]) -> None:
        """Refuse values that are not the same on all ranks.

        Args:
            call: The call that returned them.
            what: What a value is.
            of_ranks: The value of each rank.

        Raises:
            ConfigError: They differ.
        """
        other = next((rank for rank, x in enumerate(of_ranks) if x != of_ranks[0]), None)
        if other is not None:
            raise ConfigError(
                f"strategy={self.name}: {call} is another {what} on rank {other} than on rank 0;"
                " choose batches by seed, epoch, i and global ids alone, and draw with"
                " graphtheta.base.rng"
            )

    def makers(self, epoch: int, first: int, last: int) -> list[Callable[[], GraphView]]:
        # the work items of a pipeline, which are not the same on all workers at a time, only read
        self.views_of(epoch)
        return super().makers(epoch, first, last)

    def batch(self, epoch: int, i: int) -> GraphView:
        p = self.partition
        batch, everything = self._agreed(self.choose(epoch, i), epoch, i)
        nodes = None if batch.nodes is None else _mask(batch.nodes, p.masters)
        excluded = None if batch.edges is None else ~_mask(batch.edges, p.edge_gid)
        positions = self._positions(batch, nodes, f"batch {i} of epoch {epoch}")
        among = None
        if self.task.draws_nodes and nodes is not None and not everything:
            among = nodes_of(p, p.masters[nodes])
        step = self._step(epoch, i)
        seeds = self.task.seeds(positions, step, among)
        if seeds.excluded is not None:
            excluded = seeds.excluded if excluded is None else excluded | seeds.excluded
        if nodes is None:
            view = k_hop_view(p, seeds.nodes, self.layers, excluded=excluded, step=step)
        elif everything and excluded is None and batch.edge_weights is None:
            view = self._whole
        else:
            weights = batch.edge_weights
            view = induced(
                p,
                k_hop_nodes(p, nodes, batch.hops),
                self.layers,
                excluded=excluded,
                weights=None if weights is None else dict.fromkeys((False, True), weights),
            )
        columns: dict[str, Any] = {}
        if isinstance(self.task, NodeTask):
            columns["train"] = np.zeros(p.n_masters, bool)
            columns["train"][self.task.rows[positions]] = True
        if batch.loss_weights is not None:
            columns[IMPORTANCE] = batch.loss_weights / self._labels
        return replace(with_pairs(view, seeds), partition=p.overlay(columns, {}))

    @cached_property
    def _whole(self) -> GraphView:
        """The view of the whole graph, whose lists are kept between steps."""
        return global_view(self.partition, self.layers)

    def _agreed(self, batch: Any, epoch: int, i: int) -> tuple[Batch, bool]:
        """What ``choose`` returned, if it is a batch and the same on all workers; and whether it
        has all nodes of the graph.

        Raises:
            ConfigError: It is not; on all ranks together.

        Collective: all ranks of the partition.
        """
        comm = self.partition.halo_comm
        call = f"choose({epoch}, {i})"
        with comm.agreed():
            self._check(batch, f"strategy={self.name}: {call}")
            # views are made at the same time, and a user may write the next one into the same array
            batch = deepcopy(batch)
        nodes = batch.nodes
        everything = nodes is not None and (
            bool(nodes.all()) if nodes.dtype == bool else len(nodes) == self.partition.n_nodes
        )
        each = comm.all_gather((everything, _outline(batch)))
        self._refuse_different(call, "batch", [outline for _, outline in each])
        return batch, all(flag for flag, _ in each)

    def _positions(self, batch: Batch, nodes: np.ndarray | None, what: str) -> np.ndarray:
        """Positions in ``task.ids`` of this worker's targets of a batch, ascending, [k] int64.

        Raises:
            ConfigError: An id is that of no target, a target is outside of the nodes of the batch,
                or there is no target, nor a node; on all ranks together.

        Collective: all ranks of the partition.
        """
        task = self.task
        targets = batch.targets
        chosen = np.ones(len(task.ids), bool) if targets is None else _mask(targets, task.ids)
        counts = [np.count_nonzero(chosen), 0, 0]
        if nodes is not None:
            inside = task.at_nodes(nodes.astype(np.int64)).all(axis=1)
            counts[1] = np.count_nonzero(chosen & ~inside) if targets is not None else 0
            chosen = chosen & inside
        counts[2] = np.count_nonzero(chosen if nodes is None else nodes)
        n_targets, n_outside, size = self.partition.halo_comm.all_sum(np.array(counts)).tolist()
        where = f"strategy={self.name}: {what}"
        if targets is not None and targets.dtype != bool and n_targets < len(targets):
            raise ConfigError(
                f"{where} has {len(targets) - n_targets} target(s) that are no training targets of"
                " the graph; give ids that are in task.ids of some worker"
            )
        if n_outside:
            raise ConfigError(
                f"{where} has {n_outside} target(s) outside of its nodes; add their nodes, or leave"
                " targets out for all targets among the nodes"
            )
        if not size:
            raise ConfigError(
                f"{where} is empty: it has no {'targets' if nodes is None else 'nodes'} on any"
                " worker; let n_batches count batches that are not empty"
            )
        return np.flatnonzero(chosen)

    def _check(self, batch: Any, what: str) -> None:
        """Check what a user's method returned on this worker.

        Raises:
            ConfigError: It is no batch, or an array has another type or length.
        """
        if not isinstance(batch, Batch):
            raise ConfigError(f"{what} returned {shown(batch)}; return a gt.Batch")
        p = self.partition
        rows = {
            "targets": (len(self.task.ids), "target"),
            "nodes": (p.n_masters, "node"),
            "edges": (p.n_local_edges, "edge"),
            "edge_weights": (p.n_local_edges, "edge"),
            "loss_weights": (p.n_masters, "node"),
        }
        for name, (n, row) in rows.items():
            x = getattr(batch, name)
            if x is None:
                continue
            weights = name.endswith("weights")
            kinds = "f" if weights else "biu"
            if not isinstance(x, np.ndarray) or x.ndim != 1 or x.dtype.kind not in kinds:
                expected = (
                    f"a float for each {row} of this worker"
                    if weights
                    else f"a mask of this worker's {row}s, or {row} ids as integers"
                )
                got = (
                    f"an array of {x.dtype}, {list(x.shape)}"
                    if isinstance(x, np.ndarray)
                    else shown(x)
                )
                raise ConfigError(f"{what}: {name} is {got}; expected {expected}, in a 1-d array")
            if x.dtype.kind in "bf" and len(x) != n:
                raise ConfigError(
                    f"{what}: {name} has {len(x)} places, and this worker has {n} {row}s; give one"
                    " for each, in the order of the worker's rows"
                )
            if weights and not (np.isfinite(x).all() and (x >= 0).all()):
                raise ConfigError(f"{what}: {name} must be finite numbers of at least 0")
        if not _is_whole(batch.hops, 0):
            raise ConfigError(f"{what}: hops is {shown(batch.hops)}; expected 0 or more")
        if batch.nodes is None and (batch.hops or batch.edge_weights is not None):
            raise ConfigError(f"{what}: hops and edge_weights need nodes; give the batch nodes")
        if (batch.loss_weights is not None) != self.weighs_loss:
            raise ConfigError(
                f"{what}: loss_weights are given by all batches of a strategy with weighs_loss ="
                " True, and by no other; set this attribute of the class, or leave them out"
            )
        self._check_ids(batch, what)

    def _check_ids(self, batch: Batch, what: str) -> None:
        """Check that ids are those of the graph.

        Raises:
            ConfigError: They are not.
        """
        p = self.partition
        limits = {"nodes": p.n_nodes, "edges": p.n_edges, "targets": None}
        for name, n in limits.items():
            x = getattr(batch, name)
            if x is None or x.dtype.kind == "b" or not len(x):
                continue
            if n is not None and (x.min() < 0 or x.max() >= n):
                raise ConfigError(
                    f"{what}: {name} has ids from {x.min()} to {x.max()}, outside of the graph,"
                    f" which has {n} {name}; give ids from 0 to {n - 1}"
                )
            if len(np.unique(x)) < len(x):
                raise ConfigError(f"{what}: {name} has an id twice; give each once")


def _is_whole(x: Any, least: int) -> bool:
    """Whether x is an integer of at least a number."""
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool) and bool(x >= least)


def _mask(chosen: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Which of some rows are chosen, [n] bool.

    Args:
        chosen: A mask of the rows, or ids.
        ids: Ids of the rows, [n] int64.
    """
    return chosen if chosen.dtype == bool else np.isin(ids, chosen)


def _outline(batch: Batch) -> list[Any]:
    """What must be the same of a batch on all workers: ids, and which arrays there are."""
    outline: list[Any] = []
    for field in fields(batch):
        x = getattr(batch, field.name)
        if isinstance(x, np.ndarray) and x.dtype.kind in "iu":
            ids = np.sort(x.astype(np.int64))
            outline.append(blake2b(ids.tobytes(), digest_size=8).hexdigest())
        else:
            outline.append(x.dtype.kind if isinstance(x, np.ndarray) else x)
    return outline
