"""Historical embeddings of nodes whose values are stable: they are read in place of being computed.

A batch expands its targets hop by hop, but not the nodes of which a layer has a stored value: these
are leaves of that layer, and no gradient flows into them. The gradient at a value tells how much
the loss depends on it. After the backward pass the nodes with small gradients, computed or read,
count as stable: computed values are stored, and those read stay. The others are not stored, or
dropped, so that the next batch computes them. Each worker stores the values of its own masters.

Source: FreshGNN, https://arxiv.org/abs/2301.07482 (sections 4.1 and 4.2)
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.sampler import Sampler
from graphtheta.engine.store.history import NEVER, History
from graphtheta.engine.strategy.strategy import MiniBatch, Strategy
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.engine.view.hop import Layers, depth, hops
from graphtheta.engine.view.view import GraphView
from graphtheta.errors import ConfigError
from graphtheta.ops.autodiff.tape import Var, current
from graphtheta.train.reuse.staleness.histories import (
    HistoryBatches,
    check_limits,
    check_targets,
)
from graphtheta.train.reuse.staleness.mirror_rows import NO_LIMIT
from graphtheta.train.reuse.staleness.pruned import Pruned
from graphtheta.train.reuse.staleness.reads import Reads

# a smaller share becomes 0 when it is tightened
SMALLEST = 0.05


class Fresh:
    """Histories of stable nodes, for mini-batches.

    Args:
        share: Share of the nodes of a batch and layer that count as stable, those with the smallest
            gradients; 0 stores nothing, which is exact.
        ls: Most steps for which a value is read; -1 for no limit, 0 is exact.
        lines: Most values that a worker stores of a layer, of which the oldest are replaced first;
            -1 for no limit.

    Raises:
        ConfigError: An option is out of range.
    """

    name: ClassVar = "fresh"
    strategy: ClassVar = "mini"
    modes: ClassVar[tuple[str, ...]] = ("cooperative",)
    one_by_one: ClassVar = (
        "which nodes a batch expands depends on what the batches before it stored"
    )

    def __init__(self, share: float = 0.9, ls: int = 200, lines: int = NO_LIMIT):
        if not 0 <= share <= 1:
            raise ConfigError(f"history=fresh: share is {share}; expected 0 to 1")
        check_limits(self.name, {"ls": (ls, 0), "lines": (lines, 1)})
        self.share = share
        self.ls = ls
        self.lines = lines

    def open(
        self, partition: Partition, layers: Layers, task: Task, seed: int, **arguments: Any
    ) -> Strategy:
        """The strategy; arguments are those of ``MiniBatch``."""
        return FreshBatch(partition, layers, task, seed, policy=self, **arguments)


class FreshBatch(MiniBatch, HistoryBatches):
    """Batches of targets that do not expand nodes whose values are stored.

    Args:
        policy: Share, age and size.
        batch_size, sampler, drop_last: As for ``MiniBatch``.

    Raises:
        ConfigError: The targets are not nodes, or the sampler limits edges by time.
    """

    knobs = ("share",)

    def __init__(
        self,
        partition: Partition,
        layers: Layers,
        task: Task,
        seed: int = 0,
        *,
        policy: Fresh,
        batch_size: int,
        sampler: Sampler | None = None,
        drop_last: bool = False,
    ):
        check_targets(Fresh.name, task, sampler)
        super().__init__(
            partition,
            layers,
            task,
            seed,
            batch_size=batch_size,
            sampler=sampler,
            drop_last=drop_last,
        )
        n = partition.n_masters
        self.share = policy.share
        self._ls = policy.ls
        self._supersteps = hops(layers)
        read = [number for number, hop in enumerate(self._supersteps) if hop.from_end]
        self._histories = {
            number: History(n, n if policy.lines == NO_LIMIT else policy.lines) for number in read
        }
        self._reads = Reads(read)

    def batch(self, epoch: int, i: int) -> GraphView:
        step = self._step(epoch, i)
        # by number of hops until the end
        usable = [self._usable(from_end, step) for from_end in range(depth(self.layers))]
        nodes = self.task.seeds(self._order.own(epoch, i), step).nodes
        view = k_hop_view(
            self.partition,
            nodes,
            self.layers,
            sampler=Pruned(self.sampler, usable[::-1].__getitem__),
            step=step,
        )
        assert view.rows is not None
        return replace(view, revise=partial(self._revise, view.rows, usable, step))

    def _usable(self, from_end: int, step: int) -> np.ndarray:
        """Mask of the masters whose results of all layers of a hop are stored and not too old."""
        masters = np.arange(self.partition.n_masters)
        oldest = NEVER + 1 if self._ls == NO_LIMIT else step - self._ls
        usable = np.full(len(masters), from_end > 0)
        for number, history in self._histories.items():
            if self._supersteps[number].from_end == from_end:
                usable &= history.find(masters, oldest) >= 0
        return usable

    def exact(self, epoch: int, i: int) -> GraphView:
        return super().batch(epoch, i)

    def _revise(
        self, rows: np.ndarray, usable: list[np.ndarray], step: int, number: int, out: Var
    ) -> Var:
        """Replace the results of a layer that are stored; those that are stable are stored by the
        backward pass.
        """
        history = self._histories.get(number)
        if history is None:
            return out
        rows = rows[: out.shape[0]]
        read = usable[self._supersteps[number].from_end][rows]
        lines = history.find(rows[read])
        value = out.value.copy()
        if len(lines):
            value[read] = history.read(lines)
        self._reads.add(number, len(rows), step - history.steps(lines))
        result = Var(value, out.space)

        def vjp(gs: list[Any]) -> list[Any]:
            self._judge(
                history=history, rows=rows, read=read, value=value, gradient=gs[0], step=step
            )
            own = gs[0].copy()
            own[read] = 0
            return [own]

        current().add("history", [out], [result], vjp)
        return result

    def _judge(
        self,
        history: History,
        rows: np.ndarray,
        read: np.ndarray,
        value: np.ndarray,
        gradient: np.ndarray,
        step: int,
    ) -> None:
        """Store the values that count as stable, and drop those that were read and do not.

        Args:
            rows: Masters of the layer's results, [n].
            read: Which of them were read, [n] bool.
            value, gradient: Of these results, [n, ...].

        Collective: all ranks of the partition.
        """
        size = (
            np.linalg.norm(gradient.reshape(len(rows), -1), axis=1)
            if len(rows)
            else np.zeros(0, gradient.dtype)
        )
        everywhere = np.sort(np.concatenate(self.partition.halo_comm.all_gather(size)))
        n = int(self.share * len(everywhere))
        stable = size <= everywhere[n - 1] if n else np.zeros(len(rows), bool)
        history.drop(rows[read & ~stable])
        new = stable & ~read
        history.store(rows[new], value[new], step)

    def tighten(self) -> str:
        if not self.share:
            return ""
        self.share = self.share / 2 if self.share > SMALLEST else 0.0
        return f"share={self.share:g}"
