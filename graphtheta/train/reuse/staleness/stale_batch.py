"""The strategy of global batches whose halo rows are sampled or stale."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.strategy.strategy import GlobalBatch
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.view.expand import all_passes
from graphtheta.engine.view.hop import Layers, hops
from graphtheta.engine.view.view import GraphView
from graphtheta.errors import ConfigError
from graphtheta.train.reuse.staleness.approximate import Approximate, StateArrays
from graphtheta.train.reuse.staleness.exchange import HaloExchange


def check_senders(partition: Partition, layers: Layers, by: str) -> None:
    """Check that a worker has all edges into its masters, in the direction of the layers.

    Args:
        by: The key that needs it, for the message.

    Raises:
        ConfigError: Messages to some masters are summed on other workers.
    """
    for relation, reverse in all_passes(partition, hops(layers)).values():
        if relation.served(reverse)[1].plan.anywhere:
            given, wanted = ("against", "1d-src") if reverse else ("along", "1d-dst")
            raise ConfigError(
                f"{by} reuses rows that are read by the workers of receiving nodes, but messages"
                f" {given} edges are summed on other workers; give --partitioner {wanted} and one"
                " --direction"
            )


class StaleBatch(GlobalBatch, Approximate):
    """Every node and edge in one step an epoch, with a halo exchange.

    Args:
        exchange: Exchanges the halo rows.

    Raises:
        ConfigError: The task excludes edges, or messages are summed at mirrors.
    """

    def __init__(
        self,
        partition: Partition,
        layers: Layers,
        task: Task,
        seed: int = 0,
        *,
        exchange: HaloExchange,
    ):
        super().__init__(partition, layers, task, seed)
        if task.excludes:
            raise ConfigError(
                f"exchange={exchange.name} needs the same edges in every epoch, but a link task"
                " excludes its targets; give --exchange exact, or another --task"
            )
        check_senders(partition, layers, f"exchange={exchange.name}")
        self.exchange = exchange

    def batch(self, epoch: int, i: int) -> GraphView:
        return self.exchange.view(self.exact(epoch, i), epoch)

    def exact(self, epoch: int, i: int) -> GraphView:
        return super().batch(epoch, i)

    def settle(self) -> None:
        self.exchange.settle()

    def held(self) -> StateArrays:
        return self.exchange.held()

    def hold(self, state: Mapping[str, np.ndarray]) -> None:
        self.exchange.hold(state)

    def figures(self) -> dict[str, float]:
        comm = self.partition.halo_comm
        own = self.exchange.figures()
        mean = comm.all_sum(np.array(list(own.values()))) / comm.size
        return dict(zip(own, mean.tolist(), strict=True))

    def tighten(self) -> str:
        return self.exchange.tighten()
