"""Historical embeddings in cluster batches: neighbours outside of a batch are read from histories.

A batch computes its own nodes in every layer. Their neighbours outside of it are not expanded: the
first layer reads their features, and every later layer the values that they had when a batch
computed them last, or zeros before that. No gradient flows into these values. Each worker stores
the values of its own masters; its mirrors get them by the ordinary move.

Source: GNNAutoScale, https://arxiv.org/abs/2106.05609
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from graphtheta.base.rng import Permutation, Purpose, key
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.store.history import History
from graphtheta.engine.strategy.strategy import ClusterBatch, Strategy
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.view.expand import k_hop_nodes, k_hop_view
from graphtheta.engine.view.hop import Hop, Layers, depth, hops
from graphtheta.engine.view.view import GraphView
from graphtheta.errors import ConfigError
from graphtheta.ops.autodiff.space import RowSpace
from graphtheta.ops.autodiff.tape import Var, current
from graphtheta.train.reuse.staleness.histories import HistoryBatches, check_targets
from graphtheta.train.reuse.staleness.reads import Reads


def extended(out: Var, more: np.ndarray, space: RowSpace) -> Var:
    """The result of a layer with further rows, constants of the backward pass.

    Args:
        out: The result, of the first rows of a view.
        more: Values of the rows that follow, to the last row of the view.
        space: The rows of the view.
    """
    n = out.shape[0]
    whole = Var(np.concatenate((out.value, more)), space)
    current().add("history", [out], [whole], lambda gs: [gs[0][:n]])
    return whole


class Gas:
    """Histories of all nodes, for cluster batches.

    Args:
        hops: Neighbours within so many hops are computed with a batch; as many as the model has
            hops, less one, are exact.

    Raises:
        ConfigError: The number is negative.
    """

    name: ClassVar = "gas"
    strategy: ClassVar = "cluster"
    modes: ClassVar[tuple[str, ...]] = ("cooperative",)
    one_by_one: ClassVar = ""

    def __init__(self, hops: int = 0):
        if hops < 0:
            raise ConfigError(f"history=gas: hops is {hops}; expected at least 0")
        self.hops = hops

    def open(
        self, partition: Partition, layers: Layers, task: Task, seed: int, **arguments: Any
    ) -> Strategy:
        """The strategy; arguments are those of ``ClusterBatch``."""
        return GasBatch(partition, layers, task, seed, n_hops=self.hops, **arguments)


class GasBatch(ClusterBatch, HistoryBatches):
    """Clusters with histories; clusters without targets are divided among the batches, so that each
    node is computed once an epoch.

    Args:
        clusters, per_batch, drop_last: As for ``ClusterBatch``.
        n_hops: ``Gas.hops``.

    Raises:
        ConfigError: The targets are not nodes.

    Attributes:
        hops: As the argument, at most as many as make it exact.
    """

    knobs = ("hops",)

    def __init__(
        self,
        partition: Partition,
        layers: Layers,
        task: Task,
        seed: int = 0,
        *,
        clusters: np.ndarray,
        per_batch: int = 1,
        n_hops: int = 0,
        drop_last: bool = False,
    ):
        super().__init__(
            partition,
            layers,
            task,
            seed,
            clusters=clusters,
            per_batch=per_batch,
            drop_last=drop_last,
        )
        check_targets(Gas.name, task)
        self.hops = min(n_hops, max(depth(layers) - 1, 0))
        self._others = np.setdiff1d(np.arange(self._n_clusters), self._useful)
        n = partition.n_masters
        read = [number for number, hop in enumerate(hops(layers)) if hop.from_end]
        self._histories = {number: History(n, n) for number in read}
        self._reads = Reads(read)

    def chosen(self, epoch: int, i: int) -> np.ndarray:
        n = len(self._others)
        steps = self.steps_per_epoch
        order = Permutation(key(self.seed, Purpose.BATCH, epoch, 1), n)
        return np.sort(
            np.append(
                super().chosen(epoch, i),
                self._others[order.item(np.arange(i * n // steps, (i + 1) * n // steps))],
            )
        )

    def batch(self, epoch: int, i: int) -> GraphView:
        p = self.partition
        core = self._core(epoch, i)
        supersteps = hops(self.layers)
        along = {hop.direction: Hop(hop.direction, 0) for hop in supersteps}
        view = k_hop_view(p, k_hop_nodes(p, core, self.hops), list(along.values()))
        levels = dict(zip(along, view.levels, strict=True))
        overlay = p.overlay({"train": p.node.read("train") & core}, {})
        assert view.rows is not None
        return replace(
            view,
            partition=overlay,
            levels=[levels[hop.direction] for hop in supersteps],
            revise=partial(self._revise, view.rows, view.space, self._step(epoch, i)),
        )

    def _core(self, epoch: int, i: int) -> np.ndarray:
        """Mask of the masters in the clusters of a batch."""
        inside = np.zeros(self._n_clusters, bool)
        inside[self.chosen(epoch, i)] = True
        core: np.ndarray = inside[self.clusters]
        return core

    def _revise(self, rows: np.ndarray, space: RowSpace, step: int, number: int, out: Var) -> Var:
        history = self._histories.get(number)
        if history is None:
            return out
        inside, outside = np.split(rows, [out.shape[0]])
        lines = history.find(outside)
        stored = lines >= 0
        more = np.zeros((len(outside), *out.shape[1:]), out.dtype)
        if stored.any():
            more[stored] = history.read(lines[stored])
        self._reads.add(number, len(outside), step - history.steps(lines[stored]))
        history.store(inside, out.value, step)
        return extended(out, more, space)

    def exact(self, epoch: int, i: int) -> GraphView:
        return k_hop_view(
            self.partition, self.partition.node.read("train") & self._core(epoch, i), self.layers
        )

    def tighten(self) -> str:
        if self.hops >= depth(self.layers) - 1:
            return ""
        self.hops += 1
        return f"hops={self.hops}"
