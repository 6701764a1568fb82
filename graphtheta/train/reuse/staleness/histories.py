"""What strategies have in common whose views read results of layers from histories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.sampler import Sampler, Timed
from graphtheta.engine.store.history import History
from graphtheta.engine.strategy.task import NodeTask, Task
from graphtheta.errors import ConfigError
from graphtheta.train.reuse.staleness.approximate import Approximate, StateArrays
from graphtheta.train.reuse.staleness.mirror_rows import NO_LIMIT
from graphtheta.train.reuse.staleness.reads import Reads


class HistoryBatches(Approximate):
    """A strategy whose views read results of layers from histories, by number of the layer."""

    partition: Partition
    _histories: Mapping[Any, History]
    _reads: Reads

    def settle(self) -> None:
        return

    def held(self) -> StateArrays:
        state = {
            f"{key}/{name}": x
            for key, history in self._histories.items()
            for name, x in history.state().items()
        }
        return {**state, **super().held()}

    def hold(self, state: Mapping[str, np.ndarray]) -> None:
        super().hold(state)
        for key, history in self._histories.items():
            path = f"{key}/"
            history.load_state(
                {name.removeprefix(path): x for name, x in state.items() if name.startswith(path)}
            )

    def figures(self) -> dict[str, float]:
        return self._reads.figures(self.partition)


def check_limits(policy: str, limits: Mapping[str, tuple[int, int]]) -> None:
    """Check options of a policy that are limits, or -1 for none.

    Args:
        policy: Its name.
        limits: Value and least value of each option.

    Raises:
        ConfigError: One is out of range.
    """
    for option, (value, least) in limits.items():
        if value < least and value != NO_LIMIT:
            raise ConfigError(
                f"history={policy}: {option} is {value}; expected at least {least}, or -1 for no"
                " limit"
            )


def check_targets(policy: str, task: Task, sampler: Sampler | None = None) -> None:
    """Check that values of one batch can be read by others.

    Args:
        policy: Name of the policy.
        task: Has the targets.
        sampler: Chooses the edges of a batch.

    Raises:
        ConfigError: The targets are not nodes, or the sampler limits edges by their times.
    """
    if not isinstance(task, NodeTask):
        raise ConfigError(
            f"history={policy} stores values of nodes in batches of nodes, and the targets of this"
            " task are edges or links; give --history none, or another --task"
        )
    if isinstance(sampler, Timed):
        raise ConfigError(
            f"history={policy}: values depend on the time of the target with"
            f" sampler={sampler.name}, so they cannot be read by other batches; choose another"
            " --sampler, or drop --history"
        )
