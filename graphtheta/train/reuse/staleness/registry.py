"""Halo exchanges and histories by name, and by the text that describes them."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from graphtheta.base.registry import Registry, named_class
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.strategy.strategy import Strategy
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.view.hop import Layers
from graphtheta.train.reuse.staleness.bns import Bns
from graphtheta.train.reuse.staleness.exchange import HaloExchange
from graphtheta.train.reuse.staleness.fresh import Fresh
from graphtheta.train.reuse.staleness.gas import Gas
from graphtheta.train.reuse.staleness.hec import Hec
from graphtheta.train.reuse.staleness.pipegcn import PipeGcn
from graphtheta.train.reuse.staleness.skip import Skip

EXACT, NONE = "exact", "none"


class HistoryPolicy(Protocol):
    """How mini-batches use values of earlier batches.

    Attributes:
        name: Name in a job.
        strategy: The strategy of jobs that it replaces: "mini" or "cluster".
        modes: The modes of jobs in which it works: "cooperative", "independent".
        one_by_one: Why its batches cannot be expanded ahead, in macrobatches; empty if they can.
    """

    name: ClassVar[str]
    strategy: ClassVar[str]
    modes: ClassVar[tuple[str, ...]]
    one_by_one: ClassVar[str]

    def open(
        self, partition: Partition, layers: Layers, task: Task, seed: int, **arguments: Any
    ) -> Strategy:
        """A strategy that is ``Approximate``; arguments are those of the strategy that it replaces.

        A policy with mode "independent" also gets ``independent``, whether workers compute batches
        of their own; its strategy then has ``alone``.

        Collective: all ranks of the partition.
        """


# the constructor of an exchange receives ``seed`` if it names it
EXCHANGES: Registry[type[HaloExchange]] = Registry(
    "halo exchange", named_class(method="view"), (EXACT,), (Bns, PipeGcn, Skip)
)
HISTORIES: Registry[type[HistoryPolicy]] = Registry(
    "history", named_class(method="open"), (NONE,), (Fresh, Gas, Hec)
)


def make_exchange(text: str, seed: int) -> HaloExchange | None:
    """The halo exchange that a text describes; None for the exact one.

    Args:
        text: ``NAME:field=value,...``, with a name in ``EXCHANGES`` or FILE.py:NAME.
        seed: Seed of draws.

    Raises:
        ConfigError: Unknown name, unknown option, or a value that is not allowed.
    """
    return None if text == EXACT else EXCHANGES.make(text, "exchange", {"seed": seed})


def make_history(text: str) -> HistoryPolicy | None:
    """The history policy that a text describes, as for ``make_exchange``; None for none."""
    return None if text == NONE else HISTORIES.make(text, "history", {})
