"""Node-set samplers: they choose the nodes of a batch, which is the subgraph that these induce."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from inspect import isclass
from typing import Any, ClassVar, TypeGuard

import numpy as np

from graphtheta.errors import ConfigError

from ..partition.partition import Partition

# the nodes of a batch, given its number: a mask of this worker's masters, [n_masters] bool; every
# rank of the partition calls it for the same batches in the same order
NodeSets = Callable[[int], np.ndarray]
# masks of several sets that are drawn together, [n_sets, n_masters], have at most so many entries
# on all workers
MASKS = 1 << 26


def several(sets: NodeSets, batches: range) -> np.ndarray:
    """The node sets of some batches, [len(batches), n_masters] bool; at the same time if they have
    a method ``several``.

    Collective: all ranks of the partition.
    """
    together = getattr(sets, "several", None)
    return (
        np.stack([sets(i) for i in batches]) if together is None else np.asarray(together(batches))
    )


@dataclass(frozen=True, kw_only=True)
class NodeSetSampler(ABC):
    """Chooses the nodes of each batch.

    The choice must be a function of (seed, number of the batch, global ids), so that it is the same
    for every number of workers and every partition.

    Attributes:
        seed: Seed of the draws.
        batches: Batches of an epoch; 0 for as many as have room for every node once.
        normalise: Weight edges and losses by the inverse of how often they are sampled.
        coverage: How often a node is drawn, on average, to estimate these frequencies.
        name: Name in a job.

    Raises:
        ConfigError: An option is out of range.
    """

    name: ClassVar[str]
    # the options that must be at least 1
    sizes: ClassVar[tuple[str, ...]] = ()

    seed: int = 0
    batches: int = 0
    normalise: bool = True
    coverage: float = 50.0

    def __post_init__(self) -> None:
        least = {"batches": 0} | dict.fromkeys(self.sizes, 1)
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ConfigError(
                    f"{self.name}: {name} is {getattr(self, name)}, expected at least {low}"
                )
        if not 0 < self.coverage < float("inf"):
            raise ConfigError(
                f"{self.name}: coverage is {self.coverage}, expected a finite number above 0"
            )

    @property
    @abstractmethod
    def nodes_per_batch(self) -> int:
        """Largest number of nodes of a batch."""

    @abstractmethod
    def open(self, partition: Partition) -> NodeSets:
        """The node sets on a graph.

        Collective: all ranks of the partition.
        """


def is_node_set(x: Any) -> TypeGuard[type[NodeSetSampler]]:
    """Whether x is a class of node-set samplers."""
    return isclass(x) and issubclass(x, NodeSetSampler)
